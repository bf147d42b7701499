"""Pages: where a listing goes on, as a text that callers hand back as they got it."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence

from kron.core.errors import InvalidOptionError

# No instant is later, in milliseconds.
MOST = 1 << 52


def cursor_of(parts: Sequence[str | int] | None) -> str | None:
    """Return the text for a place in a listing; None where it ends."""
    if parts is None:
        return None
    return urlsafe_b64encode(json.dumps(list(parts)).encode()).decode().rstrip("=")


def place_of(cursor: str, *kinds: type[str] | type[int]) -> list[str | int]:
    """Return the place a cursor stands for; it has parts of these kinds."""
    try:
        parts = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except ValueError as cause:
        raise _refused(cursor) from cause
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise _refused(cursor)
    if not all(abs(part) < MOST if isinstance(part, int) else _is_plain(part) for part in parts):
        raise _refused(cursor)
    return parts


def _is_plain(text: str) -> bool:
    """Say whether a database takes a text: one without a NUL, and without halves of signs."""
    return "\0" not in text and text == text.encode("utf-8", "replace").decode("utf-8")


def _refused(cursor: str) -> InvalidOptionError:
    return InvalidOptionError(option="cursor", value=cursor, reason="hand back what the last page gave")
