"""Overlap: of the periods that are due, which are too late, and which start, wait, replace or are skipped."""

from kron.core.job.outcome import Reason
from kron.core.job.policy import Overlap
from kron.core.job.verdict import SETTLED, Settle, Stage, Start, Wait, overlap_verdict, stage_of
from kron.core.plan.record import RunRecord, RunStatus
from kron.core.plan.step import JobStep
from kron.core.time.instant import MILLISECOND

REQUESTED = frozenset({Reason.ASKED, Reason.BOOT})
# Runs that the deadline does not apply to: they were delayed by a policy, or requested.
EXEMPT_REASONS = REQUESTED | {Reason.SPREAD, Reason.REPLACING}
DID_NOT_END = "did not end within the replace grace"
REPLACED_RUNS_ON = "the run it replaces did not end within the replace grace"


def judge_due(step: JobStep) -> None:
    """Judge all runs that are due: the deadline first, then the overlap, retries last."""
    line = _line(step)
    if line:
        _preempt_retries(step, line[-1])
    match step.policy.overlap:
        case Overlap.REPLACE if step.traits.reports:
            _replace_active(step, _paced(step, line))
        case Overlap.BUFFER_ONE:
            _start_in_order(step, _newest_of(step, line))
        case _:
            _start_in_order(step, line)
    if not step.more and step.job.past is None:
        # Otherwise more periods are due at this instant, and would pre-empt them.
        _start_retries(step)


def start_manual(step: JobStep) -> None:
    """Start the manual runs of a job whose periods are not triggered."""
    for run in list(step.runs.values()):
        if run.is_manual and run.due_at is not None and run.due_at <= step.now:
            step.start(run)


def _line(step: JobStep) -> list[RunRecord]:
    """Return the due periods that may start, in order; late ones are settled, and manual runs started."""
    line = []
    pending = [run for run in step.runs.values() if run.status is RunStatus.PENDING]
    for run in sorted(pending, key=lambda run: (run.fire_time, run.nominal_time)):
        stage = stage_of(run.fire_time, step.now, deadline_s=_deadline_of(step, run))
        if stage is Stage.EARLY:
            break
        if stage is Stage.LATE:
            step.settle(run, SETTLED[Stage.LATE])
        elif run.reason in REQUESTED:
            step.start(run)
        else:
            line.append(run)
    return line


def _deadline_of(step: JobStep, run: RunRecord) -> float | None:
    """Return the deadline of a run in seconds, None where there is none or it is exempt."""
    deadline_s = step.compiled_job(run).deadline_s
    return None if deadline_s is None or run.reason in EXEMPT_REASONS else deadline_s


def _start_in_order(step: JobStep, line: list[RunRecord]) -> None:
    """Start runs as the overlap policy allows; those that have to wait are queued, up to `queue_max`."""
    active, waiting, later = bool(step.active()), 0, []
    for run in line:
        match overlap_verdict(step.policy.overlap, active=active):
            case Start() if not step.may_start(run):
                later.append(run)
            case Start():
                # A target that does not report has nothing in flight, so several periods start at once.
                active |= step.start(run) and step.traits.reports
            case Wait() if waiting < step.policy.queue_max:
                if run.reason is not Reason.QUEUED:
                    step.block(run, _first_active(step), Reason.QUEUED)
                step.put(_queued(run))
                waiting += 1
            case Wait():
                step.block(run, _first_active(step), Reason.QUEUE_FULL)
                step.drop(run, RunStatus.SKIPPED, Reason.QUEUE_FULL)
            case Settle() as verdict:
                step.block(run, _first_active(step), Reason.ACTIVE)
                step.settle(run, verdict)
    step.wait_for_tick(later)


def _first_active(step: JobStep) -> RunRecord | None:
    """Return the active run that started first: as long as it lasts, no other may start."""
    return min(step.active(), key=lambda run: (run.started_at or 0, run.nominal_time), default=None)


def _paced(step: JobStep, line: list[RunRecord]) -> list[RunRecord]:
    """Return the runs that may start in this tick; the others wait for a later one."""
    step.wait_for_tick([run for run in line if not step.may_start(run)])
    return [run for run in line if step.may_start(run)]


def _newest_of(step: JobStep, line: list[RunRecord]) -> list[RunRecord]:
    """Drop all but the newest run; a newer one, planned in the wake that follows at once, takes its place."""
    for run in line[:-1]:
        step.block(run, line[-1], Reason.COALESCED)
        step.drop(run, RunStatus.SKIPPED, Reason.COALESCED)
    return [] if step.newer and not step.active() else line[-1:]


def _queued(run: RunRecord) -> RunRecord:
    """Return a run that waits for the active one; one that was spread stays exempt from the deadline."""
    return run._replace(reason=run.reason if run.reason is Reason.SPREAD else Reason.QUEUED, due_at=None)


def _replace_active(step: JobStep, line: list[RunRecord]) -> None:
    """Start the first in line once the active run has ended or its grace is over; the others follow it."""
    if not line:
        return
    first, *rest = line
    active = step.active()
    replaces = overlap_verdict(Overlap.REPLACE, active=bool(active)) == Start(replace=True)
    grace_at = first.due_at if first.reason is Reason.REPLACING else None
    if replaces and (grace_at is None or grace_at > step.now):
        _end_active(step, active, first)
        if grace_at is None:
            until = step.now + step.policy.replace_grace // MILLISECOND
            step.put(first._replace(reason=Reason.REPLACING, due_at=until))
    else:
        for run in active:
            step.put(run._replace(error=DID_NOT_END))
        if step.start(first) and active:
            step.put(step.runs[first.key]._replace(error=REPLACED_RUNS_ON))
        step.more |= bool(rest)
    for run in rest:
        step.put(run._replace(reason=Reason.REPLACING, due_at=None))


def _end_active(step: JobStep, active: list[RunRecord], by: RunRecord) -> None:
    for run in active:
        if run.reason is not Reason.REPLACED:
            step.block(run, by, Reason.REPLACED)
            ending = run._replace(reason=Reason.REPLACED)
            step.put(ending)
            step.change.ends.append(ending)


def _retrying(step: JobStep) -> list[RunRecord]:
    """Return the runs that wait for a retry, oldest first, whatever the order of the store."""
    waiting = [run for run in step.runs.values() if run.status is RunStatus.FAILED and run.is_open]
    return sorted(waiting, key=lambda run: (run.fire_time, run.nominal_time, run.key))


def _preempt_retries(step: JobStep, by: RunRecord) -> None:
    """Give up waiting retries: the next period pre-empts them."""
    for run in _retrying(step):
        step.block(run, by, Reason.RETRY_PREEMPTED)
        step.put(run._replace(reason=Reason.RETRY_PREEMPTED, due_at=None, is_open=0))


def _start_retries(step: JobStep) -> None:
    """Start the retries that are due; unless overlaps are allowed, they wait for the active run."""
    for run in _retrying(step):
        if run.due_at is not None and run.due_at > step.now:
            continue
        if step.policy.overlap is not Overlap.ALLOW and step.active():
            step.put(run._replace(due_at=None))
        else:
            step.start(run, run.reason)
