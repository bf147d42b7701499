"""Composition: two steps of one registration written as one change."""

from collections.abc import Sequence
from dataclasses import replace

from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.registration import edit, look_ahead, pause, resume
from kron.core.plan.step import Change, JobState
from kron.fronts.service.schedule_spec import ScheduleSpec
from kron.launchers.spec import launcher_kind_of, launcher_text_of

BY_HAND = "by hand"


def edited(case: JobState, wish: ScheduleSpec, *, now: int) -> Change:
    """Return what a wish changes of a schedule: its pause and history stay unless it says otherwise.

    One that was deleted is new again: it is not paused, and runs as often as it says.
    """
    gone = case.job.deleted_at is not None
    record = case.job._replace(paused=0, paused_because=None, failures=0) if gone else case.job
    launcher, kind = launcher_text_of(wish.settings), launcher_kind_of(wish.settings)
    change = edit(record, list(case.runs), wish.job, now=now, launcher=launcher, kind=kind)
    if gone:
        change.job = look_ahead(change.job._replace(remaining=wish.job.policy.remaining))
    if wish.paused is None or wish.paused == bool(change.job.paused):
        return change
    return _followed(case, change, paused=wish.paused, now=now)


def paused_or_resumed(record: JobRecord, runs: list[RunRecord], *, paused: bool, now: int) -> Change:
    """Return what pausing or resuming changes; what is so already stays as it is."""
    if paused and record.paused:
        return Change(record._replace(revision=record.revision + 1), record.revision)
    return pause(record, runs, because=BY_HAND) if paused else resume(record, runs, now=now)


def _followed(case: JobState, first: Change, *, paused: bool, now: int) -> Change:
    """Return an edit and what comes after it as one change of the record both began with."""
    runs = applied(case.runs, first)
    second = paused_or_resumed(first.job, runs, paused=paused, now=now)
    later = {run.key: run for run in second.updates}
    new = {run.key for run in first.inserts}
    updates = {run.key: run for run in (*first.updates, *second.updates) if run.key not in new}
    return replace(
        first,
        job=second.job._replace(revision=first.revision + 1),
        inserts=[later.get(run.key, run) for run in first.inserts],
        updates=list(updates.values()),
    )


def applied(runs: Sequence[RunRecord], change: Change) -> list[RunRecord]:
    """Return the open runs of a job after a change."""
    known = {run.key: run for run in runs}
    known |= {run.key: run for run in (*change.inserts, *change.updates)}
    return [run for run in known.values() if run.is_open]
