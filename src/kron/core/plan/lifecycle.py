"""The life cycle of a run: the allowed status transitions, and the effect of reports.

The table is the whole state machine; the documentation is generated from it. Only a new attempt
leads back from FAILED, so (attempt, status) never goes backwards and an outcome never changes.
"""

from kron.core.choice import Choice
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import IN_FLIGHT, Result, RunRecord, RunStatus
from kron.core.plan.report import RunEvent, RunReport, Traits

ENDED = (RunStatus.SUCCESS, RunStatus.FAILED, RunStatus.CANCELLED)
TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.PENDING: frozenset(
        {
            RunStatus.ENQUEUED,
            RunStatus.STARTED,
            RunStatus.SKIPPED,
            RunStatus.MISSED,
            RunStatus.UNSCHEDULABLE,
            RunStatus.CANCELLED,
        }
    ),
    RunStatus.ENQUEUED: frozenset({RunStatus.STARTED, *ENDED}),
    RunStatus.STARTED: frozenset(ENDED),
    RunStatus.FAILED: frozenset({RunStatus.ENQUEUED, RunStatus.STARTED}),
    RunStatus.SUCCESS: frozenset(),
    RunStatus.SKIPPED: frozenset(),
    RunStatus.MISSED: frozenset(),
    RunStatus.UNSCHEDULABLE: frozenset(),
    RunStatus.CANCELLED: frozenset(),
}

_END_OF = {
    RunEvent.SUCCESS: (RunStatus.SUCCESS, Result.SUCCESS),
    RunEvent.FAILED: (RunStatus.FAILED, Result.FAILED),
    RunEvent.LAUNCH_FAILED: (RunStatus.FAILED, Result.LAUNCH_FAILED),
    RunEvent.CANCELLED: (RunStatus.CANCELLED, Result.CANCELLED),
    RunEvent.ORPHANED: (RunStatus.FAILED, Result.ORPHANED),
}


class Phase(Choice):
    """Where a period is in its life (SPEC 4: State Machine); it only moves forward.

    An executed period is Running until no further attempt follows, then Completed. One that was skipped,
    missed or unschedulable is Terminal.
    """

    PLANNED = "Planned"
    ELIGIBLE = "Eligible"
    RUNNING = "Running"
    COMPLETED = "Completed"
    TERMINAL = "Terminal"


def phase_of(run: RunRecord, now: int) -> Phase:
    """Return the phase of a run at an instant in milliseconds."""
    if run.status is RunStatus.PENDING:
        return Phase.PLANNED if now < run.fire_time else Phase.ELIGIBLE
    if run.outcome is not Outcome.EXECUTED:
        return Phase.TERMINAL
    return Phase.RUNNING if run.is_open else Phase.COMPLETED


def moved(run: RunRecord, status: RunStatus, **fields: object) -> RunRecord:
    """Return a run in its next status; an illegal transition is a bug."""
    assert status in TRANSITIONS[run.status], f"{run.status} does not lead to {status}"
    return run._replace(status=status, **fields)  # type: ignore[arg-type]


def start(run: RunRecord, *, reason: Reason, now: int, token: int, traits: Traits) -> RunRecord:
    """Return a run whose next attempt is started now."""
    status = RunStatus.ENQUEUED if traits.enqueues else RunStatus.STARTED
    return moved(
        run,
        status,
        reason=reason,
        attempt=run.attempt + 1,
        token=token,
        started_at=now,
        ended_at=None,
        result=None,
        error=None,
        run_id=None,
        acked=0,
        due_at=None,
        is_open=1,
    )


def settle(run: RunRecord, status: RunStatus, reason: Reason) -> RunRecord:
    """Return a run that ends without an execution."""
    return moved(run, status, reason=reason, due_at=None, is_open=0)


def is_retried_later(run: RunRecord, now: int) -> bool:
    """Return whether a run's next attempt has a time that lies in the future."""
    return run.status is RunStatus.FAILED and run.due_at is not None and run.due_at > now


def reported(run: RunRecord, report: RunReport, *, traits: Traits) -> RunRecord:
    """Return a run after a report; a report of another attempt changes nothing."""
    if report.attempt != run.attempt or run.status not in IN_FLIGHT:
        return run
    match report.happened:
        case RunEvent.ACCEPTED:
            run = run._replace(acked=1, run_id=report.run_id or run.run_id)
            # An end that is never reported is not awaited.
            return run if traits.reports else run._replace(due_at=None, is_open=0)
        case RunEvent.STARTED:
            run = run._replace(acked=1, run_id=report.run_id or run.run_id)
            return moved(run, RunStatus.STARTED) if run.status is RunStatus.ENQUEUED else run
        case end:
            return _ended(run, report, end)


def _ended(run: RunRecord, report: RunReport, end: RunEvent) -> RunRecord:
    status, result = _END_OF[end]
    if run.reason is Reason.REPLACED and status is not RunStatus.SUCCESS:
        status, result = RunStatus.CANCELLED, Result.REPLACED
    return moved(
        run,
        status,
        result=result,
        ended_at=report.at,
        error=report.error or run.error,
        run_id=report.run_id or run.run_id,
        acked=1,
        due_at=None,
        is_open=0,
    )
