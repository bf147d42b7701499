"""Tasks: jobs as the declarative scheduler sees them (SPEC 1), their states and what happens to them."""

from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from kron.core.choice import Choice
from kron.core.cron.dialect import POSIX
from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.job.policy import Catchup, OnOrphan, Overlap, Policy
from kron.core.plan.compiled import ANYONE, MAX_TERMS, definition_of
from kron.core.plan.record import Result, RunRecord, RunStatus
from kron.core.plan.step import Change, JobState, WriteScope

# A longer wait is no retry; and the end of the calendar stays out of reach.
MAX_RETRY_DELAY = timedelta(days=36_525)


class Task(NamedTuple):
    """What tells two configurations of a task apart: its name, its expression, its delay, each exactly."""

    name: str
    cron: str
    retry_delay: timedelta


class TaskState(Choice):
    """Where a task is (SPEC 1: Task State Model)."""

    AWAITING_RUN = "AwaitingRun"
    RUNNING = "Running"
    AWAITING_RETRY = "AwaitingRetry"


class TaskEvent(Choice):
    """What happens to a task."""

    RUN_STARTED = "TaskRunStarted"
    RUN_COMPLETED = "TaskRunCompleted"
    RUN_FAILED = "TaskRunFailed"
    RETRY_STARTED = "TaskRetryStarted"
    RETRY_PREEMPTED = "TaskRetryPreempted"


# SPEC 1: Task State Transitions. Each row: where a task is, what happens, where it is then.
TASK_TRANSITIONS = (
    (TaskState.AWAITING_RUN, TaskEvent.RUN_STARTED, TaskState.RUNNING),
    (TaskState.RUNNING, TaskEvent.RUN_COMPLETED, TaskState.AWAITING_RUN),
    (TaskState.RUNNING, TaskEvent.RUN_FAILED, TaskState.AWAITING_RETRY),
    (TaskState.AWAITING_RETRY, TaskEvent.RETRY_STARTED, TaskState.RUNNING),
    (TaskState.AWAITING_RETRY, TaskEvent.RETRY_PREEMPTED, TaskState.AWAITING_RUN),
)
STATE_AFTER = {event: after for _, event, after in TASK_TRANSITIONS}


class Happening(NamedTuple):
    """One event of one task, when it was, and the run it is about."""

    event: TaskEvent
    at: int
    run: RunRecord


def job_of(task: Task, timezone: str) -> Job:
    """Return the job that a task is: strict cron, one run at a time, at most one for all it missed."""
    schedule = Schedule(task.cron, timezone, dialect=POSIX)
    return Job(identity=task.name, schedule=schedule, policy=_policy_of(task.retry_delay))


@lru_cache(maxsize=MAX_TERMS)
def _policy_of(retry_delay: timedelta) -> Policy:
    """Return what tasks of one delay have in common."""
    return Policy(
        overlap=Overlap.BUFFER_ONE,
        catchup=Catchup.ONCE,
        deadline=None,
        on_orphan=OnOrphan.RESTART,
        retry_delay=retry_delay,
    )


@lru_cache(maxsize=MAX_TERMS)
def definition_for(cron: str, retry_delay: timedelta, timezone: str) -> str:
    """Return what is stored of a configuration; tasks that have the same share it."""
    return definition_of(job_of(Task(ANYONE, cron, retry_delay), timezone))


def happenings_of(change: Change, now: int) -> list[Happening]:
    """Return what a change means for its task, in order: ends, retries given up, starts."""
    if change.scope is WriteScope.START:
        (run,) = change.starts
        return [Happening(TaskEvent.RUN_STARTED, run.started_at or now, run)]
    found = []
    for run in change.ended:
        if run.result is not Result.ORPHANED:
            event = TaskEvent.RUN_COMPLETED if run.result is Result.SUCCESS else TaskEvent.RUN_FAILED
            found.append(Happening(event, run.ended_at or now, run))
    found += [
        Happening(TaskEvent.RETRY_PREEMPTED, now, run)
        for run in change.updates
        if run.reason is Reason.RETRY_PREEMPTED and run.result is not Result.ORPHANED
    ]
    for run in change.starts:
        event = TaskEvent.RETRY_STARTED if run.reason is Reason.RETRY else TaskEvent.RUN_STARTED
        found.append(Happening(event, run.started_at or now, run))
    return found


def is_waiting_for_retry(run: RunRecord) -> bool:
    """Say whether a run failed and is to be tried again after its delay."""
    return run.status is RunStatus.FAILED and run.is_open == 1 and run.reason is Reason.RETRY


def state_of(case: JobState) -> TaskState:
    """Return where a task is by what is on record."""
    if any(run.in_flight for run in case.runs):
        return TaskState.RUNNING
    if any(map(is_waiting_for_retry, case.runs)):
        return TaskState.AWAITING_RETRY
    return TaskState.AWAITING_RUN


def lateness_of(change: Change, run: RunRecord) -> int:
    """Return by how many milliseconds a start came later than it could have.

    A task that was still running, or whose retry was still to wait, was not late until that was over.
    """
    if run.reason is Reason.RESTARTED or run.started_at is None:
        return 0
    since = [run.fire_time, *(ended.ended_at or 0 for ended in change.ended)]
    since += [earlier.due_at or 0 for earlier in change.attempts if earlier.key == run.key]
    return run.started_at - max(since)
