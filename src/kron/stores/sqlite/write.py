"""Changes into rows, and into the tables of SQLite, inside the transaction of whoever calls."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from zlib import crc32

from kron.core.plan.record import RunRecord, RunStatus, slot_of
from kron.core.plan.step import Change, WriteScope
from kron.ports import WriteResult
from kron.stores.row import storable
from kron.stores.statement import statements

SQL = statements("sqlite")
CLEAN = WriteResult(frozenset(), frozenset())
_UPDATE_OF = {
    WriteScope.ANY: "update_job",
    WriteScope.START: "advance_job",
    WriteScope.END: "note_success",
    WriteScope.EDIT: "edit_job",
}


def write_or_refuse(
    connection: sqlite3.Connection, namespace: int, changes: Sequence[Change], now: int
) -> WriteResult:
    """Write all changes; where some were overtaken, write the others and say which."""
    connection.execute("SAVEPOINT changes")
    if write(connection, namespace, changes, now):
        connection.execute("RELEASE changes")
        return CLEAN
    connection.execute("ROLLBACK TO changes")
    settled = refused(connection, namespace, changes)
    written = write(connection, namespace, list(_accepted(changes, settled)), now)
    assert written, "nobody else writes inside this transaction"
    return settled


def write(connection: sqlite3.Connection, namespace: int, changes: Sequence[Change], now: int) -> bool:
    """Write all changes; say whether every job and every new run was as expected."""
    cohorts, ended, others = _sorted_out(changes)
    return (
        all(_start_together(connection, group, now) for group in cohorts)
        and _end_together(connection, ended, now)
        and _write_each(connection, namespace, others, now)
    )


def _sorted_out(
    changes: Sequence[Change],
) -> tuple[list[Sequence[Change]], Sequence[Change], Sequence[Change]]:
    """Return changes that are alike, group by group, ordinary ends, and all others.

    Groups are written by one statement: the work is the database's alone, and other threads go on meanwhile.
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
    """Write the starts of one cohort; say whether all jobs were as expected and all runs new."""
    cohort = changes[0].cohort
    assert cohort is not None
    # All of them start here, or all elsewhere.
    enqueued = changes[0].starts[0].status is RunStatus.ENQUEUED
    # The database takes choices for plain texts, but not by name.
    fields = [getattr(value, "_value_", value) for value in cohort.run]
    rows = json.dumps(
        [
            (change.job.number, change.revision, run.key, key_number(run.key) if enqueued else None)
            for change in changes
            for run in change.starts
        ]
    )
    begun = connection.execute(SQL["start_together"], (*fields, now, rows)).rowcount
    if begun != len(changes):
        return False
    numbers = json.dumps([change.job.number for change in changes])
    ahead = (*cohort.ahead, changes[0].job.last_start_at, now, numbers)
    return connection.execute(SQL["advance_together"], ahead).rowcount == len(changes)


def _end_together(connection: sqlite3.Connection, changes: Sequence[Change], now: int) -> bool:
    """Write ordinary ends; say whether all jobs were as expected."""
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
    """Write changes one by one; say whether every job and every new run was as expected."""
    if not _update_jobs(connection, changes, now):
        return False
    inserts = [
        (*_plain(run), namespace, change.job.number, slot_of(run), _number_of(run), now)
        for change in changes
        for run in change.inserts
    ]
    if inserts and connection.executemany(SQL["insert_run"], inserts).rowcount != len(inserts):
        return False
    for name, rows in _further_rows(changes, now).items():
        if rows:
            connection.executemany(SQL[name], rows)
    return True


def refused(connection: sqlite3.Connection, namespace: int, changes: Sequence[Change]) -> WriteResult:
    """Return which jobs were changed by somebody else, and which new runs exist already."""
    numbers = {"numbers": json.dumps([change.job.number for change in changes])}
    found = dict(connection.execute(SQL["revisions"], numbers))
    changed = [change for change in changes if found.get(change.job.number) != change.revision]
    rows = json.dumps(
        [
            (change.job.number, run.nominal_time, slot_of(run), run.key)
            for change in changes
            for run in change.inserts
        ]
    )
    known = connection.execute(SQL["known_keys"], {"namespace": namespace, "rows": rows})
    return WriteResult(
        frozenset(change.job.identity for change in changed), frozenset(key for (key,) in known)
    )


def _accepted(changes: Iterable[Change], settled: WriteResult) -> Iterable[Change]:
    """Yield the changes without those of changed jobs and without runs that exist already."""
    for change in changes:
        if change.job.identity not in settled.stale_jobs:
            change.cohort = None
            change.inserts = [run for run in change.inserts if run.key not in settled.existing_runs]
            yield change


def key_number(key: str) -> int:
    """Return a number that few keys have in common; it takes a fraction of a key's place in an index."""
    return crc32(key.encode())


def _number_of(run: RunRecord) -> int | None:
    """Return the number of a run that starts elsewhere, where it is known by its key alone."""
    return key_number(run.key) if run.status is RunStatus.ENQUEUED else None


def _plain(run: RunRecord) -> tuple[object, ...]:
    """Return a run's fields with choices as plain texts; the database is slow to see that they are."""
    result = run.result
    return (
        *run[:4],
        run.status._value_,
        run.reason._value_,
        *run[6:10],
        run.kind._value_,
        *run[11:15],
        None if result is None else result._value_,
        None if run.error is None else storable(run.error),
        None if run.run_id is None else storable(run.run_id),
        run.acked,
    )


def _further_rows(changes: Sequence[Change], now: int) -> dict[str, list[tuple[object, ...]]]:
    """Return what is to be written beside jobs and new runs, by statement."""
    return {
        "update_run": [
            (
                *row[3:6],
                *row[7:10],
                *row[11:],
                _number_of(run),
                now,
                change.job.number,
                run.nominal_time,
                slot_of(run),
            )
            for change in changes
            for run in change.updates
            for row, number in ((_plain(run), change.job.number),)
        ],
        "insert_attempt": [
            (change.job.number, run.key, *_plain(run)[11:18]) for change in changes for run in change.attempts
        ],
        "hold_runs": [(change.job.number, now) for change in changes if change.fault is not None],
        "insert_range": [(*dropped, change.job.number) for change in changes for dropped in change.ranges],
    }


def _update_jobs(connection: sqlite3.Connection, changes: Sequence[Change], now: int) -> bool:
    """Write the jobs' records; say whether each still had the revision it was planned from."""
    rows: dict[WriteScope, list[tuple[object, ...]]] = {scope: [] for scope in WriteScope}
    for change in changes:
        job = change.job
        fields: tuple[object, ...]
        match change.scope:
            case WriteScope.START:
                fields = (*job[7:11], job.last_start_at)
            case WriteScope.END:
                fields = (job.revision, job.last_success_at)
            case WriteScope.EDIT:
                fields = (job.definition, *job[4:9])
            case WriteScope.ANY:
                fields = job[1:-1]
        rows[change.scope].append((*fields, now, job.number, change.revision))
    return all(
        connection.executemany(SQL[_UPDATE_OF[scope]], wanted).rowcount == len(wanted)
        for scope, wanted in rows.items()
        if wanted
    )


def remove(connection: sqlite3.Connection, numbers: list[int]) -> None:
    """Remove jobs and everything remembered of them, inside the transaction of whoever calls."""
    values = {"numbers": json.dumps(numbers)}
    for what in ("attempts", "runs", "ranges", "epochs", "jobs") if numbers else ():
        connection.execute(SQL[f"forget_{what}"], values)


class Writing:
    """One write transaction: committed at the end, rolled back if anything goes wrong."""

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
