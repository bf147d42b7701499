"""Every worker that owns its namespace prunes it: soon after its start, and then once a day."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from kron.app.catalog import Catalog, JobDefinition
from kron.app.retention import (
    FIRST_AFTER,
    QUIET_MS,
    RETRY_AFTER,
    SMALL_BATCH,
    SPREAD,
    RetentionLoop,
    RetentionPolicy,
    first_wait,
)
from kron.app.worker import Worker, WorkerOptions
from kron.core.job.job import Job
from kron.core.plan.query import FROM_START, PruneBounds, PruneCursor, PrunedBatch
from kron.core.plan.registration import create
from kron.core.plan.step import DEFAULT_LIMITS, Limits
from kron.core.time.instant import milliseconds_of
from kron.ports import Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, ScriptedLauncher, SimulatedClock
from tests.engine_stage import DAY, HOUR, NOON, SECOND, SPACE, job_of
from tests.waiting import until

OWNER = "me"
FIRST = first_wait(SPACE)
SHORT = RetentionPolicy(keep=DAY, keep_runs=10)
ALL_RUNS = 100_000


class Watched(FaultyStore):
    """A store that notes when it was pruned, and how much of it."""

    def __init__(self, inner: Store, clock: SimulatedClock) -> None:
        super().__init__(inner, clock)
        self._now = clock.now
        self.pruned: list[tuple[datetime, int]] = []

    async def prune(
        self,
        namespace: str,
        bounds: PruneBounds,
        *,
        cursor: PruneCursor = FROM_START,
        limit: int,
        dry_run: bool = False,
    ) -> PrunedBatch:
        self.pruned.append((self._now(), limit))
        return await super().prune(namespace, bounds, cursor=cursor, limit=limit, dry_run=dry_run)

    @property
    def times(self) -> list[datetime]:
        """Return when it was pruned."""
        return sorted({at for at, _ in self.pruned})


def a_worker(
    store: Store,
    clock: SimulatedClock,
    *,
    owner: str = OWNER,
    policy: RetentionPolicy = SHORT,
    balance: bool = False,
    namespace: str = SPACE,
    limits: Limits = DEFAULT_LIMITS,
) -> Worker:
    options = WorkerOptions(owner=owner, retention=policy, balance=balance, tick_ms=10_000, limits=limits)
    return Worker(store, clock, {"callback": ScriptedLauncher(clock)}, namespace=namespace, options=options)


@asynccontextmanager
async def running(store: Store, worker: Worker, *schedules: str) -> AsyncIterator[None]:
    """Register a job for each schedule, and run the worker."""
    now = milliseconds_of(worker.clock.now())
    jobs = [create(job_of(f"job {n}", schedule), now=now) for n, schedule in enumerate(schedules)]
    await store.put(worker.namespace, created=jobs, changed=[], now=now)
    await worker.take_over()
    worker.start()
    try:
        yield
    finally:
        await worker.stop()


@pytest.mark.slow
async def test_the_history_of_a_busy_schedule_does_not_grow_for_ever() -> None:
    store, clock = SqliteStore(), SimulatedClock(NOON + SECOND)
    kept = []
    async with running(store, a_worker(store, clock), "*/5 * * * *", "0 0 * * *"):
        for day in range(1, 6):
            await clock.advance_to(NOON + day * DAY)
            kept.append(len(await store.runs(SPACE, "job 0", limit=ALL_RUNS)))
        seldom = await store.runs(SPACE, "job 1", limit=ALL_RUNS)
    # A day is kept, and pruned once a day: never more than two days, though five have passed.
    assert kept[0] == 24 * 12
    assert max(kept) <= 2 * 24 * 12
    # Its few runs are the last ones of their schedule.
    assert len(seldom) == 5
    await store.close()


async def test_pruning_comes_soon_after_the_start_and_then_once_a_day() -> None:
    clock = SimulatedClock(NOON)
    store = Watched(SqliteStore(), clock)
    async with running(store, a_worker(store, clock)):
        await clock.advance_to(NOON + 2 * DAY + HOUR)
    assert store.times == [NOON + FIRST + day * DAY for day in range(3)]
    assert FIRST_AFTER <= FIRST <= FIRST_AFTER + SPREAD
    await store.close()


async def test_nothing_is_pruned_on_the_day_after_the_clock_was_set_forward_by_more_than_a_day() -> None:
    """An excursion to 2099 must not cost the history, whether the clock returns or not."""
    far = NOON + 365 * DAY
    clock = SimulatedClock(NOON)
    store = Watched(SqliteStore(), clock)
    async with running(store, a_worker(store, clock), "0 * * * *"):
        await clock.advance_to(NOON + 3 * HOUR)
        clock.jump_to(far)
        await clock.advance_to(far + 3 * HOUR)
    # A worker that was restarted since knows it as well.
    async with running(store, a_worker(store, clock)):
        await clock.advance_to(far + DAY - HOUR)
        assert store.times == [NOON + FIRST]
        await clock.advance_to(far + DAY + HOUR)
        assert len(store.times) == 2
    await store.close()


async def test_nothing_is_pruned_while_the_clock_is_behind_and_not_steady() -> None:
    clock, wait_ms = SimulatedClock(NOON), 5 * 60_000
    store = Watched(SqliteStore(), clock)
    async with running(store, a_worker(store, clock), "0 * * * *"):
        await clock.advance_to(NOON + 3 * HOUR)
    clock.jump_to(NOON)
    store.pruned.clear()
    async with running(store, a_worker(store, clock, limits=Limits(lookahead_ms=wait_ms))):
        await clock.advance_to(NOON + FIRST + SECOND)
        assert store.times == []
        await clock.advance_to(NOON + FIRST + RETRY_AFTER)
        assert store.times == [NOON + FIRST + RETRY_AFTER]
    await store.close()


async def test_after_a_long_absence_records_age_from_the_last_one_for_a_day() -> None:
    """A clock that was set forward while no worker ran looks the same, and must not cost the history."""
    store, clock, far = SqliteStore(), SimulatedClock(NOON), NOON + 365 * DAY
    async with running(store, a_worker(store, clock), "*/5 * * * *"):
        await clock.advance_to(NOON + 3 * HOUR)
    clock.jump_to(far)

    async def earlier() -> int:
        runs = await store.runs(SPACE, "job 0", limit=ALL_RUNS)
        return sum(run.nominal_time < NOON.timestamp() + 4 * 3_600 for run in runs)

    # Restarts change nothing: the absence is recorded.
    for hours in (2, 4, 23):
        worker = a_worker(store, clock)
        await worker.take_over()
        worker.start()
        await clock.advance_to(far + hours * HOUR)
        assert await earlier() >= 36
        if hours < 23:
            await worker.stop()
    # Its next pruning comes a day after its first one.
    await clock.advance_to(far + DAY + 5 * HOUR)
    assert await earlier() == 0
    await worker.stop()
    await store.close()


async def test_a_copy_whose_store_hangs_delays_neither_the_pruning_nor_the_hand_over() -> None:
    clock, hanging = SimulatedClock(NOON), asyncio.Event()

    class Hanging(SqliteStore):
        async def prune(self, *_: object, **__: object) -> PrunedBatch:
            hanging.set()
            return await asyncio.Future()

    store, copy = Watched(SqliteStore(), clock), Hanging()
    worker = a_worker(store, clock)
    worker.copy = copy
    async with running(store, worker):
        advancing = asyncio.create_task(clock.advance_to(NOON + DAY + HOUR))
        await hanging.wait()
        await until(lambda: store.times)
        advancing.cancel()
    assert worker.health.state == "stopped"
    await store.close()
    await copy.close()


async def test_the_namespaces_of_one_database_are_not_pruned_together() -> None:
    times = set()
    for number in range(5):
        clock = SimulatedClock(NOON)
        store = Watched(SqliteStore(), clock)
        async with running(store, a_worker(store, clock, namespace=f"runner:{number}")):
            await clock.advance_to(NOON + HOUR)
        times |= set(store.times)
        await store.close()
    assert len(times) == 5


async def test_every_owner_prunes_a_namespace_at_the_same_time_after_its_start() -> None:
    """Some owners have random names, and a simulation of one must repeat to the step."""
    times = set()
    for number in range(5):
        clock = SimulatedClock(NOON)
        store = Watched(SqliteStore(), clock)
        async with running(store, a_worker(store, clock, owner=f"worker {number}")):
            await clock.advance_to(NOON + HOUR)
        times |= set(store.times)
        await store.close()
    assert times == {NOON + FIRST}


async def test_no_batch_is_pruned_just_before_a_job_is_due() -> None:
    """Every second a job is due, and the pruning would come 50 ms before one."""
    clock = SimulatedClock(NOON - FIRST - timedelta(milliseconds=50))
    store = Watched(SqliteStore(), clock)
    worker = a_worker(store, clock)
    async with running(store, worker, "* * * * * *"):
        await clock.advance_to(NOON + 3 * SECOND)
    assert store.times
    for at in store.times:
        assert 1_000 - at.microsecond // 1_000 >= QUIET_MS
    assert NOON <= store.times[0] < NOON + SECOND
    await store.close()


class NeverIdle(Engine):
    """An engine that always has work."""

    def is_idle(self, for_ms: int) -> bool:
        return False


async def test_an_engine_that_is_never_idle_is_pruned_in_small_batches() -> None:
    clock = SimulatedClock(NOON)
    store = Watched(SqliteStore(), clock)
    engine = NeverIdle(store, clock, {}, namespace=SPACE, owner=OWNER, journal=LogJournal())
    await engine.acquire()
    retention = RetentionLoop(store, clock, engine, namespace=SPACE, policy=SHORT, journal=LogJournal())
    pruning = asyncio.create_task(retention.run())
    await clock.advance_to(NOON + 5 * SECOND + FIRST)
    assert not store.pruned
    await clock.advance_to(NOON + 60 * SECOND + FIRST)
    assert {limit for _, limit in store.pruned} == {SMALL_BATCH}
    pruning.cancel()
    await engine.stop()
    await store.close()


async def test_a_worker_that_stands_by_prunes_nothing() -> None:
    clock = SimulatedClock(NOON)
    inner = SqliteStore()
    mine, other = Watched(inner, clock), Watched(inner, clock)
    standing_by = a_worker(other, clock, owner="other")
    async with running(mine, a_worker(mine, clock)):
        waiting = asyncio.create_task(standing_by.run())
        await clock.advance_to(NOON + HOUR)
        assert standing_by.state == "waiting"
        standing_by.leave()
        await waiting
    assert mine.pruned
    assert not other.pruned
    await inner.close()


async def test_of_workers_that_share_a_namespace_one_prunes(postgres_url: str) -> None:
    clock = SimulatedClock(NOON)
    stores = [Watched(PostgresStore(postgres_url), clock) for _ in range(2)]
    workers = [a_worker(store, clock, owner=f"w{n}", balance=True) for n, store in enumerate(stores)]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await clock.advance_to(NOON + FIRST_AFTER)
    assert {worker.state for worker in workers} == {"running"}
    await clock.advance_to(NOON + FIRST_AFTER + SPREAD + SECOND)
    assert sorted(bool(store.pruned) for store in stores) == [False, True]
    for worker in workers:
        worker.leave()
    await asyncio.gather(*tasks)
    for store in stores:
        await store.close()


async def test_a_store_that_fails_is_pruned_again_soon(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimulatedClock(NOON)
    store = Watched(SqliteStore(), clock)
    store.then("prune", Fault.BEFORE)
    async with running(store, a_worker(store, clock)):
        await clock.advance_to(NOON + HOUR)
    assert store.times == [NOON + FIRST, NOON + FIRST + RETRY_AFTER]
    assert "pruning failed, next attempt in 0:10:00" in caplog.text
    await store.close()


async def test_kept_for_ever_only_a_schedule_with_a_retention_of_its_own_is_pruned() -> None:
    clock = SimulatedClock(NOON)
    store = SqliteStore()
    policy = RetentionPolicy(keep=None, audit_keep=None)
    async with running(store, a_worker(store, clock, policy=policy), "0 * * * *"):
        short = Job.from_dict(
            {
                "identity": "short",
                "schedule": "0 * * * *",
                "policy": {"deadline": None},
                "retention": {"keep": "2h", "keep_runs": 3},
            }
        )
        catalog = Catalog(store, SPACE, now=lambda: milliseconds_of(clock.now()))
        await catalog.upsert([JobDefinition(short)])
        await clock.advance_to(NOON + DAY + 2 * HOUR)
    kept = {name: len(await store.runs(SPACE, name)) for name in ("job 0", "short")}
    assert kept["job 0"] > 24
    assert 3 <= kept["short"] <= 6
    await store.close()


@pytest.mark.slow
async def test_a_log_line_says_how_much_was_pruned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kron.engine")
    store, clock = SqliteStore(), SimulatedClock(NOON + 30 * SECOND - FIRST)
    policy = RetentionPolicy(keep=HOUR, keep_runs=10)
    async with running(store, a_worker(store, clock, policy=policy), "* * * * *"):
        await clock.advance_to(NOON + DAY + 40 * SECOND)
    lines = [record.getMessage() for record in caplog.records if "pruned" in record.getMessage()]
    # It starts and ends at once in virtual time, between two minutes.
    assert lines == [
        f'pruned {{"duration_ms": 0, "namespace": "{SPACE}"}}',
        f'pruned {{"duration_ms": 0, "namespace": "{SPACE}", "runs": {23 * 60 + 1}}}',
    ]
    await store.close()
