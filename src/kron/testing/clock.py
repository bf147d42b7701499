"""Virtual time: a day passes in a moment, in the same order every time."""

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

# Turns of the event loop in which nothing is left to do: enough for a callback that waits for nobody.
QUIET_TURNS = 20
# Work that takes longer than this is stuck; a test that waits for it fails instead of hanging.
MAX_WORK_S = 60.0


class SimulatedClock:
    """`kron.ports.Clock` for tests. Time moves only when told to, and only while nothing works."""

    def __init__(self, start: datetime, *, max_work_s: float = MAX_WORK_S) -> None:
        if start.tzinfo is None:
            raise ValueError("a simulated clock starts at an aware datetime")
        self._now = start
        self._elapsed = timedelta(0)
        self._order = count()
        self._sleepers: list[tuple[datetime, int, asyncio.Event]] = []
        self._works = 0
        self._max_work_s = max_work_s
        # Made by whoever waits, so that one clock can be used by several event loops, one after the other.
        self._rest: asyncio.Event | None = None
        self._turned = False

    def now(self) -> datetime:
        """Return the virtual wall clock's time."""
        return self._now

    def monotonic(self) -> float:
        """Return the virtual seconds that have passed; a jump is none of them."""
        return self._elapsed.total_seconds()

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until the virtual time is there."""
        if instant <= self._now:
            return
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (instant, next(self._order), woken))
        await woken.wait()

    async def advance_to(self, instant: datetime) -> None:
        """Let time pass; every sleeper on the way wakes at its own time and does its work."""
        await self._settle()
        if self._turned:
            self._turned = False
            await self._wake_all()
        while self._sleepers and self._sleepers[0][0] <= instant:
            wake_at, _, woken = heapq.heappop(self._sleepers)
            self._pass_to(wake_at)
            woken.set()
            await self._settle()
        self._pass_to(instant)
        await self._settle()

    def jump_to(self, instant: datetime) -> None:
        """Set the wall clock, forwards or back, without waking anyone; `monotonic` stays."""
        self._now = instant
        self._turned = True

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold time still while something works."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        """Let time pass although something works: what works is itself waiting for time."""
        stands = min(self._works, 1)
        self._count(-stands)
        try:
            yield
        finally:
            self._count(stands)

    def _count(self, works: int) -> None:
        self._works += works
        if self._works == 0 and self._rest is not None:
            self._rest.set()

    def _pass_to(self, instant: datetime) -> None:
        if instant > self._now:
            self._elapsed += instant - self._now
            self._now = instant

    async def _wake_all(self) -> None:
        """Let everybody look at a clock that was set, as the end of a real sleep's slice would."""
        sleepers, self._sleepers = self._sleepers, []
        for _, _, woken in sleepers:
            woken.set()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until nothing works and nothing is left that could begin to."""
        quiet = 0
        while quiet < QUIET_TURNS:
            if self._works > 0:
                quiet = 0
                self._rest = asyncio.Event()
                await asyncio.wait_for(self._rest.wait(), self._max_work_s)
            else:
                quiet += 1
                await asyncio.sleep(0)
