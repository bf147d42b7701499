"""Run tokens: a bearer token that authorises reports on one run, and nothing else."""

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256

from kron.core.redaction import RUN_TOKEN_PREFIX

PURPOSE = b"kron run token 1\n"


def run_token_of(secret: bytes, idempotency_key: str) -> str:
    """Return the token of one run; the service computes it again from the same secret."""
    digest = hmac.new(secret, PURPOSE + idempotency_key.encode(), sha256).digest()
    return RUN_TOKEN_PREFIX + urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_run_token_of(text: str, secret: bytes, idempotency_key: str) -> bool:
    """Return whether a token is that of a run, in constant time."""
    return hmac.compare_digest(text.encode(), run_token_of(secret, idempotency_key).encode())
