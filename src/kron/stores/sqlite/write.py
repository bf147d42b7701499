"""Writes changes as rows into the tables of SQLite, inside the caller's transaction."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import NamedTuple, TypeVar
from zlib import crc32

from kron.core.errors import StoreUnavailableError
from kron.core.plan.record import (
    AuditRecord,
    ClockRecord,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    RunRecord,
    RunStatus,
    slot_of,
)
from kron.core.plan.step import CLEAN, Change, WriteResult, WriteScope
from kron.stores.row import CHANGED_JOB, GROUPS, check_keys, storable, writer
from kron.stores.statement import filled, statements

SQL = statements("sqlite")
T = TypeVar("T")
# From this number of rows on, a worker's statement gets them as one JSON text.
MANY_ROWS = 8
# New jobs that one statement gets: all at once would take twice the memory of their records, and a connection
# keeps the values that a statement was last executed with.
PART_ROWS = 1_000
# Rows that are written as JSON at a time: while it is written each value is a text of its own.
JSON_ROWS = 200
write_json = json.JSONEncoder(ensure_ascii=False).encode
# How long one look for the writer's place takes; and the first byte of the codes of SQLite's errors.
SHORT_MS, PRIMARY = 10, 0xFF
# Kinds of transactions that a connection remembers; most programs use a dozen.
MAX_KNOWN = 100
# The error of a transaction in which a statement did not change its number of rows.
REFUSED = "kron: a row is not as planned"
ESCAPED_NUL = "\\u0000"
UPDATE_JOB = {
    scope: filled("sqlite", SQL["update_job"], {"changed_job": columns})
    for scope, columns in CHANGED_JOB.items()
}
# Only enqueued runs have a number of their key; of the others there is a value less to read from JSON.
START_TOGETHER = SQL["start_together"].replace("value ->> 3", "NULL")
END = WriteScope.END
# The values of a statement's columns, taken from a record.
changed_job_row = {scope: writer(JobRecord, columns) for scope, columns in CHANGED_JOB.items()}
new_job_row = writer(JobRecord, GROUPS["new_job"])
run_row = writer(RunRecord, GROUPS["run"])
shared_run_row = writer(RunRecord, GROUPS["shared_run"])
changed_run_row = writer(RunRecord, GROUPS["changed_run"])
attempt_row = writer(RunRecord, GROUPS["attempt"])
range_row = writer(RangeRecord, GROUPS["range"])
audit_row = writer(AuditRecord, GROUPS["audit"])
reopened_row = writer(ReopenedRecord, GROUPS["reopened"])
clock_row = writer(ClockRecord, GROUPS["clock"])
incident_row = writer(IncidentRecord, GROUPS["incident"])
notice_row = writer(NoticeRecord, GROUPS["new_notice"])
changed_notice_row = writer(NoticeRecord, GROUPS["changed_notice"])


class Prepared(NamedTuple):
    """A statement with its values, encoded before the transaction that executes it.

    With `rows` it is executed once for each. `changes` is the number of rows that it must change, if that
    matters.
    """

    statement: str
    values: Sequence[object] = ()
    changes: int | None = None
    rows: Sequence[Sequence[object]] | None = None


def prepared_rows(statement: str, rows: Sequence[Sequence[object]], *, exact: bool = False) -> list[Prepared]:
    """Return the execution of a statement for each row; with `exact`, each must change one."""
    return [Prepared(statement, (), len(rows) if exact else None, rows)] if rows else []


def prepared_parts(
    statement: str, records: Sequence[T], row_of: Callable[[T], Sequence[object]]
) -> Iterator[Prepared]:
    """Yield the insertion of a row for each record, encoded part by part."""
    for start in range(0, len(records), PART_ROWS):
        rows = [row_of(record) for record in records[start : start + PART_ROWS]]
        yield encoded(Prepared(statement, (), len(rows), rows))


def encoded(prepared: Prepared) -> Prepared:
    """Return a statement with its rows as one JSON text, if that writes the same.

    Row by row, the thread would wait for the interpreter's lock at each of them while it has the database's.
    A value that all rows share is passed once: reading it from JSON takes longer than writing it. The first
    of a key is read even so: with it alone SQLite would compare all runs of a job with all rows.
    """
    statement, _, changes, rows = prepared
    if rows is None:
        return prepared
    first_key = len(rows[0]) - _keys_of(statement)
    if not _is_order_free(statement, rows, first_key):
        return prepared
    shared = {
        place: column[0]
        for place, column in enumerate(zip(*rows, strict=True))
        if place != first_key and column.count(column[0]) == len(rows)
    }
    own = tuple(place for place in range(len(rows[0])) if place not in shared)
    text = _json_of(rows, own)
    # SQLite would cut a text at a NUL.
    if ESCAPED_NUL in text and any("\0" in value for row in rows for value in row if isinstance(value, str)):
        return prepared
    values = [value for place, value in shared.items() if place < first_key]
    keys = [value for place, value in shared.items() if place >= first_key]
    return Prepared(_of_json(statement, frozenset(shared)), (*values, text, *keys), changes)


def _json_of(rows: Sequence[Sequence[object]], places: Sequence[int]) -> str:
    """Return some values of each row as JSON, written part by part: each part takes some times its length."""
    take = itemgetter(*places) if len(places) > 1 else lambda row: [row[place] for place in places]
    parts = (rows[start : start + JSON_ROWS] for start in range(0, len(rows), JSON_ROWS))
    return f"[{','.join(write_json(list(map(take, part)))[1:-1] for part in parts)}]"


def _keys_of(statement: str) -> int:
    """Return how many values of an update say which row it changes; they are the last ones."""
    return statement.partition("WHERE")[2].count("?") if statement.startswith("UPDATE") else 0


def _is_order_free(statement: str, rows: Sequence[Sequence[object]], first_key: int) -> bool:
    """Say whether one execution for all rows writes the same as one for each, in their order."""
    if first_key == len(rows[0]):
        return statement.startswith("INSERT")
    return len({tuple(row[first_key:]) for row in rows}) == len(rows)


@lru_cache(MAX_KNOWN)
def _of_json(statement: str, shared: frozenset[int]) -> str:
    """Return a statement about one row as one about all rows of a JSON text, without the shared values."""
    places, own = count(), count()

    def value(_: object) -> str:
        return "?" if next(places) in shared else f"value ->> {next(own)}"

    text = re.sub(r"\?", value, statement)
    if text.startswith("INSERT"):
        return re.sub(r"VALUES \((.*?)\)", r"SELECT \1 FROM json_each(?) WHERE true", text)
    return text.replace("WHERE", "FROM json_each(?) WHERE", 1)


def execute(connection: sqlite3.Connection, prepared: Iterable[Prepared]) -> bool:
    """Execute statements in order; return whether each changed its number of rows."""
    for statement, values, changes, rows in prepared:
        cursor = (
            connection.execute(statement, values) if rows is None else connection.executemany(statement, rows)
        )
        if changes is not None and cursor.rowcount != changes:
            return False
    return True


class PatientConnection(sqlite3.Connection):
    """A connection that waits for the only writer's place in many short times, of SHORT_MS each.

    SQLite pauses longer and longer between its looks, up to a tenth of a second: beside another that writes
    again and again it would find the place taken nearly every time.
    """

    tries = 1

    def wait_for_writers(self, busy_ms: int) -> None:
        """Set how long a transaction waits for those of others."""
        self.execute(f"PRAGMA busy_timeout = {min(busy_ms, SHORT_MS)}")
        self.tries = max(1, busy_ms // SHORT_MS)


def take_turn(
    connection: sqlite3.Connection, statement: str, values: Sequence[object] | Mapping[str, object] = ()
) -> sqlite3.Cursor:
    """Execute a statement that takes the only writer's place, once no other transaction has it."""
    tries = connection.tries if isinstance(connection, PatientConnection) else 1
    for _ in range(tries - 1):
        try:
            return connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & PRIMARY != sqlite3.SQLITE_BUSY:
                raise
    return connection.execute(statement, values)


class Transactions:
    """Executes statements as one, which is a transaction.

    SQLite then takes the write lock, writes, commits and releases the lock in one call, during which nothing
    waits for the interpreter's lock: another thread of a busy program may have that for a second.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # By the texts of the statements: the one that executes them.
        self._known: dict[tuple[tuple[str, bool], ...], str] = {}

    def execute(self, prepared: Sequence[Prepared]) -> bool:
        """Execute statements without rows, all or none; return whether each changed its number of rows."""
        key = tuple((each.statement, each.changes is not None) for each in prepared)
        statement = self._known.get(key) or self._created(key)
        values = [value for each in prepared for value in (*each.values, each.changes)]
        try:
            take_turn(self._connection, statement, values)
        except sqlite3.IntegrityError as error:
            if str(error) != REFUSED:
                raise
            return False
        return True

    def _created(self, key: tuple[tuple[str, bool], ...]) -> str:
        """Create a view with a trigger that executes some statements, for this connection."""
        if len(self._known) == MAX_KNOWN:
            self._known.clear()
        columns: list[str] = []

        def column(_: object = None) -> str:
            columns.append(f"c{len(columns)}")
            return f"new.{columns[-1]}"

        steps = []
        for statement, is_exact in key:
            steps.append(re.sub(r"\?", column, statement))
            changes = column()
            if is_exact:
                steps.append(f"SELECT RAISE(ABORT, '{REFUSED}') WHERE changes() <> {changes}")
        name = f"transaction_{len(self._known)}"
        nulls = ", ".join(f"NULL AS {each}" for each in columns)
        self._connection.execute(f"DROP VIEW IF EXISTS temp.{name}")
        self._connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {nulls}")
        trigger = (
            f"CREATE TEMP TRIGGER {name}_insert INSTEAD OF INSERT ON {name} BEGIN {'; '.join(steps)}; END"
        )
        self._connection.execute(trigger)
        places = ", ".join("?" * len(columns))
        self._known[key] = f"INSERT INTO {name} VALUES ({places})"  # noqa: S608 - statements of this package
        return self._known[key]


def write_or_refuse(
    connection: sqlite3.Connection,
    namespace: int,
    changes: Sequence[Change],
    prepared: Sequence[Prepared],
    now: int,
) -> WriteResult:
    """Write all changes; if some are stale, write the others and return which were refused."""
    connection.execute("SAVEPOINT changes")
    if execute(connection, prepared):
        connection.execute("RELEASE changes")
        return CLEAN
    connection.execute("ROLLBACK TO changes")
    settled = refused(connection, namespace, changes)
    written = execute(connection, prepare(namespace, list(_accepted(changes, settled)), now))
    assert written, "this transaction is the only writer"
    return settled


def prepare(namespace: int, changes: Sequence[Change], now: int) -> list[Prepared]:
    """Return the statements that write all changes, if each job has its revision and each run is new."""
    check_keys(changes)
    cohorts, ended, others = _grouped(changes)
    return [
        *(each for group in cohorts for each in _start_together(group, now)),
        *_end_together(ended, now),
        *_write_each(namespace, others, now),
    ]


def _grouped(
    changes: Sequence[Change],
) -> tuple[list[Sequence[Change]], Sequence[Change], Sequence[Change]]:
    """Return the changes of each cohort with one fencing token, ordinary ends, and all others.

    A group is written by one statement: SQLite works without the interpreter's lock, and other threads run.
    """
    groups: dict[tuple[int, int], list[Change]] = {}
    ended: list[Change] = []
    others: list[Change] = []
    for change in changes:
        if change.cohort is not None:
            groups.setdefault((id(change.cohort), change.starts[0].token), []).append(change)
        elif change.scope is END and len(change.updates) == 1:
            ended.append(change)
        else:
            others.append(change)
    return list(groups.values()), ended, others


def _start_together(changes: Sequence[Change], now: int) -> list[Prepared]:
    """Write the starts of one cohort, if each job has its revision and each run is new."""
    cohort, token = changes[0].cohort, changes[0].starts[0].token
    assert cohort is not None
    if cohort.run.status is RunStatus.ENQUEUED:
        statement = SQL["start_together"]
        rows = [(*_start_of(change), key_number(change.starts[0].key)) for change in changes]
    else:
        statement = START_TOGETHER
        rows = [_start_of(change) for change in changes]
    numbers = json.dumps([change.job.number for change in changes])
    last_start_at = changes[0].job.last_start_at
    values = (cohort.cursor, cohort.next_time, cohort.plan_at, last_start_at, now, numbers)
    return [
        Prepared(statement, (token, *shared_run_row(cohort.run), now, json.dumps(rows)), len(changes)),
        Prepared(SQL["advance_together"], values, len(changes)),
    ]


def _start_of(change: Change) -> tuple[object, ...]:
    return change.job.number, change.revision, change.starts[0].key


def _end_together(changes: Sequence[Change], now: int) -> list[Prepared]:
    """Write ordinary ends, if each job has its revision."""
    runs = [_end_of(change, now) for change in changes]
    jobs = [(change.job.last_success_at, now, change.job.number, change.revision) for change in changes]
    return [*prepared_rows(SQL["end_run"], runs), *prepared_rows(SQL["succeed"], jobs, exact=True)]


def _end_of(change: Change, now: int) -> tuple[object, ...]:
    (run,) = change.updates
    error, run_id = run.error and storable(run.error), run.run_id and storable(run.run_id)
    how = (run.status._value_, run.ended_at, run.result and run.result._value_, error, run_id, now)
    return (*how, change.job.number, run.nominal_time, slot_of(run))


def _write_each(namespace: int, changes: Sequence[Change], now: int) -> list[Prepared]:
    """Write changes row by row, if each job has its revision and each inserted run is new."""
    rewound = [change for change in changes if change.rewind is not None]
    inserts = [
        (*run_row(run), namespace, change.job.number, slot_of(run), _key_number_of(run), now)
        for change in changes
        for run in change.inserts
    ]
    further = _further_rows(namespace, changes, now)
    return [
        *keep_epochs(rewound),
        *_update_jobs(changes, now),
        *_rewind(rewound),
        *prepared_rows(SQL["insert_run"], inserts, exact=True),
        *(each for name, rows in further.items() for each in prepared_rows(SQL[name], rows)),
    ]


def keep_epochs(changes: Sequence[Change]) -> list[Prepared]:
    """Keep the definitions that new epochs replace."""
    edits = json.dumps([(change.job.number, change.job.epoch) for change in changes])
    return [Prepared(SQL["keep_epochs"], (edits,))] if changes else []


def _rewind(changes: Sequence[Change]) -> Iterator[Prepared]:
    """Withdraw the records of a time when the clock was ahead."""
    for change in changes:
        rewind, job = change.rewind, change.job.number
        assert rewind is not None
        yield from prepared_rows(SQL["remove_run"], [(job, run.nominal_time) for run in rewind.removed])
        yield from prepared_rows(SQL["remove_range"], [(job, cut.first) for cut in rewind.cut])
        yield from prepared_rows(SQL["insert_range"], [(*range_row(kept), job) for kept in rewind.kept])
        reopened = [(*reopened_row(each), job) for each in rewind.reopened]
        yield from prepared_rows(SQL["insert_reopened"], reopened)


def refused(connection: sqlite3.Connection, namespace: int, changes: Sequence[Change]) -> WriteResult:
    """Return which jobs have another revision, and which inserted runs exist already."""
    numbers = {"numbers": json.dumps([change.job.number for change in changes])}
    revisions = dict(connection.execute(SQL["revisions"], numbers))
    stale = [change for change in changes if revisions.get(change.job.number) != change.revision]
    rows = json.dumps(
        [
            (change.job.number, run.nominal_time, slot_of(run), run.key)
            for change in changes
            for run in change.inserts
        ]
    )
    existing = connection.execute(SQL["existing_keys"], {"namespace": namespace, "rows": rows})
    return WriteResult(
        frozenset(change.job.identity for change in stale), frozenset(key for (key,) in existing)
    )


def _accepted(changes: Iterable[Change], settled: WriteResult) -> Iterable[Change]:
    """Yield the changes without those of stale jobs and without runs that exist already."""
    for change in changes:
        if change.job.identity not in settled.stale_jobs:
            change.cohort = None
            change.inserts = [run for run in change.inserts if run.key not in settled.existing_runs]
            yield change


def key_number(key: str) -> int:
    """Return a hash of a key for an index: a fraction of the key's size, and almost unique."""
    return crc32(key.encode())


def _key_number_of(run: RunRecord) -> int | None:
    """Return the hash of an enqueued run's key: its worker reports by key alone."""
    return key_number(run.key) if run.status is RunStatus.ENQUEUED else None


def _further_rows(namespace: int, changes: Sequence[Change], now: int) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows to write beside jobs and inserted runs, by statement."""
    return {
        "update_run": [
            (
                *changed_run_row(run),
                _key_number_of(run),
                now,
                change.job.number,
                run.nominal_time,
                slot_of(run),
            )
            for change in changes
            for run in change.updates
        ],
        "insert_attempt": [
            (change.job.number, *attempt_row(run)) for change in changes for run in change.attempts
        ],
        "hold_runs": [(change.job.number, now) for change in changes if change.fault is not None],
        "insert_range": [
            (*range_row(dropped), change.job.number) for change in changes for dropped in change.ranges
        ],
        "close_incident": [
            (each.until_at, each.ended_by, namespace, each.identity, each.kind)
            for change in changes
            for each in change.closed
        ],
        "insert_incident": [
            (namespace, *incident_row(each)) for change in changes for each in change.incidents
        ],
        "insert_notice": [
            (*notice_row(notice), namespace, change.job.number)
            for change in changes
            for notice in change.notices
        ],
    }


def _update_jobs(changes: Sequence[Change], now: int) -> Iterator[Prepared]:
    """Write the jobs' records, if each still has the revision it was planned from."""
    rows: dict[WriteScope, list[tuple[object, ...]]] = {scope: [] for scope in WriteScope}
    for change in changes:
        values = changed_job_row[change.scope](change.job)
        rows[change.scope].append((*values, now, change.job.number, change.revision))
    for scope, wanted in rows.items():
        yield from prepared_rows(UPDATE_JOB[scope], wanted, exact=True)


def prepared_incidents(namespace: int, incidents: Iterable[IncidentRecord]) -> list[Prepared]:
    """Insert incidents of a namespace and its jobs."""
    rows = [(namespace, *incident_row(incident)) for incident in incidents]
    return prepared_rows(SQL["insert_incident"], rows)


def removal(numbers: Sequence[int]) -> list[Prepared]:
    """Remove jobs with their whole history."""
    tables = ("attempts", "runs", "ranges", "epochs", "jobs") if numbers else ()
    return [Prepared(SQL[f"forget_{table}"], (json.dumps(numbers),)) for table in tables]


class Writing:
    """One write transaction: committed on success, rolled back on any error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        take_turn(self._connection, "BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.commit()
        finally:
            # Also after a commit that failed, as on a full disk: the next transaction must find none open.
            with suppress(sqlite3.Error):
                self._connection.rollback()


class Reading:
    """One state of a file for several statements; unlike a write transaction it waits for no other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN")
        return self._connection

    def __exit__(self, *_: object) -> None:
        with suppress(sqlite3.Error):
            self._connection.rollback()


def translated(work: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Run work with a database; its errors become StoreError."""
    try:
        return work(*arguments)
    except (sqlite3.Error, OSError) as cause:
        raise StoreUnavailableError(f"The store cannot be used: {cause}", cause=cause) from cause
