"""Keys: public keys and secrets that verify tokens, and key pairs that sign them.

Each key is valid for one algorithm only, so that no key can be used with a weaker one.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from kron.core.errors import InputError, InvalidOptionError
from kron.core.redaction import redact_passwords

# The shortest secret, in bytes: the size of an HS256 digest (RFC 7518: 3.2).
MIN_SECRET = 32
MIN_RSA_BITS = 2048
MAX_KEYS = 64
# The algorithm of each key type and curve.
ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}
SHARED_ALGORITHM = "HS256"
# How key pairs are generated.
PAIR_ALGORITHMS = ("EdDSA", "ES256", "RS256")
RSA_BITS, RSA_EXPONENT = 3072, 65_537
KEY_ID_LENGTH = 16
PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey


class Key(NamedTuple):
    """A verification key: its id in token headers if it has one, and its algorithm."""

    name: str | None
    algorithm: str
    material: PyJWK | bytes


class InvalidKeysError(InputError):
    """The verification keys of a source cannot be used."""

    code = "invalid_keys"

    def __init__(self, *, source: str, reason: str) -> None:
        place = redact_passwords(source)
        super().__init__(f'Invalid keys in "{place}": {reason}', source=place, reason=reason)


def secret_key(secret: str) -> Key:
    """Return the verification key of a shared secret."""
    material = secret.encode()
    if len(material) < MIN_SECRET:
        raise InvalidKeysError(source="jwt_secret", reason=f"a secret has at least {MIN_SECRET} bytes")
    return Key(None, SHARED_ALGORITHM, material)


def keys_of(text: str | bytes, *, source: str) -> tuple[Key, ...]:
    """Return the public keys of a JWK set; key types without a supported algorithm are ignored."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise InvalidKeysError(source=source, reason="not JSON") from cause
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise InvalidKeysError(source=source, reason=f'it needs a list "keys" of at most {MAX_KEYS}')
    parsed = [_parse_key(entry, source) for entry in listed if isinstance(entry, dict)]
    keys = tuple(key for key in parsed if key is not None)
    if not keys:
        raise InvalidKeysError(source=source, reason="it has no key for RS256, ES256 or EdDSA")
    return keys


def _parse_key(entry: Mapping[str, object], source: str) -> Key | None:
    algorithm = ALGORITHMS.get((str(entry.get("kty")), _text(entry.get("crv"))))
    if algorithm is None or entry.get("use", "sig") != "sig" or entry.get("alg", algorithm) != algorithm:
        return None
    if "d" in entry:
        raise InvalidKeysError(source=source, reason="it contains a private key; list public keys only")
    try:
        material = PyJWK(dict(entry), algorithm)
    except (PyJWTError, ValueError, TypeError) as cause:
        raise InvalidKeysError(source=source, reason="a key is malformed") from cause
    if isinstance(material.key, RSAPublicKey) and material.key.key_size < MIN_RSA_BITS:
        raise InvalidKeysError(source=source, reason=f"an RSA key has at least {MIN_RSA_BITS} bits")
    return Key(_text(entry.get("kid")), algorithm, material)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# --- key pairs -----------------------------------------------------------------------------------


class KeyPair(NamedTuple):
    """A private key, its algorithm, and its id in the set of public keys."""

    private: PrivateKey
    algorithm: str
    name: str

    @property
    def pem(self) -> str:
        """Return the private key as PEM."""
        text = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return text.decode()

    @property
    def jwks(self) -> dict[str, object]:
        """Return a JWK set with the public key."""
        header = {"kid": self.name, "alg": self.algorithm, "use": "sig"}
        return {"keys": [{**_public_jwk(self.private), **header}]}


def new_pair(algorithm: str) -> KeyPair:
    """Generate a key pair."""
    key: PrivateKey
    match algorithm:
        case "EdDSA":
            key = Ed25519PrivateKey.generate()
        case "ES256":
            key = generate_private_key(SECP256R1())
        case "RS256":
            key = generate_rsa_key(public_exponent=RSA_EXPONENT, key_size=RSA_BITS)
        case _:
            reason = f"use {', '.join(PAIR_ALGORITHMS)}"
            raise InvalidOptionError(option="--algorithm", value=algorithm, reason=reason)
    return _pair_of(key, algorithm)


def read_pair(text: bytes) -> KeyPair:
    """Return the key pair of a PEM text; errors do not quote it."""
    try:
        key = load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as cause:
        reason = "must be a private key as PEM, without a password"
        raise InvalidOptionError(option="--key", value="...", reason=reason) from cause
    match key:
        case Ed25519PrivateKey():
            return _pair_of(key, "EdDSA")
        case EllipticCurvePrivateKey() if isinstance(key.curve, SECP256R1):
            return _pair_of(key, "ES256")
        case RSAPrivateKey() if key.key_size >= MIN_RSA_BITS:
            return _pair_of(key, "RS256")
    reason = f"must be Ed25519, P-256, or RSA with {MIN_RSA_BITS} bits or more"
    raise InvalidOptionError(option="--key", value="...", reason=reason)


def _pair_of(key: PrivateKey, algorithm: str) -> KeyPair:
    public = json.dumps(_public_jwk(key), sort_keys=True)
    return KeyPair(key, algorithm, hashlib.sha256(public.encode()).hexdigest()[:KEY_ID_LENGTH])


def _public_jwk(key: PrivateKey) -> dict[str, object]:
    match key:
        case RSAPrivateKey():
            text = RSAAlgorithm.to_jwk(key.public_key())
        case EllipticCurvePrivateKey():
            text = ECAlgorithm.to_jwk(key.public_key())
        case _:
            text = OKPAlgorithm.to_jwk(key.public_key())
    document: dict[str, object] = json.loads(text)
    return {name: value for name, value in document.items() if name != "key_ops"}
