"""Rewind: a job's records go back to the present after its clock was ahead (SPEC 2: reading 16).

A period that started, even at a wrong time, stays handled for ever. One that was dropped, and whose fire time
is still to come, is open again: its record is withdrawn and kept beside, and the cursor goes back.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.job.outcome import Reason
from kron.core.plan.compiled import CompiledJob, compiled_job, handled_text, last_at, until_at_most
from kron.core.plan.record import (
    OUTCOME_OF,
    JobRecord,
    RangeRecord,
    ReopenedRecord,
    RunKind,
    RunRecord,
    RunStatus,
)
from kron.core.plan.registration import cursor_before, is_period, look_ahead
from kron.core.plan.step import Change, JobState, Rewind
from kron.core.time.instant import EpochSeconds

# Reasons for which a clock that is ahead drops a period.
REOPENED = frozenset(
    {
        Reason.DEADLINE, Reason.CATCHUP_NONE, Reason.SUPERSEDED, Reason.CATCHUP_LIMIT, Reason.ACTIVE,
        Reason.COALESCED, Reason.QUEUE_FULL, Reason.OPEN_LIMIT, Reason.EDITED,
    }
)  # fmt: skip
# A cancelled period was skipped.
_OUTCOME_OF = {**OUTCOME_OF, RunStatus.CANCELLED: OUTCOME_OF[RunStatus.SKIPPED]}


class Recorded(NamedTuple):
    """The records of a job after some nominal time: runs, ranges, and the definitions of their epochs."""

    runs: Sequence[RunRecord] = ()
    ranges: Sequence[RangeRecord] = ()
    definitions: Mapping[int, str] = {}


NOTHING = Recorded()


class RangePart(NamedTuple):
    """Consecutive periods of a range, and whether they are open again."""

    first: EpochSeconds
    last: EpochSeconds
    is_open: bool


def cursor_at(job: JobRecord, back_to: int) -> EpochSeconds:
    """Return the cursor of a job that goes back to an instant: every later period may have to be opened."""
    return min(job.cursor, cursor_before(back_to, compiled_job(job.definition, job.identity)))


def rewind(state: JobState, recorded: Recorded, *, back_to: int, ahead_to: int) -> Change:
    """Return the change of a job whose clock was ahead, up to `ahead_to`, and is at `back_to` again."""
    record = state.job
    compiled = compiled_job(record.definition, record.identity)
    removed = [run for run in recorded.runs if _is_withdrawn(run, compiled, back_to)]
    parts = [(dropped, _parts(dropped, recorded, compiled, back_to)) for dropped in recorded.ranges]
    cut = [(dropped, stretches) for dropped, stretches in parts if any(each.is_open for each in stretches)]
    reopened = [_reopened_run(run, back_to) for run in removed if run.status is not RunStatus.PENDING]
    reopened += [
        ReopenedRecord(*_part(dropped, each, recorded, compiled), back_to)
        for dropped, stretches in cut
        for each in stretches
        if each.is_open
    ]
    kept = [
        _part(dropped, each, recorded, compiled)
        for dropped, stretches in cut
        for each in stretches
        if not each.is_open
    ]
    gone = {run.key for run in removed}
    handled = _handled(
        compiled,
        cursor_at(record, back_to),
        [
            *((run.nominal_time, run.nominal_time) for run in recorded.runs if _is_handled(run, gone)),
            *((each.first, each.last) for _, own in parts for each in own if not each.is_open),
        ],
    )
    updates = [_back(run, back_to, ahead_to) for run in state.runs if run.key not in gone]
    return Change(
        _rewound(record, handled, back_to, waits=any(not run.in_flight for run in updates)),
        record.revision,
        updates=[run for run in updates if run not in state.runs],
        rewind=Rewind(removed, [dropped for dropped, _ in cut], kept, reopened),
    )


def _is_handled(run: RunRecord, gone: set[str]) -> bool:
    return run.kind is RunKind.PERIOD and run.key not in gone


def _is_withdrawn(run: RunRecord, compiled: CompiledJob, back_to: int) -> bool:
    """Say whether a period never started, was not dropped by a person, and fires later."""
    if run.kind is not RunKind.PERIOD or run.started_at is not None:
        return False
    if run.status is not RunStatus.PENDING and run.reason not in REOPENED:
        return False
    if not is_period(compiled, run.nominal_time):
        return False
    fire_time = compiled.fire_time(run.identity, run.nominal_time)
    return fire_time is not None and fire_time >= back_to


def _reopened_run(run: RunRecord, back_to: int) -> ReopenedRecord:
    outcome, at = _OUTCOME_OF[run.status], run.nominal_time
    return ReopenedRecord(run.identity, at, at, 1, outcome, run.reason, run.epoch, run.created_at, back_to)


# --- ranges ------------------------------------------------------------------------------------------


def _definition(dropped: RangeRecord, recorded: Recorded, compiled: CompiledJob) -> CompiledJob:
    """Return the definition that a range follows."""
    definition = recorded.definitions.get(dropped.epoch)
    return compiled if definition is None else compiled_job(definition, dropped.identity)


def _parts(dropped: RangeRecord, recorded: Recorded, compiled: CompiledJob, back_to: int) -> list[RangePart]:
    """Return the stretches of a range that stay and that are open again; windows are judged one by one."""
    if dropped.reason not in REOPENED:
        return [RangePart(dropped.first, dropped.last, is_open=False)]
    followed = _definition(dropped, recorded, compiled)
    certainly_past = cursor_before(back_to, followed)
    first_ahead = -((-back_to - followed.jitter_ms) // 1000) - followed.early
    stretches = [RangePart(dropped.first, min(dropped.last, certainly_past), is_open=False)]
    time = followed.plan.next_after(max(dropped.first - 1, certainly_past))
    while time is not None and time <= dropped.last and time < first_ahead:
        fire_time = followed.fire_time(dropped.identity, time)
        is_open = (1000 * time if fire_time is None else fire_time) >= back_to
        stretches.append(RangePart(time, time, is_open))
        time = followed.plan.next_after(time)
    stretches.append(RangePart(max(dropped.first, first_ahead), dropped.last, is_open=True))
    return list(_merged(followed, stretches))


def _merged(followed: CompiledJob, stretches: Sequence[RangePart]) -> Iterator[RangePart]:
    """Yield stretches with periods in them, neighbours of one kind as one."""
    present: RangePart | None = None
    for stretch in stretches:
        first, last = followed.plan.next_after(stretch.first - 1), last_at(followed.plan, stretch.last)
        if first is None or last is None or first > last:
            continue
        if present is not None and present.is_open == stretch.is_open:
            present = present._replace(last=last)
            continue
        if present is not None:
            yield present
        present = RangePart(first, last, stretch.is_open)
    if present is not None:
        yield present


def _part(dropped: RangeRecord, part: RangePart, recorded: Recorded, compiled: CompiledJob) -> RangeRecord:
    plan = _definition(dropped, recorded, compiled).plan
    periods = count_between(plan, part.first, part.last + 1)
    return dropped._replace(first=part.first, last=part.last, periods=periods)


def _handled(
    compiled: CompiledJob, cursor: EpochSeconds, intervals: Iterable[tuple[EpochSeconds, EpochSeconds]]
) -> str | None:
    """Return the intervals after the cursor with a period in them, merged where no period lies between."""
    plan, merged = compiled.plan, list[tuple[EpochSeconds, EpochSeconds]]()
    for start, end in sorted(intervals):
        first, last = plan.next_after(max(start - 1, cursor)), last_at(plan, end)
        if first is None or last is None or first > last:
            continue
        following = plan.next_after(merged[-1][1]) if merged else None
        if following is not None and first <= following:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return handled_text(merged)


# --- the job and its open runs -----------------------------------------------------------------------


def _rewound(record: JobRecord, handled: str | None, back_to: int, *, waits: bool) -> JobRecord:
    """Return the record of a job at the present: no instant of it is ahead any more."""
    cursor = cursor_at(record, back_to)
    # A task's first epoch keeps the instant of its registration as that of its definition.
    born_at = max(record.born_at, record.edited_at + 1) if record.epoch == 1 else record.born_at
    is_new = (cursor, handled) != (record.cursor, record.handled) or record.edited_at >= back_to
    replay_until = record.replay_until
    if replay_until is not None:
        replay_until = min(
            replay_until, cursor_before(back_to, compiled_job(record.definition, record.identity))
        )
        replay_until = replay_until if replay_until > cursor else None
    changed = record._replace(
        epoch=record.epoch + is_new,
        edited_at=min(record.edited_at, back_to - 1) if not is_new else back_to - 1,
        born_at=min(born_at if is_new else record.born_at, back_to),
        revision=record.revision + 1,
        kept_until=None if is_new else record.kept_until,
        cursor=cursor,
        past=until_at_most(record.past, (back_to - 1) // 1000, cursor),
        replay_until=replay_until,
        replay_at=None if replay_until is None else _earlier(record.replay_at, back_to),
        replay_count=0 if replay_until is None else record.replay_count,
        resumed_at=_earlier(record.resumed_at, back_to),
        deleted_at=_earlier(record.deleted_at, back_to),
        last_start_at=_earlier(record.last_start_at, back_to),
        last_success_at=_earlier(record.last_success_at, back_to),
        last_failure_at=_earlier(record.last_failure_at, back_to),
        handled=handled,
    )
    changed = look_ahead(changed)
    if waits and not changed.is_stopped and changed.deleted_at is None:
        # Runs that wait for another to end are judged at once.
        changed = changed._replace(plan_at=back_to)
    return changed


def _back(run: RunRecord, back_to: int, ahead_to: int) -> RunRecord:
    """Return an open run at the present: it waits as long as it would have waited, and started before."""
    due_at = run.due_at
    if due_at is not None and due_at > back_to:
        due_at = back_to + max(0, due_at - ahead_to)
    return run._replace(
        due_at=due_at,
        started_at=_earlier(run.started_at, back_to),
        ended_at=_earlier(run.ended_at, back_to),
    )


def _earlier(instant: int | None, back_to: int) -> int | None:
    return None if instant is None else min(instant, back_to)
