"""Columns and rows: how the fields of records are stored, and how rows become records again.

Columns are derived once from the names and types of the fields, so that a stored column is a field and a
migration for each database. A status or reason that no version of Kron wrote is an error that names its row.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from kron.core.choice import Choice
from kron.core.errors import StoreError
from kron.core.plan.query import JobGroup, RunCount, TagCount
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    ClockRecord,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    RunKind,
    RunRecord,
    RunStatus,
    field_types,
    getter,
    key_of,
    positions,
)
from kron.core.plan.rewind import Recorded
from kron.core.plan.step import Change, WriteScope
from kron.core.workflow import StartRequest

# Columns whose names differ from their fields': the names of the fields are those of views and timestamps.
NAMES = {
    "identity": "schedule_id",
    "key": "idempotency_key",
    "created_at": "made_at",
    "started_at": "began_at",
    "ended_at": "over_at",
}
# Fields of a run that never change once it is written.
FIXED = frozenset({"key", "identity", "nominal_time", "created_at", "kind"})


class Column(NamedTuple):
    """One stored field: its column's name, and how its values are stored."""

    field: str
    name: str
    is_text: bool
    is_nullable: bool
    is_external: bool
    choices: type[Choice] | None


@cache
def columns_of(record: type[tuple[Any, ...]]) -> tuple[Column, ...]:
    """Return the columns of a record in the order of its fields."""
    return tuple(
        Column(field, NAMES.get(field, field), each.is_text, each.is_optional, each.is_external, each.choices)
        for field, each in field_types(record).items()
    )


def _without(record: type[tuple[Any, ...]], fields: Iterable[str]) -> tuple[Column, ...]:
    return tuple(column for column in columns_of(record) if column.field not in fields)


def _only(record: type[tuple[Any, ...]], fields: Sequence[str]) -> tuple[Column, ...]:
    return tuple(column for column in columns_of(record) if column.field in fields)


# The fields of a notice that change while it is sent.
PROGRESS = ("state", "due_at", "tries", "batch", "ended_at", "sent_as", "error")
# What statements read and write, by the name they have there. A job's number is given by the store.
GROUPS: dict[str, tuple[Column, ...]] = {
    "job": columns_of(JobRecord),
    "new_job": _without(JobRecord, {"number"}),
    "run": columns_of(RunRecord),
    "shared_run": _without(RunRecord, {"key", "identity", "token"}),
    "changed_run": _without(RunRecord, FIXED),
    "attempt": columns_of(AttemptRecord),
    "range": columns_of(RangeRecord),
    "audit": columns_of(AuditRecord),
    "reopened": columns_of(ReopenedRecord),
    "clock": columns_of(ClockRecord),
    "incident": columns_of(IncidentRecord),
    "notice": columns_of(NoticeRecord),
    "new_notice": _without(NoticeRecord, {"number"}),
    "changed_notice": _only(NoticeRecord, PROGRESS),
}
# The columns of a job that a change writes, by its scope.
CHANGED_JOB = {
    scope: tuple(column for column in columns_of(JobRecord) if column.field in scope.value)
    or _without(JobRecord, {"identity", "number"})
    for scope in WriteScope
}
COLUMNS = {column.field: column for group in GROUPS.values() for column in group}


def storable(text: str) -> str:
    """Return a text without the characters no database stores: NUL, and lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


# Sorts after every name of a workflow: what lies between a prefix and it starts with the prefix.
AFTER_NAMES = "\x7f"


def start_values(start: StartRequest) -> dict[str, object]:
    """Return the values of the statements about a start of the run launcher."""
    return {NAMES.get(field, field): value for field, value in start._asdict().items()}


def check_keys(changes: Iterable[Change]) -> None:
    """Refuse to insert a period's run under a key that is not made of its job's name and its nominal time.

    So a key is as unique as the period, which the database enforces. The fast path made those of a cohort.
    """
    for run in [run for change in changes if change.cohort is None for run in change.inserts]:
        if run.kind is RunKind.PERIOD and run.key != key_of(run.identity, run.nominal_time):
            raise StoreError(f'The run of "{run.identity}" has the key of another run', row=run.key)


def writer(
    record: type[tuple[Any, ...]], columns: Sequence[Column]
) -> Callable[[tuple[Any, ...]], Sequence[object]]:
    """Return a function from a record to the values of some columns: plain texts and integers.

    A driver accepts choices too, but is slow to see that they are texts.
    """
    fields = [column.field for column in columns_of(record)]
    pick = getter(fields, [column.field for column in columns])
    converters = [
        (position, _plain if column.choices else _storable)
        for position, column in enumerate(columns)
        if column.choices or column.is_external
    ]

    def row_of(values: tuple[Any, ...]) -> Sequence[object]:
        row: list[Any] = [*pick(values)]
        for position, convert in converters:
            row[position] = convert(row[position])
        return row

    return row_of if converters else pick


def _plain(choice: Choice | None) -> str | None:
    return None if choice is None else choice._value_


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


_log = logging.getLogger("kron.stores")
Row = Sequence[Any]
Record = TypeVar("Record", bound=tuple[Any, ...])

_INTEGERS = frozenset({int, type(None)})
(_IDENTITY,) = positions(RunRecord._fields, ["identity"])


def reader(record: type[Record], kind: str) -> Callable[[Row], Record]:
    """Return a function from a row to a record; the first column says which one it is."""
    columns = columns_of(record)
    fields = [column.field for column in columns]
    choices: list[tuple[int, dict[str | None, Choice | None]]] = [
        (position, {choice.value: choice for choice in column.choices})
        for position, column in enumerate(columns)
        if column.choices
    ]
    for position, known in choices:
        if columns[position].is_nullable:
            known[None] = None
    integers = getter(fields, [column.field for column in columns if not column.is_text])
    make = partial(tuple.__new__, record)

    def read(row: Row) -> Record:
        values = [*row]
        try:
            for position, known in choices:
                values[position] = known[values[position]]
        except KeyError as cause:
            (value,) = cause.args
            raise _unreadable(kind, row[0], f"unknown value {value!r}", value=value) from cause
        if not _INTEGERS.issuperset(map(type, integers(row))):
            raise _unreadable(kind, row[0], "a value that is not an integer")
        return make(values)

    return read


def _unreadable(kind: str, name: str, reason: str, **details: object) -> StoreError:
    return StoreError(f'The {kind} "{name}" cannot be read: {reason}', row=name, **details)


# Without any check: a job with damaged fields is planned, and quarantined then. Faster than `_make`, too.
job_of: Callable[[Iterable[Any]], JobRecord] = partial(tuple.__new__, JobRecord)
run_of = reader(RunRecord, "run")
range_of = reader(RangeRecord, "range")
attempt_of = reader(AttemptRecord, "attempt")
reopened_of = reader(ReopenedRecord, "reopened range")
clock_of = reader(ClockRecord, "clock excursion")
incident_of = reader(IncidentRecord, "incident")
notice_of = reader(NoticeRecord, "notice")
# The excursions of a namespace's clocks that a store keeps, and its notices that were sent or given up.
MAX_EXCURSIONS, MAX_NOTICES = 1_000, 100_000


def runs_of(rows: Iterable[Row]) -> tuple[dict[str, list[RunRecord]], dict[str, str]]:
    """Return the runs of each job, and the error of each job with an unreadable run."""
    runs: dict[str, list[RunRecord]] = {}
    faults: dict[str, str] = {}
    for row in rows:
        try:
            runs.setdefault(row[_IDENTITY], []).append(run_of(row))
        except StoreError as error:
            faults[row[_IDENTITY]] = str(error)
    return runs, faults


def counts_of(rows: Iterable[tuple[int, str | None, int]]) -> list[RunCount]:
    """Return counts by part and status, from those of all runs (status None) and of those without success."""
    counts: Counter[tuple[int, RunStatus]] = Counter()
    for part, text, runs in rows:
        counts[part, RunStatus.SUCCESS] += runs if text is None else -runs
        if text is not None:
            counts[part, RunStatus(text)] += runs
    return [RunCount(part, status, runs) for (part, status), runs in sorted(counts.items()) if runs]


def groups_of(rows: Iterable[Row]) -> list[JobGroup]:
    """Return groups of jobs."""
    return [
        JobGroup(definition, tag, bool(stopped), bool(irregular), jobs, name)
        for definition, tag, stopped, irregular, jobs, name in rows
    ]


def tallies_of(rows: Iterable[Row]) -> list[TagCount]:
    """Return counts of runs by tag and status."""
    return [
        TagCount(part, tag, RunStatus(status), bool(dropped), *counts)
        for part, tag, status, dropped, *counts in rows
        if status in RunStatus.__members__
    ]


def earlier_epochs(job: JobRecord, runs: Sequence[RunRecord]) -> list[int]:
    """Return the epochs whose definitions the open runs of a job still need: those that have not started."""
    return sorted({run.epoch for run in runs if run.epoch != job.epoch and run.status is RunStatus.PENDING})


def definitions_by_job(epochs: Iterable[Row]) -> dict[str, dict[int, str]]:
    """Return the earlier definitions of jobs by name and epoch, from rows as `EpochRecord` has its fields."""
    definitions: dict[str, dict[int, str]] = {}
    for name, epoch, _, definition, _ in epochs:
        definitions.setdefault(name, {})[epoch] = definition
    return definitions


def recorded_by_job(
    runs: Sequence[RunRecord], ranges: Sequence[RangeRecord], epochs: Iterable[Row]
) -> dict[str, Recorded]:
    """Return records grouped by job; epochs are rows as `EpochRecord` has its fields."""
    definitions = definitions_by_job(epochs)
    own_runs: dict[str, list[RunRecord]] = {}
    for run in runs:
        own_runs.setdefault(run.identity, []).append(run)
    own_ranges: dict[str, list[RangeRecord]] = {}
    for dropped in ranges:
        own_ranges.setdefault(dropped.identity, []).append(dropped)
    return {
        name: Recorded(own_runs.get(name, ()), own_ranges.get(name, ()), definitions.get(name, {}))
        for name in own_runs.keys() | own_ranges.keys()
    }


def readable(rows: Iterable[Row], read: Callable[[Row], Record]) -> list[Record]:
    """Return the readable records; a damaged row is logged and left out."""
    records: list[Record] = []
    for row in rows:
        try:
            records.append(read(row))
        except StoreError as error:
            _log.warning("skipped a damaged row: %s", error)
    return records


async def readable_runs(query: Callable[[int], Awaitable[Sequence[Row]]], limit: int) -> list[RunRecord]:
    """Return up to `limit` runs; `query` is repeated with a higher limit while some are unreadable.

    A page that is not full would be taken for the last one.
    """
    wanted = limit
    while True:  # every round reads more rows than the one before, and the table is finite
        rows = await query(wanted)
        runs = readable(rows, run_of)
        if len(runs) >= limit or len(rows) < wanted:
            return runs[:limit]
        wanted += max(wanted, limit - len(runs))
