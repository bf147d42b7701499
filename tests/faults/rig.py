"""An engine in this process, with any store and clock, whose calls are recorded."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Overlap
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import IncidentKind, RunRecord
from kron.core.plan.registration import create
from kron.core.plan.report import Launch
from kron.core.plan.step import Change, WriteResult
from kron.core.time.instant import EPOCH
from kron.launchers.callback import CallbackLauncher
from kron.ports import Clock, Store
from kron.runtime.engine import Engine
from tests.engine_world import with_policy
from tests.faults.comparison import Evidence, Life
from tests.faults.ledger import Line

SPACE = "runner:rig"
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NOON_S = int(NOON.timestamp())
MINUTE, SECOND, MILLISECOND = timedelta(minutes=1), timedelta(seconds=1), timedelta(milliseconds=1)
Callback = Callable[[Launch], Awaitable[object]]


def job_of(name: str = "job", text: str = "* * * * *", **policy: Any) -> Job:
    """Return a job without a deadline that allows overlaps, unless the policy says otherwise."""
    job = Job(identity=name, schedule=Schedule(text))
    return with_policy(job, **{"deadline": None, "overlap": Overlap.ALLOW, **policy})


class Lines:
    """A journal that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Mapping[str, object]]] = []

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        self.lines.append((event, fields))

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        pass

    def events(self) -> list[str]:
        """Return the names of the events, without incidents."""
        return [event for event, _ in self.lines if not isinstance(event, IncidentKind)]


class Rig:
    """One engine; `calls` are its executions: name, nominal time, attempt, token."""

    def __init__(self, store: Store, clock: Clock, *, owner: str = "me", balance: bool = False) -> None:
        self.store = store
        self.clock = clock
        self.journal = Lines()
        self.launcher = CallbackLauncher(clock)
        self.calls: list[tuple[str, int, int, int]] = []
        self.lines: list[Line] = []
        self.engine = Engine(
            store,
            clock,
            {"callback": self.launcher},
            namespace=SPACE,
            owner=owner,
            journal=self.journal,
            balance=balance,
        )

    def now(self) -> int:
        """Return the clock's time in milliseconds."""
        return (self.clock.now() - EPOCH) // MILLISECOND

    async def add(self, *jobs: Job, callback: Callback | None = None) -> None:
        """Create jobs."""
        now = self.now()
        await self.store.put(SPACE, created=[create(job, now=now) for job in jobs], changed=[], now=now)
        self.serve(*(job.identity for job in jobs), callback=callback)

    def serve(self, *names: str, callback: Callback | None = None) -> None:
        """Record the calls of jobs, and run the callback."""

        async def call(launch: Launch) -> None:
            run = launch.run
            self.calls.append((run.identity, run.nominal_time, run.attempt, run.token))
            line = Line("begin", run.identity, run.key, run.attempt, run.token, self.now())
            self.lines.append(line)
            try:
                if callback is not None:
                    await callback(launch)
            except Exception:
                self.lines.append(line._replace(what="raise"))
                raise
            self.lines.append(line._replace(what="end"))

        for name in names:
            self.launcher.callbacks[name] = call

    async def run(self) -> None:
        """Acquire the lease and run."""
        await self.engine.acquire()
        self.engine.run()

    async def runs(self, name: str = "job") -> list[RunRecord]:
        """Return a job's runs, oldest first."""
        return (await self.store.runs(SPACE, name, limit=100_000))[::-1]

    async def seen(self, name: str = "job") -> list[str]:
        """Return the status and reason of each run."""
        return [f"{run.status} {run.reason}" for run in await self.runs(name)]

    def starts(self) -> list[int]:
        """Return the periods that were called, in seconds after noon, in the order of the calls."""
        return [nominal - NOON_S for _, nominal, _, _ in self.calls]

    def starts_of(self, name: str) -> list[int]:
        """Return the periods of one job that were called, in seconds after noon."""
        return [nominal - NOON_S for who, nominal, _, _ in self.calls if who == name]

    async def end(self) -> None:
        """Drop everything."""
        self.engine.kill()
        with suppress(asyncio.CancelledError):
            await self.launcher.close(wait=False)
        await self.store.close()


@asynccontextmanager
async def rig_of(store: Store, clock: Clock, **options: Any) -> AsyncIterator[Rig]:
    """Yield a rig, and close it."""
    rig = Rig(store, clock, **options)
    try:
        yield rig
    finally:
        await rig.end()


async def evidence_of(
    store: Store, name: str, lines: Sequence[Line], *, lives: Sequence[Life] = (Life(0, 0, 0),)
) -> Evidence:
    """Return the records of a job that has a period every second, up to its cursor."""
    (case,) = await store.cases(SPACE, [name])
    rows = await store.runs(SPACE, name, limit=100_000)
    return Evidence(
        identity=name,
        every_s=1,
        policy=compiled_job(case.job.definition, name).policy,
        born_at=case.job.born_at,
        until=case.job.cursor,
        lives=list(lives),
        rows=rows,
        ranges=await store.ranges(SPACE, name),
        attempts={row.key: await store.attempts(SPACE, row.key) for row in rows if row.attempt > 1},
        lines=list(lines),
    )
