"""A separate connection to a file does one work after the other, and leaves the writer's place to others."""

import asyncio
import os
import sqlite3
import threading
import time
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest

from kron.stores.dag import Transaction
from kron.stores.sqlite.dag import SqliteDatabase
from kron.stores.sqlite.file import LONG_S, MAX_REST_S, SqliteFile
from kron.stores.sqlite.store import SqliteStore
from kron.stores.sqlite.write import PART_ROWS
from kron.testing.store_contract import CLEAN, NOW, SPACE, a_job, stored


async def test_a_long_list_of_new_jobs_takes_little_memory_beside_its_records(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "kron.db"))
    await stored(store, a_job())
    # Fewer would not fill two parts; each record and each of its names is an object of its own.
    jobs = [a_job(f"job-{number}") for number in range(5 * PART_ROWS)]
    tracemalloc.start()
    try:
        assert await store.put(SPACE, created=jobs, changed=[], now=NOW) == CLEAN
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [state.job.identity for state in await store.cases(SPACE, ["job-0", f"job-{len(jobs) - 1}"])]
    # All rows at once are some 700 bytes for each job.
    assert most / len(jobs) < 400
    assert await store.put(SPACE, created=jobs[-1:], changed=[], now=NOW) != CLEAN
    # Of many jobs none is written if one of them is there.
    again = [*(a_job(f"other-{number}") for number in range(PART_ROWS)), jobs[0]]
    assert (await store.put(SPACE, created=again, changed=[], now=NOW)).stale_jobs == {"job-0"}
    assert not await store.cases(SPACE, ["other-0"])
    await store.close()


async def test_after_long_work_a_connection_rests_for_as_long(tmp_path: Path) -> None:
    file, spans = SqliteFile(str(tmp_path / "kron.db")), list[tuple[float, float]]()

    def work(_: sqlite3.Connection) -> None:
        began = time.monotonic()
        time.sleep(5 * LONG_S)
        spans.append((began, time.monotonic()))

    await file.do(lambda _: None)
    await asyncio.gather(*(file.do(work) for _ in range(3)))
    await file.close()
    # However busy the machine is, the next one begins no sooner.
    for (began, ended), (following, _) in pairwise(spans):
        assert following - ended >= 0.9 * min(ended - began, MAX_REST_S)


async def test_cancelled_work_ends_before_the_next_begins(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "kron.db"))
    has_begun, may_end, ended = threading.Event(), threading.Event(), list[str]()

    async def held(_: Transaction) -> None:
        has_begun.set()
        may_end.wait(60)
        ended.append("held")

    async def following(_: Transaction) -> None:
        ended.append("following")

    first = asyncio.create_task(database.do(held))
    await asyncio.to_thread(has_begun.wait, 60)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    # Both would be in one transaction of the one connection.
    second = asyncio.create_task(database.do(following))
    closing = asyncio.create_task(_closed_after(second, database))
    await asyncio.sleep(0.05)
    may_end.set()
    await closing
    assert ended == ["held", "following"]


async def test_a_database_of_dag_runs_leaves_no_file_open(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "kron.db"))

    async def nothing(_: Transaction) -> None:
        assert files_open_in(tmp_path)

    await database.do(nothing)
    await database.close()
    assert files_open_in(tmp_path) == []


def files_open_in(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open."""
    files = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return [file for file in files if file.startswith(str(folder))]


async def _closed_after(work: "asyncio.Task[None]", database: SqliteDatabase) -> None:
    await work
    await database.close()


async def test_a_file_is_closed_after_the_work_of_a_cancelled_caller(tmp_path: Path) -> None:
    file, has_begun, may_end = SqliteFile(str(tmp_path / "kron.db")), threading.Event(), threading.Event()
    ended = list[object]()

    def work(connection: sqlite3.Connection) -> None:
        has_begun.set()
        may_end.wait(60)
        ended.append(connection.execute("SELECT 1").fetchone())

    task = asyncio.create_task(file.do(work))
    await asyncio.to_thread(has_begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0.05)
    may_end.set()
    await closing
    assert ended == [(1,)]


async def test_the_rest_after_long_work_delays_the_next_work_not_its_own_answer(tmp_path: Path) -> None:
    file, now = SqliteFile(str(tmp_path / "kron.db")), asyncio.get_running_loop().time
    longest = 0.0
    for _ in range(20):
        await file.do(lambda _: time.sleep(5 * LONG_S))
        answered = now()
        longest = max(longest, await file.do(lambda _: time.monotonic()) - answered)
        if longest >= 2 * LONG_S:
            break
    await file.close()
    assert longest >= 2 * LONG_S
