"""Rows into records: a status or reason that no version of Kron wrote is an error that names its row."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from kron.core.choice import Choice
from kron.core.errors import StoreError
from kron.core.plan.record import AttemptRecord, JobRecord, RangeRecord, RunRecord, getter, positions
from kron.stores.column import columns_of

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
