"""The tables other programs read hold what SPEC 3 names (SPEC 3: 2, 3)."""

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kron.ports import Store
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.testing import Step
from tests.service.registrar_rig import MINUTE, MINUTELY, NOON, WORK, office_on

NOON_S = int(NOON.timestamp())
Connection = Any


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Connection]]:
    """Give a store, and a connection past it."""
    if request.param == "sqlite":
        path = str(tmp_path / "kron.db")
        connection = sqlite3.connect(path)
        yield SqliteStore(path), connection
        connection.close()
    else:
        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url, autocommit=True) as other:
            yield PostgresStore(url), other


def rows(connection: Connection, query: str) -> list[dict[str, Any]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def instant(value: object) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(str(value))


@pytest.mark.parametrize(
    ("overlap", "catchup", "shown"),
    [
        ("skip", "none", ("skip", "none")),
        ("forbid", "all", ("skip", "fire_immediately")),
        ("queue", "fire_immediately", ("queue", "fire_immediately")),
        ("allow", "spread", ("allow", "spread")),
    ],
)
async def test_the_tables_show_policies_in_the_words_of_the_specification(
    database: tuple[Store, Connection], overlap: str, catchup: str, shown: tuple[str, str]
) -> None:
    store, connection = database
    async with office_on(store) as office:
        policies = {"overlap_policy": overlap, "catchup_policy": catchup}
        await office.registrar.upsert_schedule({**MINUTELY, **policies})
        (schedule,) = rows(connection, "SELECT * FROM schedules")
        assert (schedule["overlap_policy"], schedule["catchup_policy"]) == shown
        found = await office.registrar.get_schedule("minutely")
        assert (found["overlap_policy"], found["catchup_policy"]) == shown
        connection.commit()
    await store.close()


async def test_the_tables_show_schedules_and_their_runs(database: tuple[Store, Connection]) -> None:
    store, connection = database
    async with office_on(store) as office:
        office.launchers["workflow"].then("minutely", Step.SUCCEED, Step.FAIL, Step.HANG)
        fields = {"start_at": "2026-01-01T00:00:00Z", "jitter_ms": 0}
        await office.registrar.upsert_schedule({**MINUTELY, **fields})
        await office.work()
        await office.until(NOON + 4 * MINUTE)
        (schedule,) = rows(connection, "SELECT * FROM schedules")
        assert {name: schedule[name] for name in (*WORK, "schedule_id", "cron_expr", "timezone")} == MINUTELY
        assert (schedule["jitter_ms"], bool(schedule["paused"]), schedule["catchup_policy"]) == (
            0,
            False,
            "none",
        )
        assert instant(schedule["next_run_at"]) == NOON + 5 * MINUTE
        assert instant(schedule["updated_at"]) == NOON + 4 * MINUTE
        runs = rows(connection, "SELECT * FROM schedule_runs ORDER BY run_at")
        assert [run["status"] for run in runs] == ["SUCCESS", "FAILED", "STARTED", "SKIPPED"]
        for number, run in enumerate(runs, 1):
            expected = sha256(f"minutely:{NOON_S + 60 * number}".encode()).hexdigest()
            assert run["idempotency_key"] == expected
            assert run["schedule_id"] == schedule["schedule_id"]
            assert instant(run["run_at"]) == NOON + number * MINUTE
            assert instant(run["created_at"]) == NOON + number * MINUTE
            assert instant(run["updated_at"]) == NOON + number * MINUTE
        # What ran has the name its executor gave it.
        assert [run["run_id"] is None for run in runs] == [False, False, False, True]
        for table in ("leases", "kron_migrations"):
            assert rows(connection, f"SELECT * FROM {table}")
        connection.commit()
    await store.close()


@pytest.mark.parametrize("version", [0, 1, 2_000_000_000, 2**31 - 1])
async def test_the_table_has_the_version_as_given(database: tuple[Store, Connection], version: int) -> None:
    store, connection = database
    async with office_on(store) as office:
        await office.registrar.upsert_schedule({**MINUTELY, "version": version})
        (schedule,) = rows(connection, "SELECT * FROM schedules")
        assert (schedule["version"], type(schedule["version"])) == (version, int)
        connection.commit()
    await store.close()


# What makes a database refuse one half of what a wake writes, and what takes that back.
REFUSALS = {
    ("sqlite", "cursor"): (
        "CREATE TRIGGER refuse BEFORE UPDATE OF cursor ON jobs BEGIN SELECT RAISE(ABORT, 'no'); END",
        "DROP TRIGGER refuse",
    ),
    ("sqlite", "rows"): (
        "CREATE TRIGGER refuse BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'no'); END",
        "DROP TRIGGER refuse",
    ),
    ("postgres", "cursor"): (
        "ALTER TABLE schedules ADD CONSTRAINT refuse CHECK (cursor < 1767268860)",
        "ALTER TABLE schedules DROP CONSTRAINT refuse",
    ),
    ("postgres", "rows"): (
        "ALTER TABLE schedule_runs ADD CONSTRAINT refuse CHECK (nominal_time < 0)",
        "ALTER TABLE schedule_runs DROP CONSTRAINT refuse",
    ),
}


@pytest.mark.parametrize("half", ["cursor", "rows"])
async def test_a_wake_writes_its_rows_and_moves_the_schedule_on_together_or_not_at_all(
    database: tuple[Store, Connection], half: str
) -> None:
    store, connection = database
    kind = "sqlite" if isinstance(store, SqliteStore) else "postgres"
    refuse, allow = REFUSALS[kind, half]
    following = "SELECT next_run_at FROM schedules"
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        connection.execute(refuse)
        connection.commit()
        await office.work()
        await office.until(NOON + MINUTE)
        assert office.engine.health.state == "degraded"
        assert rows(connection, "SELECT * FROM schedule_runs") == []
        assert instant(rows(connection, following)[0]["next_run_at"]) == NOON + MINUTE
        connection.execute(allow)
        connection.commit()
        await office.until(NOON + 1.9 * MINUTE)
        (run,) = rows(connection, "SELECT * FROM schedule_runs")
        assert instant(run["run_at"]) == NOON + MINUTE
        assert instant(rows(connection, following)[0]["next_run_at"]) == NOON + 2 * MINUTE
        connection.commit()
    await store.close()


async def test_who_no_longer_owns_a_schedule_neither_writes_its_rows_nor_moves_it_on(
    database: tuple[Store, Connection],
) -> None:
    store, connection = database
    async with office_on(store) as office:
        await office.registrar.upsert_schedule(MINUTELY)
        await office.work()
        await office.until(NOON + 0.5 * MINUTE)
        # Another worker took over, and this one has not noticed.
        connection.execute("UPDATE leases SET owner = 'other', token = token + 1000")
        connection.commit()
        await office.until(NOON + 1.5 * MINUTE)
        assert rows(connection, "SELECT * FROM schedule_runs") == []
        (schedule,) = rows(connection, "SELECT * FROM schedules")
        assert instant(schedule["next_run_at"]) == NOON + MINUTE
        assert office.launchers["callback"].started == []
        connection.commit()
    await store.close()
