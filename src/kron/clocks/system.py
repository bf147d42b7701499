"""The machine's clock. No other module of Kron reads the time."""

import time
from collections.abc import Coroutine
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

# The longest slice of a sleep, and so how long a jump of the wall clock stays undetected.
SLICE_S = 1.0
# A long timer of the event loop is late by a part of its length, so the last stretch is slept separately.
LAST_S = 0.02
# Wall clock and monotonic clock drift apart by less than this in one slice, unless the clock was set.
JUMP_S = 0.5


def processor_time() -> float:
    """Return the seconds of processor time that this thread has used."""
    return time.thread_time()


class SystemClock:
    """The wall clock of the host and its monotonic clock."""

    def now(self) -> datetime:
        """Return the present instant, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that no change of the wall clock moves."""
        return time.monotonic()

    def sleep_until(self, instant: datetime) -> Coroutine[Any, Any, None]:
        """Sleep in slices until an instant; return at once when the wall clock jumps.

        The clock is compared with its time at this call, not at the first turn of the coroutine, so that no
        jump falls between the two: a sleep that began after a step back would last as long as the step.
        """
        return _sleep(instant.timestamp(), time.time(), time.monotonic())

    def working(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: real time cannot be held."""
        return nullcontext()


async def _sleep(until: float, wall: float, mono: float) -> None:
    """Sleep until the wall clock, which showed `wall` at `mono`, shows a time, or was set."""
    # Commands that only read the clock start in half the time without it.
    import asyncio

    while True:
        # Read again, also at first: the sleep begins later than it was asked for.
        before = wall - mono
        wall, mono = time.time(), time.monotonic()
        left = until - wall
        if left <= 0 or abs(wall - mono - before) > JUMP_S:
            return
        await asyncio.sleep(min(left - LAST_S, SLICE_S) if left > 2 * LAST_S else left)
