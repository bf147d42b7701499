"""A function for peers that find theirs by name: it notes when it is called."""

import asyncio
from time import perf_counter

times: list[float] = []


async def note() -> None:
    """Note the moment."""
    times.append(perf_counter())


async def wait_for(count: int, *, most: float) -> None:
    """Wait until it was called so many times."""
    end = perf_counter() + most
    while len(times) < count:
        if perf_counter() > end:
            raise TimeoutError(f"{len(times)} of {count} started within {most:.0f} s")
        await asyncio.sleep(0.01)
