"""The resume preview against what really happens: the same job resumed on the same store."""

from datetime import timedelta
from itertools import product

import pytest

from kron.core.job.outcome import Reason
from kron.core.job.policy import MAX_CATCHUP, Catchup, Overlap
from kron.core.plan.registration import edit
from kron.core.plan.resume_preview import ResumePreview, preview_change, preview_resume
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON
from tests.engine_world import World, with_policy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("catchup", list(Catchup))
@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.QUEUE])
def test_the_preview_is_what_the_resume_does(catchup: Catchup, overlap: Overlap) -> None:
    for minutes, deadline in product([0, 1, 5, 250], [None, timedelta(0), timedelta(minutes=3)]):
        check_preview(minutes, catchup, overlap, deadline)


def check_preview(minutes: int, catchup: Catchup, overlap: Overlap, deadline: timedelta | None) -> None:
    job = with_policy(EVERY_MINUTE, catchup=catchup, overlap=overlap, deadline=deadline)
    world = World(job, 1000 * NOON + 1)
    world.pause()
    world.now += minutes * MINUTE + 1
    preview = preview_resume(world.case, now=world.now)
    world.resume()
    assert [run.nominal_time for run in preview.starts] == sorted(start[1] for start in world.starts)
    waiting = [run.key for run in world.case.runs if run.status == "PENDING"]
    assert sorted(run.key for run in preview.waiting) == sorted(waiting)
    assert preview.total + sum(preview.dropped.values()) == minutes


@pytest.mark.parametrize("catchup", list(Catchup))
@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.QUEUE])
def test_the_preview_of_an_edit_that_lifts_suspend_is_what_the_edit_does(
    catchup: Catchup, overlap: Overlap
) -> None:
    for minutes in (0, 1, 5, 250):
        job = with_policy(EVERY_MINUTE, catchup=catchup, overlap=overlap, deadline=None)
        world = World(with_policy(job, suspend=True), 1000 * NOON + 1)
        world.now += minutes * MINUTE + 1
        case = world.case
        lifts = edit(case.job, list(case.runs), job, now=world.now)
        keeps = edit(case.job, list(case.runs), with_policy(job, suspend=True, jitter_ms=1), now=world.now)
        assert preview_change(case, keeps, now=world.now) is None
        preview = preview_change(case, lifts, now=world.now)
        assert preview is not None
        world.edit(job)
        assert [run.nominal_time for run in preview.starts] == sorted(start[1] for start in world.starts)
        waiting = [run.key for run in world.case.runs if run.status == "PENDING"]
        assert sorted(run.key for run in preview.waiting) == sorted(waiting)
        assert preview.total + sum(preview.dropped.values()) == minutes


def test_a_job_that_is_not_paused_starts_nothing_more() -> None:
    world = World(EVERY_MINUTE, 1000 * NOON + 1)
    world.now += 5 * MINUTE
    assert preview_resume(world.case, now=world.now) == ResumePreview([], [], {})


def test_the_largest_replay_is_previewed_in_full() -> None:
    job = with_policy(
        EVERY_MINUTE, catchup=Catchup.ALL, overlap=Overlap.ALLOW, deadline=None, max_catchup=MAX_CATCHUP
    )
    world = World(job, 1000 * NOON + 1)
    world.pause()
    world.now += (MAX_CATCHUP + 2_000) * MINUTE + 1
    preview = preview_resume(world.case, now=world.now)
    assert (len(preview.starts), preview.waiting) == (MAX_CATCHUP, [])
    assert preview.dropped == {Reason.CATCHUP_LIMIT: 2_000}


def test_every_definition_of_a_long_pause_is_previewed() -> None:
    """Each edit while paused leaves periods to its old definition, and each definition judges its own."""
    policy = {"catchup": Catchup.ALL, "overlap": Overlap.ALLOW, "deadline": None, "max_catchup": 150}
    world = World(with_policy(EVERY_MINUTE, **policy), 1000 * NOON + 1)
    world.pause()
    for hours in range(30):
        world.now += 200 * MINUTE
        world.edit(with_policy(EVERY_MINUTE, **policy, run_timeout=timedelta(hours=hours + 1)))
    preview = preview_resume(world.case, now=world.now)
    assert (len(preview.starts), preview.dropped) == (30 * 150, {Reason.CATCHUP_LIMIT: 30 * 50})
