"""Pause and suspend: a person pauses and resumes a job, its definition suspends it; either stops triggers.

Every function is pure: it returns a `Change`, for a store to commit.
"""

from collections.abc import Sequence

from kron.core.job.outcome import Reason
from kron.core.plan import incident
from kron.core.plan.record import IncidentKind, JobRecord, RunRecord, RunStatus
from kron.core.plan.step import Change

BY_HAND = "by hand"


def pause(
    record: JobRecord, runs: Sequence[RunRecord], *, because: str, now: int, until: int | None = None
) -> Change:
    """Return the change of a pause: no period is planned and none becomes due until the job is resumed.

    With `until`, in milliseconds, it ends then without a person.
    """
    paused = record._replace(paused=1, paused_because=because, paused_until=until)
    change = _stopped_change(record, paused._replace(plan_at=paused.pause_ends_at), runs, now=None)
    reason = None if because == BY_HAND else because
    change.incidents = (incident.paused(record.identity, now, because=reason, until=until),)
    if record.paused:
        # Another end: the pause so far and the pause from now on are two incidents.
        change.closed = (incident.ended(IncidentKind.PAUSED, record.identity, now),)
    return change


def resume(record: JobRecord, runs: Sequence[RunRecord], *, now: int) -> Change:
    """Return the change of a resume: catch-up and deadline judge the periods of the pause.

    A job that its definition suspends as well stays stopped.
    """
    if not record.paused:
        return Change(record._replace(revision=record.revision + 1), record.revision)
    resumed = record._replace(paused=0, paused_because=None, paused_until=None, failures=0, plan_at=None)
    change = _stopped_change(record, resumed, runs, now=now)
    change.closed = (incident.ended(IncidentKind.PAUSED, record.identity, now),)
    return change


def suspend(record: JobRecord, runs: Sequence[RunRecord], *, suspended: bool, now: int) -> Change:
    """Return the change of the definition's `suspend`; lifting it is judged like a resume."""
    changed = record._replace(suspended=int(suspended))
    if changed.is_stopped:
        changed = changed._replace(plan_at=changed.pause_ends_at)
    change = _stopped_change(record, changed, runs, now=now)
    if suspended:
        change.incidents = (incident.suspended(record.identity, now),)
    else:
        change.closed = (incident.ended(IncidentKind.SUSPENDED, record.identity, now),)
    return change


def _stopped_change(
    before: JobRecord, after: JobRecord, runs: Sequence[RunRecord], *, now: int | None
) -> Change:
    """Return the change between two sets of flags: runs are held when a job stops, and due again later."""
    after = after._replace(revision=before.revision + 1)
    if after.is_stopped == before.is_stopped:
        return Change(after, before.revision)
    if after.is_stopped:
        # A waiting retry keeps its time; if that passes while the job is stopped, a wake records it as held.
        held = [
            run._replace(due_at=None)
            for run in runs
            if run.due_at is not None and run.status is RunStatus.PENDING and not run.is_manual
        ]
        return Change(after, before.revision, updates=held)
    woken = [run._replace(due_at=_due_at(run)) for run in runs if not run.in_flight]
    plan_at = now if after.deleted_at is None else None
    return Change(after._replace(resumed_at=now, plan_at=plan_at), before.revision, updates=woken)


def _due_at(run: RunRecord) -> int | None:
    """Return when a held run is due again; a retry without a time was due while the job was stopped."""
    if run.status is RunStatus.PENDING:
        return None if run.reason in (Reason.QUEUED, Reason.REPLACING) else run.fire_time
    return run.ended_at if run.due_at is None else run.due_at
