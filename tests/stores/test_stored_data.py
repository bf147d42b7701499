"""Data as stored: keys and references, views of every timestamp, and databases of an older program."""

import json
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kron.core.plan.query import PruneBounds
from kron.core.plan.record import RunKind, key_of, request_key_of
from kron.ports import Store
from kron.stores.migration import SqliteSchema, steps_of
from kron.stores.postgres.schema import PostgresSchema
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.file import connect
from kron.stores.sqlite.store import SqliteStore
from kron.stores.statement import statements
from kron.testing.store_contract import NOW, SPACE, a_job, a_run, an_end, stored, written
from tests.waiting import wait_for

Connection = Any
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
# The tables of runs and schedules, which SQLite calls by other names.
TABLES = {"sqlite": ("runs", "jobs"), "postgres": ("schedule_runs", "schedules")}
VIEWS = tuple(
    f"kron_{name}"
    for name in (
        "schedules",
        "runs",
        "attempts",
        "ranges",
        "reopened",
        "epochs",
        "workflows",
        "audit",
        "leases",
        "clock_excursions",
    )
)
# A time that is kept, where the column has another name than in a view.
KEPT_TIMES = frozenset({"made_at", "changed_at", "began_at", "over_at"})


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "kron.db")
    url: str = request.getfixturevalue("postgres_url")
    return url


def is_file(place: str) -> bool:
    return not place.startswith("postgres")


def store_at(place: str) -> Store:
    return SqliteStore(place) if is_file(place) else PostgresStore(place)


def connection_to(place: str) -> Connection:
    """Return a connection past the store, with the rules that the store's own have."""
    return closing(connect(place)) if is_file(place) else psycopg.connect(place, autocommit=True)


def rows(connection: Connection, query: str) -> list[dict[str, Any]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


async def with_history(place: str) -> None:
    """Write a record of every sort."""
    store = store_at(place)
    ownership = await store.acquire(SPACE, "a")
    launcher = json.dumps({"kind": "http", "workflow_id": "wf", "version": 2_000_000_000, "user_id": "ann"})
    await stored(store, a_job(launcher=launcher))
    manual = a_run(kind=RunKind.MANUAL, key=request_key_of("backup", RunKind.MANUAL, "r"))
    first = an_end(a_run())
    await written(store, ownership, first, manual, attempts=[first])
    await store.close()


# --- keys and references ---------------------------------------------------------------------------


async def test_a_database_refuses_a_run_of_no_schedule_and_a_schedule_that_runs_refer_to(place: str) -> None:
    await with_history(place)
    runs, schedules = TABLES["sqlite" if is_file(place) else "postgres"]
    column = "job" if is_file(place) else "schedule_id"
    with connection_to(place) as connection:
        for statement in (
            f"UPDATE {runs} SET {column} = {4711 if is_file(place) else chr(39) + 'gone' + chr(39)}",
            f"DELETE FROM {schedules}",
        ):
            with pytest.raises((sqlite3.IntegrityError, psycopg.errors.ForeignKeyViolation)):
                connection.execute(statement)
        assert len(rows(connection, "SELECT * FROM kron_runs")) == 2


def copy_of(connection: Connection, table: str) -> str:
    """Copy the runs into a temporary table; return the statement that inserts them again."""
    connection.execute(f"CREATE TEMPORARY TABLE {table} AS SELECT * FROM schedule_runs")
    (columns,) = connection.execute(
        "SELECT string_agg(column_name, ', ') FROM information_schema.columns"
        " WHERE table_name = 'schedule_runs' AND table_schema = current_schema() AND is_generated = 'NEVER'"
    ).fetchone()
    return f"INSERT INTO schedule_runs ({columns}) SELECT {columns} FROM {table}"


async def test_postgres_checks_what_a_statement_writes_as_a_foreign_key_does(postgres_url: str) -> None:
    await with_history(postgres_url)
    with connection_to(postgres_url) as connection:
        insert = copy_of(connection, "strays")
        connection.execute(
            "UPDATE strays SET schedule_id = 'gone', nominal_time = nominal_time + 1,"
            " idempotency_key = 'x' || kind"
        )
        for statement in (
            insert,
            "UPDATE schedules SET schedule_id = 'renamed'",
        ):
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                connection.execute(statement)
        connection.execute("UPDATE strays SET schedule_id = 'backup'")
        assert connection.execute(insert).rowcount == 2


async def test_postgres_checks_all_but_the_starts_whose_schedules_it_has_just_changed(
    postgres_url: str,
) -> None:
    """A burst changes its schedules first; what else the same connection writes later is checked."""
    await with_history(postgres_url)
    with connection_to(postgres_url) as connection:
        insert = copy_of(connection, "strays")
        connection.execute("UPDATE strays SET schedule_id = 'gone', idempotency_key = 'x' || kind")
        said = re.search(r"set_config\(.*?\)", statements("postgres")["start_together"])
        assert said
        with connection.transaction():
            connection.execute(f"SELECT {said.group()}")
            assert connection.execute(insert).rowcount == 2
        connection.execute("UPDATE strays SET idempotency_key = 'y' || kind, nominal_time = nominal_time + 1")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute(insert)


async def test_postgres_keeps_a_schedule_while_a_run_of_it_is_being_written(postgres_url: str) -> None:
    store = store_at(postgres_url)
    await stored(store, a_job())
    await written(store, await store.acquire(SPACE, "a"), a_run())
    await store.close()
    with connection_to(postgres_url) as writer, connection_to(postgres_url) as remover:
        insert = copy_of(writer, "kept")
        writer.execute("DELETE FROM schedule_runs")
        writer.execute("BEGIN")
        writer.execute(insert)
        with ThreadPoolExecutor(1) as thread:
            removal = thread.submit(remover.execute, "DELETE FROM schedules")
            wait_for(lambda: rows(writer, "SELECT 1 FROM pg_locks WHERE NOT granted"))
            writer.execute("COMMIT")
            with pytest.raises(psycopg.errors.ForeignKeyViolation):
                removal.result()
        assert (
            len(rows(writer, "SELECT * FROM kron_runs"))
            == len(rows(writer, "SELECT * FROM kron_schedules"))
            == 1
        )


@pytest.mark.parametrize("kind", ["period", "manual"])
async def test_a_database_refuses_a_second_row_of_a_run(place: str, kind: str) -> None:
    await with_history(place)
    runs, _ = TABLES["sqlite" if is_file(place) else "postgres"]
    with connection_to(place) as connection:
        (run,) = rows(connection, f"SELECT * FROM {runs} WHERE kind = '{kind}'")
        again = {name: run[name] for name in run if name in KEPT_TIMES or not name.endswith("_at")}
        marks = ", ".join(["?" if is_file(place) else "%s"] * len(again))
        statement = f"INSERT INTO {runs} ({', '.join(again)}) VALUES ({marks})"
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
            connection.execute(statement, list(again.values()))
        connection.rollback()
        if kind != "period":
            # The key of a request is unique whatever its time is.
            later = {**again, "nominal_time": again["nominal_time"] + 1}
            with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
                connection.execute(statement, list(later.values()))


def test_a_request_has_the_key_of_no_period_and_of_no_other_request() -> None:
    names = ["a", "a:manual", "a:backfill", "a:manual:1", "a:manual:manual", "1"]
    requests = ["1", "-1", "r", "r:1", "manual:1", "manual:r", "backfill:1", "1:", ":"]
    periods = [key_of(name, time) for name in names for time in (-1, 1)]
    kinds = (RunKind.MANUAL, RunKind.BACKFILL)
    keys = [request_key_of(name, kind, request) for name in names for kind in kinds for request in requests]
    assert len({*periods, *keys}) == len(periods) + len(keys)
    # What is not ambiguous has the documented key, so that a request repeated after an update is known.
    assert request_key_of("a", RunKind.MANUAL, "r") == sha256(b"a:manual:r").hexdigest()


async def test_what_is_removed_leaves_no_reference_behind(place: str) -> None:
    await with_history(place)
    store = store_at(place)
    await stored(store, a_job("other"), namespace="embed:third")
    await store.forget(SPACE, ["backup"])
    bounds = PruneBounds(before=NOW + 10**9, keep_runs=0)
    for namespace in (SPACE, "embed:third"):
        await store.prune(namespace, bounds, limit=100)
    await store.close()
    with connection_to(place) as connection:
        for view in ("kron_runs", "kron_attempts", "kron_ranges", "kron_epochs"):
            assert rows(connection, f"SELECT * FROM {view}") == []
        if is_file(place):
            assert rows(connection, "PRAGMA foreign_key_check") == []


# --- views -----------------------------------------------------------------------------------------


async def test_the_views_show_every_timestamp_as_rfc_3339_in_utc(place: str) -> None:
    await with_history(place)
    with connection_to(place) as connection:
        if not is_file(place):
            connection.execute("SET TimeZone = 'Asia/Kolkata'")
        shown = {view: rows(connection, f"SELECT * FROM {view}") for view in VIEWS}
    for view in ("kron_schedules", "kron_runs", "kron_attempts", "kron_leases"):
        assert shown[view], view
    times = [
        (view, name, value)
        for view, listed in shown.items()
        for row in listed
        for name, value in row.items()
        if name.endswith("_at") and value is not None
    ]
    assert {name for _, name, _ in times} >= {
        "next_run_at",
        "updated_at",
        "run_at",
        "fire_at",
        "created_at",
        "started_at",
        "ended_at",
    }
    assert [each for each in times if not INSTANT.fullmatch(str(each[2]))] == []
    (period,) = (run for run in shown["kron_runs"] if run["kind"] == "period")
    assert (period["run_at"], period["fire_at"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00.000Z")
    assert period["ended_at"] == "2027-01-15T08:00:00.005Z"


def test_a_view_has_the_same_columns_in_every_database(postgres_url: str) -> None:
    with connection_to(":memory:") as one, connection_to(postgres_url) as other:
        for step in steps_of("postgres"):
            other.execute(step.text)
        for view in VIEWS:
            query = f"SELECT * FROM {view}"
            columns = [[column[0] for column in each.execute(query).description] for each in (one, other)]
            assert columns[0] == columns[1], view


# --- old databases ---------------------------------------------------------------------------------

JOB = """INSERT INTO {table} (namespace, {shard} schedule_id, definition, launcher, launcher_kind, epoch,
    edited_at, born_at, revision, cursor, replay_count, failures, paused, changed_at)
    VALUES ({namespace}, {zero} '{name}', '{{"schedule":"* * * * *"}}', '{{"version":{version}}}', 'callback',
    1, 1, 1, 1, 1, 0, 0, {false}, 1)"""
RUN = """INSERT INTO {table} (namespace, {shard} {job} idempotency_key, schedule_id, nominal_time, fire_time,
    status, reason, made_at, epoch, is_open, kind, attempt, token, acked, changed_at)
    VALUES ({namespace}, {zero} {number} '{key}', '{name}', 60, 60000, 'SUCCESS', 'due', 1, 1, 0, 'period',
    1, 1, 1, 1)"""


def unguarded(place: str) -> Connection:
    """Return a connection with the rules of the database alone."""
    if is_file(place):
        return closing(sqlite3.connect(place, isolation_level=None))
    return psycopg.connect(place, autocommit=True)


async def test_postgres_knows_of_schedules_without_a_user_that_were_stored_before_the_migration(
    postgres_url: str,
) -> None:
    steps = steps_of("postgres")
    (number,) = (step.number for step in steps if step.name == "no_user")
    await PostgresSchema(postgres_url, steps[: number - 1]).forward()
    words = {"shard": "shard,", "zero": "0,", "false": "false", "version": 1}
    with unguarded(postgres_url) as connection:
        connection.execute(JOB.format(table="schedules", namespace=f"'{SPACE}'", name="none", **words))
    await PostgresSchema(postgres_url).forward()
    store = store_at(postgres_url)
    assert [await store.serves_others(name, "ann") for name in (SPACE, "elsewhere")] == [True, False]
    await store.close()


async def test_an_old_database_is_migrated_with_its_versions_and_without_lost_runs(place: str) -> None:
    file = is_file(place)
    schema = SqliteSchema if file else PostgresSchema
    steps = steps_of("sqlite" if file else "postgres")
    (number,) = (step.number for step in steps if step.name == "data")
    await schema(place, steps[: number - 1]).forward()
    words: dict[str, object] = (
        {"namespace": "1", "shard": "", "zero": "", "false": "0"}
        if file
        else {"namespace": "'service'", "shard": "shard,", "zero": "0,", "false": "false"}
    )
    runs, schedules = TABLES["sqlite" if file else "postgres"]
    with unguarded(place) as connection:
        if file:
            connection.execute("INSERT INTO namespaces VALUES (1, 'service')")
        for name, version in (("big", 2_000_000_000), ("huge", 10**30), ("small", 3)):
            connection.execute(JOB.format(table=schedules, name=name, version=version, **words))
        for count, name in ((1, "big"), (4711, "gone")):
            extra = {"job": "job, slot,", "number": f"{count}, 0,"} if file else {"job": "", "number": ""}
            connection.execute(RUN.format(table=runs, name=name, key=key_of(name, 60), **words, **extra))
    await schema(place).forward()
    with connection_to(place) as connection:
        found = rows(connection, "SELECT schedule_id, version FROM kron_schedules ORDER BY schedule_id")
        assert [tuple(row.values()) for row in found] == [
            ("big", 2_000_000_000),
            ("huge", None),
            ("small", 3),
        ]
        kept = rows(connection, "SELECT schedule_id, run_at FROM kron_runs")
        assert [tuple(row.values()) for row in kept] == [("big", "1970-01-01T00:01:00Z")]
    store = store_at(place)
    assert [run.key for run in await store.runs("service", "big", limit=10)] == [key_of("big", 60)]
    await store.close()
