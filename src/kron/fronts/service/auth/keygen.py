"""Key pairs: a private key to sign tokens with, and the public one that a service checks them by."""

import hashlib
import json
from typing import NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from kron.core.errors import InvalidOptionError
from kron.fronts.service.auth.key import LEAST_RSA_BITS

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey
ALGORITHMS = ("EdDSA", "ES256", "RS256")
RSA_BITS, RSA_EXPONENT = 3072, 65_537
NAME_LENGTH = 16


class Pair(NamedTuple):
    """A private key, the algorithm it is for, and its name in the set of public keys."""

    private: PrivateKey
    algorithm: str
    name: str

    @property
    def pem(self) -> str:
        """Return the private key as text."""
        text = self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return text.decode()

    @property
    def jwks(self) -> dict[str, object]:
        """Return the public key as a set of keys."""
        named = {"kid": self.name, "alg": self.algorithm, "use": "sig"}
        return {"keys": [{**_public_of(self.private), **named}]}


def new_pair(algorithm: str) -> Pair:
    """Return new keys."""
    key: PrivateKey
    match algorithm:
        case "EdDSA":
            key = Ed25519PrivateKey.generate()
        case "ES256":
            key = generate_private_key(SECP256R1())
        case "RS256":
            key = generate_rsa_key(public_exponent=RSA_EXPONENT, key_size=RSA_BITS)
        case _:
            reason = f"use {', '.join(ALGORITHMS)}"
            raise InvalidOptionError(option="--algorithm", value=algorithm, reason=reason)
    return _pair_of(key, algorithm)


def read_pair(text: bytes) -> Pair:
    """Return the keys of a private key's text; what is wrong with it is said without quoting it."""
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
        case RSAPrivateKey() if key.key_size >= LEAST_RSA_BITS:
            return _pair_of(key, "RS256")
    reason = f"must be Ed25519, P-256, or RSA with {LEAST_RSA_BITS} bits or more"
    raise InvalidOptionError(option="--key", value="...", reason=reason)


def _pair_of(key: PrivateKey, algorithm: str) -> Pair:
    public = json.dumps(_public_of(key), sort_keys=True)
    return Pair(key, algorithm, hashlib.sha256(public.encode()).hexdigest()[:NAME_LENGTH])


def _public_of(key: PrivateKey) -> dict[str, object]:
    match key:
        case RSAPrivateKey():
            text = RSAAlgorithm.to_jwk(key.public_key())
        case EllipticCurvePrivateKey():
            text = ECAlgorithm.to_jwk(key.public_key())
        case _:
            text = OKPAlgorithm.to_jwk(key.public_key())
    document: dict[str, object] = json.loads(text)
    return {name: value for name, value in document.items() if name != "key_ops"}
