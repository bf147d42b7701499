"""Virtual time: a day passes in milliseconds, with a deterministic order of wake-ups."""

import asyncio
import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count

# Idle iterations of the event loop before time may pass: enough for a callback that awaits nothing.
QUIET_TURNS = 20
# Work that takes longer than this is stuck: the test fails instead of hanging.
MAX_WORK_S = 60.0


class SimulatedClock:
    """`kron.ports.Clock` for tests. Time moves only by `advance_to` and `jump_to`, never during work."""

    def __init__(self, start: datetime, *, max_work_s: float = MAX_WORK_S) -> None:
        if start.tzinfo is None:
            raise ValueError("a simulated clock must start at an aware datetime")
        self._now = start
        self._elapsed = timedelta(0)
        self._order = count()
        self._sleepers: list[tuple[datetime, int, asyncio.Event]] = []
        self._active = 0
        self._max_work_s = max_work_s
        # Created by each wait, so that several event loops can use one clock, one after the other.
        self._idle: asyncio.Event | None = None
        self._jumped = False

    def now(self) -> datetime:
        """Return the virtual wall-clock time."""
        return self._now

    def monotonic(self) -> float:
        """Return the virtual seconds that have passed; jumps do not count."""
        return self._elapsed.total_seconds()

    async def sleep_until(self, instant: datetime) -> None:
        """Wait until the virtual time is reached."""
        if instant <= self._now:
            return
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (instant, next(self._order), woken))
        await woken.wait()

    async def advance_to(self, instant: datetime) -> None:
        """Advance the time; every sleeper before `instant` wakes at its time and does its work."""
        await self._settle()
        if self._jumped:
            self._jumped = False
            await self._wake_all()
        while self._sleepers and self._sleepers[0][0] <= instant:
            wake_at, _, woken = heapq.heappop(self._sleepers)
            self._pass_to(wake_at)
            woken.set()
            await self._settle()
        self._pass_to(instant)
        await self._settle()

    def jump_to(self, instant: datetime) -> None:
        """Set the wall clock, forwards or back, without waking sleepers; `monotonic` is unchanged."""
        self._now = instant
        self._jumped = True

    @contextmanager
    def working(self) -> Iterator[None]:
        """Keep time from passing while work is in progress."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    @contextmanager
    def standing_by(self) -> Iterator[None]:
        """Let time pass during work that is itself waiting for time."""
        suspended = min(self._active, 1)
        self._count(-suspended)
        try:
            yield
        finally:
            self._count(suspended)

    def _count(self, change: int) -> None:
        self._active += change
        if self._active == 0 and self._idle is not None:
            self._idle.set()

    def _pass_to(self, instant: datetime) -> None:
        if instant > self._now:
            self._elapsed += instant - self._now
            self._now = instant

    async def _wake_all(self) -> None:
        """Wake every sleeper after a jump, as the end of a slice of a real sleep would."""
        sleepers, self._sleepers = self._sleepers, []
        for _, _, woken in sleepers:
            woken.set()
        await self._settle()

    async def _settle(self) -> None:
        """Wait until no work is in progress and none can start."""
        quiet = 0
        while quiet < QUIET_TURNS:
            if self._active > 0:
                quiet = 0
                self._idle = asyncio.Event()
                await asyncio.wait_for(self._idle.wait(), self._max_work_s)
            else:
                quiet += 1
                await asyncio.sleep(0)
