"""What is due, and the latest runs of all jobs, are read through an index, however many there are."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kron.core.plan.query import AuditFilter, JobFilter, OpenRuns, RunCursor, RunSpan
from kron.core.plan.record import IncidentKind, IncidentRecord
from kron.stores.postgres.connection import SESSION
from kron.stores.postgres.store import BY_HASH, BY_SCAN_OR_HASH, PostgresStore
from kron.stores.postgres.write import arrays
from kron.stores.row import GROUPS
from kron.stores.sqlite.store import SqliteStore
from kron.stores.statement import (
    audit_statement,
    cursor_values,
    made_statement,
    runs_clauses,
    span_values,
    statements,
    tally_statement,
)
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


@pytest.mark.parametrize("who", [None, "ann"])
@pytest.mark.parametrize(
    ("schedule", "index"),
    [
        (None, "audit_user (namespace=? AND user_id=? AND at<?)"),
        ("b/busy", "audit_schedule (namespace=? AND schedule_id=? AND user_id=? AND at<?)"),
    ],
    ids=["any", "one"],
)
async def test_sqlite_reads_the_audit_entries_of_a_user_and_none_of_others(
    tmp_path: Path, schedule: str | None, index: str, who: str | None
) -> None:
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    await store.acquire(SPACE, "a")
    statement = audit_statement(statements("sqlite"), AuditFilter(identity=schedule, users=["ann"], who=who))
    values = {"namespace": 1, "identity": schedule, "users": '["ann"]', "who": who}
    values |= {"at": 0, "listed": 0, "limit": 100}
    with closing(sqlite3.connect(path)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    read = [step for step in plan if " audit " in step]
    assert len(read) == 2, plan
    assert any(index in step for step in read), plan
    assert any("USING INTEGER PRIMARY KEY" in step for step in read), plan
    await store.close()


@pytest.mark.parametrize("who", [None, "bob"])
async def test_sqlite_reads_the_audit_entries_of_a_schedule_and_none_of_others(
    tmp_path: Path, who: str | None
) -> None:
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    await store.acquire(SPACE, "a")
    statement = audit_statement(statements("sqlite"), AuditFilter(identity="b/busy", who=who))
    values = {"namespace": 1, "identity": "b/busy", "who": who, "at": 0, "listed": 0, "limit": 100}
    with closing(sqlite3.connect(path)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    assert any("audit_schedule (namespace=? AND schedule_id=?)" in step for step in plan), plan
    assert not any("audit_time" in step or "SCAN" in step for step in plan), plan
    await store.close()


@pytest.mark.parametrize("schedule", [None, "b/busy", "b/none", "a/quiet"])
@pytest.mark.parametrize("who", [None, "ann"])
async def test_postgres_reads_the_audit_entries_of_a_user_and_none_of_others(
    postgres_url: str, schedule: str | None, who: str | None
) -> None:
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"""INSERT INTO schedule_audit (namespace, at, who, action, schedule_id, user_id)
            SELECT '{SPACE}', i, 'bob', 'update', 'b/busy', 'bob' FROM generate_series(1, {MANY}) AS i"""
        )
        connection.execute(
            f"""INSERT INTO schedule_audit (namespace, at, who, action, schedule_id, user_id)
            SELECT '{SPACE}', i, 'ann', 'update', 'a/quiet', 'ann' FROM generate_series(1, 10) AS i"""
        )
        connection.execute("VACUUM ANALYZE schedule_audit")
        connection.execute(SESSION.format(limits="").encode())
        wanted = AuditFilter(identity=schedule, users=["ann"], who=who)
        values = {**wanted._asdict(), "namespace": SPACE, "at": 1 << 62, "listed": 0, "limit": 100}
        statement = f"EXPLAIN (ANALYZE, FORMAT JSON) {audit_statement(statements('postgres'), wanted)}"
        (answer,) = connection.execute(statement, values).fetchone() or ()
    # A scan of the entries of others would have read rows, and dropped them.
    read = [step for step in _steps(answer[0]["Plan"]) if step.get("Relation Name") == "schedule_audit"]
    assert read
    for step in read:
        assert step["Actual Rows"] * step["Actual Loops"] <= 10, answer
        assert step.get("Rows Removed by Filter", 0) * step["Actual Loops"] <= 10, answer
        assert step.get("Rows Removed by Index Recheck", 0) == 0, answer
    await store.close()


def _steps(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a step of a plan and those below it."""
    return [plan, *(step for below in plan.get("Plans", ()) for step in _steps(below))]


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
        connection.execute(SESSION.format(limits=""))
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


async def all_paused(url: str, names: list[str], *, analyzed: bool) -> PostgresStore:
    """Return a store with jobs that are all paused, with statistics of their incidents or without."""
    store = PostgresStore(url)
    await store.acquire(SPACE, "a")
    await stored(store, *map(a_job, names), namespace=SPACE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """INSERT INTO incidents (namespace, kind, schedule_id, from_at)
            SELECT %s, 'paused', name, 1 FROM unnest(%s::text[]) AS name""",
            (SPACE, names),
        )
        if analyzed:
            connection.execute("ANALYZE incidents")
    return store


@pytest.mark.parametrize("analyzed", [False, True])
async def test_postgres_closes_incidents_without_reading_those_of_other_schedules(
    postgres_url: str, analyzed: bool
) -> None:
    """By the index of ends, lifting thousands of suspensions would compare each with all of them."""
    names = [f"job {number}" for number in range(900)]
    store = await all_paused(postgres_url, names, analyzed=analyzed)
    closed = [IncidentRecord(IncidentKind.PAUSED, name, 1, 2, "ann", "ann") for name in names]
    values: dict[str, object] = dict(arrays(IncidentRecord._fields, closed, GROUPS["incident"]))
    values["namespace"] = SPACE
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SESSION.format(limits=""))
        close = f"EXPLAIN {statements('postgres')['close_incidents']}"
        plan = "\n".join(row[0] for row in connection.execute(close.encode(), values))
    read = re.findall(r"using (\w+) on incidents.*\n\s*Index Cond: (.*)", plan)
    assert [index for index, _ in sorted(read)] == ["incidents_of_schedule", "incidents_pkey"], plan
    assert "schedule_id = ending.identity" in dict(read)["incidents_of_schedule"], plan
    assert "number = " in dict(read)["incidents_pkey"], plan
    await store.close()


@pytest.mark.parametrize("analyzed", [False, True])
async def test_postgres_reads_the_incidents_of_a_schedule_without_those_of_others(
    postgres_url: str, analyzed: bool
) -> None:
    store = await all_paused(postgres_url, [f"job {number}" for number in range(900)], analyzed=analyzed)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SESSION.format(limits=""))
        values = {"namespace": SPACE, "name": "job 7", "since": 0, "until": 9, "limit": 200}
        read = f"EXPLAIN (ANALYZE, TIMING off) {statements('postgres')['incidents']}"
        plan = "\n".join(row[0] for row in connection.execute(read.encode(), values))
    assert plan.count("using incidents_of_schedule") == 2, plan
    assert "Rows Removed" not in plan, plan
    await store.close()


async def test_postgres_looks_up_the_schedules_of_what_is_due_before_it_has_statistics(
    postgres_url: str,
) -> None:
    """Compared with each other, the open runs of one tenant's backfills made the starts of all late."""
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    await stored(store, *(a_job(f"job {number}") for number in range(900)), namespace=SPACE)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SESSION.format(limits=""))
        values = {"namespace": SPACE, "until": 10**15, "limit": 9, "shards": [1], "tenants": ["mallory"]}
        due = f"EXPLAIN {statements('postgres')['due_besides']}"
        plan = "\n".join(row[0] for row in connection.execute(due.encode(), values))
    assert re.search(r"using schedules_pkey on schedules.*\n\s*Index Cond: .*schedule_id = ", plan), plan
    assert "Join Filter" not in plan, plan
    await store.close()


@pytest.mark.parametrize("analyzed", [False, True])
async def test_postgres_finds_a_second_tenant_without_the_schedules_of_the_first(
    postgres_url: str, analyzed: bool
) -> None:
    """Each burst asks; among 100,000 schedules of one tenant it took a twentieth of a second."""
    store = PostgresStore(postgres_url)
    await store.acquire(SPACE, "a")
    launcher = json.dumps({"kind": "log", "user_id": "ann"})
    jobs = [a_job(f"job {number}", launcher=launcher) for number in range(900)]
    await stored(store, *jobs, namespace=SPACE)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SESSION.format(limits=""))
        if analyzed:
            connection.execute("VACUUM ANALYZE schedules")
        read = f"EXPLAIN (ANALYZE, TIMING off) {statements('postgres')['serves_others']}"
        rows = connection.execute(read.encode(), {"namespace": SPACE, "tenant": "ann"})
        plan = "\n".join(row[0] for row in rows)
    assert (plan.count("schedules_user"), plan.count("namespaces_without_user_pkey")) == (2, 1), plan
    assert "Rows Removed" not in plan, plan
    await store.close()


async def filled(url: str) -> None:
    """Write many schedules of ten users, each with some runs of which one of ten failed."""
    store = PostgresStore(url)
    await store.acquire(SPACE, "a")
    await store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"""INSERT INTO schedules (namespace, schedule_id, shard, definition, launcher, launcher_kind,
                epoch, edited_at, born_at, revision, cursor, replay_count, paused, failures, changed_at)
            SELECT '{SPACE}', i, 0, '{{}}', json_build_object('user_id', 'u' || i % 10), 'log',
                1, 0, 0, 1, 0, 0, false, 0, 0 FROM generate_series(0, 1999) AS i"""
        )
        connection.execute(
            f"""INSERT INTO schedule_runs (namespace, shard, {COLUMNS})
            SELECT '{SPACE}', 0, lpad(i::text, 64, '0'), i % 2000, 60 * i, 60000 * i,
                CASE WHEN i % 10 = 0 THEN 'FAILED' ELSE 'SUCCESS' END, 'due', 60000 * i, 0, 0, 'period',
                1, 1, 1, 0
            FROM generate_series(0, {MANY} - 1) AS i"""
        )
        connection.execute("VACUUM ANALYZE schedules")
        connection.execute("VACUUM ANALYZE schedule_runs")


def plan_of(url: str, statement: str, wanted: JobFilter, first: str = "") -> str:
    """Return the plan of a count of the later half of the runs, as the store's connections make it."""
    middle, end = 60_000 * MANY // 2, 60_000 * MANY
    span = RunSpan(middle, end, (end - middle) // 100, end)
    values = {**wanted._asdict(), **span_values(span), "users": list(wanted.users or ()), "namespace": SPACE}
    with psycopg.connect(url) as connection:
        connection.execute(SESSION.format(limits="").encode())
        if first:
            connection.execute(first.encode())
        return "\n".join(row[0] for row in connection.execute(f"EXPLAIN {statement}".encode(), values))


async def test_postgres_counts_the_runs_of_pages_by_its_indexes(postgres_url: str) -> None:
    await filled(postgres_url)
    sql, everything, own = statements("postgres"), JobFilter(), JobFilter(users=["u7"])
    made = plan_of(postgres_url, made_statement(sql, everything), everything)
    # Each column of the picture is a range of the index, counted by one process without a group for each run.
    assert "Index Only Scan using schedule_runs_made" in made
    assert "HashAggregate" not in made
    assert "Gather" not in made
    for wanted in (everything, own):
        bad = plan_of(postgres_url, tally_statement(sql, wanted, not_ok=True), wanted, BY_HASH)
        assert "Index Only Scan using schedule_runs_problems" in bad
        assert "Hash Join" in bad
        assert "Nested Loop" not in bad
        assert "on schedule_runs " not in bad.replace("schedule_runs_problems on schedule_runs ", "")
    some = plan_of(postgres_url, tally_statement(sql, everything, not_ok=False), everything, BY_SCAN_OR_HASH)
    assert "using schedule_runs_made" in some
    assert "Hash Join" in some
    few = plan_of(postgres_url, tally_statement(sql, own, not_ok=False, by_job=True), own)
    assert "using schedules_user" in few
    assert "using schedule_runs_history" in few
    assert "using schedule_runs_apart" in few
    assert "Seq Scan" not in few
    assert "schedule_runs_made" not in few
