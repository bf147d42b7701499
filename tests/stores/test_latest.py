"""What is due, and the latest runs of all jobs, are read through an index, however many there are."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from kron.core.plan.query import OpenRuns, RunCursor
from kron.stores.postgres.connection import SESSION
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.stores.statement import cursor_values, runs_clauses, statements
from kron.testing.store_contract import a_job, stored

SPACE = "service"
MANY = 20_000
# Whole seconds of a hundred runs each.
RUN = """'x', i, i * 1000, 'SUCCESS', 'due', (i / 100) * 1000, 0, 0, 'period', 1, 1, 1, 0"""
COLUMNS = """idempotency_key, schedule_id, nominal_time, fire_time, status, reason, made_at, epoch, is_open,
    kind, attempt, token, acked, changed_at"""


async def test_sqlite_reads_a_page_from_an_index(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    await store.acquire(SPACE, "a")
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT number FROM namespaces").fetchone()
        connection.execute(
            f"""WITH RECURSIVE numbers (i) AS
                (SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i < {MANY} - 1)
            INSERT INTO runs (namespace, job, slot, {COLUMNS})
            SELECT {number}, 1, 0, printf('%064d', i), {RUN} FROM numbers"""
        )
        connection.commit()
        statement = runs_clauses(statements("sqlite"), None, None)
        values = {**cursor_values(RunCursor(100_000, "")), "namespace": number, "limit": 100}
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert plan[0].startswith("SEARCH runs USING INDEX runs_made")
    # Only runs of one instant are put in order.
    assert "USE TEMP B-TREE FOR ORDER BY" not in plan
    newest = await store.latest_runs(SPACE, limit=3)
    assert [run.nominal_time for run in newest] == [MANY - 1, MANY - 2, MANY - 3]
    await store.close()


@pytest.mark.parametrize("name", ["due_jobs", "due_runs", "next_at", "damaged_jobs"])
async def test_sqlite_finds_what_is_due_without_reading_all_jobs(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    await store.acquire(SPACE, "a")
    await stored(store, a_job("x"), namespace=SPACE)
    values = {"namespace": 1, "until": 0, "limit": 100, "without": "[]"}
    with closing(sqlite3.connect(path)) as connection:
        explained = connection.execute(f"EXPLAIN QUERY PLAN {statements('sqlite')[name]}", values)
        plan = [row[3] for row in explained]
    assert any("INDEX" in step for step in plan)
    assert not [step for step in plan if step.startswith(("SCAN jobs", "SCAN runs"))]
    await store.close()


async def test_postgres_finds_the_next_due_time_by_an_index(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    await stored(store, a_job("x"), namespace=SPACE)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET enable_seqscan = off")
        statement = f"EXPLAIN {statements('postgres')['next_at']}"
        rows = connection.execute(statement, {"namespace": SPACE, "until": 0})
        plan = "\n".join(row[0] for row in rows)
    assert "using schedules_to_plan" in plan
    assert "using schedule_runs_due" in plan
    await store.close()


async def test_postgres_reads_a_page_from_an_index(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    await stored(store, a_job("x"), namespace=SPACE)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"""INSERT INTO schedule_runs (namespace, shard, {COLUMNS})
            SELECT '{SPACE}', 0, lpad(i::text, 64, '0'), {RUN} FROM generate_series(0, {MANY} - 1) AS i"""
        )
        connection.execute("ANALYZE schedule_runs")
        sql = statements("postgres")
        statement = f"EXPLAIN {sql['runs']} {runs_clauses(sql, None, None)}"
        values = {**cursor_values(RunCursor(100_000, "")), "namespace": SPACE, "limit": 100}
        plan = "\n".join(row[0] for row in connection.execute(statement, values))
    assert "Index Scan Backward using schedule_runs_made" in plan
    assert "Presorted Key: made_at" in plan
    newest = await store.latest_runs(SPACE, limit=3)
    assert [run.nominal_time for run in newest] == [MANY - 1, MANY - 2, MANY - 3]
    await store.close()


async def test_postgres_counts_open_runs_by_an_index_that_has_nothing_else_in_it(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    await stored(store, a_job("x"), namespace=SPACE)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"""INSERT INTO schedule_runs (namespace, shard, {COLUMNS})
            SELECT '{SPACE}', 0, lpad(i::text, 64, '0'), {RUN} FROM generate_series(0, {MANY} - 1) AS i"""
        )
        connection.execute("ANALYZE schedule_runs")
        values = {"namespace": SPACE, "now": 0, "limit": 100}
        statement = f"EXPLAIN {statements('postgres')['count_open_runs']}"
        plan = "\n".join(row[0] for row in connection.execute(statement, values))
    assert "using schedule_runs_open" in plan
    assert await store.open_runs(SPACE, now=0, limit=100) == OpenRuns()
    await store.close()


async def test_postgres_updates_runs_by_their_key_before_it_has_statistics(postgres_url: str) -> None:
    """By another index every update of a burst would read all runs of the namespace, for each of its own."""
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    await stored(store, a_job("x"), namespace=SPACE)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SESSION.format(frozen_ms=0))
        connection.execute(
            f"""INSERT INTO schedule_runs (namespace, shard, {COLUMNS})
            SELECT '{SPACE}', 0, lpad(i::text, 64, '0'), {RUN} FROM generate_series(0, 4999) AS i"""
        )
        update = statements("postgres")["update_runs"]
        joined = update[update.index("WHERE") :]
        keys = [f"{number:064}" for number in range(900)]
        values = {"spaces": [SPACE] * len(keys), "keys": keys}
        statement = (
            "EXPLAIN UPDATE schedule_runs SET is_open = 0 "
            f"FROM unnest(%(spaces)s::text[], %(keys)s::text[]) AS new (namespace, key) {joined}"
        )
        plan = "\n".join(row[0] for row in connection.execute(statement, values))
    assert "Index Scan using schedule_runs_pkey" in plan
    await store.close()
