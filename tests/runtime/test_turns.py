"""Tenants take turns: the due jobs of one do not wait until all those of another have started."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial

import pytest

from kron.clocks.system import SystemClock
from kron.core.job.job import Job
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create
from kron.core.plan.report import Launch, RunEvent, RunReport
from kron.core.plan.step import Change, WriteResult
from kron.launchers.callback import CallbackLauncher
from kron.launchers.launch import user_of
from kron.ports import ReportSink, Store
from kron.runtime.engine import BATCH, FIRST_BATCH, Engine
from kron.runtime.journal import LogJournal
from kron.runtime.turns import QUANTUM, Turns
from kron.stores.sqlite.store import SqliteStore
from kron.testing import ScriptedLauncher, Step
from tests.engine_stage import MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on
from tests.waiting import until

AFTER_NOON = 1000 * NOON_S + 1
MANY = 3 * BATCH
# Every two minutes a window of a day, whose constraints reject nearly every time of it.
COSTLY = {
    "schedule": "*/2 * * * *",
    "window": {"mode": "after", "duration": "24h"},
    "distribution": {"name": "skewEarly", "shape": 50},
    "constraints": {"only": {"between": ["23:59-23:59"]}},
}


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """In memory: that every store finds the jobs of other tenants is part of the contract."""
    made = SqliteStore()
    yield made
    await made.close()


async def register(store: Store, user: str, jobs: Sequence[Job], now: int) -> None:
    launcher = json.dumps({"kind": "callback", **({"user_id": user} if user else {})})
    created = [create(job, now=now, launcher=launcher, kind="callback") for job in jobs]
    await store.put(SPACE, created=created, changed=[], now=now)


async def order_of_starts(stage: Stage) -> list[str]:
    await stage.run()
    await stage.until(NOON + MINUTE + SECOND)
    return [start.identity.split()[0] for start in stage.launcher.started]


@pytest.mark.slow
async def test_the_jobs_of_a_tenant_start_before_all_due_ones_of_another(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        await register(store, "bad", [job_of(f"bad {n}") for n in range(MANY)], stage.now)
        # As many as make it wait for its share, too.
        good = 3 * QUANTUM
        await register(store, "good", [job_of(f"good {n}") for n in range(good)], stage.now)
        names = await order_of_starts(stage)
        assert (names.count("bad"), names.count("good")) == (MANY, good)
        last = len(names) - names[::-1].index("good")
        assert last <= FIRST_BATCH + BATCH + 2 * good


@pytest.mark.slow
async def test_jobs_without_a_user_are_those_of_one_tenant(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        await register(store, "", [job_of(f"none {n}") for n in range(MANY)], stage.now)
        await register(store, "good", [job_of("good")], stage.now)
        names = await order_of_starts(stage)
        assert names.index("good") <= FIRST_BATCH + BATCH


@pytest.mark.slow
async def test_tenants_together_do_not_keep_another_from_starting(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        for user in range(5):
            jobs = [job_of(f"bad {user} {n}") for n in range(MANY // 5)]
            await register(store, f"bad {user}", jobs, stage.now)
        await register(store, "good", [job_of("good")], stage.now)
        names = await order_of_starts(stage)
        assert len(names) == MANY // 5 * 5 + 1
        assert names.index("good") <= 2 * BATCH


class Registering(ScriptedLauncher):
    """Registers a job while a burst starts."""

    register: Callable[[], Coroutine[None, None, None]] | None = None
    registering: asyncio.Task[None] | None = None

    def start(self, launch: Launch, report: ReportSink) -> None:
        super().start(launch, report)
        if len(self.started) == FIRST_BATCH and self.register is not None:
            self.registering = asyncio.create_task(self.register())


@pytest.mark.slow
async def test_a_job_that_becomes_due_during_a_burst_does_not_wait_for_its_end(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.launcher = launcher = Registering(stage.clock)
        stage.engine = stage.make_engine()
        stage.engine.tenant_of = user_of
        await register(store, "bad", [job_of(f"bad {n}") for n in range(MANY)], stage.now)
        await register(store, "good", [job_of("later", "0 0 1 1 *")], stage.now)
        # Its first period is the one that the burst starts.
        launcher.register = partial(register, store, "good", [job_of("good")], AFTER_NOON)
        names = await order_of_starts(stage)
        assert names.count("bad") == MANY
        assert names.index("good") <= 2 * BATCH + FIRST_BATCH


@pytest.mark.slow
async def test_an_end_that_is_not_written_yet_does_not_block_the_next_period(store: Store) -> None:
    async with stage_on(store) as stage:
        stage.engine.tenant_of = user_of
        jobs = [job_of(f"bad {n}") for n in range(MANY)]
        await register(store, "bad", jobs, stage.now)
        await register(store, "good", [job_of("good", overlap="skip")], stage.now)
        for name in [*(job.identity for job in jobs), "good"]:
            stage.launcher.then(name, Step.HANG)
        await order_of_starts(stage)
        # All end at once, the last of them is the other tenant's, and all are due again.
        stage.clock.jump_to(NOON + 2 * MINUTE + SECOND)
        for run in sorted(stage.launcher.running, key=lambda run: run.identity):
            stage.engine.report(RunReport(run.identity, run.key, 1, RunEvent.SUCCESS, stage.now))
        await stage.advance(SECOND)
        assert await stage.seen("good") == ["SUCCESS due", "SUCCESS due"]
        assert await stage.seen("bad 7") == ["SUCCESS due", "SUCCESS due"]


class Commits(LogJournal):
    """A journal of the jobs in each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[list[str]] = []

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        self.commits.append([change.job.identity for change in changes])


@pytest.mark.slow
async def test_jobs_that_are_costly_to_plan_do_not_delay_another_tenants(store: Store) -> None:
    clock, journal = SystemClock(), Commits()
    engine = Engine(
        store, clock, {"callback": CallbackLauncher(clock)}, namespace=SPACE, owner="me", journal=journal
    )
    engine.tenant_of = user_of
    now = engine.now()
    costly = [Job.from_dict({**COSTLY, "identity": f"bad {n}"}) for n in range(8)]
    await register(store, "bad", costly, now)
    # It is due, but not for as long as the windows of the others have been open.
    await register(store, "good", [job_of("good", "* * * * * *")], now - 2_000)
    await engine.acquire()
    engine.run()

    def planned() -> list[str]:
        return [name for names in journal.commits for name in names]

    await until(lambda: {job.identity for job in costly} <= set(planned()) and "good" in planned())
    engine.kill()
    names = planned()
    assert names.index("good") < max(names.index(job.identity) for job in costly)


def a_record(user: str) -> JobRecord:
    return create(job_of(user), now=0, launcher=json.dumps({"user_id": user}))


def test_a_tenant_is_over_its_share_by_its_jobs_or_by_their_time() -> None:
    turns = Turns(user_of)
    assert turns.over_share() == []
    turns.count([Change(a_record("ann"), 1)] * QUANTUM)
    turns.count([Change(a_record("bob"), 1)] * (QUANTUM - 1))
    assert turns.over_share() == ["ann"]
    turns.spend(a_record("bob"), 1.0)
    assert turns.over_share() == ["bob"]
