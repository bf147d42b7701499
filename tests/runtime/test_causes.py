"""Causes: what delayed, blocked, moved or made up for a period is told with names, times and links."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from kron.app.backfill import PeriodRange
from kron.app.catalog import Catalog, JobDefinition
from kron.core.job.job import Job
from kron.core.plan.fact import Link
from kron.core.plan.report import RunEvent
from kron.core.plan.why import Explanation
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.engine_stage import MINUTE, NOON, SECOND, SPACE, Stage, job_of, stage_on

CATCHUP_REMEDY = 'catchup "once" or "all" runs periods that a pause or an outage delayed'


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    store = SqliteStore()
    async with stage_on(store) as made:
        yield made
    await store.close()


def catalog_of(stage: Stage, actor: str | None = None) -> Catalog:
    return Catalog(stage.store, SPACE, now=lambda: stage.now, wake=stage.engine.call, actor=lambda: actor)


async def ask(stage: Stage, minute: int, identity: str = "job") -> Explanation:
    return await catalog_of(stage).query.why(identity, NOON + minute * MINUTE)


async def outage(stage: Stage, down: timedelta, owner: str) -> None:
    """Kill the engine with its executions, stay down, and start another one."""
    stage.engine.kill()
    await stage.launcher.close(wait=False)
    stage.store.drop_locks()  # type: ignore[attr-defined]
    await stage.advance(down)
    stage.engine = stage.make_engine(owner)
    await stage.run()
    await stage.advance(timedelta(0))


async def test_a_period_of_a_pause_names_who_paused_who_resumed_and_the_reason(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    await catalog_of(stage, "alice").pause("job", because="the database moves")
    await stage.until(NOON + 150 * SECOND)
    waits = await ask(stage, 2)
    assert waits.headline == (
        "the job is paused by alice since 2026-01-01T12:01:30Z: the database moves; "
        "the period is judged on resume"
    )
    await catalog_of(stage, "bob").resume("job")
    await stage.until(NOON + 170 * SECOND)
    answer = await ask(stage, 2)
    paused = (
        "the job was paused by alice from 2026-01-01T12:01:30Z to 2026-01-01T12:02:30Z: the database moves "
        "(resumed by bob)"
    )
    assert answer.facts[2].sentence == paused
    assert answer.headline == f"did not run: {paused}, and the catch-up policy is none"
    assert answer.remedy == CATCHUP_REMEDY
    assert answer.facts[-1].sentence == "missed: the catch-up policy is none"


async def test_a_pause_that_ends_at_its_planned_time_says_so(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    until = stage.now - 1 + 150_000
    await catalog_of(stage).pause("job", until=until)
    await stage.until(NOON + 200 * SECOND)
    assert (await ask(stage, 1)).headline == (
        "did not run: the job was paused from 2026-01-01T12:00:00Z to 2026-01-01T12:02:30Z "
        "(its planned end), and the catch-up policy is none"
    )


async def test_a_period_without_a_worker_names_the_workers_and_how_the_first_ended(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    await outage(stage, 5 * MINUTE, "second")
    killed = (
        "worker me ended without a stop, after its last write at 2026-01-01T12:01:00Z; "
        "no worker ran until worker second took over at 2026-01-01T12:06:30Z"
    )
    answer = await ask(stage, 3)
    assert answer.headline == f"did not run: {killed}, and the catch-up policy is none"
    await stage.engine.stop()
    await stage.advance(5 * MINUTE)
    stage.engine = stage.make_engine("third")
    await stage.run()
    await stage.advance(SECOND)
    assert (await ask(stage, 8)).headline == (
        "did not run: worker second was stopped at 2026-01-01T12:06:30Z; no worker ran until worker third "
        "took over at 2026-01-01T12:11:30Z, and the catch-up policy is none"
    )


async def test_a_period_of_a_drain_names_the_worker_that_was_stopped_before_it(stage: Stage) -> None:
    await stage.add(job_of(), job_of("long", "1 * * * *"))
    stage.launcher.then("long", Step.HANG)
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    stopping = asyncio.create_task(stage.engine.stop())
    await stage.until(NOON + 150 * SECOND)
    (hanging,) = stage.launcher.running
    stage.launcher.finish(hanging)
    await stopping
    stage.engine = stage.make_engine("second")
    await stage.run()
    await stage.advance(SECOND)
    stopped = (
        "worker me was stopped at 2026-01-01T12:01:30Z; no worker ran until worker second took over at "
        "2026-01-01T12:02:30Z"
    )
    assert (await ask(stage, 2)).headline == f"succeeded, started 30s late: {stopped}"


async def test_an_edit_during_an_outage_does_not_count_as_a_write_of_the_worker(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"), job_of("other"))
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    stage.engine.kill()
    await stage.launcher.close(wait=False)
    stage.store.drop_locks()  # type: ignore[attr-defined]
    await stage.advance(2 * MINUTE)
    await catalog_of(stage).pause("other")
    await stage.advance(3 * MINUTE)
    killed = "worker me ended without a stop, after its last write at 2026-01-01T12:01:00Z"
    assert (await ask(stage, 3)).headline == (
        f"due, and not processed by a worker yet: {killed}, and no worker has run since"
    )
    stage.engine = stage.make_engine("second")
    await stage.run()
    await stage.advance(SECOND)
    taken_over = f"{killed}; no worker ran until worker second took over at 2026-01-01T12:06:30Z"
    assert (await ask(stage, 3)).headline == f"did not run: {taken_over}, and the catch-up policy is none"


async def test_before_the_first_worker_no_worker_ran(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.advance(5 * MINUTE)
    await stage.run()
    await stage.advance(SECOND)
    answer = await ask(stage, 2)
    assert answer.headline == (
        "did not run: no worker ran before worker me started at 2026-01-01T12:05:00Z, "
        "and the catch-up policy is none"
    )
    # Such an outage has no beginning, and is not told to have one in 1970.
    assert [fact.at for fact in answer.facts if fact.code == "take_over"] == [None]


async def test_after_a_short_outage_a_skipped_period_names_the_one_that_started_first(stage: Stage) -> None:
    every_ten = job_of("job", "*/10 * * * * *", overlap="skip")
    await stage.add(every_ten, script=[Step.HANG] * 9)
    await stage.run()
    await stage.until(NOON + 12 * SECOND)
    await outage(stage, 45 * SECOND, "second")
    query = catalog_of(stage).query
    killed = (
        "worker me ended without a stop, after its last write at 2026-01-01T12:00:10Z; "
        "no worker ran until worker second took over at 2026-01-01T12:00:57Z"
    )
    orphan = await query.why("job", NOON + 10 * SECOND)
    assert orphan.headline == f"lost while it ran: {killed}"
    assert orphan.remedy == 'with on_orphan "restart" such a run starts again'
    assert [fact.code for fact in orphan.facts] == [
        "schedule", "nominal_time", "recorded", "started", "take_over", "ended",
    ]  # fmt: skip
    started = await query.why("job", NOON + 20 * SECOND)
    assert started.headline == f"running since 2026-01-01T12:00:57Z, started 37s late: {killed}"
    skipped = await query.why("job", NOON + 30 * SECOND)
    first = "the period 2026-01-01T12:00:20Z was due as well and started first, at 2026-01-01T12:00:57Z"
    assert skipped.headline == f"did not run: {first}; {killed}"
    assert skipped.facts[-1].sentence == "skipped: another run of the job was active"
    assert skipped.facts[2].sentence == killed
    assert skipped.facts[-2].links == (Link("period", "2026-01-01T12:00:20Z"),)


async def test_an_orphan_that_its_policy_restarts_is_not_told_to_restart(stage: Stage) -> None:
    await stage.add(job_of(overlap="queue", on_orphan="restart"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    await outage(stage, 45 * SECOND, "second")
    orphan = await ask(stage, 1)
    assert orphan.headline.startswith("lost while it ran: worker me ended without a stop")
    assert orphan.facts[-1].sentence == "not retried: the next period was due first"
    assert orphan.remedy is None


async def test_a_blocked_period_names_the_run_that_blocked_it_and_its_end(stage: Stage) -> None:
    await stage.add(job_of(overlap="skip"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + 150 * SECOND)
    active = (
        "did not run: the run of the period 2026-01-01T12:01:00Z, started at 2026-01-01T12:01:00Z, "
        "was still active"
    )
    assert (await ask(stage, 2)).headline == active
    (run, *_) = await stage.runs()
    await stage.report(run, RunEvent.SUCCESS)
    assert (await ask(stage, 2)).headline == f"{active} until 2026-01-01T12:02:30Z"


async def test_a_queued_period_waits_for_the_active_run_and_starts_late(stage: Stage) -> None:
    await stage.add(job_of(overlap="queue"), script=[Step.HANG])
    await stage.run()
    await stage.until(NOON + 150 * SECOND)
    started = "the run of the period 2026-01-01T12:01:00Z, started at 2026-01-01T12:01:00Z"
    assert (await ask(stage, 2)).headline == f"it waits for {started}"
    (run, *_) = await stage.runs()
    await stage.report(run, RunEvent.SUCCESS)
    assert (await ask(stage, 2)).headline == (
        f"succeeded, started 30s late: it waited for {started} until 2026-01-01T12:02:30Z"
    )


async def test_a_missed_period_that_was_backfilled_says_by_whom(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.advance(5 * MINUTE)
    await stage.run()
    await stage.advance(SECOND)
    noon = int(NOON.timestamp())
    await catalog_of(stage, "bob").backfill("job", PeriodRange(start=noon + 120, end=noon + 121), "again")
    await stage.advance(SECOND)
    answer = await ask(stage, 2)
    made_up = (
        "a backfill was requested by bob at 2026-01-01T12:05:01Z; "
        "it started at 2026-01-01T12:05:01Z and succeeded at 2026-01-01T12:05:01Z"
    )
    assert answer.headline == (
        "did not run on schedule: no worker ran before worker me started at 2026-01-01T12:05:00Z, "
        f"and the catch-up policy is none; made up: {made_up}"
    )
    assert (answer.remedy, answer.facts[-2].code, answer.facts[-2].sentence) == (None, "made_up", made_up)


async def test_a_manual_run_before_the_next_period_makes_up_for_a_failed_one(stage: Stage) -> None:
    await stage.add(job_of(schedule="*/5 * * * *"), script=[Step.FAIL])
    await stage.run()
    await stage.until(NOON + 6 * MINUTE)
    await catalog_of(stage, "carol").run_now("job", "now")
    await stage.advance(SECOND)
    answer = await ask(stage, 5)
    assert answer.facts[-2].sentence == (
        "a manual run was requested by carol at 2026-01-01T12:06:00Z; "
        "it started at 2026-01-01T12:06:00Z and succeeded at 2026-01-01T12:06:00Z"
    )


async def test_an_edit_that_removes_a_planned_period_is_told_with_its_author(stage: Stage) -> None:
    window = {"mode": "before", "duration": "2h"}
    job = {"identity": "job", "schedule": "0 15 * * *", "window": window, "seed": {"salt": "f"}}
    await stage.add(Job.from_dict(job))
    await stage.run()
    await stage.until(NOON + 61 * MINUTE)
    edited = Job.from_dict(job | {"schedule": "0 16 * * *"})
    await catalog_of(stage, "dora").upsert([JobDefinition(edited)])
    edit = 'the job was edited by dora at 2026-01-01T13:01:00Z: schedule from "0 15 * * *" to "0 16 * * *"'
    assert (await ask(stage, 180)).headline == f"did not run: {edit}"


async def test_of_several_edits_the_one_that_removed_the_period_is_told(stage: Stage) -> None:
    window = {"mode": "before", "duration": "2h"}
    job: dict[str, object] = {
        "identity": "job",
        "schedule": "0 15 * * *",
        "window": window,
        "seed": {"salt": "f"},
    }
    changes: list[tuple[int, str, dict[str, object]]] = [
        (61, "carl", {"description": "more"}),
        (62, "dora", {"seed": {"salt": "g"}}),
    ]
    await stage.add(Job.from_dict(job))
    await stage.run()
    for minute, who, fields in changes:
        await stage.until(NOON + minute * MINUTE)
        job |= fields
        await catalog_of(stage, who).upsert([JobDefinition(Job.from_dict(job))])
    decided = [fact.sentence for fact in (await ask(stage, 180)).facts if fact.code == "edit"]
    assert [sentence.split(" at ")[0] for sentence in decided] == ["the job was edited by dora"]
    await stage.until(NOON + 63 * MINUTE)
    await catalog_of(stage, "eve").upsert([JobDefinition(Job.from_dict(job | {"schedule": "0 16 * * *"}))])
    edit = 'the job was edited by eve at 2026-01-01T13:03:00Z: schedule from "0 15 * * *" to "0 16 * * *"'
    assert (await ask(stage, 180)).headline == f"did not run: {edit}"


async def test_a_time_that_an_edit_removed_from_the_schedule_names_the_edit(stage: Stage) -> None:
    await stage.add(job_of())
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    await catalog_of(stage, "dora").upsert([JobDefinition(job_of(schedule="*/5 * * * *"))])
    answer = await ask(stage, 3)
    assert answer.facts[1].sentence == (
        'the job was edited by dora at 2026-01-01T12:01:30Z: schedule from "* * * * *" to "*/5 * * * *"'
    )


async def test_a_failed_period_says_when_it_is_retried(stage: Stage) -> None:
    await stage.add(job_of(schedule="*/10 * * * *", retry_delay="2m"), script=[Step.FAIL])
    await stage.run()
    await stage.until(NOON + 11 * MINUTE)
    assert (await ask(stage, 10)).headline == (
        "failed, and waits to retry: attempt 2 starts at 2026-01-01T12:12:00Z, 2m after the failure "
        "(retry_delay)"
    )


async def test_a_retry_that_a_period_pre_empts_names_that_period(stage: Stage) -> None:
    await stage.add(job_of(retry_delay="2m"), script=[Step.FAIL])
    await stage.run()
    await stage.until(NOON + 150 * SECOND)
    assert (await ask(stage, 1)).headline == (
        "failed, and was not retried: the period 2026-01-01T12:02:00Z was due before its retry"
    )


async def test_a_clock_that_was_set_forward_is_named_with_both_times(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 30 * SECOND)
    await stage.suspend(10 * MINUTE)
    assert (await ask(stage, 5)).headline == (
        "did not run: the host's clock moved forward by 0:10:00, from 2026-01-01T12:00:30Z to "
        "2026-01-01T12:10:30Z (it was set, or the machine slept), and the catch-up policy is none"
    )


async def test_three_failures_in_a_row_pause_a_job_and_say_so(stage: Stage) -> None:
    await stage.add(job_of(pause_after_failures=1, catchup="none"), script=[Step.FAIL])
    await stage.run()
    await stage.until(NOON + 130 * SECOND)
    assert (await ask(stage, 2)).headline == (
        "the job is paused since 2026-01-01T12:01:00Z: 1 failures in a row; the period is judged on resume"
    )


async def test_a_suspended_definition_is_told_with_its_time(stage: Stage) -> None:
    await stage.add(job_of(catchup="none"))
    await stage.run()
    await stage.until(NOON + 90 * SECOND)
    await catalog_of(stage, "dora").upsert([JobDefinition(job_of(catchup="none", suspend=True))])
    await stage.until(NOON + 150 * SECOND)
    assert (await ask(stage, 2)).headline == (
        "the definition suspends the job (policy.suspend) since 2026-01-01T12:01:30Z; "
        "the period is judged on resume"
    )
