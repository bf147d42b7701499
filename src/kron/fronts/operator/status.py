"""The status of a KronJob for people: its next start, its last periods with reasons, and its conditions."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from kron.core.job.outcome import Outcome
from kron.core.plan.next_start import NextStart, next_start
from kron.core.plan.plan import UNUSABLE_RECORD
from kron.core.plan.record import RangeRecord, Result, RunKind, RunRecord, RunStatus
from kron.core.plan.report import Traits
from kron.core.time.instant import rfc3339
from kron.fronts.operator.resource import KronJob
from kron.fronts.operator.state import Book, text_of

# How many periods the status lists.
MAX_PERIODS = 10
MAX_MESSAGE = 1_000
READY, INVALID, UNSCHEDULABLE, ERROR = "Ready", "InvalidSpec", "Unschedulable", "SchedulingError"


class SpecProblem(NamedTuple):
    """Why a KronJob is not scheduled as its spec says: a condition, its reason in one word, and a message."""

    condition: str
    reason: str
    message: str


class ConditionState(NamedTuple):
    """Whether a condition holds, and why."""

    holds: bool
    reason: str
    message: str


def status_of(
    book: Book,
    kronjob: KronJob,
    *,
    now: int,
    traits: Mapping[str, Traits],
    problem: SpecProblem | None = None,
) -> dict[str, Any]:
    """Return the whole status of a KronJob; None removes a field."""
    start = next_start(book.state, now, traits)
    last = _last_outcome(book)
    return {
        "identity": book.job.identity,
        "observedGeneration": kronjob.generation,
        "next": _next(start),
        "lastOutcome": None if last is None else str(last[1]),
        "lastPeriod": None if last is None else rfc3339(last[0]),
        "active": sum(run.in_flight for run in book.runs),
        "paused": book.job.paused_because if book.job.paused else None,
        "runRequest": book.request,
        "fencingToken": max((run.token for run in (*book.runs, *book.closed)), default=0),
        "periods": _periods(book),
        "conditions": conditions_of(kronjob, _verdicts(book, start, problem), now),
        "state": text_of(book),
    }


def problem_status(kronjob: KronJob, problem: SpecProblem, now: int) -> dict[str, Any]:
    """Return the status of a KronJob that has no record: its conditions only."""
    holds = ConditionState(True, problem.reason, problem.message)
    verdicts = {READY: ConditionState(False, problem.reason, problem.message), problem.condition: holds}
    return {"observedGeneration": kronjob.generation, "conditions": conditions_of(kronjob, verdicts, now)}


# --- periods -------------------------------------------------------------------------------------------


def _next(start: NextStart) -> dict[str, str] | None:
    if start.start_at is None or start.period is None:
        return None
    return {"nominalTime": rfc3339(start.period), "chosenTime": rfc3339(start.start_at // 1000)}


def _last_outcome(book: Book) -> tuple[int, Outcome] | None:
    """Return the latest period with an outcome."""
    known = [
        (run.nominal_time, run.outcome)
        for run in (*book.runs, *book.closed)
        if run.kind is RunKind.PERIOD and run.outcome is not None
    ]
    known += [(each.last, each.outcome) for each in book.ranges]
    return max(known, default=None, key=lambda each: each[0])


def _periods(book: Book) -> list[dict[str, Any]]:
    """Return the newest periods, newest first."""
    rows = [(run.nominal_time, _run(run)) for run in (*book.runs, *book.closed)]
    rows += [(each.last, _range(each)) for each in book.ranges]
    rows.sort(key=lambda row: row[0], reverse=True)
    return [row for _, row in rows[:MAX_PERIODS]]


def _run(run: RunRecord) -> dict[str, Any]:
    row = {
        "periodId": rfc3339(run.nominal_time),
        "chosenTime": rfc3339(run.fire_time // 1000),
        "outcome": run.outcome and str(run.outcome),
        "reason": str(run.reason),
        "message": run.error if run.error and run.result is not Result.SUCCESS else run.reason.sentence,
        "result": run.result and str(run.result),
        "job": run.run_id,
        "attempt": run.attempt or None,
    }
    return {name: value for name, value in row.items() if value is not None}


def _range(dropped: RangeRecord) -> dict[str, Any]:
    return {
        "periodId": rfc3339(dropped.first),
        "until": rfc3339(dropped.last),
        "periods": dropped.periods,
        "outcome": str(dropped.outcome),
        "reason": str(dropped.reason),
        "message": dropped.reason.sentence,
    }


# --- conditions ----------------------------------------------------------------------------------------


def _verdicts(book: Book, start: NextStart, problem: SpecProblem | None) -> dict[str, ConditionState]:
    invalid = ConditionState(False, "Valid", "the spec is in force")
    if problem is not None:
        message = f"{problem.message}; the previous definition stays in force"
        invalid = ConditionState(True, problem.reason, message)
    error = _error(book)
    unschedulable = _unschedulable(book, start)
    bad = next((each for each in (invalid, error) if each.holds), None)
    ready = ConditionState(True, "Scheduled", "the next start is planned")
    if bad is not None:
        ready = bad._replace(holds=False)
    elif book.job.suspended:
        ready = ConditionState(True, "Suspended", "spec.policy.suspend is true: nothing starts")
    elif book.job.paused:
        ready = ConditionState(True, "Paused", book.job.paused_because or "paused")
    elif start.start_at is None:
        ready = ConditionState(True, "NoStartAhead", "no further start is planned")
    return {READY: ready, INVALID: invalid, UNSCHEDULABLE: unschedulable, ERROR: error}


def _error(book: Book) -> ConditionState:
    because = book.job.paused_because or ""
    if book.job.paused and because.startswith(UNUSABLE_RECORD):
        return ConditionState(True, "UnusableRecord", because)
    ended = [run for run in book.closed if run.result is not None]
    if ended and ended[-1].result is Result.LAUNCH_FAILED:
        return ConditionState(True, "JobNotCreated", ended[-1].error or "the Job could not be created")
    return ConditionState(False, "Working", "Jobs are created")


def _unschedulable(book: Book, start: NextStart) -> ConditionState:
    latest = max(
        (run for run in book.closed if run.kind is RunKind.PERIOD),
        key=lambda run: run.nominal_time,
        default=None,
    )
    if latest is not None and latest.status is RunStatus.UNSCHEDULABLE:
        return ConditionState(True, "NoCandidate", latest.reason.sentence)
    if start.nominal_time is not None and start.start_at is None and not book.job.is_stopped:
        return ConditionState(True, "NoCandidate", "no period ahead can be placed within its constraints")
    return ConditionState(False, "Schedulable", "periods ahead have a start")


def conditions_of(kronjob: KronJob, verdicts: Mapping[str, ConditionState], now: int) -> list[dict[str, Any]]:
    """Return the conditions; one that stays as it was keeps the time of its last transition."""
    before = {each.get("type"): each for each in kronjob.status.get("conditions") or ()}
    conditions = []
    for name, (holds, reason, message) in verdicts.items():
        status = "True" if holds else "False"
        known = before.get(name) or {}
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        conditions.append(
            {
                "type": name,
                "status": status,
                "reason": reason,
                "message": message[:MAX_MESSAGE],
                "lastTransitionTime": since or rfc3339(now // 1000),
                "observedGeneration": kronjob.generation,
            }
        )
    return conditions
