"""Changes into arrays, and into the tables of PostgreSQL, inside the transaction of a connection."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from kron.core.plan.record import JobRecord, RangeRecord, RunRecord
from kron.core.plan.step import Change, WriteScope
from kron.core.shard import shard_of
from kron.ports import WriteResult
from kron.stores.postgres.connection import count_of, rows_of
from kron.stores.postgres.schema import Connection
from kron.stores.row import storable
from kron.stores.statement import statements

SQL = statements("postgres")
Row = TypeVar("Row")

# Rows of one statement; more of them are several statements of the same transaction.
CHUNK = 2_000
UPDATES = {
    WriteScope.ANY: "update_jobs",
    WriteScope.START: "advance_jobs",
    WriteScope.END: "note_successes",
    WriteScope.EDIT: "edit_jobs",
}
# The fields of records that are texts; all others are integers.
TEXTS = frozenset(
    {
        "identity", "definition", "launcher", "launcher_kind", "past", "paused_because", "key", "status",
        "reason", "kind", "result", "error", "run_id", "outcome", "who", "request_id", "action", "user_id",
        "before", "after",
    }
)  # fmt: skip
# All of a job that PostgreSQL keeps; a number is SQLite's own name for it.
JOB = tuple(name for name in JobRecord._fields if name != "number")
# What may change of a run, by its key; and what is kept of an earlier attempt.
ENDED = (
    "key", "fire_time", "status", "reason", "epoch", "due_at", "is_open", "attempt", "token", "started_at",
    "ended_at", "result", "error", "run_id", "acked",
)  # fmt: skip
ATTEMPT = ("key", "attempt", "token", "started_at", "ended_at", "result", "error", "run_id")
# What other programs said of themselves, so it may hold what no database column can.
FOREIGN = frozenset({"error", "run_id", "paused_because", "before", "after", "request_id", "who", "user_id"})


async def write_changes(connection: Connection, namespace: str, changes: Sequence[Change], now: int) -> bool:
    """Write all changes; say whether every job and every new run was as expected."""
    common = {"namespace": namespace, "now": now}
    # All who lock several jobs do it in the same order, so that none waits for the other.
    changes = sorted(changes, key=lambda change: change.job.identity)
    if changes and all(change.cohort is changes[0].cohort is not None for change in changes):
        return await _start_together(connection, common, changes)
    for some in chunks(changes):
        if await _update_jobs(connection, common, some) != len(some):
            return False
    inserts = [run for change in changes for run in change.inserts]
    for new in chunks(inserts):
        values = {**common, **arrays(RunRecord._fields, new, RunRecord._fields), "shard": shards_of(new)}
        if await count_of(connection, SQL["insert_runs"], values) != len(new):
            return False
    for name, records, fields, wanted in (
        ("update_runs", [run for change in changes for run in change.updates], RunRecord._fields, ENDED),
        (
            "insert_attempts",
            [run for change in changes for run in change.attempts],
            RunRecord._fields,
            ATTEMPT,
        ),
        (
            "insert_ranges",
            [dropped for change in changes for dropped in change.ranges],
            RangeRecord._fields,
            RangeRecord._fields,
        ),
    ):
        for part in chunks(records):
            namespaces = {"namespaces": texts([namespace] * len(part))}
            await connection.execute(SQL[name], {**common, **namespaces, **arrays(fields, part, wanted)})
    faulty = [change.job.identity for change in changes if change.fault is not None]
    if faulty:
        await connection.execute(SQL["hold_runs"], {**common, "names": texts(faulty)})
    return True


async def _start_together(
    connection: Connection, common: dict[str, object], changes: Sequence[Change]
) -> bool:
    """Write the starts of one cohort; say whether all jobs were as expected and all runs new."""
    cohort = changes[0].cohort
    assert cohort is not None
    runs = [change.starts[0] for change in changes]
    identity = texts([run.identity for run in runs])
    values = {**common, "identity": identity, "namespaces": texts([common["namespace"]] * len(runs))}
    ahead = zip(("cursor", "next_time", "plan_at"), cohort.ahead, strict=True)
    values |= {"expected": numbers(change.revision for change in changes), **dict(ahead)}
    values["last_start_at"] = changes[0].job.last_start_at
    if await count_of(connection, SQL["advance_together"], values) != len(runs):
        return False
    values |= dict(zip(RunRecord._fields[2:], cohort.run, strict=True))
    values |= {"shard": shards_of(runs), "key": texts([run.key for run in runs])}
    return await count_of(connection, SQL["start_together"], values) == len(runs)


async def _update_jobs(connection: Connection, common: dict[str, object], changes: Sequence[Change]) -> int:
    """Write the jobs' records; return how many still had the revision they were planned from."""
    written = 0
    for scope, statement in UPDATES.items():
        some = [change for change in changes if change.scope is scope]
        if some:
            wanted = ("identity", *scope.value) if scope.value else JOB
            values = {**common, **arrays(JobRecord._fields, [change.job for change in some], wanted)}
            values["namespaces"] = texts([common["namespace"]] * len(some))
            values["expected"] = numbers(change.revision for change in some)
            written += await count_of(connection, SQL[statement], values)
    return written


async def refused(
    connection: Connection, namespace: str, changes: Sequence[Change], created: Iterable[str] = ()
) -> WriteResult:
    """Return which jobs were changed by somebody else, and which new runs exist already."""
    expected: dict[str, int | None] = {change.job.identity: change.revision for change in changes}
    expected |= dict.fromkeys(created)
    values = {"namespace": namespace, "names": texts(list(expected))}
    found = dict(await rows_of(connection, SQL["revisions"], values))
    changed = frozenset(name for name, revision in expected.items() if found.get(name) != revision)
    keys = [run.key for change in changes for run in change.inserts]
    values = {"namespace": namespace, "names": texts(keys)}
    known = await rows_of(connection, SQL["known_keys"], values) if keys else []
    return WriteResult(changed, frozenset(key for (key,) in known))


def accepted(changes: Iterable[Change], settled: WriteResult) -> list[Change]:
    """Return the changes without those of changed jobs and without runs that exist already."""
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
    fields: Sequence[str], rows: Sequence[tuple[object, ...]], wanted: Iterable[str]
) -> dict[str, str]:
    """Return the wanted columns of rows by name."""
    columns = dict(zip(fields, zip(*rows, strict=True), strict=True))
    return {name: array(name, columns[name]) for name in wanted}


def array(name: str, column: Sequence[object]) -> str:
    """Return one column of texts or of integers."""
    if name not in TEXTS:
        return numbers(column)
    if name in FOREIGN:
        return texts([None if value is None else storable(str(value)) for value in column])
    return texts(column)


def numbers(column: Iterable[object]) -> str:
    """Return integers, some of which may be absent."""
    return "{" + str(list(column))[1:-1].replace("None", "NULL") + "}"


def texts(column: Sequence[object]) -> str:
    """Return texts, some of which may be absent."""
    if None in column:
        return "{" + ",".join(["NULL" if text is None else _quoted(str(text)) for text in column]) + "}"
    joined = '","'.join(column)  # type: ignore[arg-type]
    if "\\" in joined or joined.count('"') != 2 * max(len(column) - 1, 0):
        return "{" + ",".join([_quoted(str(text)) for text in column]) + "}"
    return f'{{"{joined}"}}' if column else "{}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
