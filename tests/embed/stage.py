"""A stage for stories in virtual time: acts at their times, and who was called when."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from kron.core.errors import StoreError
from kron.core.plan.record import JobRecord
from kron.core.plan.step import Change, LoadResult, Ownership, WriteResult
from kron.fronts.embed.scheduler import Scheduler
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock, kill, trace

YEAR = 2026
DAY = "01-01"
SECOND = timedelta(seconds=1)
# Longer than any story.
FOR_EVER = timedelta(days=10_000)
Callback = Callable[[], Awaitable[object]]
Listed = tuple[str, str, Callback, timedelta]


class Given(NamedTuple):
    """A task as a story registers it; `does` says how its calls end, one after the other, then all well.

    `ok` and `fail` at once, `30s` and `fail 30s` after that while, `hang` never.
    """

    name: str
    cron: str
    retry: float = 60
    does: str = ""


class Act(NamedTuple):
    """Something that happens at a time."""

    at: str
    what: str
    tasks: tuple[Given, ...] = ()
    to: str = ""


def init(at: str, *tasks: Given) -> Act:
    return Act(at, "init", tasks)


def stop(at: str) -> Act:
    return Act(at, "stop")


def crash(at: str) -> Act:
    return Act(at, "crash")


def jump(at: str, to: str) -> Act:
    return Act(at, "jump", to=to)


def until(at: str) -> Act:
    return Act(at, "until")


def moment(text: str) -> datetime:
    """Return `12:00`, `12:00:30`, `12:00:30.5` or `03-29 01:00` as an instant in UTC."""
    day, _, clock = text.rpartition(" ")
    hour, minute, *rest = clock.split(":")
    month, number = (day or DAY).split("-")[-2:]
    year = int(day.split("-")[0]) if day.count("-") == 2 else YEAR
    second = float(rest[0]) if rest else 0.0
    begin = datetime(year, int(month), int(number), int(hour), int(minute), tzinfo=UTC)
    return begin + timedelta(seconds=second)


def shown(instant: datetime) -> str:
    """Return an instant as a story writes it."""
    day = instant.strftime("%m-%d ") if instant.strftime("%m-%d") != DAY else ""
    year = f"{instant.year}-" if instant.year != YEAR else ""
    second = instant.strftime(":%S") if instant.second or instant.microsecond else ""
    part = f".{instant.microsecond // 1000:03}" if instant.microsecond else ""
    if year and not day:
        day = f"{DAY} "
    return f"{year}{day}{instant:%H:%M}{second}{part}"


class KeptInMemory(SqliteStore):
    """A store in memory that outlives a crash of its user, as a file would."""

    async def close(self) -> None:
        self.drop_locks()


class Failing(KeptInMemory):
    """A store that fails when told to: before it writes, or after, so that only its answer is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []

    def _fault(self, name: str) -> None:
        if self.faults and self.faults[0] == name:
            self.faults.pop(0)
            raise StoreError(f"the store fails: {name}")

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        self._fault("load")
        return await super().load(ownership, until=until, limit=limit, named=named, without=without)

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        self._fault("before")
        settled = await super().settle(ownership, changes, now=now)
        self._fault("after")
        return settled


class Stage:
    """A clock, a store that outlives crashes, and the scheduler that is on."""

    def __init__(
        self, make_store: Callable[[], Store], *, zone: str = "UTC", free: Callable[[], None]
    ) -> None:
        self.make_store = make_store
        self.store = make_store()
        self.zone = zone
        self.free = free
        self.clock = SimulatedClock(moment("00:00"))
        self.calls: list[str] = []
        self.events: list[str] = []
        self.states: list[str] = []
        self.lines = io.StringIO()
        self.scheduler = self.make()
        self.stopping: list[asyncio.Task[None]] = []
        self._begun = False
        self._scripts: dict[str, list[str]] = {}

    def make(self, **options: Any) -> Scheduler:
        """Return another scheduler with the same state."""
        made = Scheduler(self.store, clock=self.clock, timezone=self.zone, on_event=self._hear, **options)
        trace(made, self.lines)
        return made

    def _hear(self, event: Any) -> None:
        self.events.append(f"{event.name} {event.task}" if event.task else event.name)
        self.states.append(self.scheduler.state)

    def listed(self, tasks: Iterable[Given]) -> list[Listed]:
        for task in tasks:
            if task.does:
                self._scripts[task.name] = task.does.split(", ")
        return [(task.name, task.cron, self.callback(task.name), task.retry * SECOND) for task in tasks]

    def callback(self, name: str) -> Callback:
        """Return a function that notes its call and follows the task's script."""

        async def call() -> None:
            self.calls.append(f"{shown(self.clock.now())} {name}")
            script = self._scripts.get(name) or []
            step = script.pop(0) if script else "ok"
            how, _, takes = step.rpartition(" ")
            if step == "hang":
                await self.clock.sleep_until(self.clock.now() + FOR_EVER)
            if takes.endswith("s"):
                await self.clock.sleep_until(self.clock.now() + float(takes[:-1]) * SECOND)
            if "fail" in (how, step):
                raise ValueError("as the story says")

        return call

    def begin(self, at: str) -> None:
        """Set the clock to the beginning of the story."""
        self._begun = True
        self.clock = SimulatedClock(moment(at))
        self.scheduler = self.make()

    async def play(self, *acts: Act) -> list[str]:
        """Play a story and return who was called when."""
        if not self._begun:
            self.begin(acts[0].at)
        before = ""
        for act in acts:
            # What has the same time as the act before it follows at once; else there is time to work.
            at_once, before = act.at == before, act.at
            if not at_once:
                await self.clock.advance_to(moment(act.at))
            match act.what:
                case "stop" if at_once:
                    await self.scheduler.stop()
                case "init":
                    await self.scheduler.initialize(self.listed(act.tasks))
                case "stop":
                    self.stopping.append(asyncio.create_task(self.scheduler.stop()))
                    await asyncio.sleep(0)
                case "crash":
                    await self.crash()
                case "jump":
                    self.clock.jump_to(moment(act.to))
                case _:
                    assert act.what == "until"
        return self.calls

    async def crash(self) -> None:
        """End everything without notice; the next scheduler has the same state."""
        await kill(self.scheduler)
        await self.store.close()
        self.free()
        self.store = self.make_store()
        self.scheduler = self.make()

    async def close(self) -> None:
        """End, whatever is still under way."""
        for stopping in self.stopping:
            if stopping.done() and not stopping.cancelled():
                stopping.result()
            stopping.cancel()
        with suppress(asyncio.CancelledError):
            await kill(self.scheduler)
        await self.store.close()

    def traced(self) -> list[dict[str, Any]]:
        """Return the trace, checked for what no lawful trace can show."""
        header, *events = map(json.loads, self.lines.getvalue().splitlines())
        assert header["timezone"] == self.zone
        assert self.scheduler.quarantined == (), "what the scheduler wrote it can read"
        check_trace(events)
        return events


def check_trace(events: list[dict[str, Any]]) -> None:
    """Check the order of events: starts only while active, no task twice at once, no stop before its end."""
    active, running, latest = False, set[str](), 0
    for event in events:
        assert event["t"] >= latest, event
        latest = event["t"]
        match event["event"]:
            case "InitSuccess":
                active = True
            case "StopStart":
                active = False
            case "UnexpectedShutdown":
                active, running = False, set()
            case "StopEnd":
                assert not running, event
            case "RunStart":
                assert active, event
                assert event["task"] not in running, event
                running.add(event["task"])
            case "RunSuccess" | "RunFailure":
                running.remove(event["task"])
            case other:
                assert other in ("InitStart", "InitFailure", "Supernatural")
