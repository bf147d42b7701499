"""The planning step of the engine: records and the current time in, changes and starts out.

`plan` is pure and total. It decides everything; the runtime that carries out its changes decides nothing.
"""

from collections.abc import Callable

from kron.core.errors import KronError, StoreError
from kron.core.job.outcome import Reason
from kron.core.job.policy import OnOrphan
from kron.core.plan.backlog import plan_backlog
from kron.core.plan.compiled import end_of_oldest, without_oldest
from kron.core.plan.fast_path import FastPath
from kron.core.plan.incident import ENGINE, paused
from kron.core.plan.lifecycle import is_retried_later, reported
from kron.core.plan.notice import needs_full_step, notices_of, rules_of
from kron.core.plan.overlap import judge_due, start_manual
from kron.core.plan.pace import Pace
from kron.core.plan.pause import resume
from kron.core.plan.record import Result, RunKind, RunRecord, RunStatus
from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.step import Change, JobState, JobStep, Snapshot, WriteScope, retry_at

# What the core raises for a damaged record; any other exception is a bug in Kron.
UNUSABLE = (KronError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# Manual runs are not retried: the caller sees the result.
RETRIED = frozenset({RunKind.PERIOD, RunKind.OVERRIDE})
END = WriteScope.END
UNUSABLE_RECORD = "its record cannot be used"
BY_TIMEOUT = "did not end within the run timeout"


def plan(
    snapshot: Snapshot, now: int, *, stops_after: Callable[[Change], bool] | None = None
) -> tuple[list[Change], int | None]:
    """Return the changes of each job, and when to wake next; `now` is in milliseconds.

    After each job that took more than the fast path, `stops_after` says whether the rest is left for later.
    """
    changes = []
    wake_at = snapshot.next_at
    fast_path, pace = FastPath(snapshot, now), snapshot.pace
    for state in snapshot.cases:
        try:
            if state.fault is not None:
                raise StoreError(state.fault)
            change = _change_of(state, snapshot, fast_path, pace)
            if change.caught_up or change.waiting:
                pace = pace.after(now, starts=change.caught_up, waits=change.waiting)
            at = _next_of(change) if change.cohort is None else change.cohort.next_at
            if at is not None and (wake_at is None or at < wake_at):
                wake_at = at
        except UNUSABLE as fault:
            change = set_aside(state, f"{type(fault).__name__}: {fault}", now)
        changes.append(change)
        if stops_after is not None and change.cohort is None and stops_after(change):
            break
    return changes, wake_at


def _change_of(state: JobState, snapshot: Snapshot, fast_path: FastPath, pace: Pace) -> Change:
    """Return the change of one job, with its notices."""
    job, now = state.job, fast_path.now
    rules = rules_of(job.notify, snapshot.notify) if job.notify or snapshot.notify else None
    if rules is None or not needs_full_step(job, rules, now):
        change = fast_path.report(state) if state.reports else fast_path.start(state)
        if change is not None:
            return change
    change = take_step(JobStep(state, snapshot, now, pace), state, draining=snapshot.draining)
    if rules is not None:
        change.notices = notices_of(change, job, rules, now)
    return change


def set_aside(state: JobState, fault: str, now: int) -> Change:
    """Return a job that is paused because its record cannot be used; the other jobs are not affected."""
    job = state.job
    because = f"{UNUSABLE_RECORD}: {fault}"
    try:
        revision = job.revision + 1
    except TypeError:
        # The store compares the damaged revision as it is; the next one is a number again.
        revision = 1
    stopped = job._replace(
        paused=1, paused_because=because, paused_until=None, plan_at=None, revision=revision
    )
    held = [
        run._replace(due_at=None)
        for run in state.runs
        if run.due_at is not None and not is_retried_later(run, now)
    ]
    incident = paused(job.identity, now, because=because, until=None, subject=ENGINE)
    return Change(stopped, job.revision, updates=held, fault=fault, incidents=(incident,))


def _next_of(change: Change) -> int | None:
    """Return when a job is due next without a report."""
    at = change.job.plan_at
    if change.scope is END:
        # Its run has ended, and it wrote no other.
        return at
    for runs in (change.inserts, change.updates):
        for run in runs:
            if run.due_at is not None and (at is None or run.due_at < at):
                at = run.due_at
    return at


def take_step(step: JobStep, state: JobState, *, draining: bool) -> Change:
    """Plan one job, in the order of judging: suspended, unschedulable, early, catch-up, deadline, overlap."""
    for report in state.reports:
        _apply_report(step, report, draining=draining)
    _end_overdue(step)
    ends_at = step.job.pause_ends_at
    if ends_at is not None and ends_at <= step.now and not draining:
        _end_pause(step, ends_at)
    if step.job.is_stopped or step.job.deleted_at is not None:
        # No period is due, whatever a damaged record says.
        step.job = step.job._replace(plan_at=step.job.pause_ends_at)
        if not draining:
            start_manual(step)
        return step.finish()
    if draining:
        _leave_waiting(step)
    else:
        plan_backlog(step)
        if state.room is not None:
            step.refuse_new(state.room)
        judge_due(step)
        _look_ahead(step)
    return step.finish()


def _end_pause(step: JobStep, ends_at: int) -> None:
    """Resume a job at the end of its pause."""
    change = resume(step.job, list(step.runs.values()), now=ends_at)
    step.job, step.catch_line = change.job, max(step.catch_line, change.job.resumed_at or 0)
    step.change.closed = change.closed
    for run in change.updates:
        step.put(run)


def _leave_waiting(step: JobStep) -> None:
    """Make the job due for the next owner if a run ended while others waited for it."""
    waits = any(run.is_open and run.due_at is None for run in step.runs.values())
    if step.change.ended and waits and (step.job.plan_at is None or step.job.plan_at > step.now):
        step.job = step.job._replace(plan_at=step.now)


def _apply_report(step: JobStep, report: RunReport, *, draining: bool) -> None:
    run = step.runs.get(report.key)
    if run is None or _was_accepted(step, run, report):
        return
    if _may_not_have_started(step, run, report):
        # A run this owner started is no orphan, even if the response to its commit was lost.
        if not draining and run.token != step.token:
            # The same key and attempt again: an idempotent target runs it once.
            again = run._replace(token=step.token)
            step.put(again)
            step.change.starts.append(again)
        return
    updated = reported(run, report, traits=step.traits)
    if updated is not run:
        step.put(_after_end(step, updated) if updated.ended_at is not None else updated)


def _was_accepted(step: JobStep, run: RunRecord, report: RunReport) -> bool:
    """Say whether a run that was found orphaned has been accepted since, by a target outside the worker.

    A worker that lost a shard and regained it may receive the response to a request it had sent before.
    """
    is_orphan = report.happened is RunEvent.ORPHANED
    return is_orphan and run.acked == 1 and (step.traits.remote or not run.is_open)


def _may_not_have_started(step: JobStep, run: RunRecord, report: RunReport) -> bool:
    """Say whether an orphaned start was never acknowledged, and may be repeated."""
    if report.happened is not RunEvent.ORPHANED or not step.traits.idempotent:
        return False
    return run.in_flight and not run.acked and report.attempt == run.attempt


def _after_end(step: JobStep, run: RunRecord) -> RunRecord:
    """Return a run that has ended, with its retry if it has one, and count its result."""
    step.change.ended.append(run)
    if run.status is RunStatus.SUCCESS:
        step.job = step.job._replace(failures=0, last_success_at=run.ended_at)
        return run
    if run.status is not RunStatus.FAILED:
        return run
    failures, limit = step.job.failures + 1, step.policy.pause_after_failures
    step.job = step.job._replace(failures=failures, last_failure_at=run.ended_at)
    if limit is not None and failures >= limit and not step.job.paused:
        because = f"{failures} failures in a row"
        if not step.job.paused:
            step.note(paused(step.job.identity, step.now, because=because, until=None, subject=ENGINE))
        step.job = step.job._replace(paused=1, paused_because=because, paused_until=None, plan_at=None)
    return _with_retry(step, run)


def _with_retry(step: JobStep, run: RunRecord) -> RunRecord:
    assert run.ended_at is not None
    policy = step.policy
    if step.job.deleted_at is not None:
        return run
    if run.result is Result.ORPHANED:
        if policy.on_orphan is OnOrphan.RESTART:
            return run._replace(reason=Reason.RESTARTED, due_at=run.ended_at, is_open=1)
    elif policy.retry_delay is not None and run.kind in RETRIED:
        due_at = retry_at(run.ended_at, policy.retry_delay)
        return run._replace(reason=Reason.RETRY, due_at=due_at, is_open=1)
    return run


def _end_overdue(step: JobStep) -> None:
    """End runs that exceed their run timeout."""
    for run in list(step.runs.values()):
        if run.in_flight and run.due_at is not None and run.due_at <= step.now:
            step.change.ends.append(run)
            report = RunReport(run.identity, run.key, run.attempt, RunEvent.FAILED, step.now, BY_TIMEOUT)
            lost = reported(run, report, traits=step.traits)._replace(result=Result.LOST)
            step.put(_after_end(step, lost))


def _look_ahead(step: JobStep) -> None:
    """Find the next period and when it has to be planned."""
    job, segment = step.job, step.segment
    following = None if job.remaining == 0 else segment.next_after(job.cursor)
    plan_at = None
    if following is None and job.past is not None:
        job = job._replace(past=without_oldest(job.past), cursor=max(job.cursor, end_of_oldest(job.past)))
        plan_at = step.now
    elif step.more:
        plan_at = step.now
    elif following is not None:
        plan_at = 1000 * (following + segment.compiled.early) - segment.compiled.jitter_ms
    step.job = job._replace(next_time=following, plan_at=plan_at)
