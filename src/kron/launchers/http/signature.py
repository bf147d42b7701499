"""Signed requests: whoever runs executions can tell that a start comes from Kron, and that it is new.

A request carries `Kron-Timestamp`, the seconds since 1970, and `Kron-Signature`, which is `v1=` and the
hexadecimal HMAC-SHA256 of the timestamp, a full stop and the body, with the secret both sides know.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256

TIMESTAMP, SIGNATURE = "Kron-Timestamp", "Kron-Signature"
VERSION = "v1="
# How far the clocks of both sides may be apart, and how old a request may be, in seconds.
TOLERANCE_S = 300


def signed(secret: bytes, body: bytes, *, now: int) -> dict[str, str]:
    """Return the headers that sign a body at an instant in seconds."""
    return {TIMESTAMP: str(now), SIGNATURE: VERSION + _digest(secret, str(now), body)}


def is_signed(
    secret: bytes, headers: Mapping[str, str], body: bytes, *, now: int, tolerance: int = TOLERANCE_S
) -> bool:
    """Say whether a request was signed with a secret, and not long ago; `now` is in seconds."""
    found = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = found.get(TIMESTAMP.lower(), ""), found.get(SIGNATURE.lower(), "")
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 15:
        return False
    expected = VERSION + _digest(secret, timestamp, body)
    is_new = abs(now - int(timestamp)) <= tolerance
    return hmac.compare_digest(expected.encode(), signature.encode(errors="replace")) and is_new


def _digest(secret: bytes, timestamp: str, body: bytes) -> str:
    return hmac.new(secret, timestamp.encode() + b"." + body, sha256).hexdigest()
