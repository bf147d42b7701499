"""How long an execution may take: as long as its policy says, and a day where only others can see it."""

from datetime import timedelta
from itertools import permutations

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.policy import Overlap
from kron.core.plan.record import Result
from kron.core.plan.report import RunEvent, RunReport, Traits
from tests.engine_case import EVERY_MINUTE, MINUTE, NOON, nth
from tests.engine_world import SPACE, World, at_once, with_policy

HOUR, DAY = 60 * MINUTE, 24 * 60 * MINUTE
HERE, ELSEWHERE = Traits(), Traits(idempotent=True, remote=True)
UNWAITED = Traits(reports=False, idempotent=True, remote=True)


def world_of(traits: Traits, **policy: object) -> World:
    job = with_policy(EVERY_MINUTE, deadline=None, **policy)
    world = World(job, 1000 * NOON + 1, traits={"callback": traits})
    world.wake()
    world.advance(MINUTE)
    return world


@pytest.mark.parametrize(
    ("traits", "timeout_h", "lost_after"),
    [
        pytest.param(HERE, None, None, id="watched, no timeout"),
        pytest.param(HERE, 1, HOUR, id="watched, an hour"),
        pytest.param(ELSEWHERE, None, DAY, id="elsewhere, no timeout"),
        pytest.param(ELSEWHERE, 1, HOUR, id="elsewhere, an hour"),
        pytest.param(ELSEWHERE, 48, 2 * DAY, id="elsewhere, two days"),
        pytest.param(UNWAITED, None, None, id="elsewhere, and nobody waits for it"),
    ],
)
def test_an_execution_that_never_ends_is_lost(
    traits: Traits, timeout_h: int | None, lost_after: int | None
) -> None:
    timeout = None if timeout_h is None else timedelta(hours=timeout_h)
    world = world_of(traits, run_timeout=timeout)
    run = world.rows()[nth(1)]
    assert run.due_at == (None if lost_after is None else 1000 * nth(1) + lost_after)
    if lost_after is not None:
        world.pause()
        world.advance(lost_after - 2)
        assert world.rows()[nth(1)].in_flight
        world.advance(1)
        run = world.rows()[nth(1)]
        assert (run.status, run.result, run.is_open) == ("FAILED", Result.LOST, 0)


def test_what_never_reports_does_not_block_its_job_for_ever() -> None:
    hourly = Job(identity="hourly", schedule=Schedule("0 * * * *"))
    world = World(with_policy(hourly, deadline=None), 1000 * NOON + 1, traits={"callback": ELSEWHERE})
    world.wake()
    world.advance(HOUR + DAY)
    rows, (first, second, last) = world.rows(), (nth(60), nth(2 * 60), nth(25 * 60))
    assert (rows[first].result, rows[second].reason) == (Result.LOST, "active")
    assert [nominal for _, nominal, _ in world.starts] == [first, last]


def test_the_next_attempt_has_its_own_day() -> None:
    world = world_of(ELSEWHERE, retry_delay=timedelta(seconds=10), overlap=Overlap.ALLOW)
    world.end_period(nth(1), RunEvent.FAILED)
    world.advance(10_000)
    run = world.rows()[nth(1)]
    assert (run.attempt, run.due_at) == (2, 1000 * nth(1) + 1 + 10_000 + DAY)


@pytest.mark.parametrize("overlap", [Overlap.QUEUE, Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.REPLACE])
def test_a_start_found_lost_at_a_take_over_is_not_sent_again(overlap: Overlap) -> None:
    world = world_of(ELSEWHERE, run_timeout=timedelta(seconds=3), overlap=overlap)
    (first,) = world.starts
    world.outage(MINUTE)
    run = world.rows()[nth(1)]
    assert (run.status, run.result, run.attempt) == ("FAILED", Result.LOST, 1)
    assert world.starts == [first, (world.now, nth(2), 1)]


def test_a_lost_start_whose_retry_is_due_at_once_is_sent_as_the_next_attempt_only() -> None:
    world = world_of(ELSEWHERE, run_timeout=timedelta(seconds=3), retry_delay=timedelta(0))
    (first,) = world.starts
    world.outage(5_000)
    assert world.starts == [first, (world.now, nth(1), 2)]


def test_a_start_found_unacknowledged_within_its_timeout_is_sent_again_and_lost_at_its_time() -> None:
    world = world_of(ELSEWHERE, run_timeout=timedelta(seconds=30))
    world.launched.clear()
    world.outage(5_000)
    assert world.starts[-1] == (world.now, nth(1), 1)
    world.advance(25_000)
    assert world.rows()[nth(1)].result is Result.LOST


@pytest.mark.parametrize("traits", [ELSEWHERE, UNWAITED], ids=["it reports", "nobody waits for it"])
@pytest.mark.parametrize("events", list(permutations([RunEvent.ACCEPTED, RunEvent.ORPHANED])))
def test_a_start_that_is_accepted_while_it_is_found_orphaned_has_not_failed(
    traits: Traits, events: tuple[RunEvent, ...]
) -> None:
    """A worker that lost a shard and regained it receives the response to its request of before."""
    world = world_of(traits)
    before = world.rows()[nth(1)]
    world.crash()
    world.ownership = at_once(world.store.acquire(SPACE, "world"))
    world.wake(*(RunReport(before.identity, before.key, 1, event, world.now) for event in events))
    run = world.rows()[nth(1)]
    assert (run.status, run.result, run.acked, run.is_open) == ("STARTED", None, 1, int(traits.reports))
    assert len(world.starts) == 1
