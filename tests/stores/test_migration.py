"""Migrations: pending and refused steps, and the output of `kron migrate`, on both databases."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from kron.core.errors import StoreError
from kron.stores.migration import Applied, Migration, Schema, SqliteSchema, pending, steps_of
from kron.stores.postgres.schema import PostgresSchema
from kron.stores.sqlite.store import SqliteStore
from kron.testing.store_contract import SPACE, a_job, stored

FIRST = Migration(
    1, "first", "CREATE TABLE one (a integer); -- with a ; in a remark\nCREATE TABLE two (b text);"
)
SECOND = Migration(2, "second", "INSERT INTO two VALUES ('a;b');\nALTER TABLE one ADD COLUMN c integer")
# The steps of this program; both databases have the same numbers and names.
STEPS = steps_of("sqlite")
BROKEN = Migration(3, "broken", "CREATE TABLE three (c integer);\nINSERT INTO nowhere VALUES (1);")
Make = Callable[[list[Migration]], Schema]


def applied(*steps: Migration) -> list[Applied]:
    return [Applied(step.number, step.name, step.checksum, "2026-01-01T00:00:00Z") for step in steps]


@pytest.fixture(params=["sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a factory of schemas of one database, each with other steps."""
    if request.param == "sqlite":
        path = str(tmp_path / "kron.db")
        return lambda steps: SqliteSchema(path, steps)
    url: str = request.getfixturevalue("postgres_url")
    return lambda steps: PostgresSchema(url, steps)


# --- the rule ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "left"),
    [
        pytest.param([], [FIRST, SECOND], id="a new database"),
        pytest.param([FIRST], [SECOND], id="one step behind"),
        pytest.param([FIRST, SECOND], [], id="up to date"),
    ],
)
def test_the_missing_steps_are_pending(done: list[Migration], left: list[Migration]) -> None:
    assert pending([FIRST, SECOND], applied(*done)) == left


@pytest.mark.parametrize(
    ("steps", "done", "complaint"),
    [
        pytest.param([FIRST, BROKEN], [], "This program lacks its migration 2", id="a gap in the program"),
        pytest.param([SECOND], [], "This program lacks its migration 1", id="no first step"),
        pytest.param([FIRST, SECOND, BROKEN], [FIRST, BROKEN], "The database lacks migration 2", id="a gap"),
        pytest.param([FIRST], [FIRST, SECOND], "at migration 2 and this program knows only 1", id="newer"),
        pytest.param(
            [FIRST, SECOND._replace(text="")],
            [FIRST, SECOND],
            r"Migration 2 \(second\) differs from the one",
            id="other",
        ),
    ],
)
def test_a_database_that_these_steps_cannot_have_made_is_refused(
    steps: list[Migration], done: list[Migration], complaint: str
) -> None:
    with pytest.raises(StoreError, match=complaint):
        pending(steps, applied(*done))


def test_a_schema_may_be_one_step_ahead_of_a_program_and_no_more() -> None:
    assert pending([FIRST], applied(FIRST, SECOND), ahead=1) == []
    with pytest.raises(StoreError, match="use a newer Kron"):
        pending([FIRST], applied(FIRST, SECOND, BROKEN), ahead=1)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_steps_of_this_program_have_no_gap(database: str) -> None:
    assert len(pending(steps_of(database), [])) >= 1


# --- both databases ------------------------------------------------------------------------------


async def test_steps_are_applied_once_and_noted(make: Make) -> None:
    assert await make([FIRST]).applied() == []
    assert await make([FIRST]).forward() == [FIRST]
    assert await make([FIRST, SECOND]).forward() == [SECOND]
    assert await make([FIRST, SECOND]).forward() == []
    done = await make([FIRST, SECOND]).applied()
    assert [(step.number, step.name, step.checksum) for step in done] == [
        (step.number, step.name, step.checksum) for step in (FIRST, SECOND)
    ]
    assert all(step.applied_at.endswith("Z") and len(step.applied_at) == 20 for step in done)


async def test_a_step_that_fails_leaves_nothing_behind(make: Make) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        await make([FIRST, SECOND, BROKEN]).forward()
    assert await make([FIRST]).applied() == []
    assert await make([FIRST, SECOND]).forward() == [FIRST, SECOND]


async def test_a_newer_database_is_not_touched(make: Make) -> None:
    await make([FIRST, SECOND]).forward()
    with pytest.raises(StoreError, match="use a newer Kron"):
        await make([FIRST]).forward()
    assert len(await make([FIRST]).applied()) == 2


async def test_of_racing_programs_one_applies_each_step(make: Make) -> None:
    made = await asyncio.gather(*(make([FIRST, SECOND]).forward() for _ in range(5)))
    assert sorted(map(len, made)) == [0, 0, 0, 0, 2]


async def test_a_sqlite_store_migrates_itself_and_refuses_a_newer_schema(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    steps = steps_of("sqlite")
    store = SqliteStore(path)
    await stored(store, a_job())
    await store.close()
    assert await SqliteSchema(path).forward() == []
    newer = [*steps, Migration(len(steps) + 1, "a", "SELECT 1"), Migration(len(steps) + 2, "b", "SELECT 1")]
    await SqliteSchema(path, newer[:-1]).forward()
    store = SqliteStore(path)
    assert len(await store.cases(SPACE)) == 1
    await store.close()
    await SqliteSchema(path, newer).forward()
    store = SqliteStore(path)
    for _ in range(2):
        with pytest.raises(StoreError, match="use a newer Kron"):
            await store.cases(SPACE)
    await store.close()


async def test_a_job_that_its_definition_paused_is_suspended_after_the_migration(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    await SqliteSchema(path, steps_of("sqlite")[:2]).forward()
    insert = """INSERT INTO jobs (namespace, schedule_id, definition, launcher, launcher_kind, epoch,
        edited_at, born_at, revision, cursor, paused, paused_because, replay_count, failures, changed_at)
        VALUES (1, ?, '{"schedule":"* * * * *"}', '{}', 'callback', 1, 1, 1, 1, 1, 1, ?, 0, 0, 0)"""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO namespaces (number, name) VALUES (1, 'runner:main')")
        connection.executemany(insert, [("suspended", None), ("paused", "by hand")])
    store = SqliteStore(path)
    jobs = [state.job for state in await store.cases("runner:main")]
    flags = {job.identity: (job.suspended, job.paused) for job in jobs}
    assert flags == {"suspended": (1, 0), "paused": (0, 1)}
    await store.close()


# --- kron migrate --------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kron.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


def test_a_database_is_migrated_step_by_step(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", url, "--status"]) == NO
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [[str(step.number), step.name, "not", "applied"] for step in STEPS]
    assert run(["migrate", url, "--dry-run"]) == GOOD
    assert capsys.readouterr().out == "".join(f"would apply {step.number} {step.name}\n" for step in STEPS)
    assert run(["migrate", url]) == GOOD
    assert capsys.readouterr().out == "".join(f"applied {step.number} {step.name}\n" for step in STEPS)
    assert run(["migrate", url]) == GOOD
    assert capsys.readouterr().out == f"nothing to do: the database is at migration {len(STEPS)}\n"
    assert run(["migrate", url, "--status"]) == GOOD
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(int(number), name) for number, name, _ in shown] == [(step.number, step.name) for step in STEPS]
    assert all(at.endswith("Z") for _, _, at in shown)


def test_machines_read_the_same(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", url, "--dry-run", "--json"]) == GOOD
    would = json.loads(capsys.readouterr().out)
    steps = [{"number": step.number, "name": step.name} for step in STEPS]
    assert would == {"newest": len(STEPS), "dry_run": True, "steps": steps}
    assert run(["migrate", url, "--status", "--json"]) == NO
    status = json.loads(capsys.readouterr().out)
    assert status == {
        "at": 0,
        "newest": len(STEPS),
        "steps": [{**step, "applied_at": None} for step in steps],
    }
    assert run(["migrate", url, "--json"]) == GOOD
    assert json.loads(capsys.readouterr().out) == {**would, "dry_run": False}
    assert run(["migrate", url, "--status", "--json"]) == GOOD
    assert json.loads(capsys.readouterr().out)["at"] == len(STEPS)


def test_a_question_makes_no_file(tmp_path: Path) -> None:
    assert run(["migrate", f"sqlite:///{tmp_path}/kron.db", "--status"]) == NO
    assert run(["migrate", f"sqlite:///{tmp_path}/kron.db", "--dry-run"]) == GOOD
    assert list(tmp_path.iterdir()) == []


def test_a_newer_database_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kron.db"
    assert run(["migrate", f"sqlite:///{path}"]) == GOOD
    with closing(sqlite3.connect(path)) as connection:
        newer = (len(STEPS) + 1, "b", "c")
        connection.execute("INSERT INTO kron_migrations (number, name, checksum) VALUES (?, ?, ?)", newer)
        connection.commit()
    capsys.readouterr()
    for option in ([], ["--status"], ["--dry-run"]):
        assert run(["migrate", f"sqlite:///{path}", *option]) == BAD
        versions = f"at migration {len(STEPS) + 1} and this program knows only {len(STEPS)}"
        complaint = f"kron: The database is {versions}: use a newer Kron\n"
        assert capsys.readouterr().err == complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["memory://"], "a store in memory has no migrations"),
        (["kron.db"], "it is not a URL"),
        (["mysql://me@host/kron"], 'Invalid store "mysql://..."'),
        (["sqlite:///kron.db", "--status", "--dry-run"], "--status changes nothing"),
    ],
)
def test_a_url_that_cannot_be_migrated_is_an_error(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["migrate", *arguments]) == BAD
    said = capsys.readouterr().err
    assert complaint in said


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://me:hunter2@host/kron", 'Invalid store "mysql://..."'),
        ("postgresql://me:hunter2@127.0.0.1:1/kron", "The store cannot be used"),
    ],
)
def test_errors_about_the_store_of_the_environment_hide_its_password(
    url: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KRON_STORE", url)
    assert run(["migrate"]) == BAD
    said = capsys.readouterr().err
    assert complaint in said
    assert "hunter2" not in said


def test_without_a_url_the_store_of_the_settings_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "store.txt").write_text(f"sqlite:///{tmp_path}/kron.db")
    monkeypatch.setenv("KRON_STORE_FILE", str(tmp_path / "store.txt"))
    assert run(["migrate", "--status"]) == NO
    assert run(["migrate"]) == GOOD
    assert run(["migrate", "--status"]) == GOOD
