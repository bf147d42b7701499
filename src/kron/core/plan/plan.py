"""One step of the engine: records and the present moment in, what to write and to start out.

`plan` is pure and total. It decides everything; whoever carries its answer out decides nothing.
"""

from kron.core.errors import KronError, StoreError
from kron.core.job.outcome import Reason
from kron.core.job.policy import OnOrphan
from kron.core.plan.backlog import plan_backlog
from kron.core.plan.fast_path import FastPath
from kron.core.plan.lifecycle import is_tried_again_later, reported
from kron.core.plan.overlap import judge_due
from kron.core.plan.record import Result, RunKind, RunRecord, RunStatus
from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.segment import end_of_oldest, without_oldest
from kron.core.plan.step import MILLISECOND, Change, JobState, JobStep, Snapshot

# What a record that somebody damaged makes the core raise; anything else is our own mistake.
UNUSABLE = (KronError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# What a person asked for is not tried again: whoever asked sees how it ended.
RETRIED = frozenset({RunKind.PERIOD, RunKind.OVERRIDE})
UNUSABLE_RECORD = "its record cannot be used"
BY_TIMEOUT = "it did not end within its run timeout"


def plan(snapshot: Snapshot, now: int) -> tuple[list[Change], int | None]:
    """Return what to write and do, job by job, and when to look again; `now` is in milliseconds."""
    changes = []
    wake_at = snapshot.next_at
    usual = FastPath(snapshot, now)
    for case in snapshot.cases:
        try:
            if case.fault is not None:
                raise StoreError(case.fault)
            change = (
                usual.start(case)
                or usual.end(case)
                or take_turn(JobStep(case, snapshot, now), case, draining=snapshot.draining)
            )
            at = _next_of(change) if change.cohort is None else change.cohort.next_at
            if at is not None and (wake_at is None or at < wake_at):
                wake_at = at
        except UNUSABLE as fault:
            change = _set_aside(case, f"{type(fault).__name__}: {fault}", now)
        changes.append(change)
    return changes, wake_at


def _set_aside(case: JobState, fault: str, now: int) -> Change:
    """Return a job that is paused because what is remembered of it cannot be used; the others go on."""
    job = case.job
    because = f"{UNUSABLE_RECORD}: {fault}"
    try:
        revision = job.revision + 1
    except TypeError:
        # The store compares it as it is, whatever it is; the next one is a number again.
        revision = 1
    paused = job._replace(paused=1, paused_because=because, plan_at=None, revision=revision)
    held = [
        run._replace(due_at=None)
        for run in case.runs
        if run.due_at is not None and not is_tried_again_later(run, now)
    ]
    return Change(paused, job.revision, updates=held, fault=fault)


def _next_of(change: Change) -> int | None:
    """Return when a job has something to do again by itself."""
    at = change.job.plan_at
    for runs in (change.inserts, change.updates):
        for run in runs:
            if run.due_at is not None and (at is None or run.due_at < at):
                at = run.due_at
    return at


def take_turn(turn: JobStep, case: JobState, *, draining: bool) -> Change:
    """Take one job's turn; the order of the steps is the order of judging (DESIGN 7)."""
    for report in case.reports:
        _hear(turn, report, draining=draining)
    _end_overdue(turn)
    if turn.job.paused or turn.job.deleted_at is not None:
        # Nothing comes up by itself, whatever a damaged record says.
        turn.job = turn.job._replace(plan_at=None)
        return turn.finish()
    if draining:
        _leave_waiting(turn)
    else:
        plan_backlog(turn)
        judge_due(turn)
        _look_ahead(turn)
    return turn.finish()


def _leave_waiting(turn: JobStep) -> None:
    """Have the next owner look at once for what waited for an end that came while this one was stopping."""
    waits = any(run.is_open and run.due_at is None for run in turn.runs.values())
    if turn.change.ended and waits and (turn.job.plan_at is None or turn.job.plan_at > turn.now):
        turn.job = turn.job._replace(plan_at=turn.now)


def _hear(turn: JobStep, report: RunReport, *, draining: bool) -> None:
    run = turn.runs.get(report.key)
    if run is None:
        return
    if _may_not_have_begun(turn, run, report):
        # What this owner has started itself is no orphan, although its commit's answer may have been lost.
        if not draining and run.token != turn.token:
            # The same key and attempt once more; whoever honours the key runs it once.
            again = run._replace(token=turn.token)
            turn.put(again)
            turn.change.starts.append(again)
        return
    heard = reported(run, report, traits=turn.traits)
    if heard is not run:
        turn.put(_after_end(turn, heard) if heard.ended_at is not None else heard)


def _may_not_have_begun(turn: JobStep, run: RunRecord, report: RunReport) -> bool:
    """Say whether what was left behind on record was never acknowledged, and may be repeated."""
    if report.happened is not RunEvent.ORPHANED or not turn.traits.idempotent:
        return False
    return run.in_flight and not run.acked and report.attempt == run.attempt


def _after_end(turn: JobStep, run: RunRecord) -> RunRecord:
    """Return a run that has ended, with its retry if it has one, and count how it ended."""
    turn.change.ended.append(run)
    if run.status is RunStatus.SUCCESS:
        turn.job = turn.job._replace(failures=0, last_success_at=run.ended_at)
        return run
    if run.status is not RunStatus.FAILED:
        return run
    failures, limit = turn.job.failures + 1, turn.policy.pause_after_failures
    turn.job = turn.job._replace(failures=failures, last_failure_at=run.ended_at)
    if limit is not None and failures >= limit:
        because = f"{failures} failures in a row"
        turn.job = turn.job._replace(paused=1, paused_because=because, plan_at=None)
    return _to_try_again(turn, run)


def _to_try_again(turn: JobStep, run: RunRecord) -> RunRecord:
    assert run.ended_at is not None
    policy = turn.policy
    if turn.job.deleted_at is not None:
        return run
    if run.result is Result.ORPHANED:
        if policy.on_orphan is OnOrphan.RESTART:
            return run._replace(reason=Reason.RESTARTED, due_at=run.ended_at, is_open=1)
    elif policy.retry_delay is not None and run.kind in RETRIED:
        # Rounded up, so that nothing is tried again before its delay is over.
        due_at = run.ended_at - (-policy.retry_delay // MILLISECOND)
        return run._replace(reason=Reason.RETRY, due_at=due_at, is_open=1)
    return run


def _end_overdue(turn: JobStep) -> None:
    """End executions that have run longer than they may."""
    for run in list(turn.runs.values()):
        if run.in_flight and run.due_at is not None and run.due_at <= turn.now:
            turn.change.ends.append(run)
            report = RunReport(run.identity, run.key, run.attempt, RunEvent.FAILED, turn.now, BY_TIMEOUT)
            lost = reported(run, report, traits=turn.traits)._replace(result=Result.LOST)
            turn.put(_after_end(turn, lost))


def _look_ahead(turn: JobStep) -> None:
    """Find the next period and when it has to be looked at."""
    job, segment = turn.job, turn.segment
    following = None if job.remaining == 0 else segment.next_after(job.cursor)
    plan_at = None
    if following is None and job.past is not None:
        job = job._replace(past=without_oldest(job.past), cursor=max(job.cursor, end_of_oldest(job.past)))
        plan_at = turn.now
    elif turn.more:
        plan_at = turn.now
    elif following is not None:
        plan_at = 1000 * (following + segment.terms.early) - segment.terms.jitter_ms
    turn.job = job._replace(next_time=following, plan_at=plan_at)
