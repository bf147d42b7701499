"""The pace of catch-up: a tick starts a limited number of missed periods, and normal starts never wait."""

from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.job import Job
from kron.core.job.policy import Catchup, Overlap
from kron.core.plan.pace import Pace
from kron.core.plan.plan import plan
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.registration import create
from kron.core.plan.report import RunEvent, Traits
from kron.core.plan.step import JobState, Snapshot
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, seen, started
from tests.engine_world import World, with_policy

SECOND = 1_000


def caught_up(catchup: Catchup = Catchup.ALL, overlap: Overlap = Overlap.ALLOW) -> Job:
    return with_policy(EVERY_MINUTE, catchup=catchup, overlap=overlap, deadline=None)


def down(job: Job, minutes: int, *, per_tick: int = 5) -> World:
    """Return a world whose job missed some periods, at the end of its first wake."""
    world = World(job, 1000 * NOON + 1)
    world.wake()
    world.pace = Pace(per_tick, SECOND)
    world.outage(minutes * MINUTE + 61 * SECOND)
    return world


def test_a_tick_starts_at_most_its_number_of_missed_periods_and_the_rest_wait_in_order() -> None:
    world = down(caught_up(), 46)
    for tick in range(12):
        due = [nominal for nominal in started(world) if nominal != 47]
        assert due == list(range(1, 1 + min(46, 5 * (tick + 1))))
        world.advance(SECOND)
    assert seen(world) == ["STARTED caught_up"] * 46 + ["STARTED due"]
    # Batches are a whole tick apart, so none of them shares a second with another.
    times = Counter(at for at, nominal, _ in world.starts if nominal != NOON + 47 * 60)
    assert max(times.values()) == 5
    assert all(later - earlier >= SECOND for earlier, later in pairwise(sorted(times)))


def test_a_period_that_is_simply_due_starts_at_once_while_others_wait() -> None:
    world = down(caught_up(), 400, per_tick=2)
    assert 401 in started(world)
    world.advance(MINUTE)
    on_time = [at for at, nominal, _ in world.starts if nominal == NOON + 402 * 60]
    assert on_time == [1000 * (NOON + 402 * 60)]
    assert "PENDING caught_up" in seen(world)


def test_the_line_continues_after_a_crash_without_a_storm() -> None:
    world = down(caught_up(), 46)
    world.advance(SECOND)
    assert len(world.starts) == 11
    world.crash()
    world.now += 20 * SECOND
    world.pace = Pace(5, SECOND)
    world.take_over()
    assert len(world.starts) == 16
    world.advance(8 * SECOND)
    assert started(world) == [*range(1, 6), 47, *range(6, 47)]


def test_without_a_bound_everything_starts_at_once() -> None:
    world = World(caught_up(), 1000 * NOON + 1)
    world.wake()
    world.outage(46 * MINUTE + 61 * SECOND)
    assert len(world.starts) == 47


def test_spread_runs_count_too() -> None:
    world = World(caught_up(Catchup.SPREAD), 1000 * NOON + 1)
    world.wake()
    world.pace = Pace(1, 10 * SECOND)
    world.outage(20 * MINUTE + 61 * SECOND)
    world.advance(200 * SECOND)
    times = [at for at, nominal, _ in world.starts if nominal <= NOON + 20 * 60]
    assert [later - earlier >= 10 * SECOND for earlier, later in pairwise(times)] == [True] * 19


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.REPLACE])
def test_periods_that_wait_for_another_run_and_were_missed_keep_the_pace(overlap: Overlap) -> None:
    job = with_policy(caught_up(overlap=overlap), replace_grace=timedelta(0))
    world = down(job, 12, per_tick=2)
    for _ in range(60):
        for key in sorted(world.running):
            world.end(key, RunEvent.CANCELLED if overlap is Overlap.REPLACE else RunEvent.SUCCESS)
        world.advance(100)
    times = [at for at, nominal, _ in world.starts if nominal <= NOON + 12 * 60]
    assert len(times) == 12
    assert all(times[place + 2] - times[place] >= SECOND for place in range(10))


# --- over all jobs ---------------------------------------------------------------------------------


def paced_starts(jobs: int, missed: int, per_tick: int, ticks: int) -> list[list[RunRecord]]:
    """Return the catch-up starts of each tick of a worker with several jobs."""
    records = [create(_named(number), now=1000 * NOON + 1) for number in range(jobs)]
    states = [JobState(record) for record in records]
    pace, by_tick = Pace(per_tick, SECOND), []
    first = 1000 * NOON + missed * MINUTE + 120 * SECOND
    for tick in range(ticks):
        now, began = first + tick * SECOND, []
        for _ in range(1_000):
            due = [state for state in states if _due(state) <= now]
            if not due:
                break
            changes, _ = plan(Snapshot(due, first, 1, {}, pace=pace), now)
            for change in changes:
                pace = pace.after(now, starts=change.caught_up, waits=change.waiting)
                began += [run for run in change.starts if run.reason == "caught_up"]
                place = next(i for i, each in enumerate(states) if each.job.identity == change.job.identity)
                runs = {run.key: run for run in (*states[place].runs, *change.inserts, *change.updates)}
                states[place] = JobState(change.job, [run for run in runs.values() if run.is_open])
        by_tick.append(began)
    return by_tick


def _named(number: int) -> Job:
    return Job.from_dict(
        {
            "identity": f"job/{number}",
            "schedule": "* * * * *",
            "policy": {"deadline": None, "concurrency": "allow", "catchup": "all"},
        }
    )


def _due(state: JobState) -> int:
    times = [state.job.plan_at, *(run.due_at for run in state.runs if run.status is RunStatus.PENDING)]
    return min((at for at in times if at is not None), default=1 << 62)


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 7))
def test_the_bound_is_over_all_jobs_and_none_is_left_behind(jobs: int, missed: int, per_tick: int) -> None:
    total = jobs * missed
    ticks = paced_starts(jobs, missed, per_tick, 2 * total + 5)
    assert max(map(len, ticks)) <= per_tick
    starts = [run for tick in ticks for run in tick]
    assert len(starts) == len({run.key for run in starts}) == total
    for number in range(jobs):
        own = [run.nominal_time for run in starts if run.identity == f"job/{number}"]
        assert own == sorted(own)


# --- targets that do not report --------------------------------------------------------------------

SILENT = Traits(reports=False, idempotent=True, enqueues=True, remote=True)


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE, Overlap.ALLOW])
@pytest.mark.parametrize("crashes", [False, True], ids=["", "after a crash between record and start"])
def test_all_periods_due_at_once_start_at_a_target_that_does_not_report(
    overlap: Overlap, crashes: bool
) -> None:
    job = caught_up(overlap=overlap)
    world = World(job, 1000 * NOON + 1, traits={"callback": SILENT})
    world.wake()
    world.crash()
    world.now += 6 * MINUTE + 61 * SECOND
    if crashes:
        world.take_over_and_die()
    world.take_over()
    assert sorted(started(world)) == list(range(1, 8))
    assert seen(world) == ["ENQUEUED caught_up"] * 6 + ["ENQUEUED due"]
    assert world.asked_to_end == []


def test_replace_never_calls_a_run_replaced_that_nothing_could_end() -> None:
    world = World(caught_up(overlap=Overlap.REPLACE), 1000 * NOON + 1, traits={"callback": SILENT})
    world.wake()
    world.advance(2 * MINUTE)
    assert seen(world) == ["ENQUEUED due", "ENQUEUED due"]
    assert world.asked_to_end == []


def test_buffer_one_still_starts_the_newest_only() -> None:
    world = World(caught_up(overlap=Overlap.BUFFER_ONE), 1000 * NOON + 1, traits={"callback": SILENT})
    world.wake()
    world.oversleep(3 * MINUTE)
    assert seen(world) == ["SKIPPED coalesced", "SKIPPED coalesced", "ENQUEUED due"]
