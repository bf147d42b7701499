"""What the present moment demands: of all that is due, what is too late, what starts, waits, or gives way."""

from kron.core.job.outcome import Reason
from kron.core.job.policy import Overlap
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.step import MILLISECOND, JobStep

# Waits that the deadline does not count: they were granted, or asked for.
EXEMPT_REASONS = frozenset({Reason.SPREAD, Reason.REPLACING, Reason.ASKED})
DID_NOT_END = "asked to end, it did not within the grace"
REPLACED_RUNS_ON = "what it replaces was asked to end and did not within the grace"


def judge_due(turn: JobStep) -> None:
    """Judge all runs whose time has come: the deadline first, then the overlap, retries last."""
    line = _line(turn)
    if line:
        _preempt_retries(turn)
    match turn.policy.overlap:
        case Overlap.ALLOW:
            for run in line:
                turn.start(run)
        case Overlap.SKIP:
            _start_or_skip(turn, line)
        case Overlap.QUEUE:
            _start_or_queue(turn, line)
        case Overlap.BUFFER_ONE:
            _start_or_keep_newest(turn, line)
        case Overlap.REPLACE:
            _replace_active(turn, line)
    if not turn.more and turn.job.past is None:
        # Otherwise more comes up at this very instant, and would pre-empt them.
        _start_retries(turn)


def _line(turn: JobStep) -> list[RunRecord]:
    """Return the periods that may start, in order; those too late end here, and what was asked for starts."""
    line = []
    due = [run for run in turn.runs.values() if run.status is RunStatus.PENDING and run.fire_time <= turn.now]
    for run in sorted(due, key=lambda run: (run.fire_time, run.nominal_time)):
        if run.reason is Reason.ASKED:
            turn.start(run)
        elif _is_late(turn, run):
            turn.drop(run, RunStatus.MISSED, Reason.DEADLINE)
        else:
            line.append(run)
    return line


def _is_late(turn: JobStep, run: RunRecord) -> bool:
    """Say whether a deadline has passed; it counts in whole seconds."""
    deadline_s = turn.compiled_job(run).deadline_s
    if deadline_s is None or run.reason in EXEMPT_REASONS:
        return False
    return turn.now // 1000 - run.fire_time // 1000 > deadline_s


def _start_or_skip(turn: JobStep, line: list[RunRecord]) -> None:
    active = bool(turn.active())
    for run in line:
        if active:
            turn.drop(run, RunStatus.SKIPPED, Reason.ACTIVE)
        else:
            active = turn.start(run)


def _start_or_queue(turn: JobStep, line: list[RunRecord]) -> None:
    active, waiting = bool(turn.active()), 0
    for run in line:
        if not active:
            active = turn.start(run)
        elif waiting < turn.policy.queue_max:
            turn.put(_queued(run))
            waiting += 1
        else:
            turn.drop(run, RunStatus.SKIPPED, Reason.QUEUE_FULL)


def _start_or_keep_newest(turn: JobStep, line: list[RunRecord]) -> None:
    for run in line[:-1]:
        turn.drop(run, RunStatus.SKIPPED, Reason.COALESCED)
    for run in line[-1:]:
        if turn.active():
            turn.put(_queued(run))
        elif not turn.newer:
            turn.start(run)


def _queued(run: RunRecord) -> RunRecord:
    """Return a run that waits for an end; what is spread stays so, and exempt from the deadline."""
    return run._replace(reason=run.reason if run.reason is Reason.SPREAD else Reason.QUEUED, due_at=None)


def _replace_active(turn: JobStep, line: list[RunRecord]) -> None:
    """Start the first in line once what runs has ended or its grace is over; the others follow one by one."""
    if not line:
        return
    first, *rest = line
    active = turn.active()
    graced = first.due_at if first.reason is Reason.REPLACING else None
    if active and (graced is None or graced > turn.now):
        _ask_to_end(turn, active)
        if graced is None:
            until = turn.now + turn.policy.replace_grace // MILLISECOND
            turn.put(first._replace(reason=Reason.REPLACING, due_at=until))
    else:
        for run in active:
            turn.put(run._replace(error=DID_NOT_END))
        if turn.start(first) and active:
            turn.put(turn.runs[first.key]._replace(error=REPLACED_RUNS_ON))
        turn.more |= bool(rest)
    for run in rest:
        turn.put(run._replace(reason=Reason.REPLACING, due_at=None))


def _ask_to_end(turn: JobStep, active: list[RunRecord]) -> None:
    for run in active:
        if run.reason is not Reason.REPLACED:
            asked = run._replace(reason=Reason.REPLACED)
            turn.put(asked)
            turn.change.ends.append(asked)


def _retrying(turn: JobStep) -> list[RunRecord]:
    """Return what waits to be tried again, oldest first, in whatever order the store gave it."""
    waiting = [run for run in turn.runs.values() if run.status is RunStatus.FAILED and run.is_open]
    return sorted(waiting, key=lambda run: (run.fire_time, run.nominal_time, run.key))


def _preempt_retries(turn: JobStep) -> None:
    """Give up retries that wait: the next period takes their place."""
    for run in _retrying(turn):
        turn.put(run._replace(reason=Reason.RETRY_PREEMPTED, due_at=None, is_open=0))


def _start_retries(turn: JobStep) -> None:
    """Start what is to be tried again; unless overlaps are allowed, it waits for what is active."""
    for run in _retrying(turn):
        if run.due_at is not None and run.due_at > turn.now:
            continue
        if turn.policy.overlap is not Overlap.ALLOW and turn.active():
            turn.put(run._replace(due_at=None))
        else:
            turn.start(run, run.reason)
