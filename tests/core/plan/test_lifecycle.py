"""A run's life: the table, what reports make of it, and that nothing leads back."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.job.outcome import Reason
from kron.core.plan.lifecycle import TRANSITIONS, Phase, moved, phase_of, reported, settle, start
from kron.core.plan.record import IN_FLIGHT, Result, RunRecord, RunStatus
from kron.core.plan.report import RunEvent, RunReport, Traits
from tests.engine_world import reachable
from tests.strategies import law

NOON = 1_767_268_800
CALLS, FORGETS, QUEUES = Traits(), Traits(reports=False, enqueues=True), Traits(enqueues=True)
PENDING = RunRecord("key", "job", NOON, 1000 * NOON, RunStatus.PENDING, Reason.PLANNED, 0, 1, 1000 * NOON, 1)
RUNNING = start(PENDING, reason=Reason.DUE, now=5, token=7, traits=CALLS)
OVER = {RunStatus.SUCCESS, RunStatus.SKIPPED, RunStatus.MISSED, RunStatus.UNSCHEDULABLE, RunStatus.CANCELLED}


def report(happened: RunEvent, attempt: int = 1, **fields: str) -> RunReport:
    return RunReport("job", "key", attempt, happened, 99, **fields)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("PENDING", "ENQUEUED STARTED SKIPPED MISSED UNSCHEDULABLE CANCELLED", id="planned"),
        pytest.param("ENQUEUED", "STARTED SUCCESS FAILED CANCELLED", id="accepted"),
        pytest.param("STARTED", "SUCCESS FAILED CANCELLED", id="running"),
        pytest.param("FAILED", "ENQUEUED STARTED", id="failed, and tried again"),
        *(pytest.param(status.value, "", id=status.lower()) for status in sorted(OVER)),
    ],
)
def test_the_table(before: str, after: str) -> None:
    assert TRANSITIONS[RunStatus(before)] == {RunStatus(word) for word in after.split()}


def test_nothing_that_did_not_run_comes_to_run() -> None:
    for status in OVER:
        assert reachable(status) == set()


def test_a_move_the_table_does_not_have_is_our_own_mistake() -> None:
    for before, after in product(RunStatus, RunStatus):
        run = PENDING._replace(status=before)
        if after in TRANSITIONS[before]:
            assert moved(run, after).status is after
        else:
            with pytest.raises(AssertionError):
                moved(run, after)


@pytest.mark.parametrize(
    ("happened", "status", "result"),
    [
        pytest.param(RunEvent.SUCCESS, RunStatus.SUCCESS, Result.SUCCESS, id="success"),
        pytest.param(RunEvent.FAILED, RunStatus.FAILED, Result.FAILED, id="failure"),
        pytest.param(RunEvent.LAUNCH_FAILED, RunStatus.FAILED, Result.LAUNCH_FAILED, id="never launched"),
        pytest.param(RunEvent.CANCELLED, RunStatus.CANCELLED, Result.CANCELLED, id="ended by hand"),
        pytest.param(RunEvent.ORPHANED, RunStatus.FAILED, Result.ORPHANED, id="its owner died"),
    ],
)
def test_an_end_is_reported(happened: RunEvent, status: RunStatus, result: Result) -> None:
    ended = reported(RUNNING, report(happened, error="why", run_id="r1"), traits=CALLS)
    assert (ended.status, ended.result, ended.ended_at, ended.error, ended.run_id) == (
        status, result, 99, "why", "r1",
    )  # fmt: skip
    assert (ended.is_open, ended.due_at, ended.outcome) == (0, None, "executed")


@pytest.mark.parametrize(
    ("happened", "status"),
    [
        (RunEvent.FAILED, RunStatus.CANCELLED),
        (RunEvent.CANCELLED, RunStatus.CANCELLED),
        (RunEvent.SUCCESS, RunStatus.SUCCESS),
    ],
)
def test_what_was_replaced_ends_replaced_unless_it_succeeded(happened: RunEvent, status: RunStatus) -> None:
    ended = reported(RUNNING._replace(reason=Reason.REPLACED), report(happened), traits=CALLS)
    assert ended.status is status
    assert ended.result is (Result.SUCCESS if status is RunStatus.SUCCESS else Result.REPLACED)


@pytest.mark.parametrize("attempt", [0, 2])
@pytest.mark.parametrize("happened", list(RunEvent))
def test_a_report_about_another_attempt_changes_nothing(happened: RunEvent, attempt: int) -> None:
    assert reported(RUNNING, report(happened, attempt), traits=CALLS) is RUNNING


@pytest.mark.parametrize("status", sorted(set(RunStatus) - IN_FLIGHT))
@pytest.mark.parametrize("happened", list(RunEvent))
def test_a_report_about_what_does_not_run_changes_nothing(happened: RunEvent, status: RunStatus) -> None:
    run = RUNNING._replace(status=status)
    assert reported(run, report(happened), traits=CALLS) is run


@pytest.mark.parametrize(
    ("traits", "status", "is_open", "due_at"),
    [
        pytest.param(CALLS, RunStatus.STARTED, 1, 500, id="runs, and will report"),
        pytest.param(QUEUES, RunStatus.ENQUEUED, 1, 500, id="waits there, and will report"),
        pytest.param(FORGETS, RunStatus.ENQUEUED, 0, None, id="accepted, and nobody will report"),
    ],
)
def test_an_accepted_launch(traits: Traits, status: RunStatus, is_open: int, due_at: int | None) -> None:
    """What never reports is not in flight, and its timeout does not bring it up again."""
    run = start(PENDING, reason=Reason.DUE, now=5, token=7, traits=traits)._replace(due_at=500)
    run = reported(run, report(RunEvent.ACCEPTED, run_id="r1"), traits=traits)
    assert (run.status, run.is_open, run.due_at, run.acked, run.run_id) == (status, is_open, due_at, 1, "r1")
    assert run.in_flight is bool(is_open)


def test_what_was_accepted_starts_by_itself() -> None:
    run = start(PENDING, reason=Reason.DUE, now=5, token=7, traits=QUEUES)
    assert reported(run, report(RunEvent.STARTED), traits=QUEUES).status is RunStatus.STARTED
    assert reported(RUNNING, report(RunEvent.STARTED), traits=CALLS).status is RunStatus.STARTED


def test_a_new_attempt_forgets_the_old_one() -> None:
    failed = reported(RUNNING, report(RunEvent.FAILED, error="why", run_id="r1"), traits=CALLS)
    again = start(failed, reason=Reason.RETRY, now=100, token=8, traits=CALLS)
    assert (again.attempt, again.token, again.started_at) == (2, 8, 100)
    assert (again.ended_at, again.result, again.error, again.run_id, again.acked) == (None,) * 4 + (0,)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (RunStatus.SKIPPED, "skipped"),
        (RunStatus.MISSED, "missed"),
        (RunStatus.UNSCHEDULABLE, "unschedulable"),
        (RunStatus.CANCELLED, "skipped"),
    ],
)
def test_a_run_that_never_started_has_the_outcome_of_its_status(status: RunStatus, outcome: str) -> None:
    ended = settle(PENDING, status, Reason.EDITED)
    assert (ended.outcome, ended.is_open, ended.due_at) == (outcome, 0, None)


def test_a_planned_run_has_no_outcome_yet() -> None:
    assert PENDING.outcome is None
    assert RUNNING.outcome == "executed"


@law(200)
@given(
    reports=st.lists(st.tuples(st.sampled_from(RunEvent), st.integers(0, 3)), max_size=12),
    traits=st.sampled_from([CALLS, FORGETS, QUEUES]),
)
def test_no_order_of_reports_leads_back(reports: list[tuple[RunEvent, int]], traits: Traits) -> None:
    run = start(PENDING, reason=Reason.DUE, now=5, token=7, traits=traits)
    for happened, attempt in reports:
        after = reported(run, report(happened, attempt), traits=traits)
        assert after.status is run.status or after.status in TRANSITIONS[run.status]
        assert after.outcome is run.outcome
        assert run.is_open >= after.is_open
        run = after
        if run.status is RunStatus.FAILED and attempt % 2:
            run = start(run, reason=Reason.RETRY, now=200, token=8, traits=traits)


def test_every_reason_says_something() -> None:
    sentences = [reason.sentence for reason in Reason]
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize(
    ("run", "phase"),
    [
        pytest.param(PENDING, Phase.ELIGIBLE, id="at its time"),
        pytest.param(PENDING._replace(fire_time=1000 * NOON + 1), Phase.PLANNED, id="a millisecond before"),
        pytest.param(RUNNING, Phase.RUNNING, id="started"),
        pytest.param(
            RUNNING._replace(status=RunStatus.FAILED), Phase.RUNNING, id="failed, and another attempt follows"
        ),
        pytest.param(RUNNING._replace(status=RunStatus.FAILED, is_open=0), Phase.COMPLETED, id="failed"),
        pytest.param(RUNNING._replace(status=RunStatus.SUCCESS, is_open=0), Phase.COMPLETED, id="succeeded"),
        pytest.param(
            RUNNING._replace(status=RunStatus.CANCELLED, is_open=0), Phase.COMPLETED, id="ended by a request"
        ),
        *(
            pytest.param(
                settle(PENDING, status, Reason.ACTIVE), Phase.TERMINAL, id=f"{status} without a start"
            )
            for status in (
                RunStatus.SKIPPED,
                RunStatus.MISSED,
                RunStatus.UNSCHEDULABLE,
                RunStatus.CANCELLED,
            )
        ),
    ],
)
def test_a_run_has_the_phase_of_its_period(run: RunRecord, phase: Phase) -> None:
    assert phase_of(run, 1000 * NOON) is phase


def test_a_phase_only_moves_forward() -> None:
    for before, afters in TRANSITIONS.items():
        # A failed run that is tried again is open, and its period Running all along.
        run = PENDING._replace(status=before, started_at=5, is_open=1)
        for after in afters:
            following = moved(run, after, is_open=int(after in IN_FLIGHT))
            first, second = phase_of(run, 1000 * NOON), phase_of(following, 1000 * NOON)
            assert list(Phase).index(second) >= list(Phase).index(first), (before, after)
