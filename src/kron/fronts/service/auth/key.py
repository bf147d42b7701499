"""Keys that tokens are signed with. Each is good for one algorithm only, so none can pass for another."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from kron.core.errors import InputError
from kron.core.redaction import NO_SECRETS

# The shortest secret, in bytes: as long as what HS256 makes of it.
LEAST_SECRET = 32
LEAST_RSA_BITS = 2048
MAX_KEYS = 64
# Which algorithm a kind of key is for; a curve stands beside its kind.
ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
SHARED_ALGORITHM = "HS256"


class Key(NamedTuple):
    """A key, its name in a token's header if it has one, and the algorithm it is for."""

    name: str | None
    algorithm: str
    material: PyJWK | bytes


class InvalidKeysError(InputError):
    """The keys that tokens are to be checked with cannot be used."""

    code = "invalid_keys"

    def __init__(self, *, source: str, reason: str) -> None:
        place = NO_SECRETS.hide(source)
        super().__init__(f'The keys of "{place}" cannot be used: {reason}', source=place, reason=reason)


def secret_key(secret: str) -> Key:
    """Return the key that a shared secret is."""
    material = secret.encode()
    if len(material) < LEAST_SECRET:
        raise InvalidKeysError(source="jwt_secret", reason=f"a secret has {LEAST_SECRET} bytes at least")
    return Key(None, SHARED_ALGORITHM, material)


def keys_of(text: str | bytes, *, source: str) -> tuple[Key, ...]:
    """Return the public keys of a JWK set; kinds that Kron does not use are passed over."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise InvalidKeysError(source=source, reason="it is not JSON") from cause
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise InvalidKeysError(source=source, reason=f'it has no list "keys" of at most {MAX_KEYS}')
    keys = [_key_of(entry, source) for entry in listed if isinstance(entry, dict)]
    found = tuple(key for key in keys if key is not None)
    if not found:
        raise InvalidKeysError(source=source, reason="it has no key for RS256, ES256 or EdDSA")
    return found


def _key_of(entry: Mapping[str, object], source: str) -> Key | None:
    algorithm = ALGORITHMS.get((str(entry.get("kty")), _text(entry.get("crv"))))
    if algorithm is None or entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    if "d" in entry:
        raise InvalidKeysError(source=source, reason="it holds a private key; only public ones belong there")
    try:
        material = PyJWK(dict(entry), algorithm)
    except (PyJWTError, ValueError, TypeError) as cause:
        raise InvalidKeysError(source=source, reason="one of them is malformed") from cause
    if isinstance(material.key, RSAPublicKey) and material.key.key_size < LEAST_RSA_BITS:
        raise InvalidKeysError(source=source, reason=f"an RSA key has {LEAST_RSA_BITS} bits at least")
    return Key(_text(entry.get("kid")), algorithm, material)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
