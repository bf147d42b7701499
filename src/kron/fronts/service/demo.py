"""The demo: a few schedules whose history the engine itself produced, in virtual time.

The schedules are registered days ago by a simulated clock, and the engine that serves them later runs them
up to now, with one outage, so that there are missed periods to explain.
"""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import NamedTuple, Protocol

from kron.core.errors import InputError
from kron.core.plan.query import JobFilter
from kron.core.plan.report import Launch
from kron.fronts.service.documents import Document
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.schedule_spec import Rules
from kron.launchers.callback import Callback, CallbackLauncher
from kron.ports import Clock, Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal

STORE = "sqlite:///.kron/demo/kron.db"
# Commands that schedules added over the API may run; all are harmless.
COMMANDS = frozenset(filter(None, map(shutil.which, ("echo", "false", "sleep", "true"))))
# When the outage began, before now, and how long it lasted.
AWAY_AT, AWAY = timedelta(hours=20), timedelta(minutes=100)
# The history ends when no execution runs; none takes longer than this.
SLACK, LOOK = timedelta(seconds=30), timedelta(milliseconds=500)
# In this time the clocks of most zones are changed once at least.
LONG_AGO = timedelta(days=220)


class VirtualClock(Clock, Protocol):
    """A clock that is advanced by hand."""

    async def advance_to(self, instant: datetime) -> None:
        """Let time pass."""
        ...


class NotDemoError(InputError):
    """A demo was requested in a store that holds other schedules."""

    code = "not_a_demo"

    def __init__(self) -> None:
        super().__init__(
            "The store holds schedules that are not the demo's, and the demo would stand among them: "
            "leave out --demo to serve them, or name another store, e.g. --store sqlite:///demo.db"
        )


class Part(NamedTuple):
    """One schedule: how long ago it was created, what it is, how long it runs, and when it fails.

    What depends on the past is told the number of the execution, from 0 on.
    """

    age: timedelta
    document: Document
    lasts: float = 0.2
    fails: Callable[[Launch, int], str | None] = lambda *_: None
    longer: Callable[[int], float] = lambda _: 1.0

    @property
    def name(self) -> str:
        """Return the name of the schedule."""
        return str(self.document["schedule_id"])


def _fails_at_first(launch: Launch, _: int) -> str | None:
    """Fail the first attempt of every fourth period, and every attempt of every fifteenth."""
    number = launch.run.nominal_time // 120
    if number % 15 == 0 or (number % 4 == 0 and launch.run.attempt == 1):
        return "the partner's server answered 503"
    return None


def _always(error: str) -> Callable[[Launch, int], str | None]:
    return lambda *_: error


def _at(numbers: Collection[int], error: str) -> Callable[[Launch, int], str | None]:
    return lambda _, number: error if number in numbers else None


def _unevenly(number: int) -> float:
    """Take longer on some days, and much longer on a few."""
    return 1 + number * 37 % 23 / 20 + 3 * (number in {131, 187})


def _schedule(name: str, cron_expr: str, timezone: str = "UTC", **fields: object) -> Document:
    known = {"workflow_id": name, "version": 1, "user_id": "demo", "launcher": {"kind": "callback"}}
    return {"schedule_id": f"demo/{name}", "cron_expr": cron_expr, "timezone": timezone, **known, **fields}


BERLIN = "Europe/Berlin"
# The oldest comes first.
PARTS = (
    Part(
        LONG_AGO,
        _schedule("nightly-literal", "30 2 * * *", BERLIN),
        1.5,
        _at({40, 41, 118, 163}, "the warehouse did not answer in 30 s"),
        _unevenly,
    ),
    Part(
        timedelta(days=20),
        _schedule("nightly-close", "30 2 * * *", BERLIN, dst_gap="next", dst_repeat="first"),
        4.0,
    ),
    Part(
        timedelta(days=2),
        _schedule(
            "backup",
            "0 * * * *",
            "America/New_York",
            window={"mode": "after", "duration": "20m"},
            distribution={"name": "skewEarly"},
            catchup_policy="once",
        ),
        6.0,
    ),
    Part(
        timedelta(hours=30),
        _schedule(
            "office-hours",
            "*/30 * * * *",
            "Europe/London",
            window={"mode": "around", "duration": "10m"},
            constraints={"only": {"hours": "8-18"}, "avoid": {"between": "12:00-12:59"}},
        ),
        2.0,
    ),
    Part(
        timedelta(hours=5),
        _schedule("legacy-sync", "*/15 * * * *", pause_after_failures=5),
        0.4,
        _always("no route to host legacy.example"),
    ),
    Part(
        timedelta(hours=4),
        _schedule("export", "*/10 * * * *", "Asia/Tokyo"),
        1.0,
        _always("the disk is full: /exports"),
    ),
    Part(
        timedelta(hours=2), _schedule("partner-feed", "*/2 * * * *", retry_delay="20s"), 1.2, _fails_at_first
    ),
    Part(timedelta(hours=1), _schedule("quarter-end", "0 18 LW 3,6,9,12 *", "Asia/Kolkata")),
    Part(timedelta(minutes=5), _schedule("slow-import", "*/10 * * * * *", overlap_policy="skip"), 25.0),
    Part(timedelta(minutes=4), _schedule("heartbeat", "*/5 * * * * *", overlap_policy="allow")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Demo:
    """Fills a store with the demo's schedules and their history, with a clock that `virtual` makes."""

    virtual: Callable[[datetime], VirtualClock]

    async def prepare(self, store: Store, clock: Clock) -> bool:
        """Fill an empty store, and return whether it was empty; a store with other schedules is refused."""
        everything = JobFilter(deleted=True)
        names = [part.name for part in PARTS]
        known = await store.find_jobs(NAMESPACE, everything._replace(names=names), limit=len(names))
        if known:
            # A history that Ctrl-C interrupted continues; missing schedules are added.
            there = {found.job.identity for found in known}
            registrar = Registrar(store, clock, rules=Rules())
            for part in PARTS:
                if part.name not in there:
                    await registrar.upsert_schedule(part.document)
            return False
        if await store.find_jobs(NAMESPACE, everything, limit=1):
            raise NotDemoError
        await self._live_through(store, clock.now())
        return True

    async def _live_through(self, store: Store, now: datetime) -> None:
        clock = self.virtual(now - PARTS[0].age)
        left = now - AWAY_AT
        before, after = ([part for part in PARTS if (part.age > AWAY_AT) is old] for old in (True, False))
        await _run_engine(store, clock, before, now, until=left)
        await clock.advance_to(left + AWAY)
        await _run_engine(store, clock, after, now, until=now - SLACK)


async def _run_engine(
    store: Store, clock: VirtualClock, parts: Sequence[Part], now: datetime, *, until: datetime
) -> None:
    """Run the engine until an instant, and create schedules on the way."""
    calls = CallbackLauncher(clock)
    calls.callbacks.update(callbacks(clock))
    engine = Engine(
        store, clock, {"callback": calls}, namespace=NAMESPACE, owner="demo", journal=LogJournal()
    )
    registrar = Registrar(store, clock, rules=Rules(), wake=engine.call)
    await engine.acquire()
    engine.run()
    for part in parts:
        await clock.advance_to(now - part.age)
        await registrar.upsert_schedule(part.document)
    await clock.advance_to(until)
    while calls.busy and until < now:
        until += LOOK
        await clock.advance_to(until)
    await engine.stop()


def callbacks(clock: Clock) -> Mapping[str, Callback]:
    """Return the callbacks of the demo's schedules, by a clock that may be virtual."""
    return {part.name: _callback(part, clock) for part in PARTS}


def _callback(part: Part, clock: Clock) -> Callback:
    numbers = count()

    async def work(launch: Launch) -> None:
        number = next(numbers)
        end = clock.now() + timedelta(seconds=part.lasts * part.longer(number))
        while clock.now() < end:
            await clock.sleep_until(end)
        error = part.fails(launch, number)
        if error is not None:
            raise OSError(error)

    return work
