"""When the loop wakes, by a monotone clock, an instant or a call, and how much it catches up in a tick."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta

from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan.pace import Pace
from kron.core.plan.step import Change, Limits
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.core.time.steady import JUMP_MS, ClockState, Judgement, Reading
from kron.ports import Clock


@dataclass(slots=True)
class EngineClock:
    """The wall clock made monotone; `ClockState` judges whether it was set, and whether it is steady.

    `passed` is the latest instant the wall clock can have shown, whether or not it was read then.
    """

    clock: Clock
    lookahead_ms: int = LOOKAHEAD_MS
    passed: int = 0
    state: ClockState = field(default_factory=ClockState)

    @property
    def high(self) -> int:
        """Return the latest instant read or recorded."""
        return self.state.high

    @property
    def read_at(self) -> int:
        """Return what the wall clock showed at the last reading."""
        return self.high if self.state.last is None else self.state.last.wall

    @property
    def steady_at(self) -> int | None:
        """Return the wall clock's time at which it counts as steady."""
        return self.state.steady_at(self.lookahead_ms)

    def wall(self) -> int:
        """Return the wall clock's time, which may be earlier than before."""
        return (self.clock.now() - EPOCH) // MILLISECOND

    def recorded(self, instant: int) -> int:
        """Note an instant on disk or of a report; return the latest one."""
        self.state = self.state.recorded(instant)
        return self.state.high

    @property
    def was_set(self) -> bool:
        """Say whether the wall clock was set since the last reading."""
        last = self.state.last
        if last is None:
            return False
        return abs(self.wall() - last.wall - (round(1000 * self.clock.monotonic()) - last.mono)) > JUMP_MS

    def look(self) -> int:
        """Return the present instant without detecting a jump: only a wake does that."""
        return self.recorded(self.wall())

    def read(self) -> Judgement:
        """Read both clocks: the present instant never decreases until `correct`."""
        reading = Reading(self.wall(), round(1000 * self.clock.monotonic()))
        lookahead_ms = self.lookahead_ms
        self.state, judgement = self.state.read(reading, lookahead_ms=lookahead_ms, steady_ms=lookahead_ms)
        self.passed = max(judgement.now, judgement.expected)
        return judgement

    def correct(self) -> int:
        """Make the wall clock authoritative; return when its steady stretch started."""
        self.state = self.state.corrected()
        assert self.state.steady_from is not None, "a clock is corrected after it was read"
        return self.state.steady_from.wall


class Wakeup:
    """When a loop wakes next, and whether it is working; a simulated clock stands still while it is."""

    def __init__(self, clock: Clock, rested: Callable[[], None]) -> None:
        self._clock = clock
        # Called whenever work ends.
        self._rested = rested
        self._called = asyncio.Event()
        self._hurried = asyncio.Event()
        self._is_backing_off = False
        # The end of the present or last wait, in milliseconds; None waits for a call only.
        self.wake_at: int | None = None
        self._work: AbstractContextManager[None] | None = None

    @property
    def is_working(self) -> bool:
        """Say whether the loop is working."""
        return self._work is not None

    @property
    def is_called(self) -> bool:
        """Say whether the loop wakes again at once in any case."""
        return self._called.is_set()

    def wakes_by(self, instant: int) -> bool:
        """Say whether the loop waits, and wakes at an instant or before."""
        return not self.is_working and self.wake_at is not None and self.wake_at <= instant

    def call(self, *, is_running: bool) -> None:
        """Wake the loop now; one that backs off wakes when its backoff ends."""
        if is_running and not self._is_backing_off:
            self.begin_work()
        self._called.set()

    def hurry(self, *, is_running: bool) -> None:
        """Wake the loop now, even if it backs off."""
        self._is_backing_off = False
        self._hurried.set()
        self.call(is_running=is_running)

    def start_wake(self) -> None:
        """Start a wake: a call from now on leads to another one."""
        self.begin_work()
        self._called.clear()

    def skip_wait(self) -> None:
        """Let the next wait end at once."""
        self._called.set()

    async def wait(self, wake_at: int | None) -> None:
        """Sleep until an instant, in milliseconds, or until called."""
        if not self._called.is_set():
            self.end_work()
        self.wake_at = wake_at
        await first_of(self._clock, self._called, wake_at)

    async def back_off(self, until: int) -> None:
        """Sleep until an instant, ignoring calls, unless hurried."""
        self._is_backing_off = not self._hurried.is_set()
        if self._is_backing_off:
            self.end_work()
        await first_of(self._clock, self._hurried, until)
        self._is_backing_off = False
        self._hurried.clear()

    def begin_work(self) -> None:
        """Hold the clock, if it can be held."""
        if self._work is None:
            self._work = self._clock.working()
            self._work.__enter__()

    def end_work(self) -> None:
        """Release the clock."""
        work, self._work = self._work, None
        if work is not None:
            work.__exit__(None, None, None)
            self._rested()


async def first_of(clock: Clock, event: asyncio.Event, instant: int | None) -> None:
    """Wait for an event or an instant, in milliseconds, whichever comes first."""
    waiting: set[asyncio.Task[object]] = {asyncio.create_task(event.wait())}
    if instant is not None:
        waiting.add(asyncio.create_task(clock.sleep_until(EPOCH + timedelta(milliseconds=instant))))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


class Pacer:
    """Counts catch-up once: a change counts while it is planned, and afterwards if it was written.

    A change that the store refused is planned again, and one whose fate is unknown counts until it is known.
    """

    def __init__(self, limits: Limits) -> None:
        self._written = Pace(limits.catchup_per_tick, limits.tick_ms)
        self._planned: list[tuple[int, Change]] = []

    @property
    def pace(self) -> Pace:
        """Return the pace at which the next changes are planned."""
        pace = self._written
        for now, change in self._planned:
            pace = _after(pace, now, change)
        return pace

    def plan(self, changes: Sequence[Change], now: int) -> None:
        """Count the catch-up of changes that were planned at an instant."""
        self._planned += [(now, change) for change in changes if change.caught_up or change.waiting]

    def settle(self, changes: Sequence[Change], stale_jobs: frozenset[str]) -> None:
        """Keep those of some planned changes that were written, and forget those that were refused."""
        if self._planned:
            settled = set(map(id, changes))
            self._keep([each for each in changes if each.job.identity not in stale_jobs])
            self._planned = [(now, change) for now, change in self._planned if id(change) not in settled]

    def resolve(self, written: Sequence[Change]) -> None:
        """Keep these planned changes, and forget all others: nothing else was written."""
        if self._planned:
            self._keep(written)
            self._planned = []

    def _keep(self, written: Sequence[Change]) -> None:
        kept = set(map(id, written))
        for now, change in self._planned:
            if id(change) in kept:
                self._written = _after(self._written, now, change)


def _after(pace: Pace, now: int, change: Change) -> Pace:
    return pace.after(now, starts=change.caught_up, waits=change.waiting)
