"""Pages of listings: one of long items ends early, so that no answer fills the memory."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

# The characters of a page that may have more than one item, and how many items are read at once.
MAX_CHARACTERS, PART = 4 << 20, 100

T = TypeVar("T")


async def read_page(
    read: Callable[[Sequence[T], int], Awaitable[Sequence[T]]],
    *,
    limit: int,
    length: Callable[[T], int],
) -> tuple[list[T], bool]:
    """Return at most `limit` items, fewer if they are long, and whether there are more.

    `read` returns at most a number of items that follow those read so far.
    """
    shown: list[T] = []
    left = MAX_CHARACTERS
    while True:  # each part is at least one item, or the last one
        wanted = min(PART, limit - len(shown) + 1)
        part = await read(shown, wanted)
        for item in part:
            left -= length(item)
            if len(shown) == limit or (shown and left < 0):
                return shown, True
            shown.append(item)
        if len(part) < wanted:
            return shown, False
