"""A worker hands its options to every engine it makes, and notices changes by others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from kron.app.worker import Worker, WorkerOptions
from kron.core.errors import StoreError
from kron.core.plan.registration import create
from kron.core.plan.step import Limits, Ownership
from kron.core.time.instant import milliseconds_of
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import Settings
from kron.ports import News, Store, Watch
from kron.stores.sqlite.store import SqliteStore
from kron.testing import ScriptedLauncher, SimulatedClock
from tests.engine_stage import HOUR, MINUTE, NOON, SECOND, SPACE, job_of

MILLISECOND = timedelta(milliseconds=1)
LOOKAHEAD = 10 * SECOND
PER_TICK, TICK = 3, 2 * SECOND


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    await worker.take_over()
    worker.start()
    try:
        yield
    finally:
        worker.kill()


async def register(store: Store, clock: SimulatedClock, catchup: str) -> None:
    """Create an hourly job at 11:30, so that noon is its first period."""
    clock.jump_to(NOON - HOUR / 2)
    now = milliseconds_of(clock.now())
    job = create(job_of(schedule="0 * * * *", catchup=catchup), now=now)
    await store.put(SPACE, created=[job], changed=[], now=now)


def plain_worker(store: Store, clock: SimulatedClock) -> Worker:
    limits = Limits(LOOKAHEAD // MILLISECOND, PER_TICK)
    options = WorkerOptions(limits=limits, tick_ms=TICK // MILLISECOND)
    return Worker(store, clock, {"callback": ScriptedLauncher(clock)}, namespace=SPACE, options=options)


def service_worker(store: Store, clock: SimulatedClock) -> Worker:
    settings = Settings(
        lookahead_ms=LOOKAHEAD // MILLISECOND,
        max_catchup_per_tick=PER_TICK,
        tick_ms=TICK // MILLISECOND,
    )
    return ServiceWorker(store, clock, settings)


@pytest.mark.parametrize("make_worker", [plain_worker, service_worker])
@pytest.mark.parametrize(
    ("late", "reason"),
    [
        pytest.param(LOOKAHEAD - SECOND, "due", id="within the lookahead"),
        pytest.param(LOOKAHEAD + SECOND, "catchup_none", id="beyond it"),
    ],
)
async def test_a_period_is_missed_only_if_the_take_over_is_later_than_the_lookahead_of_the_settings(
    make_worker: Callable[[Store, SimulatedClock], Worker], late: timedelta, reason: str
) -> None:
    store, clock = SqliteStore(), SimulatedClock(NOON)
    await register(store, clock, "none")
    clock.jump_to(NOON + late)
    async with working(make_worker(store, clock)):
        await clock.advance_to(NOON + MINUTE)
        (run,) = await store.runs(SPACE, "job")
        assert run.reason == reason
    await store.close()


@pytest.mark.parametrize("make_worker", [plain_worker, service_worker])
async def test_a_worker_starts_as_many_missed_periods_in_a_tick_as_its_settings_allow(
    make_worker: Callable[[Store, SimulatedClock], Worker],
) -> None:
    store, clock = SqliteStore(), SimulatedClock(NOON)
    await register(store, clock, "all")
    taken_over_at = NOON + 9 * HOUR + HOUR / 2
    clock.jump_to(taken_over_at)
    async with working(make_worker(store, clock)):
        await clock.advance_to(taken_over_at + MINUTE)
        runs = await store.runs(SPACE, "job")
    started = sorted(run.started_at for run in runs if run.started_at is not None)
    assert len(started) == 10
    tick = TICK // MILLISECOND
    for first in started:
        assert len([at for at in started if first <= at < first + tick]) <= PER_TICK
    # Nor does it hold them back longer.
    assert started[-1] - started[0] <= 4 * tick
    await store.close()


class Unwatched(SqliteStore):
    """A store whose changes by others cannot be seen."""

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Return a watch that always fails."""

        class Broken:
            async def look(self) -> News:
                raise StoreError("no watch")

            async def close(self) -> None:
                pass

        return Broken()


async def test_a_worker_that_cannot_see_changes_looks_for_them_at_every_tick() -> None:
    store, clock = Unwatched(), SimulatedClock(NOON + SECOND)
    worker = plain_worker(store, clock)
    working = asyncio.create_task(worker.run())
    await clock.advance_to(NOON + MINUTE + SECOND / 2)
    # Another process, which cannot call this worker, creates a job.
    now = milliseconds_of(clock.now())
    await store.put(SPACE, created=[create(job_of(), now=now)], changed=[], now=now)
    await clock.advance_to(NOON + 3 * MINUTE)
    times = [run.started_at for run in await store.runs(SPACE, "job")]
    assert times == [milliseconds_of(NOON + minute * MINUTE) for minute in (3, 2)]
    worker.leave()
    await working
    await store.close()


async def test_a_worker_that_stands_by_tries_again_at_every_tick() -> None:
    """An owner that died says nothing: nothing but the tick makes the next worker try."""
    store, clock = Unwatched(), SimulatedClock(NOON)
    owner, worker = plain_worker(store, clock), plain_worker(store, clock)
    await owner.take_over()
    running = asyncio.create_task(worker.run())
    await clock.advance_to(NOON + 3 * TICK + SECOND)
    assert worker.state != "running"
    owner.kill()
    store.drop_locks()
    await clock.advance_to(NOON + 5 * TICK)
    assert worker.state == "running"
    worker.leave()
    await running
    await store.close()


class Unreachable(SqliteStore):
    """A store that answers nobody, for a reason that is set."""

    reason: str | None = None

    async def acquire(self, *arguments: object, **named: object) -> Ownership:
        if self.reason is not None:
            raise StoreError(self.reason)
        return await super().acquire(*arguments, **named)  # type: ignore[arg-type] # as they came


async def test_a_store_that_stays_away_is_logged_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, clock = Unreachable(), SimulatedClock(NOON)
    store.reason = "no route to host"
    worker = plain_worker(store, clock)
    running = asyncio.create_task(worker.run())
    await clock.advance_to(NOON + 10 * TICK)
    store.reason = "password authentication failed"
    await clock.advance_to(NOON + 20 * TICK)
    store.reason = None
    await clock.advance_to(NOON + 30 * TICK)
    assert worker.state == "running"
    assert [record.getMessage() for record in caplog.records if record.name == "kron.worker"][:2] == [
        "cannot acquire the lease: no route to host; trying again",
        "cannot acquire the lease: password authentication failed; trying again",
    ]
    assert caplog.text.count("cannot acquire the lease") == 2
    worker.leave()
    await running
    await store.close()


async def test_a_worker_holds_its_lease_under_the_name_of_its_options() -> None:
    store, clock = SqliteStore(), SimulatedClock(NOON)
    named = Worker(store, clock, {}, namespace=SPACE, options=WorkerOptions(owner="ann"))
    unnamed = [Worker(store, clock, {}, namespace=SPACE) for _ in range(2)]
    assert named.engine.owner == "ann"
    assert len({worker.engine.owner for worker in unnamed}) == 2
    await store.close()


async def test_a_worker_that_leaves_while_it_takes_over_starts_nothing_and_hands_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, clock = SqliteStore(), SimulatedClock(NOON)
    await register(store, clock, "all")
    clock.jump_to(NOON + MINUTE)
    worker = plain_worker(store, clock)
    acquire = store.acquire

    async def slow(*args: object, **options: object) -> Ownership:
        worker.leave()
        return await acquire(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "acquire", slow)
    await worker.run()
    assert await store.runs(SPACE, "job") == []
    successor = plain_worker(store, clock)
    monkeypatch.setattr(store, "acquire", acquire)
    await successor.take_over()
    successor.kill()
    await store.close()
