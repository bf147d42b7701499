"""The room for open runs: what a step may open, and which of the periods it adds are skipped."""

from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.plan.plan import plan
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.registration import create
from kron.core.plan.step import Change, JobState, Snapshot

NOON = 1_767_268_800_000
MINUTE = 60_000
# Windows of many periods are open at once, and some of their times are over.
JOB = Job.from_dict(
    {
        "identity": "job",
        "schedule": "* * * * *",
        "window": {"mode": "after", "duration": "20m"},
        "policy": {"overlap": "skip", "deadline": None},
    }
)


def state_with_active_run() -> JobState:
    """Return a job after its first start, which runs on; the next periods were not planned in time."""
    state = JobState(create(JOB, now=NOON))
    now = NOON
    for _ in range(60):
        now += MINUTE
        (change,), _ = plan(Snapshot([state], now, 0, {}), now)
        started = [run for run in change.inserts if run.status is RunStatus.STARTED]
        started += [run for run in change.updates if run.status is RunStatus.STARTED]
        if started:
            return JobState(change.job, (started[0],))
        pending = [run for run in change.inserts if run.status is RunStatus.PENDING]
        state = JobState(change.job, (*state.runs, *pending))
    raise AssertionError("a window ends after 20 minutes")


def change_with(room: int | None) -> Change:
    state = state_with_active_run()
    now = 1000 * (state.job.next_time or 0) + 15 * MINUTE
    (change,), _ = plan(Snapshot([state._replace(room=room)], now, 0, {}), now)
    return change


def waiting_in(change: Change) -> list[RunRecord]:
    return [run for run in change.inserts if run.status is RunStatus.PENDING]


def test_periods_that_the_overlap_policy_skips_take_no_room() -> None:
    unlimited = change_with(None)
    waiting = waiting_in(unlimited)
    assert waiting
    assert any(run.reason is Reason.ACTIVE for run in unlimited.inserts)
    limited = change_with(len(waiting))
    assert (limited.inserts, limited.ranges) == (unlimited.inserts, unlimited.ranges)


def test_of_the_periods_that_would_wait_the_first_have_the_room() -> None:
    waiting = waiting_in(change_with(None))
    for room in range(len(waiting)):
        change = change_with(room)
        assert waiting_in(change) == waiting[:room]
        refused = sum(run.reason is Reason.OPEN_LIMIT for run in change.inserts)
        refused += sum(each.periods for each in change.ranges if each.reason is Reason.OPEN_LIMIT)
        assert refused == len(waiting) - room
