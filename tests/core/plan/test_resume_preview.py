"""Foresight against what really happens: the same job resumed on the same store."""

from datetime import timedelta

import pytest

from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.resume_preview import starts_on_resume
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON
from tests.engine_world import World, with_policy


@pytest.mark.parametrize("minutes", [0, 1, 5, 250])
@pytest.mark.parametrize("catchup", list(Catchup))
@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.BUFFER_ONE])
@pytest.mark.parametrize("deadline", [None, timedelta(0), timedelta(minutes=3)])
def test_as_many_start_as_was_said(
    minutes: int, catchup: Catchup, overlap: Overlap, deadline: timedelta | None
) -> None:
    job = with_policy(EVERY_MINUTE, catchup=catchup, overlap=overlap, deadline=deadline)
    world = World(job, 1000 * NOON + 1)
    world.pause()
    world.now += minutes * MINUTE + 1
    said = starts_on_resume(world.case, now=world.now)
    world.resume()
    begun = len(world.starts)
    waiting = sum(run.status == "PENDING" for run in world.case.runs)
    assert said == begun + waiting


def test_a_job_that_is_not_paused_starts_nothing_more() -> None:
    world = World(EVERY_MINUTE, 1000 * NOON + 1)
    world.now += 5 * MINUTE
    assert starts_on_resume(world.case, now=world.now) == 0
