"""Override resolution: a list of registrations against what is stored (SPEC 1: Persistence Semantics).

An edit of a task follows the theory, not the engine's usual epochs (SPEC 2: reading 12): what is due is
judged by the new expression from the last start on, and a retry waits for the new delay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.lifecycle import settle
from kron.core.plan.record import JobRecord, RangeRecord, RunKind, RunRecord, RunStatus, request_key_of
from kron.core.plan.registration import create, edit, look_ahead
from kron.core.plan.segment import last_at, segment_of
from kron.core.plan.step import MILLISECOND, NO_RANGES, NO_RUNS, Change, JobState, WriteScope
from kron.core.task.errors import TaskTryDeserializeError
from kron.core.task.restore import fault_of
from kron.core.task.task import Task, definition_for, is_waiting_for_retry
from kron.core.time.zone import zone_of

MINUTE = 60


class Standing(StrEnum):
    """How a registered task stands to what is stored."""

    NEW = "new"
    PRESERVED = "preserved"
    OVERRIDDEN = "overridden"
    ORPHANED = "orphaned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What one registration writes, all of it together, and how every task stands."""

    standings: dict[str, Standing] = field(default_factory=dict)
    created: list[JobRecord] = field(default_factory=list)
    changed: list[Change] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    faults: dict[str, TaskTryDeserializeError] = field(default_factory=dict)


Met = tuple[Standing, Change | None]
# What tasks come to, by what is stored of them beside their names, and what they are to be.
Alike = dict[tuple[tuple[object, ...], str], Met]
UNMET: Met = (Standing.NEW, None)


def resolve(tasks: Sequence[Task], stored: Sequence[JobState], *, timezone: str, now: int) -> Resolution:
    """Compare a list of tasks with what is stored and return what has to be written for it to hold."""
    found = Resolution()
    cases = {case.job.identity: case for case in stored}
    since = 1000 * minute_of(timezone, now // 1000)
    # Tasks of the same configuration begin alike, but for their names; what is stored of many is alike too.
    fresh: dict[str, JobRecord] = {}
    alike: Alike = {}
    for task in tasks:
        definition = definition_for(task.cron, task.retry_delay, timezone)
        case = cases.pop(task.name, None)
        met = None if case is None else _met(case, definition, alike)
        if case is not None and met is None and _is_usable(case, found, now):
            met = _meet(case, task, definition, now)
            if _is_common(case, met[1]):
                alike[case.job[1:-1], definition] = met
        if met is not None:
            found.standings[task.name], change = met
            found.changed.extend([] if change is None else [change])
            continue
        if definition not in fresh:
            fresh[definition] = create(compiled_job(definition, task.name).job, now=now, since=since)
        found.standings[task.name] = Standing.NEW
        found.created.append(JobRecord._make((task.name, *fresh[definition][1:])))
    found.forgotten.extend(cases)
    return found


def _met(case: JobState, definition: str, alike: Alike) -> Met | None:
    """Return how a stored task stands if another that differed in its name only was met before."""
    if case.runs or case.fault is not None:
        return None
    standing, change = met = alike.get((case.job[1:-1], definition), UNMET)
    if change is None:
        return None if met is UNMET else met
    after = JobRecord._make((case.job.identity, *change.job[1:-1], case.job.number))
    return standing, replace(change, job=after)


def _is_common(case: JobState, change: Change | None) -> bool:
    """Say whether what a task comes to has nothing of its name in it."""
    if case.runs or not compiled_job(case.job.definition, case.job.identity).is_shared:
        return False
    return change is None or not (change.inserts or change.updates or change.ranges)


def _is_usable(case: JobState, found: Resolution, now: int) -> bool:
    """Say whether what is stored of a task can be gone on with; if not, it is forgotten, and why is noted."""
    fault = fault_of(case, now=now)
    if fault is not None:
        found.faults[case.job.identity] = fault
    if fault is None and case.job.deleted_at is None:
        return True
    found.forgotten.append(case.job.identity)
    return False


def minute_of(timezone: str, instant: int) -> int:
    """Return the instant at which the civil minute around an instant began."""
    return instant - (instant + zone_of(timezone).offset_at(instant)) % MINUTE


def _meet(case: JobState, task: Task, definition: str, now: int) -> tuple[Standing, Change | None]:
    """Return how a stored task stands to its registration, and what changes, if anything does."""
    record = case.job
    orphaned = bool(case.runs) and any(run.in_flight for run in case.runs)
    terms = compiled_job(record.definition, record.identity)
    same = (terms.job.schedule.text, terms.policy.retry_delay) == (task.cron, task.retry_delay)
    if not same:
        change: Change | None = override(case, definition, now=now)
    elif record.definition != definition:
        # The host has moved to another zone: what was due there stays due.
        moved = compiled_job(definition, task.name).for_job(task.name)
        change = edit(_born(record), list(case.runs), moved, now=now)
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
    """Return what keeps the minute of the first registration from starting in a later one (reading 9)."""
    registered_at = _registered_at(record)
    is_later = record.next_time is None or record.next_time > registered_at // 1000
    if record.last_start_at is not None or is_later:
        return None
    record = _born(record)._replace(cursor=registered_at // 1000, revision=record.revision + 1)
    return Change(look_ahead(record), record.revision - 1)


def override(case: JobState, definition: str, *, now: int) -> Change:
    """Return what a new configuration changes: due once, if it matched since the last start (reading 12)."""
    record, until = case.job, now // 1000
    since = record.last_start_at if record.last_start_at is not None else _registered_at(record)
    terms = compiled_job(definition, record.identity)
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
    )
    newest = last_at(terms.plan, until)
    inserts = NO_RUNS if newest is None or 1000 * newest <= since else [_due_again(changed, newest, now)]
    updates = [after for run in case.runs if (after := _after_override(run, terms, record)) != run]
    changed = look_ahead(changed)
    return Change(
        changed,
        record.revision,
        scope=WriteScope.EDIT if _is_ordinary(record, changed) else WriteScope.ANY,
        inserts=inserts,
        updates=updates or NO_RUNS,
        attempts=NO_RUNS,
        ranges=_given_up(record, until, now),
        starts=NO_RUNS,
        ends=NO_RUNS,
        ended=NO_RUNS,
    )


def _is_ordinary(before: JobRecord, after: JobRecord) -> bool:
    """Say whether nothing differs but what `Scope.EDIT` names: fields 1 and 4 to 8."""
    return before[2:4] == after[2:4] and before[9:] == after[9:]


def _due_again(job: JobRecord, nominal_time: int, now: int) -> RunRecord:
    """Return the run a new expression owes; the minute itself may be on record under the old one."""
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


def _given_up(record: JobRecord, until: int, now: int) -> list[RangeRecord]:
    """Return the share of the old expression's minutes that nobody had looked at yet."""
    segment = segment_of(record)
    first = segment.next_after(record.cursor)
    if first is None or first > until:
        return NO_RANGES
    last = segment.last_until(until)
    assert last is not None, "there is a first"
    count = segment.count_until(last)
    identity, epoch = record.identity, segment.epoch
    return [RangeRecord(identity, first, last, count, Outcome.SKIPPED, Reason.EDITED, epoch, now)]


def _after_override(run: RunRecord, terms: CompiledJob, record: JobRecord) -> RunRecord:
    if run.status is RunStatus.PENDING:
        return settle(run, RunStatus.CANCELLED, Reason.EDITED)
    if is_waiting_for_retry(run) and not record.paused:
        assert run.ended_at is not None
        assert terms.policy.retry_delay is not None
        return run._replace(due_at=run.ended_at - (-terms.policy.retry_delay // MILLISECOND))
    return run
