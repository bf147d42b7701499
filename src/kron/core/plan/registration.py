"""Registration: what creating, changing, pausing and deleting a job does to what is remembered of it."""

from itertools import islice

from kron.core.cron.schedule import seconds_between
from kron.core.errors import ConflictError, InvalidOptionError
from kron.core.job.job import Job
from kron.core.job.outcome import Reason
from kron.core.job.policy import Policy
from kron.core.plan.compiled import CompiledJob, compiled_job, definition_of
from kron.core.plan.lifecycle import settle
from kron.core.plan.record import (
    JobRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
    request_key_of,
)
from kron.core.plan.segment import segment_of, with_newest
from kron.core.plan.step import Change
from kron.core.time.instant import EpochSeconds, rfc3339

# How many periods one edit brings in at once; a denser schedule gets the rest at the next wake.
MAX_BROUGHT_IN = 1_000


def create(
    job: Job, *, now: int, launcher: str = "{}", kind: str = "callback", since: int | None = None
) -> JobRecord:
    """Return the record of a new job; a period whose fire time lies before `since`, or now, has no record."""
    born_at = now if since is None else since
    definition = definition_of(job)
    terms = compiled_job(definition, job.identity)
    record = JobRecord(
        identity=job.identity,
        definition=definition,
        launcher=launcher,
        launcher_kind=kind,
        epoch=1,
        edited_at=now,
        born_at=born_at,
        revision=1,
        cursor=_before(born_at, terms),
        next_time=None,
        plan_at=None,
        paused=int(job.policy.suspend),
        remaining=job.policy.remaining,
    )
    return look_ahead(record)


def look_ahead(record: JobRecord) -> JobRecord:
    """Return a record that knows its next period and when it has to be looked at."""
    next_time, plan_at = times_ahead(record)
    return record._replace(next_time=next_time, plan_at=plan_at)


def times_ahead(record: JobRecord) -> tuple[EpochSeconds | None, int | None]:
    """Return a job's next period and when it has to be looked at."""
    segment = segment_of(record)
    following = None if record.remaining == 0 else segment.next_after(record.cursor)
    if record.paused or record.deleted_at is not None or (following is None and record.past is None):
        return following, None
    if following is None:
        return None, record.edited_at
    return following, 1000 * (following + segment.terms.early) - segment.terms.jitter_ms


def edit(
    record: JobRecord,
    runs: list[RunRecord],
    job: Job,
    *,
    now: int,
    launcher: str = "{}",
    kind: str = "callback",
) -> Change:
    """Return what a new definition changes: it holds for periods later than now."""
    definition = definition_of(job)
    changed = record._replace(launcher=launcher, launcher_kind=kind, revision=record.revision + 1)
    if definition == record.definition and record.deleted_at is None:
        return Change(changed, record.revision)
    until = now // 1000
    terms = compiled_job(definition, record.identity)
    # A job that is deleted, or has run as often as it was to run, has no periods that could be left over.
    over = record.deleted_at is not None or record.remaining == 0
    unplanned = None if over else segment_of(record).next_after(record.cursor)
    left_over = not over and (record.past is not None or (unplanned is not None and unplanned <= until))
    changed = changed._replace(
        definition=definition,
        epoch=record.epoch + 1,
        edited_at=now,
        past=with_newest(record, until) if left_over else None,
        cursor=record.cursor if left_over else max(until, record.cursor),
        remaining=_remaining(record, job.policy),
        deleted_at=None,
    )
    updates = [_redecided(run, terms, changed, now) for run in runs if _is_ahead(run, until)]
    inserts = _brought_in(record, terms, changed, now)
    if len(inserts) > MAX_BROUGHT_IN:
        inserts = inserts[:MAX_BROUGHT_IN]
        changed = changed._replace(cursor=inserts[-1].nominal_time)
    changed = look_ahead(changed)
    if not changed.paused and not all(run.in_flight for run in runs):
        # What waits for an end is judged by the new policy at once.
        changed = changed._replace(plan_at=now)
    updates = [run for run in updates if run not in runs]
    return Change(changed, record.revision, inserts=inserts, updates=updates)


def pause(record: JobRecord, runs: list[RunRecord], *, because: str) -> Change:
    """Return what pausing changes: no period is handled, and nothing starts by itself any more.

    A retry that waits keeps its time; if that comes while the job is paused, a wake notes that it has come.
    """
    held = [
        run._replace(due_at=None)
        for run in runs
        if run.due_at is not None and run.status is RunStatus.PENDING
    ]
    paused = record._replace(paused=1, paused_because=because, plan_at=None, revision=record.revision + 1)
    return Change(paused, record.revision, updates=held)


def resume(record: JobRecord, runs: list[RunRecord], *, now: int) -> Change:
    """Return what resuming changes: catch-up and deadline judge what passed meanwhile."""
    if not record.paused:
        return Change(record._replace(revision=record.revision + 1), record.revision)
    woken = [run._replace(due_at=_due_at(run)) for run in runs if not run.in_flight]
    resumed = record._replace(
        paused=0,
        paused_because=None,
        resumed_at=now,
        plan_at=now if record.deleted_at is None else None,
        failures=0,
        revision=record.revision + 1,
    )
    return Change(resumed, record.revision, updates=woken)


def delete(record: JobRecord, runs: list[RunRecord], *, now: int) -> Change:
    """Return what deleting changes: nothing more starts, what waits is cancelled, what runs may end."""
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


def ask_for(
    record: JobRecord,
    *,
    request: str,
    now: int,
    kind: RunKind = RunKind.MANUAL,
    nominal_time: EpochSeconds | None = None,
) -> Change:
    """Return a run that somebody asks for; it is an execution of its own and changes no period's outcome."""
    if record.deleted_at is not None:
        raise ConflictError(f'Job "{record.identity}" is deleted', identity=record.identity)
    run = RunRecord(
        request_key_of(record.identity, kind, request),
        record.identity,
        now // 1000 if nominal_time is None else nominal_time,
        now,
        RunStatus.PENDING,
        Reason.ASKED,
        now,
        record.epoch,
        now,
        1,
        kind,
    )
    return Change(record._replace(revision=record.revision + 1), record.revision, inserts=[run])


def backfill(
    record: JobRecord,
    nominal_time: EpochSeconds,
    *,
    run: RunRecord | None,
    dropped: RangeRecord | None,
    request: str,
    now: int,
) -> Change:
    """Return a run of a past period that somebody asks for; `run` and `dropped` are what is on record of it.

    A handled period keeps its outcome, and the run is one of its own. A period from before the job's
    creation has no record, so it gets its own one and its own key, and cannot be run twice. One that is
    still to be judged is refused: it will have its outcome.
    """
    handled = run is not None or dropped is not None
    terms = compiled_job(record.definition, record.identity)
    if not handled and not is_period(terms, nominal_time):
        text = rfc3339(nominal_time)
        raise InvalidOptionError(option="nominal_time", value=text, reason="the job has no such period")
    if not handled and nominal_time > record.cursor:
        message = f'The period {rfc3339(nominal_time)} of job "{record.identity}" is still to be judged'
        raise ConflictError(message, identity=record.identity, period_id=rfc3339(nominal_time))
    change = ask_for(record, request=request, now=now, kind=RunKind.BACKFILL, nominal_time=nominal_time)
    if not handled and _is_unborn(record, terms, nominal_time):
        key = key_of(record.identity, nominal_time)
        change.inserts = [change.inserts[0]._replace(key=key, kind=RunKind.PERIOD)]
    return change


def _is_unborn(record: JobRecord, terms: CompiledJob, nominal_time: EpochSeconds) -> bool:
    """Say whether a period's time had passed when its job was created."""
    fire_time = terms.fire_time(record.identity, nominal_time)
    return (1000 * nominal_time if fire_time is None else fire_time) < record.born_at


def is_period(terms: CompiledJob, nominal_time: EpochSeconds) -> bool:
    """Say whether a definition has a period with this nominal time."""
    policy = terms.policy
    if policy.start_at is not None and nominal_time < policy.start_at:
        return False
    if policy.end_at is not None and nominal_time > policy.end_at:
        return False
    return terms.plan.prev_at_or_before(nominal_time) == nominal_time


def _before(born_at: int, terms: CompiledJob) -> EpochSeconds:
    """Return the last second whose period, wherever in its window it runs, lies before a job's birth."""
    return (born_at - 1 - terms.jitter_ms) // 1000 - terms.late


def _is_ahead(run: RunRecord, until: EpochSeconds) -> bool:
    return run.status is RunStatus.PENDING and run.kind is RunKind.PERIOD and run.nominal_time > until


def _brought_in(before: JobRecord, terms: CompiledJob, record: JobRecord, now: int) -> list[RunRecord]:
    """Return the periods an edit adds to those that were already planned ahead.

    What the old definition had is on record there, planned or handled, and is not planned again.
    """
    old = compiled_job(before.definition, before.identity)
    if before.cursor <= now // 1000 or before.deleted_at is not None:
        return []
    times = seconds_between(terms.plan, now // 1000 + 1, before.cursor + 1)
    new = (time for time in times if is_period(terms, time) and not is_period(old, time))
    return [_planned(record, terms, time, now) for time in islice(new, MAX_BROUGHT_IN + 1)]


def _planned(record: JobRecord, terms: CompiledJob, nominal_time: EpochSeconds, now: int) -> RunRecord:
    fire_time = terms.fire_time(record.identity, nominal_time)
    run = RunRecord(
        key_of(record.identity, nominal_time),
        record.identity,
        nominal_time,
        1000 * nominal_time if fire_time is None else fire_time,
        RunStatus.PENDING,
        Reason.PLANNED,
        now,
        record.epoch,
        None if record.paused else fire_time,
        1,
    )
    if fire_time is None:
        return settle(run, RunStatus.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    return settle(run, RunStatus.CANCELLED, Reason.EDITED) if fire_time <= now else run


def _redecided(run: RunRecord, terms: CompiledJob, record: JobRecord, now: int) -> RunRecord:
    """Return a planned run under a new definition; one whose decision is the same stays as it is."""
    assert run.key == key_of(record.identity, run.nominal_time)
    if not is_period(terms, run.nominal_time):
        return settle(run, RunStatus.CANCELLED, Reason.EDITED)
    fire_time = terms.fire_time(record.identity, run.nominal_time)
    if fire_time is None:
        return settle(run, RunStatus.UNSCHEDULABLE, Reason.NO_CANDIDATE)
    if fire_time == run.fire_time:
        return run._replace(epoch=record.epoch)
    if fire_time <= now:
        return settle(run, RunStatus.CANCELLED, Reason.EDITED)
    return run._replace(epoch=record.epoch, fire_time=fire_time, due_at=None if record.paused else fire_time)


def _remaining(record: JobRecord, policy: Policy) -> int | None:
    before = compiled_job(record.definition, record.identity).policy.remaining
    return record.remaining if before == policy.remaining else policy.remaining


def _due_at(run: RunRecord) -> int | None:
    """Return when a held run comes up again by itself; a retry without a time is one whose time has come."""
    if run.status is RunStatus.PENDING:
        return None if run.reason in (Reason.QUEUED, Reason.REPLACING) else run.fire_time
    return run.ended_at if run.due_at is None else run.due_at
