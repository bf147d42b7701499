"""The SQLite store: locks, one file for several processes, full disks, damaged files."""

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from kron.core.errors import OwnedError, StoreError
from kron.core.plan.incident import KILLED, detail_of
from kron.core.plan.query import AuditFilter, JobFilter, RunSpan
from kron.core.plan.record import AuditRecord
from kron.stores.migration import SqliteSchema
from kron.stores.sqlite.file import connect
from kron.stores.sqlite.store import SQL, SqliteStore
from kron.stores.sqlite.write import SHORT_MS, Prepared, Writing, encoded, prepare
from kron.stores.statement import NEAR_S, jobs_statement, statements, tally_statement
from kron.testing.store_contract import (
    CLEAN,
    NOON,
    NOW,
    SPACE,
    a_change,
    a_job,
    a_run,
    plain,
    stored,
    written,
)

# A process that owns a namespace until it is killed.
OWNER = """
import asyncio, sys
from kron.stores.sqlite.store import SqliteStore
async def main():
    ownership = await SqliteStore(sys.argv[1]).acquire(sys.argv[2], "other process")
    print(ownership.token, flush=True)
    sys.stdin.read()
asyncio.run(main())
"""
# A process that writes many jobs, one by one.
WRITER = """
import asyncio, sys
from kron.stores.sqlite.store import SqliteStore
from kron.testing.store_contract import CLEAN, NOW, a_job
async def main():
    store = SqliteStore(sys.argv[1])
    path, namespace, name, count = sys.argv[1:]
    for n in range(int(count)):
        assert await store.put(namespace, created=[a_job(f"{name} {n}")], changed=[], now=NOW) == CLEAN
    await store.close()
asyncio.run(main())
"""

# How a connection to a file is set up; `synchronous` 2 is FULL.
PRAGMAS = {"busy_timeout": SHORT_MS, "journal_mode": "wal", "synchronous": 2}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "kron.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, busy_ms=50)
    yield store
    await store.close()


def process(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# --- locks ---------------------------------------------------------------------------------------


async def test_another_process_owns_until_it_dies(store: SqliteStore, path: str) -> None:
    with process(OWNER, path, SPACE) as other:
        assert other.stdout is not None
        token = int(other.stdout.readline())
        with pytest.raises(OwnedError):
            await store.acquire(SPACE, "me")
        assert (await store.acquire("embed:other", "me")).token == 1
        other.kill()
        other.wait()
    ownership = await store.acquire(SPACE, "me")
    assert ownership.token > token


async def test_another_store_of_the_same_process_is_another_owner(store: SqliteStore, path: str) -> None:
    ownership = await store.acquire(SPACE, "me")
    other = SqliteStore(path)
    with pytest.raises(OwnedError):
        await other.acquire(SPACE, "you")
    await store.release(ownership)
    assert (await other.acquire(SPACE, "you")).token > ownership.token
    await other.close()


async def test_dropped_locks_are_free_as_after_a_death_and_stale_writes_are_refused(
    store: SqliteStore, path: str
) -> None:
    (job,) = await stored(store, a_job())
    ownership = await store.acquire(SPACE, "me")
    store.drop_locks()
    other = SqliteStore(path)
    later = await other.acquire(SPACE, "you")
    with pytest.raises(OwnedError):
        await store.settle(ownership, [a_change(job)], now=NOW)
    assert await other.settle(later, [a_change(job)], now=NOW) == CLEAN
    await other.close()


async def test_another_store_sees_by_the_lock_whether_the_owner_lives(store: SqliteStore, path: str) -> None:
    ownership = await store.acquire(SPACE, "me", now=NOW)
    other = SqliteStore(path)
    assert await other.absence(SPACE, 0) is None
    assert [(lease.owner, lease.is_alive) for lease in await other.leases(SPACE)] == [("me", True)]
    # An idle owner writes its time alone.
    await store.settle(ownership, (), now=NOW + 50)
    store.drop_locks()
    assert [(lease.owner, lease.is_alive) for lease in await other.leases(SPACE)] == [("me", False)]
    outage = await other.absence(SPACE, 0)
    assert outage is not None
    assert (outage.actor, outage.from_at, detail_of(outage)["ending"]) == ("me", NOW + 50, KILLED)
    await other.close()


class LockProbe:
    """Tries to write after each statement that the store's thread executes; `refused` counts failures."""

    def __init__(self, path: str) -> None:
        self._connection = connect(path, busy_ms=0)
        self.statements = self.refused = 0

    def __call__(self, frame: FrameType, event: str, function: object) -> None:
        statement = getattr(function, "__self__", None)
        if event != "c_return" or not isinstance(statement, sqlite3.Connection | sqlite3.Cursor):
            return
        if statement is self._connection:
            return
        self.statements += 1
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            self.refused += 1


async def test_no_python_runs_while_a_put_holds_the_write_lock(path: str) -> None:
    """The interpreter's lock may be held for a second by another thread, and every start would wait too."""
    with closing(connect(path)):
        probe = LockProbe(path)
    threading.setprofile(probe)
    store = SqliteStore(path)
    try:
        await store.cases(SPACE)
    finally:
        threading.setprofile(None)
    # Opening the file and numbering a namespace take the lock once.
    probe.refused = 0
    jobs = await stored(store, *(a_job(f"job {number}") for number in range(1_000)))
    changes = [replace(a_change(job), inserts=[a_run(job.identity)]) for job in jobs]
    entry = AuditRecord(NOW, "ann", None, "update", "job 0", None, None, None)
    audit = [entry] * len(jobs)
    assert await store.put(SPACE, created=[], changed=changes, audit=audit, now=NOW) == CLEAN
    refused = await store.put(SPACE, created=[jobs[0]], changed=changes[:1], audit=[entry], now=NOW)
    assert refused.stale_jobs == {"job 0"}
    await store.put(SPACE, created=[], changed=[], forgotten=["job 1"], now=NOW)
    await store.forget(SPACE, ["job 2"])
    assert len(await store.cases(SPACE)) == 998
    assert len(await store.audits(SPACE, AuditFilter(), limit=2_000)) == 1_000
    assert probe.statements > 10
    assert probe.refused == 0
    await store.close()


@pytest.mark.parametrize("count", [1, 2])
def test_an_incident_is_closed_without_reading_those_of_other_schedules(path: str, count: int) -> None:
    close = statements("sqlite")["close_incident"]
    if count > 1:
        rows = [(60 + number, None, 1, f"job {number}", "paused") for number in range(count)]
        # Those of many are closed by one statement.
        close = encoded(Prepared(close, rows=rows)).statement
        assert "json_each" in close
    with closing(connect(path)) as connection:
        values = (None,) * close.count("?")
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {close}", values)]
    assert "SEARCH incidents USING INTEGER PRIMARY KEY (rowid=?)" in plan
    assert "SEARCH open USING INDEX incidents_of_schedule (namespace=? AND schedule_id=?)" in plan
    assert not [step for step in plan if step.startswith(("SCAN incidents", "SCAN open"))]
    first = plan[0]
    assert first.startswith("SCAN json_each" if count > 1 else "SEARCH incidents"), plan


def test_the_incidents_of_a_schedule_are_read_without_those_of_others(path: str) -> None:
    with closing(connect(path)) as connection:
        read = f"EXPLAIN QUERY PLAN {statements('sqlite')['incidents']}"
        values = {"namespace": 1, "name": "job 7", "since": 0, "until": 9, "limit": 200}
        plan = [row[3] for row in connection.execute(read, values)]
    by_number = "SEARCH incidents USING INTEGER PRIMARY KEY (rowid=?)"
    index = "SEARCH incidents USING COVERING INDEX incidents_of_schedule (namespace=? AND schedule_id=?)"
    assert [step for step in plan if " incidents " in step] == [by_number, index, index], plan


def test_a_write_of_a_run_builds_no_table_of_its_own(path: str) -> None:
    """A condition of an index with a list after IN would build one at each write."""
    writes = [
        "INSERT INTO runs (job, nominal_time, status) VALUES (1, 1, 'SUCCESS')",
        "UPDATE runs SET status = 'SUCCESS', is_open = 0 WHERE rowid = 1",
    ]
    with closing(connect(path)) as connection:
        for write in writes:
            assert "OpenEphemeral" not in [row[1] for row in connection.execute(f"EXPLAIN {write}")]


async def test_a_text_with_a_nul_is_stored_whole(store: SqliteStore) -> None:
    """SQLite's JSON functions would cut it."""
    jobs = [a_job(f"job {number}")._replace(launcher='{"a": "\\u0000\0b"}') for number in range(20)]
    assert {job.launcher for job in await stored(store, *jobs)} == {jobs[0].launcher}


@pytest.mark.parametrize("other", ["embed-main", "embed.main", "embed::main", "embed:main "])
async def test_namespaces_with_similar_names_have_locks_of_their_own(store: SqliteStore, other: str) -> None:
    await store.acquire("embed:main", "me")
    await store.acquire(other, "me")


async def test_a_namespace_may_have_any_name(store: SqliteStore) -> None:
    for name in ("runner:" + "x" * 300, "runner:../../etc", "runner:für alle 👩‍🚀"):
        ownership = await store.acquire(name, "me")
        await stored(store, a_job(), namespace=name)
        await store.release(ownership)


# --- one file, several processes -----------------------------------------------------------------


async def test_processes_write_to_one_file_side_by_side(store: SqliteStore, path: str) -> None:
    """They open a new file at once, and none loses a write."""
    count = 40
    writers = [process(WRITER, path, SPACE, name, str(count)) for name in ("one", "two", "three")]
    codes = await asyncio.gather(*(asyncio.to_thread(writer.wait, 60) for writer in writers))
    for writer in writers:
        writer.communicate()
    assert codes == [0, 0, 0]
    names = {case.job.identity for case in await store.cases(SPACE)}
    assert names == {f"{name} {n}" for name in ("one", "two", "three") for n in range(count)}


async def test_an_edit_by_another_process_is_noticed(store: SqliteStore, path: str) -> None:
    ownership = await store.acquire(SPACE, "me")
    (job,) = await stored(store, a_job())
    other = SqliteStore(path)
    assert await other.put(SPACE, created=[], changed=[a_change(job, paused=1)], now=NOW) == CLEAN
    await other.close()
    assert (await store.settle(ownership, [a_change(job)], now=NOW)).stale_jobs == {"backup"}


async def test_every_commit_is_on_disk_and_readers_do_not_wait(store: SqliteStore, path: str) -> None:
    await stored(store, a_job())
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM schedules").fetchone() == (1,)
        await stored(store, a_job("second"))
        assert reader.execute("SELECT count(*) FROM schedules").fetchone() == (1,)
        reader.rollback()
        assert reader.execute("SELECT count(*) FROM schedules").fetchone() == (2,)
    (synchronous,) = await store._do(lambda: store._open().execute("PRAGMA synchronous").fetchone())
    assert synchronous == 2


async def test_committed_jobs_are_there_after_reopening(path: str) -> None:
    first = SqliteStore(path)
    await stored(first, a_job())
    await first.close()
    second = SqliteStore(path)
    assert [plain(case.job) for case in await second.cases(SPACE)] == [a_job()]
    await second.close()


async def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "a" / "b" / "kron.db"))
    await store.acquire(SPACE, "me")
    await store.close()


# --- failures ------------------------------------------------------------------------------------


async def test_a_locked_database_is_an_error_that_passes(store: SqliteStore, path: str) -> None:
    ownership = await store.acquire(SPACE, "me")
    (job,) = await stored(store, a_job())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.settle(ownership, [a_change(job)], now=NOW)
        assert [case.job for case in await store.cases(SPACE)] == [job]
        other.execute("ROLLBACK")
    assert await store.settle(ownership, [a_change(job)], now=NOW) == CLEAN


async def test_a_full_disk_is_an_error_and_nothing_is_half_written(store: SqliteStore) -> None:
    ownership = await store.acquire(SPACE, "me")
    (job,) = await stored(store, a_job())

    def set_room(pages: int) -> None:
        connection = store._open()
        (used,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {used + pages}")

    await store._do(set_room, 2)
    change = a_change(job)
    change.inserts += [a_run(nominal_time=NOW // 1000 + n, error="x" * 1_000) for n in range(200)]
    for _ in range(2):
        with pytest.raises(StoreError, match="full"):
            await store.settle(ownership, [change], now=NOW)
    assert [case.job for case in await store.cases(SPACE)] == [job]
    assert await store.runs(SPACE, "backup") == []
    await store._do(set_room, 10_000)
    assert await store.settle(ownership, [change], now=NOW) == CLEAN
    assert len(await store.runs(SPACE, "backup", limit=1_000)) == 200


async def test_a_row_that_cannot_be_read_is_a_fault_of_its_job_that_names_it(
    store: SqliteStore, path: str
) -> None:
    ownership = await store.acquire(SPACE, "me")
    await stored(store, a_job("bad"), a_job("good"))
    await written(store, ownership, a_run("bad"), a_run("good"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE runs SET status = 'WHAT' WHERE idempotency_key = ?", [a_run("bad").key])
        other.commit()
    cases = {case.job.identity: case for case in await store.cases(SPACE)}
    assert a_run("bad").key in (cases["bad"].fault or "")
    assert "WHAT" in (cases["bad"].fault or "")
    assert cases["good"].fault is None
    assert list(cases["good"].runs) == [a_run("good")]
    assert await store.runs(SPACE, "bad") == []


def test_a_file_that_is_no_database_is_an_error_and_stays_as_it_is(path: str) -> None:
    text = "this is not a database, and long enough to be taken for one " * 20
    Path(path).write_text(text)

    async def try_twice() -> None:
        store = SqliteStore(path)
        for _ in range(2):
            with pytest.raises(StoreError, match="not a database"):
                await store.cases(SPACE)
        await store.close()

    asyncio.run(try_twice())
    assert Path(path).read_text() == text


async def test_a_path_that_is_a_folder_is_an_error(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path))
    with pytest.raises(StoreError, match="The store cannot be used"):
        await store.cases(SPACE)
    await store.close()


async def test_only_its_owner_can_read_a_new_file_and_an_old_one_stays_as_it_is(tmp_path: Path) -> None:
    new, old, migrated = tmp_path / "new.db", tmp_path / "old.db", tmp_path / "migrated.db"
    old.touch()
    old.chmod(0o640)
    for path in (new, old):
        store = SqliteStore(str(path))
        assert await store.put(SPACE, created=[a_job("x")], changed=[], now=NOW) == CLEAN
        for suffix in ("-wal", "-shm"):
            assert os.stat(f"{path}{suffix}").st_mode == os.stat(path).st_mode
        await store.close()
    await SqliteSchema(str(migrated)).forward()
    modes = [path.stat().st_mode & 0o777 for path in (new, old, migrated)]
    assert modes == [0o600, 0o640, 0o600]


async def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SqliteStore(str(tmp_path / "file" / "kron.db"))
    with pytest.raises(StoreError, match="The store cannot be used"):
        await store.acquire(SPACE, "me")
    await store.close()


async def test_a_damaged_run_is_left_out_of_the_newest_of_many_jobs(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    store = SqliteStore(path)
    await stored(store, a_job("one"), a_job("two"))
    runs = [a_run(name, NOW // 1000 + n) for name in ("one", "two") for n in (0, 1)]
    await written(store, await store.acquire(SPACE, "me"), *runs)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET status = 'ODD' WHERE idempotency_key = ?", [runs[1].key])
    found = await store.newest_runs(SPACE, ["one", "two"], limit=5)
    assert found == {"one": [runs[0]], "two": [runs[3], runs[2]]}
    await store.close()


# --- listings during writes ----------------------------------------------------------------------


async def test_the_runs_of_nearly_all_jobs_are_those_of_all_without_the_others() -> None:
    store, hour_ms = SqliteStore(), 3_600_000
    ownership = await store.acquire(SPACE, "a")
    most, few = (json.dumps({"user_id": user}) for user in ("most", "few"))
    jobs = [a_job(f"{number}", launcher=most) for number in range(5)]
    gone = a_job("gone", launcher=most)._replace(deleted_at=NOW)
    await stored(store, *jobs, a_job("other", launcher=few), a_job("nobody"), gone)
    times = [(job, number) for job in ("0", "3", "other", "nobody", "gone") for number in range(1, 4)]
    runs = [
        a_run(
            name, NOON + 3_600 * number, fire_time=NOW + hour_ms * number, created_at=NOW + hour_ms * number
        )
        for name, number in times
    ]
    # Of another job, recorded long after its nominal time.
    late = a_run("other", NOON - 360_000, fire_time=NOW + hour_ms, created_at=NOW + hour_ms)
    await written(store, ownership, *runs, late)
    span = RunSpan(NOW, NOW + 6 * hour_ms, hour_ms, NOW + 3 * hour_ms + 1_000)
    wanted = JobFilter(users=["most"])
    assert await store.count_made(SPACE, JobFilter(), span) == {1: 6, 2: 5, 3: 5}
    for store.max_others in (10_000, 0):
        assert await store.count_made(SPACE, wanted, span) == {1: 2, 2: 2, 3: 2}, store.max_others
        assert await store.count_made(SPACE, JobFilter(users=["no one"]), span) == {}
    await store.close()


async def test_a_listing_does_not_wait_for_a_write(path: str) -> None:
    store = SqliteStore(path, busy_ms=60_000)
    await stored(store, a_job("known"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        putting = asyncio.create_task(store.put(SPACE, created=[a_job("new")], changed=[], now=NOW))
        await asyncio.sleep(0)
        found = await store.find_jobs(SPACE, JobFilter())
        assert [each.job.identity for each in found] == ["known"]
        assert await store.runs(SPACE, "known") == []
        assert not putting.done()
        other.execute("ROLLBACK")
    assert await putting == CLEAN
    found = await store.find_jobs(SPACE, JobFilter())
    assert [each.job.identity for each in found] == ["known", "new"]
    await store.close()


async def test_a_listing_sees_every_earlier_commit(store: SqliteStore) -> None:
    for number in range(20):
        await stored(store, a_job(f"job {number:02}"))
        found = await store.find_jobs(SPACE, JobFilter(), limit=100)
        assert len(found) == number + 1


async def test_a_question_that_takes_too_long_is_given_up_and_the_next_is_answered(
    tmp_path: Path,
) -> None:
    store = SqliteStore(str(tmp_path / "kron.db"))
    store.max_steps = 200_000
    names = [f"{number:06}" for number in range(50_000)]
    await store.put(SPACE, created=[a_job(name) for name in names], changed=[], now=NOW)
    with pytest.raises(StoreError, match="interrupted"):
        # No name matches, so that all of them are scanned.
        await store.find_jobs(SPACE, JobFilter(search="nobody"), limit=1)
    assert [found.job.identity for found in await store.find_jobs(SPACE, JobFilter(), limit=1)] == ["000000"]
    await store.close()


def test_many_runs_of_one_job_are_written_without_comparing_each_with_all(path: str) -> None:
    """A backfill of 1,000 periods held the worker for half a second."""
    change = a_change(a_job())
    change.updates += [a_run(nominal_time=NOON + 60 * number) for number in range(2)]
    (update,) = [encoded(each) for each in prepare(1, [change], NOW) if "UPDATE runs" in each.statement]
    with closing(connect(path)) as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {update.statement}", update.values)
        plan = [row[3] for row in rows]
    assert plan == [
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "SEARCH runs USING INDEX sqlite_autoindex_runs_1 (job=? AND nominal_time=? AND slot=?)",
    ]


def plan_of(connection: sqlite3.Connection, statement: str) -> str:
    names = set(re.findall(r":(\w+)", statement))
    plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", dict.fromkeys(names, 1))
    return "\n".join(row[3] for row in plan)


def test_the_runs_of_few_jobs_are_read_by_their_history_and_of_that_only_the_time_in_view(path: str) -> None:
    """The runs of a month of all tenants may be a thousand times those of one, as may its own history."""
    with closing(connect(path)) as connection:
        plan = plan_of(connection, tally_statement(SQL, JobFilter(users=["u"]), not_ok=False, by_job=True))
    assert (
        "SEARCH runs USING INDEX sqlite_autoindex_runs_1 (job=? AND nominal_time>? AND nominal_time<?)"
        in plan
    )
    assert "SEARCH runs USING INDEX runs_apart (job=? AND made_at>? AND made_at<?)" in plan
    assert "runs_made" not in plan
    assert not re.search("SCAN (runs|ranges|jobs)", plan)


@pytest.mark.parametrize("users", [None, ["u"]])
def test_what_did_not_succeed_is_counted_without_a_look_at_the_runs(
    path: str, users: list[str] | None
) -> None:
    with closing(connect(path)) as connection:
        plan = plan_of(connection, tally_statement(SQL, JobFilter(users=users), not_ok=True))
    assert "SEARCH runs USING COVERING INDEX runs_problems (namespace=? AND made_at>? AND made_at<?)" in plan
    assert not re.search("SCAN (runs|jobs)", plan)


def test_the_runs_of_each_column_are_counted_in_its_range_of_an_index(path: str) -> None:
    with closing(connect(path)) as connection:
        plan = plan_of(connection, SQL["count_made"])
    assert "SEARCH runs USING COVERING INDEX runs_made (namespace=? AND made_at>? AND made_at<?)" in plan
    assert "TEMP B-TREE" not in plan


def test_a_run_on_time_is_in_no_index_of_those_recorded_apart(path: str) -> None:
    """Then it costs a start nothing."""
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for kind, nominal_time in (("near", 10_000 - NEAR_S), ("apart", 10_000 - NEAR_S - 1)):
            connection.execute(
                """INSERT INTO runs (idempotency_key, schedule_id, nominal_time, fire_time, status, reason,
                made_at, epoch, is_open, kind, attempt, token, acked, namespace, job, slot, changed_at)
                VALUES (?, 'x', ?, 0, 'SUCCESS', 'due', 10000000, 0, 0, 'period', 1, 1, 1, 1, 1, 0, 0)""",
                (kind, nominal_time),
            )
        rows = connection.execute(
            "SELECT idempotency_key FROM runs INDEXED BY runs_apart "
            "WHERE abs(made_at - 1000 * nominal_time) > 3600000"
        )
        assert rows.fetchall() == [("apart",)]


def test_a_job_is_found_by_its_name_and_not_read_for_another_user(path: str) -> None:
    """Every answer about one schedule looks for it; what another has must not show in how long that takes."""
    with closing(connect(path)) as connection:
        plan = plan_of(connection, jobs_statement(SQL, JobFilter(names=["a"])))
        own = plan_of(connection, jobs_statement(SQL, JobFilter(names=["a"], users=["u"])))
    assert "(namespace=? AND schedule_id=?)" in plan
    assert "USING INDEX jobs_user (namespace=? AND <expr>=? AND schedule_id=?)" in own


def test_a_connection_waits_for_other_writers_as_long_as_it_was_told_and_syncs_every_commit(
    tmp_path: Path,
) -> None:
    connection = connect(str(tmp_path / "kron.db"), busy_ms=1_234)
    settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    assert settings == PRAGMAS
    assert connection.tries * SHORT_MS == 1_230
    connection.close()


async def test_a_transaction_waits_for_a_writer_in_many_short_times(path: str) -> None:
    """Between two looks of one long wait SQLite pauses for a tenth of a second, and misses short gaps."""
    with closing(connect(path, busy_ms=60_000)) as connection, closing(sqlite3.connect(path)) as other:
        other.isolation_level = None
        assert connection.execute("PRAGMA busy_timeout").fetchone()[0] <= 10
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(asyncio.to_thread(write_once, connection))
        # Longer than any of these times.
        await asyncio.sleep(10 * SHORT_MS / 1000)
        assert not writing.done()
        other.execute("ROLLBACK")
        await writing


def write_once(connection: sqlite3.Connection) -> None:
    with Writing(connection):
        pass
