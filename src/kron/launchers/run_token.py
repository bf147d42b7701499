"""The token an executor gets with a run: good for reporting on that run, and for nothing else."""

import hashlib
import hmac
from base64 import urlsafe_b64encode

from kron.core.redaction import RUN_TOKEN_PREFIX

PURPOSE = b"kron run token 1\n"


def run_token_of(secret: bytes, idempotency_key: str) -> str:
    """Return the token of one run; whoever has the service's secret can compute it again."""
    digest = hmac.new(secret, PURPOSE + idempotency_key.encode(), hashlib.sha256).digest()
    return RUN_TOKEN_PREFIX + urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_run_token_of(text: str, secret: bytes, idempotency_key: str) -> bool:
    """Say whether a token is that of a run, without telling by the time it takes how much of it is right."""
    return hmac.compare_digest(text.encode(), run_token_of(secret, idempotency_key).encode())
