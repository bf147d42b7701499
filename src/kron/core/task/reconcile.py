"""Override resolution: a list of registrations against the stored tasks (SPEC 1: Persistence Semantics).

An edit of a task follows the theory, not the engine's epochs (SPEC 2: reading 12): dues are judged by the
new expression from the last start on, and a retry waits for the new delay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.compiled import CompiledJob, compiled_job, handled_one_by_one, last_at, segment_of
from kron.core.plan.lifecycle import settle
from kron.core.plan.record import (
    JobRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    RunStatus,
    getter,
    request_key_of,
)
from kron.core.plan.registration import create, edit, look_ahead
from kron.core.plan.step import NO_RANGES, NO_RUNS, Change, JobState, WriteScope, retry_at, with_job
from kron.core.task.errors import TaskTryDeserializeError
from kron.core.task.restore import fault_of
from kron.core.task.task import TaskConfig, definition_for, is_waiting_for_retry
from kron.core.time.zone import zone_of

MINUTE = 60


class Standing(StrEnum):
    """The relation of a registered task to the stored one."""

    NEW = "new"
    PRESERVED = "preserved"
    OVERRIDDEN = "overridden"
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The writes of one registration, applied together, and the standing of every task."""

    standings: dict[str, Standing] = field(default_factory=dict)
    created: list[JobRecord] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    faults: dict[str, TaskTryDeserializeError] = field(default_factory=dict)


Resolved = tuple[Standing, Change | None]
# Resolutions to reuse, each with the stored record without its name, by what tells most records apart.
Reusable = dict[tuple[object, ...], tuple[tuple[object, ...], Resolved]]
_FIELDS = JobRecord._fields
assert (_FIELDS[0], _FIELDS[-1]) == ("identity", "number"), "all fields between are shared by many jobs"
_shared: Callable[[JobRecord], tuple[object, ...]] = itemgetter(slice(1, -1))
# The fields that an ordinary edit does not write.
_unedited = getter(_FIELDS, [name for name in _FIELDS if name not in WriteScope.EDIT.value])


def resolve(
    tasks: Sequence[TaskConfig], stored: Sequence[JobState], *, timezone: str, now: int
) -> Resolution:
    """Compare a list of tasks with the stored ones and return the writes that make them equal."""
    resolution = Resolution()
    states = {state.job.identity: state for state in stored}
    since = 1000 * minute_of(timezone, now // 1000)
    # New tasks of one configuration differ in their names only, and so do most stored ones.
    fresh: dict[str, JobRecord] = {}
    reusable: Reusable = {}
    for task in tasks:
        definition = definition_for(task.cron, task.retry_delay, timezone)
        state = states.pop(task.name, None)
        resolved = None if state is None else _reused(state, definition, reusable)
        if state is not None and resolved is None and _is_usable(state, resolution, now):
            resolved = _resolve_task(state, task, definition, now)
            if _is_reusable(state, resolved[1]):
                reusable[_likely(state.job, definition)] = _shared(state.job), resolved
        if resolved is not None:
            resolution.standings[task.name], change = resolved
            resolution.changed.extend([] if change is None else [change])
            continue
        if definition not in fresh:
            fresh[definition] = create(compiled_job(definition, task.name).job, now=now, since=since)
        resolution.standings[task.name] = Standing.NEW
        resolution.created.append(fresh[definition]._replace(identity=task.name))
    resolution.forgotten.extend(states)
    return resolution


def _reused(state: JobState, definition: str, reusable: Reusable) -> Resolved | None:
    """Return the resolution of an earlier task that differed in its name only."""
    if state.runs or state.fault is not None:
        return None
    # Comparing whole records takes half the time of looking them up.
    known = reusable.get(_likely(state.job, definition))
    if known is None or known[0] != _shared(state.job):
        return None
    standing, change = known[1]
    if change is None:
        return known[1]
    after = list(change.job)
    after[0], after[-1] = state.job.identity, state.job.number
    return standing, with_job(change, tuple.__new__(JobRecord, after))


def _likely(job: JobRecord, definition: str) -> tuple[object, ...]:
    """Return what records that differ in their names only have in common, and most others do not."""
    return definition, job.born_at, job.revision, job.last_start_at


def _is_reusable(state: JobState, change: Change | None) -> bool:
    """Return whether a resolution does not depend on the task's name."""
    if state.runs or not compiled_job(state.job.definition, state.job.identity).is_shared:
        return False
    return change is None or not (change.inserts or change.updates or change.ranges)


def _is_usable(state: JobState, resolution: Resolution, now: int) -> bool:
    """Return whether a stored task can be used; if not, it is forgotten and its fault is recorded."""
    fault = fault_of(state, now=now)
    if fault is not None:
        resolution.faults[state.job.identity] = fault
    if fault is None and state.job.deleted_at is None:
        return True
    resolution.forgotten.append(state.job.identity)
    return False


def minute_of(timezone: str, instant: int) -> int:
    """Return the start of the civil minute of an instant."""
    return instant - (instant + zone_of(timezone).offset_at(instant)) % MINUTE


def _resolve_task(
    state: JobState, task: TaskConfig, definition: str, now: int
) -> tuple[Standing, Change | None]:
    """Return the standing of a stored task, and the change that its registration makes, if any."""
    record = state.job
    orphaned = bool(state.runs) and any(run.in_flight for run in state.runs)
    compiled = compiled_job(record.definition, record.identity)
    same = (compiled.job.schedule.text, compiled.policy.retry_delay) == (task.cron, task.retry_delay)
    if not same:
        change: Change | None = override(state, definition, now=now)
    elif record.definition != definition:
        # The host has moved to another zone: periods that were due before stay due.
        moved = compiled_job(definition, task.name).job
        change = edit(_born(record), list(state.runs), moved, now=now)
    else:
        change = _withdraw_first_minute(record)
    if orphaned:
        return Standing.ORPHANED, change
    return Standing.PRESERVED if same else Standing.OVERRIDDEN, change


def _registered_at(record: JobRecord) -> int:
    """Return when a task was first registered."""
    return record.edited_at if record.epoch == 1 else record.born_at - 1


def _born(record: JobRecord) -> JobRecord:
    """Return a record that keeps the instant of its first registration through edits."""
    return record._replace(born_at=_registered_at(record) + 1)


def _withdraw_first_minute(record: JobRecord) -> Change | None:
    """Return the change that keeps the minute of the first registration from starting later (reading 9)."""
    registered_at = _registered_at(record)
    is_later = record.next_time is None or record.next_time > registered_at // 1000
    if record.last_start_at is not None or is_later:
        return None
    record = _born(record)._replace(cursor=registered_at // 1000, revision=record.revision + 1)
    return Change(look_ahead(record), record.revision - 1)


def override(state: JobState, definition: str, *, now: int) -> Change:
    """Return the change of a new configuration: due once, if it matched since the last start (reading 12)."""
    record, until = state.job, now // 1000
    since = record.last_start_at if record.last_start_at is not None else _registered_at(record)
    compiled = compiled_job(definition, record.identity)
    changed = record._replace(
        born_at=_registered_at(record) + 1,
        definition=definition,
        epoch=record.epoch + 1,
        edited_at=now,
        revision=record.revision + 1,
        cursor=max(until, record.cursor),
        past=None,
        replay_until=None,
        replay_at=None,
        replay_count=0,
        handled=handled_one_by_one(record),
    )
    newest = last_at(compiled.plan, until)
    inserts = NO_RUNS if newest is None or 1000 * newest <= since else [_due_again(changed, newest, now)]
    updates = [after for run in state.runs if (after := _after_override(run, compiled, record)) != run]
    changed = look_ahead(changed)
    return Change(
        changed,
        record.revision,
        scope=WriteScope.EDIT if _is_ordinary(record, changed) else WriteScope.ANY,
        inserts=inserts,
        updates=updates or NO_RUNS,
        attempts=NO_RUNS,
        ranges=_dropped(record, until, now),
        starts=NO_RUNS,
        ends=NO_RUNS,
        ended=NO_RUNS,
    )


def _is_ordinary(before: JobRecord, after: JobRecord) -> bool:
    """Return whether nothing differs but the fields of `WriteScope.EDIT`."""
    return _unedited(before) == _unedited(after)


def _due_again(job: JobRecord, nominal_time: int, now: int) -> RunRecord:
    """Return the run that a new expression is due; its minute may have a record of the old one."""
    return RunRecord(
        request_key_of(job.identity, RunKind.OVERRIDE, f"{job.born_at} {job.epoch}"),
        job.identity,
        nominal_time,
        1000 * nominal_time,
        RunStatus.PENDING,
        Reason.PLANNED,
        now,
        job.epoch,
        None if job.paused else 1000 * nominal_time,
        1,
        RunKind.OVERRIDE,
    )


def _dropped(record: JobRecord, until: int, now: int) -> list[RangeRecord]:
    """Return the range of the old expression's minutes that were not processed yet."""
    segment = segment_of(record)
    first = segment.next_after(record.cursor)
    if first is None or first > until:
        return NO_RANGES
    last = segment.last_until(until)
    assert last is not None, "a first exists"
    count = segment.count_until(last)
    identity, epoch = record.identity, segment.epoch
    return [RangeRecord(identity, first, last, count, Outcome.SKIPPED, Reason.EDITED, epoch, now)]


def _after_override(run: RunRecord, compiled: CompiledJob, record: JobRecord) -> RunRecord:
    if run.status is RunStatus.PENDING:
        return settle(run, RunStatus.CANCELLED, Reason.EDITED)
    if is_waiting_for_retry(run) and not record.paused:
        assert run.ended_at is not None
        assert compiled.policy.retry_delay is not None
        return run._replace(due_at=retry_at(run.ended_at, compiled.policy.retry_delay))
    return run
