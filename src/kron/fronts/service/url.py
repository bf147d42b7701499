"""Values in URLs: names in paths, and cursors that continue a listing."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from urllib.parse import unquote

from kron.core.errors import InvalidOptionError

# Above every instant, in milliseconds.
MAX_NUMBER = 1 << 52


def name_of(part: str) -> str:
    """Return the name in a segment of a path."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError as cause:
        raise InvalidOptionError(option="path", value=ascii(part), reason="must be UTF-8") from cause


def cursor_of(parts: Sequence[str | int] | None) -> str | None:
    """Return an opaque cursor for a position in a listing; None at its end."""
    if parts is None:
        return None
    return urlsafe_b64encode(json.dumps(list(parts)).encode()).decode().rstrip("=")


def place_of(cursor: str, *kinds: type[str] | type[int]) -> list[str | int]:
    """Return the position a cursor stands for, which has parts of these types."""
    try:
        parts = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, RecursionError) as cause:
        raise invalid_cursor(cursor) from cause
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds):
        raise invalid_cursor(cursor)
    if not all(abs(part) < MAX_NUMBER if isinstance(part, int) else _is_plain(part) for part in parts):
        raise invalid_cursor(cursor)
    return parts


def _is_plain(text: str) -> bool:
    """Return whether a database accepts a text: no NUL, no surrogates."""
    return "\0" not in text and text == text.encode("utf-8", "replace").decode("utf-8")


def invalid_cursor(cursor: str) -> InvalidOptionError:
    """Return the error of a cursor that is none of this service."""
    return InvalidOptionError(option="cursor", value=cursor, reason="use the next_cursor of the last page")
