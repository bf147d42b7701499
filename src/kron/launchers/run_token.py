"""The token an executor gets with a run: good for reporting on that run, and for nothing else."""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode

PREFIX = "kron-run."
PURPOSE = b"kron run token 1\n"
HIDDEN = "***"
# Fewer of its last signs than these are not worth hiding where a text was cut.
LEAST_PART = 8
_TOKENS = re.compile(re.escape(PREFIX) + r"[\w-]*", re.ASCII)


def run_token_of(secret: bytes, idempotency_key: str) -> str:
    """Return the token of one run; whoever has the service's secret can compute it again."""
    digest = hmac.new(secret, PURPOSE + idempotency_key.encode(), hashlib.sha256).digest()
    return PREFIX + urlsafe_b64encode(digest).rstrip(b"=").decode()


def is_run_token_of(text: str, secret: bytes, idempotency_key: str) -> bool:
    """Say whether a token is that of a run, without telling by the time it takes how much of it is right."""
    return hmac.compare_digest(text.encode(), run_token_of(secret, idempotency_key).encode())


def without_tokens(text: str) -> str:
    """Return a text without the tokens of runs in it, and without the beginning of one where it was cut."""
    return _TOKENS.sub(HIDDEN, text)


def without_token(output: bytes, token: str) -> bytes:
    """Return the end of an output without one token, and without its last signs where the output was cut."""
    known, hidden = token.encode(), HIDDEN.encode()
    clean = output.replace(known, hidden)
    for size in range(len(known) - 1, LEAST_PART - 1, -1):
        if clean.startswith(known[-size:]):
            return hidden + clean[size:]
    return clean
