"""The record of one KronJob, as its status keeps it: bounded, compact, and enough to continue anywhere.

Open runs are kept whole. Of those that ended only the newest are kept; the others are remembered as one
interval, so that no wrong clock can ever open them again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kron.core.errors import StoreError, StoreUnavailableError
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import (
    EpochRecord,
    JobRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    key_of,
)
from kron.core.plan.step import Change, JobState
from kron.stores.row import range_of, run_of

FORMAT = 1
# Runs and ranges that ended, and earlier definitions, that are kept.
MAX_CLOSED, MAX_RANGES, MAX_EPOCHS = 10, 10, 4
# Of the error of a run that ended this much is kept.
MAX_ERROR = 300
# Fields of a job's record that follow from the KronJob, or that only a database has.
DERIVED = frozenset({"identity", "launcher", "launcher_kind", "applied_set", "notify", "number"})
JOB_FIELDS = tuple(name for name in JobRecord._fields if name not in DERIVED)
# The fields of a run in the order in which they are written; the key follows where it is not a period's.
RUN_FIELDS = tuple(name for name in RunRecord._fields if name not in {"key", "identity"})
KIND = RUN_FIELDS.index("kind")


class UnreadableStateError(StoreError):
    """The record in a KronJob's status cannot be read."""

    code = "unreadable_state"


class RecordRefusedError(StoreUnavailableError):
    """The API server answers, but does not accept the record of one KronJob."""

    code = "record_refused"


@dataclass(frozen=True, slots=True)
class Book:
    """A job with its open runs, its newest ended runs and ranges, and its earlier definitions, oldest first.

    `trimmed` are the first and the last nominal time of ended periods that are not kept. `high` is the
    latest instant that was written, `writer` names the write. `pause` and `request` are the annotations that
    were carried out last.
    """

    job: JobRecord
    runs: tuple[RunRecord, ...] = ()
    closed: tuple[RunRecord, ...] = ()
    ranges: tuple[RangeRecord, ...] = ()
    trimmed: tuple[int, int] | None = None
    epochs: tuple[EpochRecord, ...] = ()
    high: int = 0
    writer: str = ""
    pause: str | None = None
    request: str | None = None

    @property
    def state(self) -> JobState:
        """Return the job with its open runs."""
        return JobState(self.job, self.runs)

    @property
    def token(self) -> int:
        """Return the fencing token of the operator that wrote it last; no run has a later one."""
        _, _, rest = self.writer.partition("/")
        token = rest.partition("/")[0]
        return int(token) if token.isdecimal() else 0

    def all_ranges(self) -> tuple[RangeRecord, ...]:
        """Return the ranges, and one for the periods that are not kept, which no clock opens again."""
        if self.trimmed is None:
            return self.ranges
        first, last = self.trimmed
        record = self.job
        handled = (Outcome.EXECUTED, Reason.DUE, record.epoch, record.born_at)
        return (RangeRecord(record.identity, first, last, 1, *handled), *self.ranges)


def applied(book: Book, change: Change, *, now: int, writer: str) -> Book:
    """Return a book after a change."""
    runs = {run.key: run for run in book.runs}
    removed, cut = _withdrawn(change)
    closed = [run for run in book.closed if run.key not in removed]
    for run in (*change.inserts, *change.updates):
        runs.pop(run.key, None)
        closed = [each for each in closed if each.key != run.key]
        if run.is_open:
            runs[run.key] = run
        else:
            closed.append(run._replace(error=None if run.error is None else run.error[:MAX_ERROR]))
    for key in removed:
        runs.pop(key, None)
    ranges = [each for each in book.ranges if each not in cut]
    ranges += [*(change.rewind.kept if change.rewind else ()), *change.ranges]
    job = change.job
    epochs = book.epochs
    if job.epoch != book.job.epoch:
        before = book.job
        epochs = (*epochs, EpochRecord(before.identity, before.epoch, before.edited_at, before.definition))
    return _trimmed(
        replace(
            book,
            job=job,
            runs=tuple(runs.values()),
            closed=tuple(closed),
            ranges=tuple(ranges),
            epochs=_needed(epochs, runs.values()),
            high=max(book.high, now) if change.rewind is None else now,
            writer=writer,
        )
    )


def _withdrawn(change: Change) -> tuple[frozenset[str], Sequence[RangeRecord]]:
    """Return the keys of runs and the ranges that a correction of the clock withdraws."""
    if change.rewind is None:
        return frozenset(), ()
    return frozenset(run.key for run in change.rewind.removed), change.rewind.cut


def _needed(epochs: tuple[EpochRecord, ...], runs: Iterable[RunRecord]) -> tuple[EpochRecord, ...]:
    """Return the newest earlier definitions, and those that open runs still follow."""
    used = {run.epoch for run in runs}
    newest = {each.epoch for each in epochs[-MAX_EPOCHS:]}
    return tuple(each for each in epochs if each.epoch in used | newest)


def _trimmed(book: Book) -> Book:
    """Return a book with the newest ended runs and ranges only."""
    dropped_runs, dropped_ranges = book.closed[:-MAX_CLOSED], book.ranges[:-MAX_RANGES]
    times = [run.nominal_time for run in dropped_runs if run.kind is RunKind.PERIOD]
    times += [time for each in dropped_ranges for time in (each.first, each.last)]
    if not times:
        return replace(book, closed=book.closed[-MAX_CLOSED:], ranges=book.ranges[-MAX_RANGES:])
    times += book.trimmed or ()
    return replace(
        book,
        closed=book.closed[-MAX_CLOSED:],
        ranges=book.ranges[-MAX_RANGES:],
        trimmed=(min(times), max(times)),
    )


# --- text ----------------------------------------------------------------------------------------------


def text_of(book: Book) -> str:
    """Return a book as compact JSON."""
    defaults = JobRecord._field_defaults
    job = {name: getattr(book.job, name) for name in JOB_FIELDS}
    document: dict[str, Any] = {
        "v": FORMAT,
        "w": book.writer,
        "h": book.high,
        "job": {name: value for name, value in job.items() if value != defaults.get(name, ...)},
        "runs": [_run_row(run) for run in book.runs],
        "closed": [_run_row(run) for run in book.closed],
        "ranges": [list(each[1:]) for each in book.ranges],
        "epochs": [list(each[1:]) for each in book.epochs],
        "trimmed": book.trimmed,
        "pause": book.pause,
        "request": book.request,
    }
    kept = {name: value for name, value in document.items() if value not in (None, [], ())}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)


def _run_row(run: RunRecord) -> list[Any]:
    row = [getattr(run, name) for name in RUN_FIELDS]
    return row if run.kind is RunKind.PERIOD else [*row, run.key]


def book_of(text: str, identity: str, *, launcher: str, kind: str) -> Book:
    """Return the book that a status keeps, or raise UnreadableStateError."""
    try:
        document = json.loads(text)
        if document["v"] != FORMAT:
            raise ValueError(f"its format is {document['v']}, this operator knows {FORMAT}")
        job = JobRecord(identity=identity, launcher=launcher, launcher_kind=kind, **document["job"])
        trimmed = document.get("trimmed")
        return Book(
            job,
            tuple(_run(row, identity) for row in document.get("runs", ())),
            tuple(_run(row, identity) for row in document.get("closed", ())),
            tuple(range_of([identity, *row]) for row in document.get("ranges", ())),
            None if trimmed is None else (int(trimmed[0]), int(trimmed[1])),
            tuple(EpochRecord(identity, *row) for row in document.get("epochs", ())),
            int(document.get("h", 0)),
            str(document.get("w", "")),
            document.get("pause"),
            document.get("request"),
        )
    except (ValueError, KeyError, TypeError, IndexError, StoreError) as cause:
        reason = f"{type(cause).__name__}: {cause}"
        raise UnreadableStateError(f'The record of "{identity}" cannot be read: {reason}') from cause


def _run(row: Sequence[Any], identity: str) -> RunRecord:
    """Return a run; fields that are newer than its row have their defaults."""
    is_period = row[KIND] == RunKind.PERIOD
    written = dict(zip(RUN_FIELDS, row if is_period else row[:-1], strict=False))
    key = key_of(identity, written["nominal_time"]) if is_period else row[-1]
    values = {**RunRecord._field_defaults, **written, "key": key, "identity": identity}
    return run_of([values[name] for name in RunRecord._fields])
