"""Tasks: the declarative scheduler's view of jobs (SPEC 1), their states and events."""

from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from kron.core.choice import Choice
from kron.core.cron.dialect import POSIX
from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.job.policy import FRONT_DEFAULTS, Policy
from kron.core.plan.compiled import MAX_COMPILED, SHARED_IDENTITY, definition_of
from kron.core.plan.record import Result, RunRecord, RunStatus
from kron.core.plan.step import Change, JobState, WriteScope


class TaskConfig(NamedTuple):
    """The configuration of a task, compared exactly: its name, its expression, its delay."""

    name: str
    cron: str
    retry_delay: timedelta


class TaskState(Choice):
    """The state of a task (SPEC 1: Task State Model)."""

    AWAITING_RUN = "AwaitingRun"
    RUNNING = "Running"
    AWAITING_RETRY = "AwaitingRetry"


class TaskEvent(Choice):
    """An event that changes the state of a task."""

    RUN_STARTED = "TaskRunStarted"
    RUN_COMPLETED = "TaskRunCompleted"
    RUN_FAILED = "TaskRunFailed"
    RETRY_STARTED = "TaskRetryStarted"
    RETRY_PREEMPTED = "TaskRetryPreempted"


# SPEC 1: Task State Transitions. Each row: state, event, next state.
TASK_TRANSITIONS = (
    (TaskState.AWAITING_RUN, TaskEvent.RUN_STARTED, TaskState.RUNNING),
    (TaskState.RUNNING, TaskEvent.RUN_COMPLETED, TaskState.AWAITING_RUN),
    (TaskState.RUNNING, TaskEvent.RUN_FAILED, TaskState.AWAITING_RETRY),
    (TaskState.AWAITING_RETRY, TaskEvent.RETRY_STARTED, TaskState.RUNNING),
    (TaskState.AWAITING_RETRY, TaskEvent.RETRY_PREEMPTED, TaskState.AWAITING_RUN),
)
STATE_AFTER = {event: after for _, event, after in TASK_TRANSITIONS}


class Happening(NamedTuple):
    """One event of one task, its time, and its run."""

    event: TaskEvent
    at: int
    run: RunRecord


def job_of(task: TaskConfig, timezone: str) -> Job:
    """Return the job of a task: strict cron, one run at a time, one catch-up run for all missed periods."""
    schedule = Schedule(task.cron, timezone, dialect=POSIX)
    return Job(identity=task.name, schedule=schedule, policy=_policy_of(task.retry_delay))


@lru_cache(maxsize=MAX_COMPILED)
def _policy_of(retry_delay: timedelta) -> Policy:
    """Return the policy of tasks with one delay, shared by them."""
    return replace(FRONT_DEFAULTS["scheduler"], retry_delay=retry_delay)


@lru_cache(maxsize=MAX_COMPILED)
def definition_for(cron: str, retry_delay: timedelta, timezone: str) -> str:
    """Return the stored definition of a configuration; tasks with the same one share it."""
    return definition_of(job_of(TaskConfig(SHARED_IDENTITY, cron, retry_delay), timezone))


def happenings_of(change: Change, now: int) -> list[Happening]:
    """Return the events of a change, in order: ends, pre-empted retries, starts."""
    if change.scope is WriteScope.START:
        (run,) = change.starts
        return [Happening(TaskEvent.RUN_STARTED, run.started_at or now, run)]
    happenings = []
    for run in change.ended:
        if run.result is not Result.ORPHANED:
            event = TaskEvent.RUN_COMPLETED if run.result is Result.SUCCESS else TaskEvent.RUN_FAILED
            happenings.append(Happening(event, run.ended_at or now, run))
    happenings += [
        Happening(TaskEvent.RETRY_PREEMPTED, now, run)
        for run in change.updates
        if run.reason is Reason.RETRY_PREEMPTED and run.result is not Result.ORPHANED
    ]
    for run in change.starts:
        event = TaskEvent.RETRY_STARTED if run.reason is Reason.RETRY else TaskEvent.RUN_STARTED
        happenings.append(Happening(event, run.started_at or now, run))
    return happenings


def is_waiting_for_retry(run: RunRecord) -> bool:
    """Return whether a run failed and waits for its retry."""
    return run.status is RunStatus.FAILED and run.is_open == 1 and run.reason is Reason.RETRY


def state_of(state: JobState) -> TaskState:
    """Return the state of a task from its records."""
    if any(run.in_flight for run in state.runs):
        return TaskState.RUNNING
    if any(map(is_waiting_for_retry, state.runs)):
        return TaskState.AWAITING_RETRY
    return TaskState.AWAITING_RUN


def lateness_of(change: Change, run: RunRecord) -> int:
    """Return by how many milliseconds a start was later than the earliest possible time.

    The time of a running predecessor, or of a pending retry delay, does not count.
    """
    if run.reason is Reason.RESTARTED or run.started_at is None:
        return 0
    since = [run.fire_time, *(ended.ended_at or 0 for ended in change.ended)]
    since += [earlier.due_at or 0 for earlier in change.attempts if earlier.key == run.key]
    return run.started_at - max(since)
