"""Request signatures: an executor can verify that a start comes from Kron, and that it is recent.

A request carries `Kron-Timestamp`, the seconds since 1970, and `Kron-Signature`, which is `v1=` and the
hexadecimal HMAC-SHA256 of the timestamp, a full stop and the body, with the shared secret.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256

from kron.core.errors import InvalidOptionError

TIMESTAMP, SIGNATURE = "Kron-Timestamp", "Kron-Signature"
VERSION = "v1="
# The largest difference between the clocks of both sides, and the largest age of a request, in seconds.
TOLERANCE_S = 300


def signed(secret: bytes, body: bytes, *, now: int) -> dict[str, str]:
    """Return the headers that sign a body at an instant in seconds."""
    return {TIMESTAMP: str(now), SIGNATURE: VERSION + _digest(secret, str(now), body)}


def is_signed(
    secret: bytes, headers: Mapping[str, str], body: bytes, *, now: int, tolerance: int = TOLERANCE_S
) -> bool:
    """Return whether a request was signed with a secret, and recently; `now` is in seconds."""
    lower = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = lower.get(TIMESTAMP.lower(), ""), lower.get(SIGNATURE.lower(), "")
    if not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 15:
        return False
    expected = VERSION + _digest(secret, timestamp, body)
    is_recent = abs(now - int(timestamp)) <= tolerance
    return hmac.compare_digest(expected.encode(), signature.encode(errors="replace")) and is_recent


def _digest(secret: bytes, timestamp: str, body: bytes) -> str:
    if not secret or secret.endswith(b"\0"):
        # HMAC pads keys with NUL bytes, so such a secret is the same key as a shorter one.
        reason = "must not be empty, nor end with a NUL byte"
        raise InvalidOptionError(option="secret", value="...", reason=reason)
    return hmac.new(secret, timestamp.encode() + b"." + body, sha256).hexdigest()
