"""Retention: old history goes in small steps, and what is still needed stays, on every store."""

import asyncio

import pytest

from kron.app.retention import MAX_BATCH_S, BatchSize, Pruned, Pruner, RetentionPolicy
from kron.core.errors import InvalidOptionError, StoreError
from kron.core.plan.query import PrunedBatch
from kron.core.plan.record import RunKind
from kron.core.plan.registration import request_run
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, SimulatedClock, Step
from tests.engine_stage import DAY, HOUR, MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on


async def minutes_left(stage: Stage, identity: str = "job") -> list[int]:
    return [(run.nominal_time - NOON_S) // 60 for run in await stage.runs(identity)]


async def test_only_what_is_older_than_wanted_goes(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 10 * MINUTE + SECOND)
        assert (await stage.prune(10 * MINUTE)).removed.records == 0
        # The run of 12:06 ended at 12:06, four minutes and one second ago.
        assert await stage.prune(4 * MINUTE) == Pruned(PrunedBatch(runs=6), 1)
        assert await minutes_left(stage) == [7, 8, 9, 10]


async def test_it_goes_on_in_small_batches_until_nothing_old_is_left(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(*(job_of(f"job-{number}") for number in range(3)))
        await stage.run()
        await stage.until(NOON + 10 * MINUTE + SECOND)
        assert await stage.prune(max_batch=4) == Pruned(PrunedBatch(runs=27), 7)
        for number in range(3):
            assert await minutes_left(stage, f"job-{number}") == [10]
        assert (await stage.prune(max_batch=4)).removed.records == 0


async def test_what_is_open_stays_however_old_it_is(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(), script=[Step.HANG])
        await stage.run()
        await stage.until(NOON + 5 * MINUTE + SECOND)
        assert await stage.prune() == Pruned(PrunedBatch(runs=3), 1)
        assert await stage.seen() == ["STARTED due", "SUCCESS due"]
        assert await minutes_left(stage) == [1, 5]


async def test_what_is_not_handled_yet_is_judged_as_if_nothing_had_been_removed(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(catchup="all"))
        await stage.run()
        await stage.until(NOON + 3 * MINUTE)
        await stage.pause()
        await stage.until(NOON + 6 * MINUTE + SECOND)
        assert await stage.prune() == Pruned(PrunedBatch(runs=2), 1)
        await stage.resume()
        await stage.advance(SECOND)
        assert stage.starts() == [1, 2, 3, 4, 5, 6]
        assert await minutes_left(stage) == [3, 4, 5, 6]


async def test_nothing_that_was_removed_runs_again(store: Store) -> None:
    """Also not after a restart, an edit that has it again, or a deletion and a new creation."""
    async with stage_on(store) as stage:
        await stage.add(job_of(catchup="all"))
        await stage.run()
        await stage.until(NOON + 5 * MINUTE + SECOND)
        assert (await stage.prune()).removed.records == 4
        await stage.restart()
        await stage.edit(job_of(schedule="*/2 * * * *", catchup="all"))
        await stage.edit(job_of(catchup="all"))
        await stage.delete()
        await stage.edit(job_of(catchup="all"))
        await stage.until(NOON + 6 * MINUTE)
        assert stage.starts() == [1, 2, 3, 4, 5, 6]


async def test_counted_records_go_when_something_newer_is_known(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(
            job_of(catchup="none"), job_of("finished", catchup="none", end_at="2026-01-01T14:00:00Z")
        )
        await stage.run()
        await stage.until(NOON + MINUTE)
        await stage.restart(after=DAY)
        await stage.until(NOON + DAY + 2 * MINUTE + SECOND)
        assert len(await store.ranges(SPACE, "job")) == 1
        await stage.prune()
        assert await store.ranges(SPACE, "job") == []
        # Its newest outcome is the counted record, so that one stays and the run before it goes.
        assert await stage.runs("finished") == []
        assert [shared.periods for shared in await store.ranges(SPACE, "finished")] == [119]


async def test_attempts_and_runs_asked_for_go_too(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(retry_delay="1s"), script=[Step.FAIL, Step.SUCCEED])
        await stage.run()
        await stage.until(NOON + MINUTE + 30 * SECOND)
        await stage.change("job", lambda record, _: request_run(record, request="one", now=stage.now))
        await stage.until(NOON + 2 * MINUTE)
        first, asked, _ = await stage.runs()
        assert (len(await store.attempts(SPACE, first.key)), asked.kind) == (1, RunKind.MANUAL)
        await stage.advance(SECOND)
        assert await stage.prune() == Pruned(PrunedBatch(runs=2, attempts=1), 1)
        assert await store.attempts(SPACE, first.key) == []
        assert await minutes_left(stage) == [2]


async def test_others_have_their_turn_between_batches() -> None:
    store = SqliteStore()
    async with stage_on(store) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 10 * MINUTE + SECOND)
        seen: list[int] = []

        async def looks() -> None:
            for _ in range(3):
                seen.append(len(await stage.runs()))
                await asyncio.sleep(0)

        await asyncio.gather(stage.prune(max_batch=1), looks())
        assert seen == [9, 8, 7]
    await store.close()


async def test_a_store_that_fails_in_between_is_pruned_the_next_time() -> None:
    inner = SqliteStore()
    async with stage_on(inner) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 10 * MINUTE + SECOND)
        faulty = FaultyStore(inner, stage.clock)
        faulty.then("prune", Fault.AFTER)
        with pytest.raises(StoreError):
            await stage.prune(max_batch=4, store=faulty)
        assert await stage.prune(max_batch=4, store=faulty) == Pruned(PrunedBatch(runs=5), 2)
    await inner.close()


@pytest.mark.parametrize(
    ("policy", "max_batch"),
    [
        pytest.param(RetentionPolicy(keep=-HOUR), 1, id="keep"),
        pytest.param(RetentionPolicy(audit_keep=-HOUR), 1, id="audit"),
        pytest.param(RetentionPolicy(keep_runs=-1), 1, id="runs"),
        pytest.param(RetentionPolicy(), 0, id="batch"),
    ],
)
def test_impossible_bounds_are_refused(policy: RetentionPolicy, max_batch: int) -> None:
    with pytest.raises(InvalidOptionError):
        Pruner(
            store=SqliteStore(),
            clock=SimulatedClock(NOON),
            namespace=SPACE,
            policy=policy,
            max_batch=max_batch,
        )


def test_batches_shrink_on_a_slow_store_and_grow_again_on_a_fast_one() -> None:
    size, slow, fast = BatchSize(100), 2 * MAX_BATCH_S, MAX_BATCH_S / 5
    sizes = [size.limit]
    for seconds in (slow, slow, MAX_BATCH_S / 2, MAX_BATCH_S, fast, fast, fast):
        size.took(seconds)
        sizes.append(size.limit)
    assert sizes == [100, 50, 25, 25, 25, 50, 100, 100]


def test_a_batch_has_at_least_one_record_however_slow_the_store_is() -> None:
    size = BatchSize(3)
    for _ in range(5):
        size.took(2 * MAX_BATCH_S)
    assert size.limit == 1
    size.took(0)
    assert size.limit == 2


def test_a_sum_of_batches_counts_every_kind() -> None:
    batch = PrunedBatch(runs=1, attempts=2, ranges=3, definitions=4, schedules=5, audit=6)
    pruned = Pruned().plus(batch).plus(batch)
    assert pruned == Pruned(PrunedBatch(2, 4, 6, 8, 10, 12), 2)
    assert pruned.removed.records == 2 * batch.records == 42
