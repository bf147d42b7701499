"""A function for peers that need an importable one: it records its calls."""

import asyncio
from time import perf_counter

times: list[float] = []


async def note() -> None:
    """Record the time of a call."""
    times.append(perf_counter())


async def wait_for(count: int, *, most: float) -> None:
    """Wait until it was called a number of times."""
    end = perf_counter() + most
    while len(times) < count:
        if perf_counter() > end:
            raise TimeoutError(f"{len(times)} of {count} started within {most:.0f} s")
        await asyncio.sleep(0.01)
