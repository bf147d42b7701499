"""The machine's clock. No other module of Kron reads the time."""

import asyncio
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

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

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep in slices until an instant; return at once when the wall clock jumps."""
        until = instant.timestamp()
        while True:
            wall, mono = time.time(), time.monotonic()
            left = until - wall
            if left <= 0:
                return
            await asyncio.sleep(min(left - LAST_S, SLICE_S) if left > 2 * LAST_S else left)
            if abs((time.time() - wall) - (time.monotonic() - mono)) > JUMP_S:
                return

    def working(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: real time cannot be held."""
        return nullcontext()
