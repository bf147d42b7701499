"""Writes changes as arrays into the tables of PostgreSQL, inside the caller's transaction."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from kron.core.plan.record import (
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    RunRecord,
)
from kron.core.plan.step import Change, WriteResult
from kron.core.shard import shard_of
from kron.stores.postgres.connection import count_of, rows_of
from kron.stores.postgres.schema import Connection
from kron.stores.row import CHANGED_JOB, COLUMNS, GROUPS, Column, check_keys, storable
from kron.stores.statement import filled, statements

SQL = statements("postgres")
Row = TypeVar("Row")

# Rows of one statement; more rows take several statements of the same transaction.
CHUNK = 2_000
UPDATE_JOBS = {
    scope: filled("postgres", SQL["update_jobs"], {"changed_job": columns})
    for scope, columns in CHANGED_JOB.items()
}


async def write_changes(connection: Connection, namespace: str, changes: Sequence[Change], now: int) -> bool:
    """Write all changes; return whether each job had its revision and each inserted run was new."""
    check_keys(changes)
    common = {"namespace": namespace, "now": now}
    # Every transaction locks jobs in the same order, which avoids deadlocks.
    changes = sorted(changes, key=lambda change: change.job.identity)
    if changes and all(change.cohort is changes[0].cohort is not None for change in changes):
        return await _start_together(connection, common, changes)
    if not await _write_jobs(connection, common, changes):
        return False
    inserts = [run for change in changes for run in change.inserts]
    for new in chunks(inserts):
        values = {**common, **arrays(RunRecord._fields, new, GROUPS["run"]), "shard": shards_of(new)}
        if await count_of(connection, SQL["insert_runs"], values) != len(new):
            return False
    updates = [run for change in changes for run in change.updates]
    for some_runs in chunks(updates):
        values = {**common, **arrays(RunRecord._fields, some_runs, [COLUMNS["key"], *GROUPS["changed_run"]])}
        values["namespaces"] = texts([namespace] * len(some_runs))
        await connection.execute(SQL["update_runs"].encode(), values)
    attempts = [run for change in changes for run in change.attempts]
    for some_runs in chunks(attempts):
        values = {**common, **arrays(RunRecord._fields, some_runs, GROUPS["attempt"])}
        await connection.execute(SQL["insert_attempts"].encode(), values)
    ranges = [dropped for change in changes for dropped in change.ranges]
    for some_ranges in chunks(ranges):
        values = {**common, **arrays(RangeRecord._fields, some_ranges, GROUPS["range"])}
        await connection.execute(SQL["insert_ranges"].encode(), values)
    await _write_events(connection, common, changes)
    faulty = [change.job.identity for change in changes if change.fault is not None]
    if faulty:
        await connection.execute(SQL["hold_runs"], {**common, "names": texts(faulty)})
    return True


async def insert_incidents(
    connection: Connection, namespace: str, incidents: Sequence[IncidentRecord]
) -> bool:
    """Write incidents."""
    for some in chunks(incidents):
        values = {"namespace": namespace, **arrays(IncidentRecord._fields, some, GROUPS["incident"])}
        await connection.execute(SQL["insert_incidents"].encode(), values)
    return True


async def _write_events(connection: Connection, common: dict[str, object], changes: Sequence[Change]) -> None:
    """Write the incidents that changes start and end, and the notices to be sent."""
    closed = [incident for change in changes for incident in change.closed]
    for some_closed in chunks(closed):
        values = {**common, **arrays(IncidentRecord._fields, some_closed, GROUPS["incident"])}
        await connection.execute(SQL["close_incidents"].encode(), values)
    started = [incident for change in changes for incident in change.incidents]
    await insert_incidents(connection, str(common["namespace"]), started)
    notices = [notice for change in changes for notice in change.notices]
    for some_notices in chunks(notices):
        values = {**common, **arrays(NoticeRecord._fields, some_notices, GROUPS["new_notice"])}
        await connection.execute(SQL["insert_notices"].encode(), values)


async def _write_jobs(connection: Connection, common: dict[str, object], changes: Sequence[Change]) -> bool:
    """Write the jobs' records and rewinds; return whether each had the revision it was planned from."""
    rewound = [change for change in changes if change.rewind is not None]
    for some in chunks(rewound):
        await keep_epochs(connection, str(common["namespace"]), some)
    for some in chunks(changes):
        if await _update_jobs(connection, common, some) != len(some):
            return False
    if rewound:
        await _rewind(connection, common, rewound)
    return True


async def keep_epochs(connection: Connection, namespace: str, changes: Sequence[Change]) -> None:
    """Keep the definitions that new epochs replace."""
    jobs = [change.job for change in changes]
    values = arrays(JobRecord._fields, jobs, (COLUMNS["identity"], COLUMNS["epoch"]))
    await connection.execute(SQL["keep_epochs"], {**values, "namespaces": texts([namespace] * len(jobs))})


async def _rewind(connection: Connection, common: dict[str, object], changes: Sequence[Change]) -> None:
    """Withdraw the records of a time when the clock was ahead."""
    rewinds = [change.rewind for change in changes if change.rewind is not None]
    removed = [run.key for rewind in rewinds for run in rewind.removed]
    for keys in chunks(removed):
        await connection.execute(SQL["remove_runs"], {**common, "keys": texts(keys)})
    for cut in chunks([cut for rewind in rewinds for cut in rewind.cut]):
        values = {
            "names": texts([each.identity for each in cut]),
            "first": numbers(each.first for each in cut),
        }
        await connection.execute(SQL["remove_ranges"], {**common, **values})
    for kept in chunks([kept for rewind in rewinds for kept in rewind.kept]):
        values = arrays(RangeRecord._fields, kept, GROUPS["range"])
        await connection.execute(SQL["insert_ranges"].encode(), {**common, **values})
    for some in chunks([reopened for rewind in rewinds for reopened in rewind.reopened]):
        values = arrays(ReopenedRecord._fields, some, GROUPS["reopened"])
        await connection.execute(SQL["insert_reopened"].encode(), {**common, **values})


async def _start_together(
    connection: Connection, common: dict[str, object], changes: Sequence[Change]
) -> bool:
    """Write the starts of one cohort; return whether each job had its revision and each run was new."""
    cohort = changes[0].cohort
    assert cohort is not None
    runs = [change.starts[0] for change in changes]
    identity = texts([run.identity for run in runs])
    values = {**common, "identity": identity, "namespaces": texts([common["namespace"]] * len(runs))}
    values |= {"cursor": cohort.cursor, "next_time": cohort.next_time, "plan_at": cohort.plan_at}
    values["expected"] = numbers(change.revision for change in changes)
    values["last_start_at"] = changes[0].job.last_start_at
    if await count_of(connection, SQL["advance_together"], values) != len(runs):
        return False
    values |= cohort.run._asdict()
    values |= {"identity": identity, "key": texts([run.key for run in runs]), "shard": shards_of(runs)}
    values["token"] = numbers(run.token for run in runs)
    return await count_of(connection, SQL["start_together"], values) == len(runs)


async def _update_jobs(connection: Connection, common: dict[str, object], changes: Sequence[Change]) -> int:
    """Write the jobs' records; return how many still had the revision they were planned from."""
    written = 0
    for scope, columns in CHANGED_JOB.items():
        some = [change for change in changes if change.scope is scope]
        if some:
            jobs = [change.job for change in some]
            values = {**common, **arrays(JobRecord._fields, jobs, [COLUMNS["identity"], *columns])}
            values["namespaces"] = texts([common["namespace"]] * len(some))
            values["expected"] = numbers(change.revision for change in some)
            written += await count_of(connection, UPDATE_JOBS[scope], values)
    return written


async def refused(
    connection: Connection, namespace: str, changes: Sequence[Change], created: Iterable[str] = ()
) -> WriteResult:
    """Return which jobs have another revision, and which inserted runs exist already."""
    expected: dict[str, int | None] = {change.job.identity: change.revision for change in changes}
    expected |= dict.fromkeys(created)
    values = {"namespace": namespace, "names": texts(list(expected))}
    revisions = dict(await rows_of(connection, SQL["revisions"], values))
    stale = frozenset(name for name, revision in expected.items() if revisions.get(name) != revision)
    keys = [run.key for change in changes for run in change.inserts]
    values = {"namespace": namespace, "names": texts(keys)}
    existing = await rows_of(connection, SQL["existing_keys"], values) if keys else []
    return WriteResult(stale, frozenset(key for (key,) in existing))


def accepted(changes: Iterable[Change], settled: WriteResult) -> list[Change]:
    """Return the changes without those of stale jobs and without runs that exist already."""
    return [
        replace(
            change,
            inserts=[run for run in change.inserts if run.key not in settled.existing_runs],
            cohort=None,
        )
        for change in changes
        if change.job.identity not in settled.stale_jobs
    ]


def shards_of(records: Iterable[JobRecord] | Iterable[RunRecord]) -> str:
    """Return the shards of records as an array."""
    return numbers(shard_of(record.identity) for record in records)


def chunks(rows: Sequence[Row]) -> Iterable[Sequence[Row]]:
    """Return rows in parts, each for one statement."""
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def arrays(
    fields: Sequence[str], records: Sequence[tuple[object, ...]], columns: Iterable[Column]
) -> dict[str, str]:
    """Return some columns of records as PostgreSQL arrays, by field, each written as one text.

    A busy chunk has twenty columns of a thousand values; a driver that adapts them one by one takes longer
    over it than the database.
    """
    values = dict(zip(fields, zip(*records, strict=True), strict=True))
    return {column.field: array(column, values[column.field]) for column in columns}


def array(column: Column, values: Sequence[object]) -> str:
    """Return the values of one column as an array."""
    if not column.is_text:
        return numbers(values)
    if column.is_external:
        return texts([None if value is None else storable(str(value)) for value in values])
    return texts(values)


def numbers(values: Iterable[object]) -> str:
    """Return integers and nulls as an array."""
    return "{" + str(list(values))[1:-1].replace("None", "NULL") + "}"


def texts(values: Sequence[object]) -> str:
    """Return texts and nulls as an array."""
    if None in values:
        return "{" + ",".join(["NULL" if text is None else _quoted(str(text)) for text in values]) + "}"
    joined = '","'.join(values)  # type: ignore[arg-type]
    if "\\" in joined or joined.count('"') != 2 * max(len(values) - 1, 0):
        return "{" + ",".join([_quoted(str(text)) for text in values]) + "}"
    return f'{{"{joined}"}}' if values else "{}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
