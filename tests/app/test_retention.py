"""Retention: old history goes in small steps, and what is still needed stays, on every store."""

import asyncio
from datetime import timedelta

import pytest

from kron.app.retention import Pruned, prune_history
from kron.core.errors import InvalidOptionError, StoreError
from kron.core.plan.record import RunKind
from kron.core.plan.registration import request_run
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Fault, FaultyStore, Step
from tests.engine_stage import DAY, HOUR, MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on


async def prune(stage: Stage, keep: timedelta, batch: int = 1_000) -> Pruned:
    return await prune_history(stage.store, SPACE, keep=keep, now=stage.now, batch=batch)


async def minutes_left(stage: Stage, identity: str = "job") -> list[int]:
    return [(run.nominal_time - NOON_S) // 60 for run in await stage.runs(identity)]


async def test_only_what_is_older_than_wanted_goes(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 10 * MINUTE + SECOND)
        assert await prune(stage, 10 * MINUTE) == Pruned(0, 0)
        # The run of 12:06 ended at 12:06, four minutes and one second ago.
        assert await prune(stage, 4 * MINUTE) == Pruned(6, 1)
        assert await minutes_left(stage) == [7, 8, 9, 10]


async def test_it_goes_on_in_small_batches_until_nothing_old_is_left(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(*(job_of(f"job-{number}") for number in range(3)))
        await stage.run()
        await stage.until(NOON + 10 * MINUTE + SECOND)
        assert await prune(stage, timedelta(0), batch=4) == Pruned(27, 7)
        for number in range(3):
            assert await minutes_left(stage, f"job-{number}") == [10]
        assert await prune(stage, timedelta(0), batch=4) == Pruned(0, 0)


async def test_what_is_open_stays_however_old_it_is(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(), script=[Step.HANG])
        await stage.run()
        await stage.until(NOON + 5 * MINUTE + SECOND)
        assert await prune(stage, timedelta(0)) == Pruned(3, 1)
        assert await stage.seen() == ["STARTED due", "SUCCESS due"]
        assert await minutes_left(stage) == [1, 5]


async def test_what_is_not_handled_yet_is_judged_as_if_nothing_had_been_removed(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(catchup="all"))
        await stage.run()
        await stage.until(NOON + 3 * MINUTE)
        await stage.pause()
        await stage.until(NOON + 6 * MINUTE + SECOND)
        assert await prune(stage, timedelta(0)) == Pruned(2, 1)
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
        assert (await prune(stage, timedelta(0))).records == 4
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
        await prune(stage, timedelta(0))
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
        assert (await prune(stage, timedelta(0))).records == 2
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

        await asyncio.gather(prune(stage, timedelta(0), batch=1), looks())
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
            await prune_history(faulty, SPACE, keep=timedelta(0), now=stage.now, batch=4)
        assert await prune_history(faulty, SPACE, keep=timedelta(0), now=stage.now, batch=4) == Pruned(5, 2)
    await inner.close()


@pytest.mark.parametrize("wrong", [{"keep": -HOUR}, {"keep": HOUR, "batch": 0}])
async def test_what_makes_no_sense_is_refused(wrong: dict[str, timedelta]) -> None:
    with pytest.raises(InvalidOptionError):
        await prune_history(SqliteStore(), SPACE, now=0, **wrong)  # type: ignore[arg-type]
