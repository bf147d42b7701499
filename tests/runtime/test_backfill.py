"""Backfills: a handled period keeps its outcome, and one without a record gets its own."""

import pytest

from kron.app.query import Query
from kron.core.errors import ConflictError, InvalidOptionError
from kron.core.plan.record import RunKind, RunRecord, key_of
from kron.core.plan.registration import backfill
from kron.core.plan.step import WriteResult
from kron.ports import Store
from kron.testing import Step
from tests.engine_stage import DAY, MINUTE, NOON, NOON_S, SECOND, SPACE, Stage, job_of, stage_on

pytestmark = pytest.mark.slow


async def ask(stage: Stage, minute: int, request: str = "one") -> WriteResult:
    """Ask for the period of a minute after noon."""
    nominal_time = NOON_S + 60 * minute
    query = Query(stage.store, SPACE, now=lambda: stage.now)
    memory = await query.period_history("job", nominal_time)
    change = backfill(
        memory.job, nominal_time, run=memory.run, dropped=memory.dropped, request=request, now=stage.now
    )
    settled = await stage.store.put(SPACE, created=[], changed=[change], now=stage.now)
    stage.engine.call()
    await stage.advance(SECOND)
    return settled


async def runs_of(stage: Stage, minute: int) -> list[RunRecord]:
    found = [run for run in await stage.runs() if run.nominal_time == NOON_S + 60 * minute]
    return sorted(found, key=lambda run: run.kind)


async def test_a_period_without_a_record_uses_its_own_row_and_key(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(schedule="*/5 * * * *"))
        await stage.run()
        assert not (await ask(stage, -10)).existing_runs
        (run,) = await runs_of(stage, -10)
        assert (run.key, run.kind) == (key_of("job", NOON_S - 600), RunKind.PERIOD)
        assert (run.status, run.reason) == ("SUCCESS", "asked")
        answer = await Query(store, SPACE, now=lambda: stage.now).why("job", NOON - 10 * MINUTE)
        assert (answer.outcome, answer.code) == ("executed", "ended")


async def test_the_same_period_asked_for_again_is_a_run_of_its_own(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(schedule="*/5 * * * *"))
        await stage.run()
        await ask(stage, -10, "one")
        await ask(stage, -10, "two")
        asked, own = await runs_of(stage, -10)
        assert (asked.kind, own.kind) == (RunKind.BACKFILL, RunKind.PERIOD)
        assert stage.starts() == [-10, -10]
        # The same request once more is known, and nothing is written.
        assert (await ask(stage, -10, "two")).existing_runs == {asked.key}
        assert stage.starts() == [-10, -10]


async def test_two_who_ask_at_once_for_a_period_without_a_record_start_it_once(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(schedule="*/5 * * * *"))
        job = (await stage.case()).job
        wishes = [
            backfill(job, NOON_S - 300, run=None, dropped=None, request=request, now=stage.now)
            for request in ("one", "two")
        ]
        first, second = [await store.put(SPACE, created=[], changed=[wish], now=stage.now) for wish in wishes]
        assert [first.stale_jobs, second.stale_jobs] == [frozenset(), frozenset({"job"})]
        # Also one who saw nothing of the other but the job's revision.
        wishes[1].revision, wishes[1].job = wishes[0].job.revision, wishes[0].job._replace(revision=9)
        third = await store.put(SPACE, created=[], changed=[wishes[1]], now=stage.now)
        assert third.existing_runs == {key_of("job", NOON_S - 300)}
        await stage.run()
        await stage.advance(SECOND)
        assert stage.starts() == [-5]


async def test_a_handled_period_keeps_its_outcome(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(overlap="skip"), script=[Step.HANG])
        await stage.run()
        await stage.until(NOON + 2 * MINUTE + SECOND)
        assert await stage.seen() == ["STARTED due", "SKIPPED active"]
        await ask(stage, 2)
        asked, own = await runs_of(stage, 2)
        assert (own.status, own.reason, own.attempt) == ("SKIPPED", "active", 0)
        assert (asked.kind, asked.status, asked.attempt) == (RunKind.BACKFILL, "SUCCESS", 1)


async def test_a_period_in_a_counted_record_is_handled(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(catchup="none"))
        await stage.run()
        await stage.until(NOON + MINUTE)
        await stage.suspend(DAY)
        await ask(stage, 100)
        (asked,) = await runs_of(stage, 100)
        assert (asked.kind, asked.status) == (RunKind.BACKFILL, "SUCCESS")
        answer = await Query(store, SPACE, now=lambda: stage.now).why("job", NOON + 100 * MINUTE)
        assert (answer.outcome, answer.code) == ("missed", "catchup_none")


async def test_a_period_whose_record_was_removed_is_handled(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + 3 * MINUTE + SECOND)
        await stage.prune()
        await ask(stage, 1)
        (asked,) = await runs_of(stage, 1)
        assert asked.kind is RunKind.BACKFILL


@pytest.mark.parametrize(
    ("minute", "error"),
    [
        pytest.param(4, ConflictError, id="still to come"),
        pytest.param(2, ConflictError, id="the job is paused"),
        pytest.param(-2, InvalidOptionError, id="no such period"),
    ],
)
async def test_what_is_still_to_be_judged_or_is_no_period_is_refused(
    store: Store, minute: int, error: type[Exception]
) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(start_at="2026-01-01T12:00:00Z"))
        await stage.run()
        await stage.until(NOON + MINUTE)
        await stage.pause()
        await stage.until(NOON + 3 * MINUTE)
        with pytest.raises(error):
            await ask(stage, minute)
        assert await stage.seen() == ["SUCCESS due"]


async def test_a_backfilled_period_counts_as_executed(store: Store) -> None:
    async with stage_on(store) as stage:
        await stage.add(job_of(schedule="*/5 * * * *", remaining=2))
        await stage.run()
        await ask(stage, -5)
        assert (await stage.case()).job.remaining == 1
        await stage.until(NOON + 20 * MINUTE)
        assert stage.starts() == [-5, 5]
