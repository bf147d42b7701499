"""Long work that needs nobody, done beside the event loop, which has its turns meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# So many tasks take long enough for others to notice, were they worked through in one go.
MANY = 2_000

T = TypeVar("T")


async def aside(work: Callable[[], T], *, count: int) -> T:
    """Return what pure work over so many things comes to; much of it is done in a thread of its own."""
    if count < MANY:
        return work()
    thread = ThreadPoolExecutor(1, "kron-aside")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    finally:
        thread.shutdown(wait=False)
