"""A real engine in virtual time on any store, with a scripted launcher and changes to jobs."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from kron.app.retention import Pruned, Pruner, RetentionPolicy
from kron.core.job.job import Job
from kron.core.plan.pause import pause, resume
from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.registration import create, delete, edit
from kron.core.plan.report import RunEvent, RunReport, Traits
from kron.core.plan.step import Change, JobState
from kron.core.time.instant import EPOCH
from kron.ports import Launcher, Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.testing import ScriptedLauncher, SimulatedClock, Step

SPACE = "service"
NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
NOON_S = int(NOON.timestamp())
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
DAY = timedelta(days=1)


def job_of(identity: str = "job", schedule: str = "* * * * *", **policy: object) -> Job:
    """Return a job in UTC without a deadline that allows overlaps, unless its policy says otherwise."""
    fields = {"deadline": None, "overlap": "allow", **policy}
    return Job.from_dict({"identity": identity, "schedule": schedule, "policy": fields})


class Stage:
    """One namespace of a store, its engine, and the executions it starts."""

    def __init__(
        self, store: Store, start: datetime = NOON, *, traits: Traits | None = None, survives: bool = False
    ) -> None:
        self.store = store
        self.clock = SimulatedClock(start + timedelta(milliseconds=1))
        self.launcher = ScriptedLauncher(self.clock, traits=traits, survives=survives)
        self.journal = LogJournal()
        self.engine = self.make_engine()

    def make_engine(self, owner: str = "me", store: Store | None = None) -> Engine:
        """Return an engine that owns nothing yet."""
        launchers: Mapping[str, Launcher] = {"callback": self.launcher}
        return Engine(
            store or self.store, self.clock, launchers, namespace=SPACE, owner=owner, journal=self.journal
        )

    @property
    def now(self) -> int:
        """Return the present instant in milliseconds."""
        return (self.clock.now() - EPOCH) // timedelta(milliseconds=1)

    async def run(self) -> None:
        """Acquire the lease and run."""
        await self.engine.acquire()
        self.engine.run()

    async def restart(self, *, after: timedelta = timedelta(0)) -> None:
        """Stop gracefully, stay down, and start again with another engine."""
        await self.engine.stop()
        await self.advance(after)
        self.engine = self.make_engine()
        await self.run()

    async def advance(self, by: timedelta) -> None:
        """Let time pass."""
        await self.clock.advance_to(self.clock.now() + by)

    async def until(self, instant: datetime) -> None:
        """Let time pass up to an instant."""
        await self.clock.advance_to(instant)

    async def suspend(self, by: timedelta) -> None:
        """Let the machine sleep."""
        self.clock.jump_to(self.clock.now() + by)
        await self.advance(SECOND)

    # --- registrations---------------------------------------------------------------------------

    async def add(self, *jobs: Job, script: Sequence[Step] = ()) -> None:
        """Create jobs."""
        created = [create(job, now=self.now) for job in jobs]
        settled = await self.store.put(SPACE, created=created, changed=[], now=self.now)
        assert not settled.stale_jobs
        for job in jobs:
            self.launcher.then(job.identity, *script)
        # As the catalog does: an engine that wakes by then need not wake now.
        self.engine.call(min((job.plan_at for job in created if job.plan_at is not None), default=None))

    async def change(self, identity: str, change_of: Callable[[JobRecord, list[RunRecord]], Change]) -> None:
        """Write a change of a job."""
        case = await self.case(identity)
        change = change_of(case.job, list(case.runs))
        settled = await self.store.put(SPACE, created=[], changed=[change], now=self.now)
        assert not settled.stale_jobs
        assert not settled.existing_runs
        self.engine.call()
        await self.advance(timedelta(0))

    async def edit(self, job: Job) -> None:
        """Give a job a new definition."""
        await self.change(job.identity, lambda record, runs: edit(record, runs, job, now=self.now))

    async def pause(self, identity: str = "job") -> None:
        """Pause a job."""
        await self.change(identity, lambda record, runs: pause(record, runs, because="by hand", now=self.now))

    async def resume(self, identity: str = "job") -> None:
        """Resume a job."""
        await self.change(identity, lambda record, runs: resume(record, runs, now=self.now))

    async def delete(self, identity: str = "job") -> None:
        """Delete a job."""
        await self.change(identity, lambda record, runs: delete(record, runs, now=self.now))

    async def report(self, run: RunRecord, happened: RunEvent, error: str | None = None) -> None:
        """Report the status of a run, as its executor does."""
        self.engine.report(RunReport(run.identity, run.key, run.attempt, happened, self.now, error))
        await self.advance(timedelta(0))

    async def prune(
        self, keep: timedelta = timedelta(0), *, max_batch: int = 1_000, store: Store | None = None
    ) -> Pruned:
        """Prune the history that is older, without a minimum of runs."""
        pruner = Pruner(
            store=store or self.store,
            clock=self.clock,
            namespace=SPACE,
            policy=RetentionPolicy(keep=keep, keep_runs=0, audit_keep=None),
            max_batch=max_batch,
        )
        return await pruner.prune(self.now)

    # --- records ----------------------------------------------------------------------------------

    async def case(self, identity: str = "job") -> JobState:
        """Return a job's record."""
        (case,) = await self.store.cases(SPACE, [identity])
        return case

    async def runs(self, identity: str = "job") -> list[RunRecord]:
        """Return a job's runs, oldest first."""
        return (await self.store.runs(SPACE, identity, limit=10_000))[::-1]

    async def seen(self, identity: str = "job") -> list[str]:
        """Return status and reason of a job's runs, oldest first."""
        return [f"{run.status} {run.reason}" for run in await self.runs(identity)]

    def starts(self, identity: str = "job") -> list[int]:
        """Return the minutes after noon that were started, in order of the starts."""
        mine = [start for start in self.launcher.started if start.identity == identity]
        return [(start.nominal_time - NOON_S) // 60 for start in mine]


@asynccontextmanager
async def stage_on(
    store: Store, start: datetime = NOON, *, traits: Traits | None = None, survives: bool = False
) -> AsyncIterator[Stage]:
    """Yield a stage on a store, and drop it at the end as a crash would."""
    stage = Stage(store, start, traits=traits, survives=survives)
    try:
        yield stage
    finally:
        stage.engine.kill()
        await stage.launcher.close(wait=False)
