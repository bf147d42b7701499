"""Feedback about executions whose end no worker awaits: it still updates their records."""

from datetime import timedelta

import pytest

from kron.core.plan.record import Result
from kron.core.plan.report import RunEvent, Traits
from kron.ports import Store
from tests.engine_stage import MINUTE, NOON, SECOND, SPACE, job_of, stage_on

# As the http launcher is by default: accepted work is started by an executor, which may or may not report.
UNWAITED = Traits(reports=False, idempotent=True, enqueues=True)


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        pytest.param([], ("ENQUEUED", None), id="nothing is heard of it"),
        pytest.param([RunEvent.STARTED], ("STARTED", None), id="it has started"),
        pytest.param([RunEvent.SUCCESS], ("SUCCESS", Result.SUCCESS), id="it has ended"),
        pytest.param([RunEvent.STARTED, RunEvent.FAILED], ("FAILED", Result.FAILED), id="it has failed"),
        pytest.param([RunEvent.SUCCESS, RunEvent.FAILED], ("SUCCESS", Result.SUCCESS), id="an end stays"),
    ],
)
async def test_what_is_reported_of_a_run_nobody_waits_for_moves_it(
    store: Store, happened: list[RunEvent], expected: tuple[str, Result | None]
) -> None:
    async with stage_on(store, traits=UNWAITED) as stage:
        await stage.add(job_of(overlap="skip"))
        await stage.run()
        await stage.until(NOON + 3 * MINUTE)
        # None of them is in flight, so none keeps the next from starting.
        assert await stage.seen() == ["ENQUEUED due"] * 3
        first, *rest = await stage.runs()
        for step in happened:
            await stage.report(first, step)
        after, *others = await stage.runs()
        assert (after.status, after.result) == expected
        assert (after.is_open, others) == (0, rest)
        await stage.until(NOON + 4 * MINUTE)
        assert stage.starts() == [1, 2, 3, 4]


async def test_feedback_counts_for_the_job_as_any_end_does(store: Store) -> None:
    async with stage_on(store, traits=UNWAITED) as stage:
        await stage.add(job_of(pause_after_failures=2))
        await stage.run()
        await stage.until(NOON + 2 * MINUTE)
        for run in await stage.runs():
            await stage.report(run, RunEvent.FAILED, "no space left")
        job = (await stage.case()).job
        assert (job.failures, job.paused, job.paused_because) == (2, 1, "2 failures in a row")
        assert [run.error for run in await stage.runs()] == ["no space left"] * 2


async def test_a_failure_that_is_reported_is_tried_again(store: Store) -> None:
    async with stage_on(store, traits=UNWAITED) as stage:
        await stage.add(job_of(schedule="0 * * * *", retry_delay="10s"))
        await stage.run()
        await stage.until(NOON + timedelta(hours=1))
        (run,) = await stage.runs()
        await stage.report(run, RunEvent.FAILED)
        await stage.advance(9 * SECOND)
        assert stage.starts() == [60]
        await stage.advance(1 * SECOND)
        assert stage.starts() == [60, 60]
        (run,) = await stage.runs()
        assert (run.status, run.attempt, run.is_open) == ("ENQUEUED", 2, 0)


async def test_feedback_survives_a_restart_of_the_engine(store: Store) -> None:
    async with stage_on(store, traits=UNWAITED) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + MINUTE)
        (run,) = await stage.runs()
        await stage.restart()
        await stage.report(run, RunEvent.SUCCESS)
        assert await stage.seen() == ["SUCCESS due"]


async def test_feedback_about_nothing_known_changes_nothing(store: Store) -> None:
    async with stage_on(store, traits=UNWAITED) as stage:
        await stage.add(job_of())
        await stage.run()
        await stage.until(NOON + MINUTE)
        (run,) = await stage.runs()
        for unknown in (run._replace(key="f" * 64), run._replace(identity="nobody"), run._replace(attempt=7)):
            await stage.report(unknown, RunEvent.FAILED)
        assert await stage.runs() == [run]
        assert stage.engine.health.state == "running"
        assert [case.job.identity for case in await store.cases(SPACE)] == ["job"]
