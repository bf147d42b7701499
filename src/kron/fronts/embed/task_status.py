"""The book: what has become of each task, told as it is written, with nobody asking the store."""

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan.record import RunRecord
from kron.core.plan.step import Change, JobState, WriteScope
from kron.core.task.reconcile import Standing
from kron.core.task.task import (
    STATE_AFTER,
    Happening,
    Task,
    TaskEvent,
    TaskState,
    happenings_of,
    is_waiting_for_retry,
    lateness_of,
    state_of,
)
from kron.core.time.instant import EPOCH
from kron.fronts.embed.event import LOGGER, Events
from kron.fronts.embed.registration import Callback, Registration
from kron.ports import Journal, Launch, WriteResult

STARTS = (TaskEvent.RUN_STARTED, TaskEvent.RETRY_STARTED)
Where = tuple[TaskState, int | None, int | None, int | None]
NOWHERE: Where = (TaskState.AWAITING_RUN, None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Where a task is, and when it was last tried, last succeeded, and may be tried again."""

    state: TaskState
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    pending_retry_until: datetime | None


class TaskEntry(NamedTuple):
    """What is known of a task beside its name; times are in milliseconds. Tasks that are alike share one."""

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

    def task(self, name: str) -> Task:
        """Return the task of this name."""
        return Task(name, self.cron, self.retry_delay)

    def after(self, event: TaskEvent, at: int) -> "TaskEntry":
        """Return what is known after something happened."""
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

    def status(self) -> TaskStatus:
        """Return what people see of it."""
        retrying = self.state is TaskState.AWAITING_RETRY and self.failed_at is not None
        failed_at = _datetime(self.failed_at) if retrying else None
        return TaskStatus(
            state=self.state,
            last_attempt_at=_datetime(self.attempt_at),
            last_success_at=_datetime(self.success_at),
            pending_retry_until=None if failed_at is None else failed_at + self.retry_delay,
        )


# What became of entries in one go, by an entry's number, an event and its time: it from before, and it after.
Alike = dict[tuple[int, TaskEvent, int], tuple[TaskEntry, TaskEntry]]


class Book:
    """A journal that follows tasks through their states, tells their events and counts late starts."""

    def __init__(self, events: Events, further: Journal) -> None:
        self._events = events
        self._further = further
        self.entries: dict[str, TaskEntry] = {}
        self.late_starts = 0

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Pass on what happens to the engine itself."""
        self._further.note(event, fields)

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Follow what was written."""
        alike: Alike = {}
        usual = (
            None if self._events.wanted or settled.stale_jobs or settled.existing_runs else WriteScope.START
        )
        for change in changes:
            name = change.job.identity
            entry = self.entries.get(name)
            if entry is None or name in settled.stale_jobs:
                continue
            if change.scope is usual and now - change.starts[0].fire_time <= LOOKAHEAD_MS:
                # What most come to in a busy minute: a start in time, and nobody to tell.
                self.entries[name] = _followed(entry, TaskEvent.RUN_STARTED, now, alike)
                continue
            for happening in happenings_of(change, now):
                event, at, run = happening
                if event in STARTS:
                    if run.key in settled.existing_runs:
                        continue
                    if at - run.fire_time > LOOKAHEAD_MS:
                        self._count_late(change, run)
                entry = _followed(entry, event, at, alike)
                if self._events.wanted:
                    self._tell(happening)
            self.entries[name] = entry
        self._further.settled(changes, settled, now)

    def _tell(self, happening: Happening) -> None:
        event, at, run = happening
        details: dict[str, object] = {"attempt": run.attempt}
        if event is TaskEvent.RUN_FAILED:
            details["error"] = run.error
        self._events.tell(event.value, at, run.identity, **details)

    def _count_late(self, change: Change, run: RunRecord) -> None:
        """Make a start later than a minute visible (SPEC 1: Real-time bounds)."""
        late_ms = lateness_of(change, run)
        if late_ms > LOOKAHEAD_MS:
            self.late_starts += 1
            LOGGER.log(logging.WARNING, "late start: %s by %.3f s", run.identity, late_ms / 1000)


def _followed(entry: TaskEntry, event: TaskEvent, at: int, alike: Alike) -> TaskEntry:
    """Return an entry after an event; where that was asked before, the same object."""
    sort = (id(entry), event, at)
    found = alike.get(sort)
    if found is None:
        # With the entry from before, which keeps its place in memory and so its number as long as this lasts.
        found = alike[sort] = entry, entry.after(event, at)
    return found[1]


def entries_of(
    registered: Iterable[Registration], standings: Mapping[str, Standing], stored: Iterable[JobState]
) -> dict[str, TaskEntry]:
    """Return what is known of tasks by what is stored of them; an execution that was left behind is over."""
    known = {case.job.identity: case for case in stored}
    alike: dict[tuple[object, ...], TaskEntry] = {}
    entries: dict[str, TaskEntry] = {}
    for (name, cron, retry_delay), callback in registered:
        standing, case = standings[name], known.get(name)
        where = NOWHERE if case is None else _where(case)
        # Callbacks are told apart by which they are: two that are equal may still do different things.
        sort = (cron, retry_delay, id(callback), standing, where)
        entry = alike.get(sort)
        if entry is None:
            entry = alike[sort] = TaskEntry(cron, retry_delay, callback, standing, *where)
        entries[name] = entry
    return entries


def _where(case: JobState) -> Where:
    """Return the state a stored task is in, when it was last tried, last succeeded and last failed."""
    job = case.job
    if not case.runs:
        return TaskState.AWAITING_RUN, job.last_start_at, job.last_success_at, None
    waiting = [run for run in case.runs if not run.in_flight]
    failed = [run.ended_at for run in waiting if is_waiting_for_retry(run)]
    state = state_of(case._replace(runs=waiting))
    return state, job.last_start_at, job.last_success_at, failed[0] if failed else None


def _datetime(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
