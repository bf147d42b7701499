"""How `stop` ends: refused where it would wait for itself, and in bounded time without its store."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import StoreError
from kron.core.task.errors import SchedulerFailedError, SchedulerStopInCallbackError
from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Chance, Fault, FaultyStore, SimulatedClock, kill

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
Stop = Callable[[], Awaitable[object]]


async def in_a_task(stop: Stop) -> None:
    await asyncio.ensure_future(stop())


async def in_a_task_of_a_task(stop: Stop) -> None:
    await asyncio.create_task(in_a_task(stop))


async def in_a_gather(stop: Stop) -> None:
    await asyncio.gather(asyncio.sleep(0), stop())


async def in_a_wait(stop: Stop) -> None:
    (done,), _ = await asyncio.wait([asyncio.ensure_future(stop())])
    done.result()


async def in_a_wait_for(stop: Stop) -> None:
    await asyncio.wait_for(stop(), 1_000)


async def in_a_shield(stop: Stop) -> None:
    await asyncio.shield(stop())


async def in_a_group(stop: Stop) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(in_a_task(stop))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors


async def later(stop: Stop) -> None:
    task = asyncio.ensure_future(stop())
    for _ in range(20):
        await asyncio.sleep(0)
    await task


WAYS = (
    in_a_task, in_a_task_of_a_task, in_a_gather, in_a_wait, in_a_wait_for, in_a_shield, in_a_group, later,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_callback_cannot_wait_for_stop_through_a_task_either(
    way: Callable[[Stop], Awaitable[None]],
) -> None:
    refused: list[Exception] = []
    clock = SimulatedClock(NOON)
    scheduler = Scheduler("memory://", clock=clock, timezone="UTC")

    async def stops() -> None:
        try:
            await way(scheduler.stop)
        except SchedulerStopInCallbackError as error:
            refused.append(error)

    await scheduler.initialize([("a", "0 * * * *", stops, MINUTE)])
    await clock.advance_to(NOON + SECOND)
    # From outside of the callback it ends.
    await scheduler.stop()
    assert len(refused) == 1
    assert scheduler.state == "stopped"


async def test_a_task_that_a_callback_leaves_behind_may_stop() -> None:
    clock, gate, stops = SimulatedClock(NOON), asyncio.Event(), list[asyncio.Task[None]]()
    scheduler = Scheduler("memory://", clock=clock, timezone="UTC")

    async def call() -> None:
        stops.append(asyncio.create_task(scheduler.stop()))
        await gate.wait()

    await scheduler.initialize([("a", "0 * * * *", call, MINUTE)])
    await clock.advance_to(NOON + SECOND)
    assert scheduler.state == "stopping"
    gate.set()
    await asyncio.gather(*stops)
    assert scheduler.state == "stopped"


async def test_a_callback_may_wait_for_the_stop_of_another_scheduler() -> None:
    clock = SimulatedClock(NOON)
    one, two = (Scheduler("memory://", clock=clock, timezone="UTC") for _ in range(2))
    await two.initialize([])

    async def call() -> None:
        await asyncio.create_task(two.stop())

    await one.initialize([("a", "0 * * * *", call, MINUTE)])
    await clock.advance_to(NOON + SECOND)
    assert (one.tasks["a"].last_success_at, two.state) == (NOON, "stopped")
    await one.stop()


# --- without a store -------------------------------------------------------------------------------


async def test_stop_returns_when_the_store_is_gone() -> None:
    store = FaultyStore(SqliteStore(), SystemClock())
    scheduler = Scheduler(store, timezone="UTC")
    scheduler._wiring.store_timeout_s = 0.5
    started, gate = asyncio.Event(), asyncio.Event()

    async def call() -> None:
        started.set()
        await gate.wait()

    await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
    await started.wait()
    store._chance = Chance(seed=1, odds=1.0, faults=[Fault.BEFORE])
    stopping = asyncio.create_task(scheduler.stop())
    await asyncio.wait([stopping], timeout=1.5)
    # The time of a running callback does not count.
    assert not stopping.done()
    gate.set()
    with pytest.raises(StoreError, match="did not record the last ends"):
        await stopping
    assert (scheduler.state, scheduler.polling) == ("stopped", "inactive")
    assert {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("kron")} == set()
    store.heal()
    # The end was not recorded, so the task is due again.
    await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
    assert dict(scheduler.standings) == {"a": "orphaned"}
    await scheduler.stop()
    await store.inner.close()


@pytest.mark.slow
async def test_stop_returns_and_closes_the_file_while_another_process_has_it_locked(tmp_path: Path) -> None:
    path = tmp_path / "kron.db"
    scheduler = Scheduler(f"sqlite:///{path}", timezone="UTC")
    scheduler._wiring.store_timeout_s = 7
    started, gate = asyncio.Event(), asyncio.Event()

    async def call() -> None:
        started.set()
        await gate.wait()

    await scheduler.initialize([("a", "* * * * *", call, MINUTE)])
    await started.wait()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        gate.set()
        with pytest.raises((StoreError, SchedulerFailedError)):
            await scheduler.stop()
        assert scheduler.state == "stopped"
        other.execute("ROLLBACK")
    assert not (tmp_path / "kron.db-wal").exists()
    again = Scheduler(f"sqlite:///{path}", timezone="UTC")
    await again.initialize([("a", "* * * * *", call, MINUTE)])
    assert dict(again.standings) == {"a": "orphaned"}
    await again.stop()


# --- the identifier --------------------------------------------------------------------------------


async def test_an_orphan_was_started_under_another_identifier(tmp_path: Path) -> None:
    """The identifier owns the lease, and every start is stored with the token of its lease."""
    path, clock = tmp_path / "kron.db", SimulatedClock(NOON)

    async def hang() -> None:
        await clock.sleep_until(NOON + 365 * 24 * 60 * MINUTE)

    def leases() -> list[tuple[str, int]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT owner, token FROM leases").fetchall()

    def starts() -> list[tuple[int]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT token FROM runs WHERE is_open = 1").fetchall()

    one, two = (Scheduler(f"sqlite:///{path}", clock=clock, timezone="UTC") for _ in range(2))
    await one.initialize([])
    first = one.identifier
    await one.stop()
    await one.initialize([("a", "0 * * * *", hang, MINUTE)])
    assert one.identifier == first, "made once"
    await clock.advance_to(NOON + SECOND)
    ((owner, token),) = leases()
    assert (owner, starts()) == (first, [(token,)])
    await kill(one)
    await two.initialize([("a", "0 * * * *", hang, MINUTE)])
    assert two.identifier not in (None, first)
    assert dict(two.standings) == {"a": "orphaned"}
    await clock.advance_to(NOON + 2 * SECOND)
    ((owner, later_token),) = leases()
    assert (owner, starts()) == (two.identifier, [(later_token,)])
    assert later_token > token
    await kill(two)
