"""Pause and suspend: two flags, either stops triggers, and each is lifted by its own owner only."""

from datetime import timedelta

import pytest

from kron.core.job.job import Job
from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.pause import pause, resume
from kron.core.plan.record import RunKind
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, seen, started
from tests.engine_world import World, with_policy


def suspending(job: Job, suspend: bool = True) -> Job:
    return with_policy(job, suspend=suspend)


def caught_up(
    catchup: Catchup = Catchup.ALL, *, deadline: timedelta | None = None, jitter_ms: int = 0
) -> Job:
    overlap = Overlap.ALLOW
    return with_policy(EVERY_MINUTE, catchup=catchup, overlap=overlap, deadline=deadline, jitter_ms=jitter_ms)


def world_of(job: Job) -> World:
    world = World(job, 1000 * NOON + 1)
    world.wake()
    return world


def test_an_edit_that_suspends_stops_triggers_and_handles_no_period() -> None:
    world = world_of(caught_up())
    world.advance(MINUTE)
    world.edit(suspending(caught_up()))
    world.advance(5 * MINUTE)
    assert (world.job.suspended, world.job.paused, world.wake_at) == (1, 0, None)
    assert seen(world) == ["STARTED due"]
    assert world.job.epoch == 1


@pytest.mark.parametrize(
    ("catchup", "expected"),
    [
        pytest.param(Catchup.ALL, ["STARTED caught_up"] * 3, id="all"),
        pytest.param(Catchup.ONCE, ["MISSED superseded"] * 2 + ["STARTED caught_up"], id="the newest"),
        pytest.param(Catchup.NONE, ["MISSED catchup_none"] * 3, id="none"),
    ],
)
def test_lifting_suspend_by_an_edit_is_judged_like_a_resume(catchup: Catchup, expected: list[str]) -> None:
    lifted, resumed = world_of(suspending(caught_up(catchup))), world_of(caught_up(catchup))
    resumed.pause()
    for world in (lifted, resumed):
        world.advance(3 * MINUTE + 10_000)
        assert seen(world) == []
    lifted.edit(caught_up(catchup))
    resumed.resume()
    assert seen(lifted) == seen(resumed) == expected
    lifted.advance(MINUTE)
    assert seen(lifted)[-1] == "STARTED due"


def test_the_deadline_judges_periods_of_a_suspension() -> None:
    deadline = timedelta(seconds=90)
    world = world_of(suspending(caught_up(deadline=deadline)))
    world.advance(3 * MINUTE + 10_000)
    world.edit(caught_up(deadline=deadline))
    assert seen(world) == ["MISSED deadline", "STARTED caught_up", "STARTED caught_up"]


def test_a_resume_does_not_lift_what_the_definition_suspends() -> None:
    world = world_of(suspending(caught_up()))
    world.pause()
    world.advance(2 * MINUTE)
    world.resume()
    assert (world.job.suspended, world.job.paused) == (1, 0)
    world.advance(2 * MINUTE)
    assert seen(world) == []
    world.edit(caught_up())
    assert seen(world) == ["STARTED caught_up"] * 4


def test_an_edit_does_not_resume_what_a_person_paused() -> None:
    world = world_of(suspending(caught_up()))
    world.pause()
    world.edit(caught_up())
    assert (world.job.suspended, world.job.paused, world.job.paused_because) == (0, 1, "by hand")
    world.advance(2 * MINUTE)
    assert seen(world) == []
    world.resume()
    assert started(world) == [1, 2]


def test_a_pending_period_is_held_by_a_suspend_and_runs_after_it() -> None:
    world = world_of(caught_up(jitter_ms=30_000))
    world.advance(35_000)
    (run,) = world.case.runs
    assert run.due_at == run.fire_time
    world.edit(suspending(caught_up(jitter_ms=30_000)))
    assert [run.due_at for run in world.case.runs] == [None]
    world.advance(3 * MINUTE)
    assert world.starts == []
    world.edit(caught_up(jitter_ms=30_000))
    assert set(seen(world)) <= {"STARTED caught_up", "STARTED due", "PENDING planned"}
    assert len(world.starts) >= 3


@pytest.mark.parametrize("suspended", [False, True], ids=["paused", "suspended"])
def test_a_manual_run_starts_whatever_stops_the_job(suspended: bool) -> None:
    world = world_of(suspending(caught_up(), suspended))
    if not suspended:
        world.pause()
    world.now += 2 * MINUTE
    world.ask()
    (run,) = world.rows(RunKind.MANUAL).values()
    assert (str(run.status), run.attempt) == ("STARTED", 1)
    assert seen(world) == []


def test_a_pause_with_an_end_resumes_at_that_instant_without_a_person() -> None:
    world = world_of(caught_up())
    case = world.case
    until = 1000 * NOON + 150_000
    world._put(pause(case.job, case.runs, because="the target is down", now=world.now, until=until))
    assert world.wake_at == until
    world.advance(149_000)
    assert (seen(world), world.job.paused) == ([], 1)
    world.advance(1_000)
    assert (world.job.paused, world.job.paused_because, world.job.paused_until) == (0, None, None)
    assert (seen(world), world.job.resumed_at) == (["STARTED caught_up"] * 2, until)


def test_an_end_that_passes_during_an_outage_separates_missed_from_late() -> None:
    world = world_of(caught_up(Catchup.NONE))
    case = world.case
    world._put(pause(case.job, case.runs, because="by hand", now=world.now, until=1000 * NOON + 90_000))
    world.outage(130_000)
    # The first period belongs to the pause; the second is within the grace of a take-over.
    assert seen(world) == ["MISSED catchup_none", "STARTED due"]


def test_the_end_of_a_pause_does_not_lift_a_suspend() -> None:
    world = world_of(suspending(caught_up()))
    case = world.case
    world._put(pause(case.job, case.runs, because="by hand", now=world.now, until=1000 * NOON + 90_000))
    world.advance(4 * MINUTE)
    assert (world.job.paused, world.job.suspended, seen(world)) == (0, 1, [])


def test_failures_are_counted_anew_after_a_resume() -> None:
    """Else the first failure after it would pause the job again."""
    world = world_of(caught_up())
    paused = world.job._replace(paused=1, failures=3)
    assert resume(paused, [], now=world.now).job.failures == 0
    assert resume(paused._replace(paused=0), [], now=world.now).job.failures == 3, "nothing to resume"
