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
# How long it takes to register a task, roughly.
REGISTER_S = 60e-6
# How much longer to wait for the last of many starts.
MAX_S_PER_TASK = 0.002
DELAY, OTHER_DELAY = timedelta(minutes=5), timedelta(minutes=6)
NEW, PRESERVED, OVERRIDDEN = "new", "preserved", "overridden"


class ShiftedClock(SystemClock):
    """The machine's clock, set to another time of the day, so that nobody waits for the next minute."""

    def __init__(self, shift: timedelta) -> None:
        self._shift = shift

    def now(self) -> datetime:
        """Return the present instant of the shifted day."""
        return super().now() + self._shift

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep as long as the machine's clock would."""
        await super().sleep_until(instant - self._shift)


def before_minute(seconds: float) -> tuple[ShiftedClock, datetime]:
    """Return a clock on which a minute begins in so many seconds, and when that is on it."""
    now = SystemClock().now()
    minute = now.replace(second=0, microsecond=0) + timedelta(minutes=2)
    return ShiftedClock(minute - now - timedelta(seconds=seconds)), minute


def daily_at(minute: datetime, count: int, callback: Callback) -> Registered:
    """Return tasks that are all due at one minute of the day."""
    cron = f"{minute.minute} {minute.hour} * * *"
    return [(name, cron, callback, DELAY) for name in names(count)]


def far_off(count: int, delay: timedelta = DELAY) -> Registered:
    """Return tasks of which none is due before half a year has passed; they share 1,440 expressions."""

    async def callback() -> None:
        raise AssertionError("nothing is due")

    days = days_far_off()
    return [
        (name, f"{number % 60} {number // 60 % 24} {days} *", callback, delay)
        for number, name in enumerate(names(count))
    ]


class Starts:
    """Notes when the callback that all tasks share is called."""

    def __init__(self, count: int) -> None:
        self.times: list[float] = []
        self._count = count
        self._done = asyncio.Event()

    async def note(self) -> None:
        """Note the moment."""
        self.times.append(perf_counter())
        if len(self.times) == self._count:
            self._done.set()

    async def note_and_stay(self) -> None:
        """Note the moment, and do not end."""
        await self.note()
        await asyncio.Event().wait()

    async def last(self) -> None:
        """Wait for the last start."""
        await asyncio.wait_for(self._done.wait(), MAX_SECONDS + MAX_S_PER_TASK * self._count)

    async def all_of(self, scheduler: Scheduler, since: float) -> dict[str, float]:
        """Wait for the last start and return what is counted from an instant on."""
        await self.last()
        await scheduler.stop()
        ended = perf_counter()
        assert len(self.times) == self._count, "a task started twice"
        first, last = min(self.times) - since, max(self.times) - since
        return Burst(self._count, first, last, ended - since).figures()


async def due(place: str, count: int) -> dict[str, float]:
    """Measure tasks that are due in one minute; with more time beforehand if that was too short."""
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
    """Measure a program that died with all callbacks running and comes back; counted from `initialize` on."""
    clock, minute = before_minute(READY_S)
    begun, starts = Starts(count), Starts(count)
    with url_of(place) as url:
        scheduler = Scheduler(url, clock=clock, timezone="UTC")
        await scheduler.initialize(daily_at(minute, count, begun.note_and_stay))
        await begun.last()
        await kill(scheduler)
        async with Scheduler(url, clock=clock, timezone="UTC") as scheduler:
            tasks = daily_at(minute, count, starts.note)
            gc.collect()
            begin = perf_counter()
            await scheduler.initialize(tasks)
            assert set(scheduler.standings.values()) == {"orphaned"}
            return await starts.all_of(scheduler, begin)


async def register(place: str, count: int, standing: str) -> dict[str, float]:
    """Measure `initialize`, and the longest time the event loop had no turn meanwhile."""
    with url_of(place) as url:
        scheduler = Scheduler(url, timezone="Europe/Berlin")
        # Opening makes the tables, which is nothing of a registration.
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
    """Note how long each turn of the event loop is in coming."""
    last = perf_counter()
    while True:
        await asyncio.sleep(0.001)
        now = perf_counter()
        pauses.append(now - last)
        last = now


async def idle(place: str, count: int, seconds: float) -> dict[str, float]:
    """Measure tasks of which none is due."""
    with url_of(place) as url:
        before = resident()
        async with Scheduler(url, timezone="Europe/Berlin") as scheduler:
            await scheduler.initialize(far_off(count))
            size = (resident() - before) / count
            return {"bytes": size, "share": await share_of_processor(seconds)}


async def late(place: str, seconds: float) -> dict[str, float]:
    """Measure single starts: tasks that fail, and are tried again about a second later, each at its own time.

    A minute has one start only, so retries are counted: how much later than its delay each begins.
    """
    logging.disable(logging.CRITICAL)
    found: list[float] = []
    clock, minute = before_minute(2.0)
    cron = f"{minute.minute} {minute.hour} * * *"
    with url_of(place) as url:
        async with Scheduler(url, clock=clock, timezone="UTC") as scheduler:
            await scheduler.initialize([_failing(number, cron, found) for number in range(JOBS)])
            await asyncio.sleep(2.0 + seconds)
    return spread(found)


def _failing(number: int, cron: str, found: list[float]) -> tuple[str, str, Callback, timedelta]:
    delay = timedelta(milliseconds=900 + 20 * number)
    due_at: float | None = None

    async def fail() -> None:
        nonlocal due_at
        if due_at is not None:
            found.append(time() - due_at)
        due_at = time() + delay.total_seconds()
        raise ArithmeticError("on purpose")

    return f"bench/{number}", cron, fail, delay


def asking(
    work: Callable[..., Coroutine[Any, Any, dict[str, float]]], *kinds: Callable[[str], object]
) -> Callable[..., dict[str, float]]:
    """Return a measurement that takes its arguments as words."""
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
