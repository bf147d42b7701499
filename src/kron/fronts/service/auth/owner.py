"""Whose a schedule is."""

import json
from functools import lru_cache

MAX_REMEMBERED = 4_096


@lru_cache(maxsize=MAX_REMEMBERED)
def owner_of(launcher: str) -> str | None:
    """Return the user whose schedule it is, by what is stored of its launcher; None if it is nobody's."""
    try:
        owner = json.loads(launcher).get("user_id")
    except (ValueError, AttributeError):
        return None
    return owner if isinstance(owner, str) else None
