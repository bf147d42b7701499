"""The status of each task, tracked from the engine's commits without reading the store."""

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from kron.core.cron.schedule import UTC
from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan.compiled import SHARED_IDENTITY
from kron.core.plan.next_start import NO_START, NextStart, next_start
from kron.core.plan.record import RunRecord
from kron.core.plan.registration import create
from kron.core.plan.report import Launch
from kron.core.plan.step import Change, JobState, WriteResult, WriteScope
from kron.core.task.reconcile import Standing
from kron.core.task.task import (
    STATE_AFTER,
    Happening,
    TaskConfig,
    TaskEvent,
    TaskState,
    happenings_of,
    is_waiting_for_retry,
    job_of,
    lateness_of,
    state_of,
)
from kron.core.time.instant import EPOCH, LAST_SECOND
from kron.fronts.embed.event import LOGGER, EventLog, on_one_line
from kron.fronts.embed.registration import Callback, Registration
from kron.ports import Journal

# The scheduler's names of the engine's events about a wrong clock.
CLOCK_EVENT_NAMES = {
    "clock_behind": "ClockBehind",
    "clock_moved_forward": "ClockMovedForward",
    "clock_corrected": "ClockCorrected",
}
STARTS = (TaskEvent.RUN_STARTED, TaskEvent.RETRY_STARTED)
Progress = tuple[TaskState, int | None, int | None, int | None]
LAST_INSTANT = EPOCH + timedelta(seconds=LAST_SECOND)
NEW: Progress = (TaskState.AWAITING_RUN, None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """A task's state, and when it was last started, last succeeded, is retried, and starts next.

    The next start is that of its schedule; a scheduler that does not run has none.
    """

    state: TaskState
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    pending_retry_until: datetime | None
    next_nominal_at: datetime | None = None
    next_start_at: datetime | None = None


class TaskEntry(NamedTuple):
    """A task without its name; times are in milliseconds. Tasks with equal fields share one entry."""

    cron: str
    retry_delay: timedelta
    callback: Callback
    standing: Standing
    state: TaskState = TaskState.AWAITING_RUN
    attempt_at: int | None = None
    success_at: int | None = None
    failed_at: int | None = None

    def call(self, launch: Launch) -> Awaitable[object]:
        """Call the task's function."""
        return self.callback()

    def task(self, name: str) -> TaskConfig:
        """Return the task of this name."""
        return TaskConfig(name, self.cron, self.retry_delay)

    def after(self, event: TaskEvent, at: int) -> "TaskEntry":
        """Return the entry after an event."""
        state = STATE_AFTER[event]
        match event:
            case TaskEvent.RUN_STARTED | TaskEvent.RETRY_STARTED:
                return self._replace(state=state, attempt_at=at)
            case TaskEvent.RUN_COMPLETED:
                return self._replace(state=state, success_at=at)
            case TaskEvent.RUN_FAILED:
                return self._replace(state=state, failed_at=at)
            case TaskEvent.RETRY_PREEMPTED:
                return self._replace(state=state)

    def status(self, following: NextStart) -> TaskStatus:
        """Return the public status, with the task's next start."""
        retrying = self.state is TaskState.AWAITING_RETRY and self.failed_at is not None
        failed_at = _datetime(self.failed_at) if retrying else None
        return TaskStatus(
            state=self.state,
            last_attempt_at=_datetime(self.attempt_at),
            last_success_at=_datetime(self.success_at),
            pending_retry_until=None if failed_at is None else _after_delay(failed_at, self.retry_delay),
            next_nominal_at=following.next_nominal_at,
            next_start_at=following.next_start_at,
        )


def statuses_of(
    entries: Mapping[str, TaskEntry], timezone: str | None, now: int | None
) -> dict[str, TaskStatus]:
    """Return the status of each task at an instant; without one nothing will start."""
    starts: dict[str, NextStart] = {}
    for entry in entries.values():
        if entry.cron not in starts:
            starts[entry.cron] = NO_START if now is None else _next_start(entry, timezone or UTC, now)
    return {name: entry.status(starts[entry.cron]) for name, entry in entries.items()}


def _next_start(entry: TaskEntry, timezone: str, now: int) -> NextStart:
    """Return the next start of a task, which nothing but its expression decides."""
    job = job_of(entry.task(SHARED_IDENTITY), timezone)
    return next_start(JobState(create(job, now=now)), now)


# Entries before and after an event, by the entry's id, the event and its time, within one commit.
Shared = dict[tuple[int, TaskEvent, int], tuple[TaskEntry, TaskEntry]]


class TaskTracker:
    """A journal that tracks the state of each task, emits its events and counts late starts."""

    def __init__(self, events: EventLog, further: Journal) -> None:
        self._events = events
        self._further = further
        self.entries: dict[str, TaskEntry] = {}
        self.late_starts = 0

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Pass an event of the engine on; those about a wrong clock are the scheduler's events too."""
        name, clock = CLOCK_EVENT_NAMES.get(event), fields.get("clock")
        if name is not None and isinstance(clock, int):
            self._events.emit(name, clock, by_ms=fields["by_ms"], reopened=fields["reopened"])
        self._further.note(event, fields)

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Track the tasks of a commit."""
        shared: Shared = {}
        is_plain = not (self._events.enabled or settled.stale_jobs or settled.existing_runs)
        plain = WriteScope.START if is_plain else None
        for change in changes:
            name = change.job.identity
            entry = self.entries.get(name)
            if entry is None or name in settled.stale_jobs:
                continue
            if change.scope is plain and now - change.starts[0].fire_time <= LOOKAHEAD_MS:
                # The most frequent change of a busy minute: a start on time, without a listener.
                self.entries[name] = _after(entry, TaskEvent.RUN_STARTED, now, shared)
                continue
            for happening in happenings_of(change, now):
                event, at, run = happening
                if event in STARTS:
                    if run.key in settled.existing_runs:
                        continue
                    if at - run.fire_time > LOOKAHEAD_MS:
                        self._count_late(change, run)
                entry = _after(entry, event, at, shared)
                if self._events.enabled:
                    self._emit(happening)
            self.entries[name] = entry
        self._further.settled(changes, settled, now)

    def _emit(self, happening: Happening) -> None:
        event, at, run = happening
        details: dict[str, object] = {"attempt": run.attempt}
        if event is TaskEvent.RUN_FAILED:
            details["error"] = run.error
        self._events.emit(event.value, at, run.identity, **details)

    def _count_late(self, change: Change, run: RunRecord) -> None:
        """Count and log a start that is more than a minute late (SPEC 1: Real-time bounds)."""
        late_ms = lateness_of(change, run)
        if late_ms > LOOKAHEAD_MS:
            self.late_starts += 1
            LOGGER.log(logging.WARNING, "late start: %s by %.3f s", on_one_line(run.identity), late_ms / 1000)


def _after(entry: TaskEntry, event: TaskEvent, at: int, shared: Shared) -> TaskEntry:
    """Return an entry after an event, the same object for every task that shares the entry."""
    key = (id(entry), event, at)
    known = shared.get(key)
    if known is None:
        # The entry before is kept alive, so that its id stays unique.
        known = shared[key] = entry, entry.after(event, at)
    return known[1]


def entries_of(
    registered: Iterable[Registration], standings: Mapping[str, Standing], stored: Iterable[JobState]
) -> dict[str, TaskEntry]:
    """Return the entries of registered tasks from their stored states; an orphaned execution is over."""
    known = {state.job.identity: state for state in stored}
    shared: dict[tuple[object, ...], TaskEntry] = {}
    entries: dict[str, TaskEntry] = {}
    for (name, cron, retry_delay), callback in registered:
        standing, state = standings[name], known.get(name)
        progress = NEW if state is None else _progress(state)
        # Callbacks are compared by identity: two that are equal may still do different things.
        key = (cron, retry_delay, id(callback), standing, progress)
        entry = shared.get(key)
        if entry is None:
            entry = shared[key] = TaskEntry(cron, retry_delay, callback, standing, *progress)
        entries[name] = entry
    return entries


def _progress(stored: JobState) -> Progress:
    """Return a stored task's state, and when it was last started, last succeeded and last failed."""
    job = stored.job
    if not stored.runs:
        return TaskState.AWAITING_RUN, job.last_start_at, job.last_success_at, None
    waiting = [run for run in stored.runs if not run.in_flight]
    failed = [run.ended_at for run in waiting if is_waiting_for_retry(run)]
    state = state_of(stored._replace(runs=waiting))
    return state, job.last_start_at, job.last_success_at, failed[0] if failed else None


def _after_delay(instant: datetime, delay: timedelta) -> datetime:
    """Return an instant after a delay; one beyond the calendar is its end."""
    return instant + min(delay, LAST_INSTANT - instant)


def _datetime(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
