"""Rows into records: a status or reason that no version of Kron wrote is an error that names its row."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from kron.core.errors import StoreError
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import AttemptRecord, RangeRecord, Result, RunKind, RunRecord, RunStatus

_log = logging.getLogger("kron.stores")
Row = Sequence[Any]
Record = TypeVar("Record")

_STATUS = {status.value: status for status in RunStatus}
_REASON = {reason.value: reason for reason in Reason}
_RESULT: dict[str | None, Result | None] = {result.value: result for result in Result} | {None: None}
_KIND = {kind.value: kind for kind in RunKind}
_OUTCOME = {outcome.value: outcome for outcome in Outcome}
_NUMBERS = frozenset({int, type(None)})


def run_of(row: Row) -> RunRecord:
    """Return a run from its columns."""
    try:
        status, reason, kind, result = _STATUS[row[4]], _REASON[row[5]], _KIND[row[10]], _RESULT[row[15]]
    except KeyError as cause:
        raise _unreadable("run", row, cause) from cause
    if not _NUMBERS.issuperset(map(type, (*row[2:4], *row[6:10], *row[11:15], row[18]))):
        raise StoreError(f'The run "{row[0]}" cannot be read: a number is none', row=row[0])
    return RunRecord._make((*row[:4], status, reason, *row[6:10], kind, *row[11:15], result, *row[16:]))


def runs_of(rows: Iterable[Row]) -> tuple[dict[str, list[RunRecord]], dict[str, str]]:
    """Return the runs of each job, and of jobs with a run that cannot be read, why."""
    runs: dict[str, list[RunRecord]] = {}
    faults: dict[str, str] = {}
    for row in rows:
        try:
            runs.setdefault(row[1], []).append(run_of(row))
        except StoreError as error:
            faults[row[1]] = str(error)
    return runs, faults


def readable(rows: Iterable[Row], read: Callable[[Row], Record]) -> list[Record]:
    """Return what can be read; a damaged row is reported and left out, for the others are good."""
    found: list[Record] = []
    for row in rows:
        try:
            found.append(read(row))
        except StoreError as error:
            _log.warning("left out: %s", error)
    return found


async def readable_runs(ask: Callable[[int], Awaitable[Sequence[Row]]], limit: int) -> list[RunRecord]:
    """Return so many runs, if there are; `ask` is asked for more when some of them cannot be read.

    A page that is not full would be taken for the last one.
    """
    wanted = limit
    while True:  # every round asks for more rows, and there are only so many
        rows = await ask(wanted)
        runs = readable(rows, run_of)
        if len(runs) >= limit or len(rows) < wanted:
            return runs[:limit]
        wanted += max(wanted, limit - len(runs))


def range_of(row: Row) -> RangeRecord:
    """Return a counted record from its columns."""
    try:
        return RangeRecord._make((*row[:4], _OUTCOME[row[4]], _REASON[row[5]], *row[6:]))
    except KeyError as cause:
        raise _unreadable("range", row, cause) from cause


def attempt_of(row: Row) -> AttemptRecord:
    """Return an earlier attempt from its columns."""
    try:
        return AttemptRecord._make((*row[:5], _RESULT[row[5]], *row[6:]))
    except KeyError as cause:
        raise _unreadable("attempt", row, cause) from cause


def storable(text: str) -> str:
    """Return a text without what cannot be stored: the zero sign, and halves of signs."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _unreadable(what: str, row: Row, cause: KeyError) -> StoreError:
    value = cause.args[0]
    return StoreError(
        f'The {what} "{row[0]}" cannot be read: unknown value {value!r}', row=row[0], value=value
    )
