"""Registration: the changes to a job's record when it is created, edited, deleted or run.

Every function is pure: it returns a new record or a `Change`, for a store to commit.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from kron.core.cron.schedule import seconds_between
from kron.core.errors import ConflictError, InvalidOptionError
from kron.core.job.job import Job, profile_text_of
from kron.core.job.outcome import Reason
from kron.core.job.policy import Policy
from kron.core.plan import incident
from kron.core.plan.compiled import (
    CompiledJob,
    compiled_job,
    definition_of,
    first_time,
    handled_one_by_one,
    last_at,
    segment_of,
    with_newest,
)
from kron.core.plan.lifecycle import settle
from kron.core.plan.pause import BY_HAND, pause, resume, suspend
from kron.core.plan.record import (
    IncidentKind,
    JobRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
    request_key_of,
)
from kron.core.plan.step import Change, JobState
from kron.core.time.instant import EpochSeconds, rfc3339

# Periods that one edit adds at most; a denser schedule gets the rest at the next wake.
MAX_ADDED = 1_000
# The length of the earlier definitions whose periods are not planned yet, beyond which there is no further
# edit: they are read and written with the job.
MAX_PAST = 131_072
UNPLANNED = (
    'Job "{name}" has been edited too often since its last period was planned, and each of its earlier '
    "definitions has periods left: resume it, or wait for its worker, before another edit"
)
# The flags of a job that is created again.
NEW_FLAGS: Mapping[str, Any] = {
    "suspended": 0,
    "paused": 0,
    "paused_because": None,
    "paused_until": None,
    "failures": 0,
}


def create(
    job: Job,
    *,
    now: int,
    launcher: str = "{}",
    kind: str = "callback",
    since: int | None = None,
    paused: bool = False,
) -> JobRecord:
    """Return the record of a new job, whose first period is the first to fire at or after `since`, or now."""
    born_at = now if since is None else since
    definition = definition_of(job)
    compiled = compiled_job(definition, job.identity)
    cursor = cursor_before(born_at, compiled)
    following = first_time(compiled, cursor)
    is_stopped = paused or job.policy.suspend
    return JobRecord(
        identity=job.identity,
        definition=definition,
        launcher=launcher,
        launcher_kind=kind,
        epoch=1,
        edited_at=now,
        born_at=born_at,
        revision=1,
        cursor=cursor,
        next_time=following,
        plan_at=None if following is None or is_stopped else _planned_at(compiled, following),
        suspended=int(job.policy.suspend),
        paused=int(paused),
        paused_because=BY_HAND if paused else None,
        remaining=job.policy.remaining,
        profile=profile_text_of(job),
        notify=notify_text(job),
    )


def notify_text(job: Job) -> str | None:
    """Return the notifications that a definition has, as canonical JSON; an edit of them opens no epoch."""
    return None if job.notify is None else json.dumps(job.notify.to_dict(), sort_keys=True)


def look_ahead(record: JobRecord) -> JobRecord:
    """Return a record with its next period, and when that has to be planned."""
    next_time, plan_at = times_ahead(record)
    return record._replace(next_time=next_time, plan_at=plan_at)


def times_ahead(record: JobRecord) -> tuple[EpochSeconds | None, int | None]:
    """Return a job's next period, and when it has to be planned."""
    segment = segment_of(record)
    following = None if record.remaining == 0 else segment.next_after(record.cursor)
    if record.suspended or record.paused:
        return following, record.pause_ends_at
    if record.deleted_at is not None or (following is None and record.past is None):
        return following, None
    if following is None:
        return None, record.edited_at
    return following, _planned_at(segment.compiled, following)


def _planned_at(compiled: CompiledJob, nominal_time: EpochSeconds) -> int:
    """Return when a period has to be planned: at the earliest time at which it may start."""
    return 1000 * (nominal_time + compiled.early) - compiled.jitter_ms


def edit(
    record: JobRecord,
    runs: Sequence[RunRecord],
    job: Job,
    *,
    now: int,
    launcher: str = "{}",
    kind: str = "callback",
) -> Change:
    """Return the change to a new definition, which applies to periods later than now.

    Its `suspend` applies at once; a pause stays as it is.
    """
    change = _redefined(record, runs, job, now=now, launcher=launcher, kind=kind)
    if job.policy.suspend == bool(record.suspended):
        return change
    held = _open_after(runs, change)
    return _joined(change, suspend(change.job, held, suspended=job.policy.suspend, now=now))


def _redefined(
    record: JobRecord, runs: Sequence[RunRecord], job: Job, *, now: int, launcher: str, kind: str
) -> Change:
    definition = definition_of(job)
    changed = record._replace(
        launcher=launcher,
        launcher_kind=kind,
        profile=profile_text_of(job),
        notify=notify_text(job),
        revision=record.revision + 1,
    )
    if definition == record.definition and record.deleted_at is None:
        return Change(changed, record.revision)
    kept_until = _kept_until(record, runs, now)
    until = now // 1000 if kept_until is None else kept_until
    compiled = compiled_job(definition, record.identity)
    # A job that is deleted, or has no runs remaining, has no periods left to plan under the old definition.
    over = record.deleted_at is not None or record.remaining == 0
    unplanned = None if over else segment_of(record).next_after(record.cursor)
    left_over = not over and (record.past is not None or (unplanned is not None and unplanned <= until))
    changed = changed._replace(
        definition=definition,
        epoch=record.epoch + 1,
        edited_at=now,
        kept_until=kept_until,
        past=_past(record, until) if left_over else None,
        cursor=record.cursor if left_over else max(until, record.cursor),
        remaining=_remaining(record, job.policy),
        deleted_at=None,
        handled=handled_one_by_one(record),
    )
    updates = [_redecided(run, compiled, changed, now) for run in runs if _is_ahead(run, until)]
    inserts = _added(record, compiled, changed, until, now)
    if len(inserts) > MAX_ADDED:
        inserts = inserts[:MAX_ADDED]
        changed = changed._replace(cursor=inserts[-1].nominal_time)
    changed = look_ahead(changed)
    if not changed.is_stopped and not all(run.in_flight for run in runs):
        # Runs that wait for another to end are judged by the new policy at once.
        changed = changed._replace(plan_at=now)
    updates = [run for run in updates if run not in runs]
    edit_incident = incident.edited(record, changed, now)
    return Change(changed, record.revision, inserts=inserts, updates=updates, incidents=(edit_incident,))


def _past(record: JobRecord, until: EpochSeconds) -> str:
    """Return the earlier definitions after an edit, or raise ConflictError if they are too long."""
    if len(record.past or "") > MAX_PAST:
        raise ConflictError(UNPLANNED.format(name=record.identity), identity=record.identity)
    return with_newest(record, until)


def revise(
    state: JobState,
    job: Job,
    *,
    now: int,
    launcher: str = "{}",
    kind: str = "callback",
    paused: bool | None = None,
) -> Change:
    """Return an edit, and the pause or resume that `paused` requests, as one change.

    Without `paused` a pause stays as it was. A deleted job is created again: it is not paused, and its
    remaining runs are those of its policy.
    """
    deleted = state.job.deleted_at is not None
    record = state.job._replace(**NEW_FLAGS) if deleted else state.job
    change = edit(record, state.runs, job, now=now, launcher=launcher, kind=kind)
    if deleted:
        change.job = look_ahead(change.job._replace(remaining=job.policy.remaining))
        change.closed = (incident.ended(IncidentKind.PAUSED, job.identity, now), *change.closed)
    if paused is None or paused == bool(change.job.paused):
        return change
    runs = open_runs_after(state, change)
    further = (
        pause(change.job, runs, because=BY_HAND, now=now) if paused else resume(change.job, runs, now=now)
    )
    return _joined(change, further)


def _joined(first: Change, second: Change) -> Change:
    """Return two changes as one; the second starts from the record of the first."""
    later = {run.key: run for run in second.updates}
    added = {run.key for run in first.inserts}
    updates = {run.key: run for run in (*first.updates, *second.updates) if run.key not in added}
    return replace(
        first,
        job=second.job._replace(revision=first.revision + 1),
        inserts=[later.get(run.key, run) for run in first.inserts],
        updates=list(updates.values()),
        incidents=(*first.incidents, *second.incidents),
        closed=(*first.closed, *second.closed),
    )


def open_runs_after(state: JobState, change: Change) -> list[RunRecord]:
    """Return the open runs of a job after a change."""
    return _open_after(state.runs, change)


def _open_after(before: Sequence[RunRecord], change: Change) -> list[RunRecord]:
    runs = {run.key: run for run in (*before, *change.inserts, *change.updates)}
    return [run for run in runs.values() if run.is_open]


def delete(record: JobRecord, runs: Sequence[RunRecord], *, now: int) -> Change:
    """Return the change of a deletion: waiting runs are cancelled, running ones may end."""
    cancelled = [
        settle(run, RunStatus.CANCELLED, Reason.DELETED)
        if run.status is RunStatus.PENDING
        else run._replace(due_at=None, is_open=0)
        for run in runs
        if not run.in_flight
    ]
    deleted = record._replace(
        deleted_at=now, next_time=None, plan_at=None, past=None, revision=record.revision + 1
    )
    return Change(deleted, record.revision, updates=cancelled)


def request_run(
    record: JobRecord,
    *,
    request: str,
    now: int,
    kind: RunKind = RunKind.MANUAL,
    nominal_time: EpochSeconds | None = None,
) -> Change:
    """Return the change that adds a requested run: a separate execution that changes no period's outcome."""
    if record.deleted_at is not None:
        raise ConflictError(f'Job "{record.identity}" is deleted', identity=record.identity)
    run = RunRecord(
        request_key_of(record.identity, kind, request),
        record.identity,
        now // 1000 if nominal_time is None else nominal_time,
        now,
        RunStatus.PENDING,
        Reason.BOOT if kind is RunKind.BOOT else Reason.ASKED,
        now,
        record.epoch,
        now,
        1,
        kind,
    )
    return Change(
        record._replace(revision=record.revision + 1),
        record.revision,
        inserts=[run],
        incidents=(incident.requested(record.identity, kind, now, request),),
    )


def backfill(
    record: JobRecord,
    nominal_time: EpochSeconds,
    *,
    run: RunRecord | None,
    dropped: RangeRecord | None,
    request: str,
    now: int,
) -> Change:
    """Return the change that adds a run of a past period; `run` and `dropped` are its records, if any.

    A recorded period keeps its outcome, and the backfill is a run beside it. A period from before the job's
    creation has no record, so the backfill is its run, under its key, and cannot be repeated. A period that
    is not planned yet is refused: the engine will decide it.
    """
    handled = run is not None or dropped is not None
    compiled = compiled_job(record.definition, record.identity)
    if not handled and not is_period(compiled, nominal_time):
        text = rfc3339(nominal_time)
        raise InvalidOptionError(option="nominal_time", value=text, reason="the job has no such period")
    if not handled and nominal_time > record.cursor:
        message = f'The period {rfc3339(nominal_time)} of job "{record.identity}" is still to be judged'
        raise ConflictError(message, identity=record.identity, period_id=rfc3339(nominal_time))
    change = request_run(record, request=request, now=now, kind=RunKind.BACKFILL, nominal_time=nominal_time)
    if not handled and _is_before_creation(record, compiled, nominal_time):
        key = key_of(record.identity, nominal_time)
        change.inserts = [change.inserts[0]._replace(key=key, kind=RunKind.PERIOD)]
    return change


def _is_before_creation(record: JobRecord, compiled: CompiledJob, nominal_time: EpochSeconds) -> bool:
    """Say whether a period's fire time had passed when its job was created."""
    fire_time = compiled.fire_time(record.identity, nominal_time)
    return (1000 * nominal_time if fire_time is None else fire_time) < record.born_at


def is_period(compiled: CompiledJob, nominal_time: EpochSeconds) -> bool:
    """Say whether a definition has a period with this nominal time."""
    policy = compiled.policy
    if policy.start_at is not None and nominal_time < policy.start_at:
        return False
    if policy.end_at is not None and nominal_time > policy.end_at:
        return False
    return compiled.plan.prev_at_or_before(nominal_time) == nominal_time


def cursor_before(instant: int, compiled: CompiledJob) -> EpochSeconds:
    """Return the last second whose period, anywhere in its window, fires before an instant."""
    return (instant - 1 - compiled.jitter_ms) // 1000 - compiled.late


def _is_ahead(run: RunRecord, until: EpochSeconds) -> bool:
    return run.status is RunStatus.PENDING and run.kind is RunKind.PERIOD and run.nominal_time > until


def _kept_until(record: JobRecord, runs: Sequence[RunRecord], now: int) -> EpochSeconds | None:
    """Return the last period after an edit that keeps its definition: one that is past its fire time.

    It was given its data interval, so that all periods up to it keep theirs. None if there is none.
    """
    compiled, after = compiled_job(record.definition, record.identity), now // 1000
    kept = record.kept_until if record.kept_until is not None and record.kept_until > after else None
    # A fire time can be this far ahead of its period; a cursor beyond it was set by a clock that was ahead.
    time = last_at(compiled.plan, min(record.cursor, (now + compiled.jitter_ms) // 1000 - compiled.early))
    pending = {run.key for run in runs if run.status is RunStatus.PENDING}
    over_at = now if record.deleted_at is None else min(now, record.deleted_at)
    for _ in range(MAX_ADDED):
        if time is None or time <= max(after, kept or after):
            break
        fire_time = compiled.fire_time(record.identity, time)
        if fire_time is not None and fire_time <= over_at and key_of(record.identity, time) not in pending:
            return time
        time = last_at(compiled.plan, time - 1)
    return kept


def _added(
    before: JobRecord, compiled: CompiledJob, record: JobRecord, until: EpochSeconds, now: int
) -> list[RunRecord]:
    """Return the periods an edit adds to those that were already planned ahead.

    Periods of the old definition already have a record and are not planned again.
    """
    old = compiled_job(before.definition, before.identity)
    if before.cursor <= until or before.deleted_at is not None:
        return []
    times = seconds_between(compiled.plan, until + 1, before.cursor + 1)
    new = (time for time in times if is_period(compiled, time) and not is_period(old, time))
    return [_planned(record, compiled, time, now) for time in islice(new, MAX_ADDED + 1)]


def _planned(record: JobRecord, compiled: CompiledJob, nominal_time: EpochSeconds, now: int) -> RunRecord:
    fire_time = compiled.fire_time(record.identity, nominal_time)
    run = RunRecord(
        key_of(record.identity, nominal_time),
        record.identity,
        nominal_time,
        1000 * nominal_time if fire_time is None else fire_time,
        RunStatus.PENDING,
        Reason.PLANNED,
        now,
        record.epoch,
        None if record.is_stopped else fire_time,
        1,
    )
    if fire_time is None:
        return settle(run, RunStatus.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    return settle(run, RunStatus.CANCELLED, Reason.EDITED) if fire_time <= now else run


def _redecided(run: RunRecord, compiled: CompiledJob, record: JobRecord, now: int) -> RunRecord:
    """Return a planned run under a new definition; with the same fire time only its epoch changes."""
    assert run.key == key_of(record.identity, run.nominal_time)
    if not is_period(compiled, run.nominal_time):
        return settle(run, RunStatus.CANCELLED, Reason.EDITED)
    fire_time = compiled.fire_time(record.identity, run.nominal_time)
    if fire_time is None:
        return settle(run, RunStatus.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    if fire_time == run.fire_time:
        return run._replace(epoch=record.epoch)
    if fire_time <= now:
        return settle(run, RunStatus.CANCELLED, Reason.EDITED)
    return run._replace(
        epoch=record.epoch, fire_time=fire_time, due_at=None if record.is_stopped else fire_time
    )


def _remaining(record: JobRecord, policy: Policy) -> int | None:
    before = compiled_job(record.definition, record.identity).policy.remaining
    return record.remaining if before == policy.remaining else policy.remaining
