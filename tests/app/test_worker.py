"""A worker hands its options to every engine it makes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from kron.app.worker import Worker, WorkerOptions
from kron.core.plan.registration import create
from kron.core.plan.step import Limits
from kron.core.time.instant import milliseconds_of
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import Settings
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import ScriptedLauncher, SimulatedClock
from tests.engine_stage import HOUR, MINUTE, NOON, SECOND, SPACE, job_of

MILLISECOND = timedelta(milliseconds=1)
LOOKAHEAD = 10 * SECOND


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
    options = WorkerOptions(limits=Limits(LOOKAHEAD // MILLISECOND, 100))
    return Worker(store, clock, {"callback": ScriptedLauncher(clock)}, namespace=SPACE, options=options)


def service_worker(store: Store, clock: SimulatedClock) -> Worker:
    return ServiceWorker(store, clock, Settings(lookahead_ms=LOOKAHEAD // MILLISECOND))


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
