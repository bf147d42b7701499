"""Writes changes as rows into the tables of SQLite, inside the caller's transaction."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from zlib import crc32

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
from kron.core.plan.step import Change, WriteResult, WriteScope
from kron.stores.row import CHANGED_JOB, GROUPS, check_keys, storable, writer
from kron.stores.statement import filled, statements

SQL = statements("sqlite")
CLEAN = WriteResult(frozenset(), frozenset())
UPDATE_JOB = {
    scope: filled("sqlite", SQL["update_job"], {"changed_job": columns})
    for scope, columns in CHANGED_JOB.items()
}
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


def write_or_refuse(
    connection: sqlite3.Connection, namespace: int, changes: Sequence[Change], now: int
) -> WriteResult:
    """Write all changes; if some are stale, write the others and return which were refused."""
    connection.execute("SAVEPOINT changes")
    if write(connection, namespace, changes, now):
        connection.execute("RELEASE changes")
        return CLEAN
    connection.execute("ROLLBACK TO changes")
    settled = refused(connection, namespace, changes)
    written = write(connection, namespace, list(_accepted(changes, settled)), now)
    assert written, "this transaction is the only writer"
    return settled


def write(connection: sqlite3.Connection, namespace: int, changes: Sequence[Change], now: int) -> bool:
    """Write all changes; return whether each job had its revision and each inserted run was new."""
    check_keys(run for change in changes for run in change.inserts)
    cohorts, ended, others = _grouped(changes)
    return (
        all(_start_together(connection, group, now) for group in cohorts)
        and _end_together(connection, ended, now)
        and _write_each(connection, namespace, others, now)
    )


def _grouped(
    changes: Sequence[Change],
) -> tuple[list[Sequence[Change]], Sequence[Change], Sequence[Change]]:
    """Return the changes of each cohort, ordinary ends, and all others.

    A group is written by one statement: SQLite works without the interpreter's lock, and other threads run.
    """
    groups: dict[int, list[Change]] = {}
    ended: list[Change] = []
    others: list[Change] = []
    for change in changes:
        if change.cohort is not None:
            groups.setdefault(id(change.cohort), []).append(change)
        elif change.scope is WriteScope.END and len(change.updates) == 1:
            ended.append(change)
        else:
            others.append(change)
    return list(groups.values()), ended, others


def _start_together(connection: sqlite3.Connection, changes: Sequence[Change], now: int) -> bool:
    """Write the starts of one cohort; return whether each job had its revision and each run was new."""
    cohort = changes[0].cohort
    assert cohort is not None
    enqueued = cohort.run.status is RunStatus.ENQUEUED
    rows = json.dumps(
        [
            (
                change.job.number,
                change.revision,
                run.key,
                key_number(run.key) if enqueued else None,
                run.token,
            )
            for change in changes
            for run in change.starts
        ]
    )
    shared = shared_run_row(cohort.run)
    if connection.execute(SQL["start_together"], (*shared, now, rows)).rowcount != len(changes):
        return False
    numbers = json.dumps([change.job.number for change in changes])
    last_start_at = changes[0].job.last_start_at
    values = (cohort.cursor, cohort.next_time, cohort.plan_at, last_start_at, now, numbers)
    return connection.execute(SQL["advance_together"], values).rowcount == len(changes)


def _end_together(connection: sqlite3.Connection, changes: Sequence[Change], now: int) -> bool:
    """Write ordinary ends; return whether each job had its revision."""
    if not changes:
        return True
    rows = json.dumps([_end_of(change) for change in changes])
    connection.execute(SQL["end_together"], (now, rows))
    return connection.execute(SQL["succeed_together"], (now, rows)).rowcount == len(changes)


def _end_of(change: Change) -> tuple[object, ...]:
    (run,) = change.updates
    error, run_id = run.error and storable(run.error), run.run_id and storable(run.run_id)
    key = (change.job.number, change.revision, run.nominal_time, slot_of(run))
    return (*key, run.status, run.ended_at, run.result, error, run_id, change.job.last_success_at)


def _write_each(connection: sqlite3.Connection, namespace: int, changes: Sequence[Change], now: int) -> bool:
    """Write changes row by row; return whether each job had its revision and each inserted run was new."""
    rewound = [change for change in changes if change.rewind is not None]
    if rewound:
        _keep_epochs(connection, rewound)
    if not _update_jobs(connection, changes, now):
        return False
    _rewind(connection, rewound)
    inserts = [
        (*run_row(run), namespace, change.job.number, slot_of(run), _key_number_of(run), now)
        for change in changes
        for run in change.inserts
    ]
    if inserts and connection.executemany(SQL["insert_run"], inserts).rowcount != len(inserts):
        return False
    for name, rows in _further_rows(namespace, changes, now).items():
        if rows:
            connection.executemany(SQL[name], rows)
    return True


def _keep_epochs(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Keep the definitions that new epochs replace."""
    edits = json.dumps([(change.job.number, change.job.epoch) for change in changes])
    connection.execute(SQL["keep_epochs"], {"edits": edits})


def _rewind(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Withdraw the records of a time when the clock was ahead."""
    for change in changes:
        rewind, job = change.rewind, change.job.number
        assert rewind is not None
        connection.executemany(SQL["remove_run"], [(job, run.nominal_time) for run in rewind.removed])
        connection.executemany(SQL["remove_range"], [(job, cut.first) for cut in rewind.cut])
        connection.executemany(SQL["insert_range"], [(*range_row(kept), job) for kept in rewind.kept])
        reopened = [(*reopened_row(each), job) for each in rewind.reopened]
        connection.executemany(SQL["insert_reopened"], reopened)


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


def _update_jobs(connection: sqlite3.Connection, changes: Sequence[Change], now: int) -> bool:
    """Write the jobs' records; return whether each still had the revision it was planned from."""
    rows: dict[WriteScope, list[tuple[object, ...]]] = {scope: [] for scope in WriteScope}
    for change in changes:
        values = changed_job_row[change.scope](change.job)
        rows[change.scope].append((*values, now, change.job.number, change.revision))
    return all(
        connection.executemany(UPDATE_JOB[scope], wanted).rowcount == len(wanted)
        for scope, wanted in rows.items()
        if wanted
    )


def remove(connection: sqlite3.Connection, numbers: list[int]) -> None:
    """Remove jobs with their whole history, inside the caller's transaction."""
    values = {"numbers": json.dumps(numbers)}
    for table in ("attempts", "runs", "ranges", "epochs", "jobs") if numbers else ():
        connection.execute(SQL[f"forget_{table}"], values)


class Writing:
    """One write transaction: committed on success, rolled back on any error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._connection.commit()
        finally:
            # Also after a commit that failed, as on a full disk: the next transaction must find none open.
            with suppress(sqlite3.Error):
                self._connection.rollback()
