"""Tasks in `kron.Scheduler`, each measurement a new process: `python -m bench.embed_task NAME ...`."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from time import perf_counter, time
from typing import Any

from bench.child import answer
from bench.engine_due import MAX_SECONDS, MAX_TRIES, READY_S, Burst, TooLateError
from bench.engine_idle import days_far_off, resident, share_of_processor
from bench.engine_job import names
from bench.engine_late import JOBS, spread
from bench.place import url_of
from kron import Scheduler
from kron.clocks.system import SystemClock
from kron.testing import kill

Callback = Callable[[], Coroutine[Any, Any, None]]
Registered = list[tuple[str, str, Callback, timedelta]]
# The approximate time to register a task.
REGISTER_S = 60e-6
# The further time to wait for the last of many starts.
MAX_S_PER_TASK = 0.002
DELAY, OTHER_DELAY = timedelta(minutes=5), timedelta(minutes=6)
NEW, PRESERVED, OVERRIDDEN = "new", "preserved", "overridden"


class ShiftedClock(SystemClock):
    """The machine's clock with an offset, so that no measurement waits for the next minute."""

    def __init__(self, shift: timedelta) -> None:
        self._shift = shift

    def now(self) -> datetime:
        """Return the current instant of the shifted clock."""
        return super().now() + self._shift

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep as long as the machine's clock would."""
        await super().sleep_until(instant - self._shift)


def before_minute(seconds: float) -> tuple[ShiftedClock, datetime]:
    """Return a clock on which a minute starts in a given number of seconds, and that minute."""
    now = SystemClock().now()
    minute = now.replace(second=0, microsecond=0) + timedelta(minutes=2)
    return ShiftedClock(minute - now - timedelta(seconds=seconds)), minute


def daily_at(minute: datetime, count: int, callback: Callback) -> Registered:
    """Return tasks that are all due at one minute of the day."""
    cron = f"{minute.minute} {minute.hour} * * *"
    return [(name, cron, callback, DELAY) for name in names(count)]


def far_off(count: int, delay: timedelta = DELAY) -> Registered:
    """Return tasks that are not due for half a year; they share 1,440 expressions."""

    async def callback() -> None:
        raise AssertionError("nothing is due")

    days = days_far_off()
    return [
        (name, f"{number % 60} {number // 60 % 24} {days} *", callback, delay)
        for number, name in enumerate(names(count))
    ]


class Starts:
    """Records the calls of the callback that all tasks share."""

    def __init__(self, count: int) -> None:
        self.times: list[float] = []
        self._count = count
        self._done = asyncio.Event()

    async def note(self) -> None:
        """Record the time of a call."""
        self.times.append(perf_counter())
        if len(self.times) == self._count:
            self._done.set()

    async def note_and_stay(self) -> None:
        """Record the time of a call, and do not end."""
        await self.note()
        await asyncio.Event().wait()

    async def last(self) -> None:
        """Wait for the last start."""
        await asyncio.wait_for(self._done.wait(), MAX_SECONDS + MAX_S_PER_TASK * self._count)

    async def all_of(self, scheduler: Scheduler, since: float) -> dict[str, float]:
        """Wait for the last start and return the times since an instant."""
        await self.last()
        await scheduler.stop()
        ended = perf_counter()
        assert len(self.times) == self._count, "a task started twice"
        first, last = min(self.times) - since, max(self.times) - since
        return Burst(self._count, first, last, ended - since).figures()


async def due(place: str, count: int) -> dict[str, float]:
    """Measure tasks that are due in one minute; retry with more preparation time if needed."""
    with url_of(place) as url:
        for number in range(MAX_TRIES):
            ahead = READY_S + (0.5 + REGISTER_S * count) * 2**number
            clock, minute = before_minute(ahead)
            starts = Starts(count)
            async with Scheduler(url, clock=clock, timezone="UTC", name=f"bench-{number}") as scheduler:
                await scheduler.initialize(daily_at(minute, count, starts.note))
                gc.collect()
                left = (minute - clock.now()).total_seconds()
                if left > READY_S:
                    return await starts.all_of(scheduler, perf_counter() + left)
    raise TooLateError(f"{count} tasks could not be registered in time")


async def recover(place: str, count: int) -> dict[str, float]:
    """Measure the restart of a program that crashed with all callbacks running, from `initialize`."""
    clock, minute = before_minute(READY_S)
    running, starts = Starts(count), Starts(count)
    with url_of(place) as url:
        scheduler = Scheduler(url, clock=clock, timezone="UTC")
        await scheduler.initialize(daily_at(minute, count, running.note_and_stay))
        await running.last()
        await kill(scheduler)
        async with Scheduler(url, clock=clock, timezone="UTC") as scheduler:
            tasks = daily_at(minute, count, starts.note)
            gc.collect()
            begin = perf_counter()
            await scheduler.initialize(tasks)
            assert set(scheduler.standings.values()) == {"orphaned"}
            return await starts.all_of(scheduler, begin)


async def register(place: str, count: int, standing: str) -> dict[str, float]:
    """Measure `initialize`, and the longest pause of the event loop during it."""
    with url_of(place) as url:
        scheduler = Scheduler(url, timezone="Europe/Berlin")
        # Opening creates the tables, which is not part of a registration.
        await scheduler.initialize([] if standing == NEW else far_off(count))
        await scheduler.stop()
        tasks = far_off(count, OTHER_DELAY if standing == OVERRIDDEN else DELAY)
        pauses: list[float] = []
        watch = asyncio.create_task(_watch(pauses))
        await asyncio.sleep(0)
        begin = perf_counter()
        await scheduler.initialize(tasks)
        seconds = perf_counter() - begin
        watch.cancel()
        assert set(scheduler.standings.values()) == {standing}
        await scheduler.stop()
    return {"seconds": seconds, "pause": max(pauses, default=seconds)}


async def _watch(pauses: list[float]) -> None:
    """Record the delay of each iteration of the event loop."""
    last = perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = perf_counter()
        pauses.append(now - last)
        last = now


async def idle(place: str, count: int, seconds: float) -> dict[str, float]:
    """Measure idle tasks."""
    with url_of(place) as url:
        before = resident()
        async with Scheduler(url, timezone="Europe/Berlin") as scheduler:
            await scheduler.initialize(far_off(count))
            size = (resident() - before) / count
            return {"bytes": size, "share": await share_of_processor(seconds)}


async def late(place: str, seconds: float) -> dict[str, float]:
    """Measure single starts: tasks that fail and are retried about a second later, at different times.

    A minute has one start only, so retries are measured: the lateness of each beyond its delay.
    """
    logging.disable(logging.CRITICAL)
    late: list[float] = []
    clock, minute = before_minute(2.0)
    cron = f"{minute.minute} {minute.hour} * * *"
    with url_of(place) as url:
        async with Scheduler(url, clock=clock, timezone="UTC") as scheduler:
            await scheduler.initialize([_failing(number, cron, late) for number in range(JOBS)])
            await asyncio.sleep(2.0 + seconds)
    return spread(late)


def _failing(number: int, cron: str, late: list[float]) -> tuple[str, str, Callback, timedelta]:
    delay = timedelta(milliseconds=900 + 20 * number)
    due_at: float | None = None

    async def fail() -> None:
        nonlocal due_at
        if due_at is not None:
            late.append(time() - due_at)
        due_at = time() + delay.total_seconds()
        raise ArithmeticError("on purpose")

    return f"bench/{number}", cron, fail, delay


def asking(
    work: Callable[..., Coroutine[Any, Any, dict[str, float]]], *kinds: Callable[[str], object]
) -> Callable[..., dict[str, float]]:
    """Return a measurement that takes its arguments as strings."""
    return lambda *words: asyncio.run(work(*(kind(word) for kind, word in zip(kinds, words, strict=True))))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    answer(
        {
            "due": asking(due, str, int),
            "recover": asking(recover, str, int),
            "register": asking(register, str, int, str),
            "idle": asking(idle, str, int, float),
            "late": asking(late, str, float),
        }
    )
