"""The book: what has become of each task, told as it is written, with nobody asking the store."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kron.core.instant import EPOCH
from kron.core.policy import LOOKAHEAD_MS
from kron.core.record import RunRecord
from kron.core.task import (
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
from kron.core.turn import Case, Change
from kron.fronts.embed.event import LOGGER, Events
from kron.ports import Journal, Settled

STARTS = (TaskEvent.RUN_STARTED, TaskEvent.RETRY_STARTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """Where a task is, and when it was last tried, last succeeded, and may be tried again."""

    state: TaskState
    last_attempt_at: datetime | None
    last_success_at: datetime | None
    pending_retry_until: datetime | None


@dataclass(slots=True)
class Entry:
    """What is known of one task; times are in milliseconds."""

    task: Task
    state: TaskState
    attempt_at: int | None
    success_at: int | None
    failed_at: int | None = None

    def status(self) -> TaskStatus:
        """Return what people see of it."""
        retrying = self.state is TaskState.AWAITING_RETRY and self.failed_at is not None
        failed_at = _datetime(self.failed_at) if retrying else None
        return TaskStatus(
            state=self.state,
            last_attempt_at=_datetime(self.attempt_at),
            last_success_at=_datetime(self.success_at),
            pending_retry_until=None if failed_at is None else failed_at + self.task.retry_delay,
        )


class Book:
    """A journal that follows tasks through their states, tells their events and counts late starts."""

    def __init__(self, events: Events, further: Journal) -> None:
        self._events = events
        self._further = further
        self.entries: dict[str, Entry] = {}
        self.late_starts = 0

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Pass on what happens to the engine itself."""
        self._further.note(event, fields)

    def settled(self, changes: Sequence[Change], settled: Settled, now: int) -> None:
        """Follow what was written."""
        for change in changes:
            entry = self.entries.get(change.job.identity)
            if entry is None or change.job.identity in settled.changed:
                continue
            for happening in happenings_of(change, now):
                if happening.event not in STARTS or happening.run.key not in settled.handled:
                    self._follow(entry, change, happening)
        self._further.settled(changes, settled, now)

    def _follow(self, entry: Entry, change: Change, happening: Happening) -> None:
        event, at, run = happening
        entry.state = STATE_AFTER[event]
        details: dict[str, object] = {"attempt": run.attempt}
        match event:
            case TaskEvent.RUN_STARTED | TaskEvent.RETRY_STARTED:
                entry.attempt_at = at
                self._count_late(change, run)
            case TaskEvent.RUN_COMPLETED:
                entry.success_at = at
            case TaskEvent.RUN_FAILED:
                entry.failed_at = at
                details["error"] = run.error
            case TaskEvent.RETRY_PREEMPTED:
                pass
        self._events.tell(event.value, at, entry.task.name, **details)

    def _count_late(self, change: Change, run: RunRecord) -> None:
        """Make a start later than a minute visible (SPEC 1: Real-time bounds)."""
        late_ms = lateness_of(change, run)
        if late_ms > LOOKAHEAD_MS:
            self.late_starts += 1
            LOGGER.log(logging.WARNING, "late start: %s by %.3f s", run.identity, late_ms / 1000)


def entries_of(tasks: Iterable[Task], stored: Iterable[Case]) -> dict[str, Entry]:
    """Return what is known of tasks by what is stored of them; an execution that was left behind is over."""
    known = {case.job.identity: case for case in stored}
    return {task.name: _entry_of(task, known.get(task.name)) for task in tasks}


def _entry_of(task: Task, case: Case | None) -> Entry:
    if case is None:
        return Entry(task, TaskState.AWAITING_RUN, None, None)
    job = case.job
    if not case.runs:
        return Entry(task, TaskState.AWAITING_RUN, job.last_start_at, job.last_success_at)
    waiting = [run for run in case.runs if not run.in_flight]
    failed = [run.ended_at for run in waiting if is_waiting_for_retry(run)]
    state = state_of(case._replace(runs=waiting))
    return Entry(task, state, job.last_start_at, job.last_success_at, failed[0] if failed else None)


def _datetime(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
