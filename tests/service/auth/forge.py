"""Keys and tokens for tests, valid and invalid."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt import algorithms

from kron.fronts.service.auth.token import make_token

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECRET = "a secret that is long enough to be one"
AUDIENCE, ISSUER = "kron", "https://issuer.test"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def private_key(algorithm: str, number: int = 0) -> PrivateKey:
    """Return a key; another number is another key."""
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def pem(algorithm: str, number: int = 0) -> str:
    """Return a private key as PEM."""
    return (
        private_key(algorithm, number)
        .private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        .decode()
    )


def public_pem(algorithm: str) -> bytes:
    """Return a public key as PEM."""
    return (
        private_key(algorithm)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def jwk(algorithm: str, number: int = 0, **further: object) -> dict[str, object]:
    """Return a public key as a JWK."""
    public = private_key(algorithm, number).public_key()
    match public:
        case rsa.RSAPublicKey():
            text = algorithms.RSAAlgorithm.to_jwk(public)
        case ec.EllipticCurvePublicKey():
            text = algorithms.ECAlgorithm.to_jwk(public)
        case _:
            text = algorithms.OKPAlgorithm.to_jwk(public)
    return {**json.loads(text), "kid": f"{algorithm}-{number}", **further}


def jwks(*keys: Mapping[str, object]) -> str:
    """Return a set of keys."""
    return json.dumps({"keys": keys})


def claims(**further: object) -> dict[str, object]:
    """Return the claims of a valid token; those that are None are left out."""
    at = int(NOW.timestamp())
    said: dict[str, object] = {
        "sub": "ann", "scope": "read write run", "aud": AUDIENCE, "iss": ISSUER, "iat": at, "exp": at + 600,
    }  # fmt: skip
    said |= further
    return {name: value for name, value in said.items() if value is not None}


def token(algorithm: str = "HS256", number: int = 0, /, **further: object) -> str:
    """Return a signed token."""
    if algorithm == "HS256":
        return make_token(claims(**further), SECRET, algorithm)
    return make_token(claims(**further), pem(algorithm, number), algorithm, name=f"{algorithm}-{number}")


def forged(header: Mapping[str, object], secret: bytes | None = None, **further: object) -> str:
    """Return a token made by hand, signed with a secret or not at all."""
    parts = [_part(json.dumps(document).encode()) for document in (header, claims(**further))]
    signed = ".".join(parts)
    signature = b"" if secret is None else hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{_part(signature)}"


def _part(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()
