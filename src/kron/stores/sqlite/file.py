"""Connections to a SQLite file: to write, to list within a bound, or a separate one for single calls."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TypeVar

from kron.stores.migration import bring_up, make_private
from kron.stores.sqlite.write import PRIMARY, PatientConnection, translated

MEMORY = ":memory:"
# The steps SQLite's virtual machine may take for one listing, about a minute's work, and between two checks.
MAX_STEPS, STEPS_PER_CHECK = 4_000_000_000, 100_000
# How long a statement waits for another process's write before it fails.
BUSY_MS = 5_000
# How much of a file a connection keeps in memory; the default of SQLite.
CACHE_KIB = 2_000

# Errors of a file that is no database or cannot be opened or written, by the first byte of their codes.
UNUSABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB)

# Work that is followed by a rest, and the longest rest, in seconds: longer than the longest pause of another
# program between two attempts to lock a file, a tenth of a second where SQLite alone decides.
LONG_S, MAX_REST_S = 0.01, 0.12

T = TypeVar("T")


def connect(path: str, busy_ms: int = BUSY_MS, cache_kib: int = CACHE_KIB) -> PatientConnection:
    """Open a database file for one writer: WAL, every commit synced to disk, migrations applied."""
    try:
        return _connected(path, busy_ms, cache_kib)
    except sqlite3.Error as cause:
        if getattr(cause, "sqlite_errorcode", 0) & PRIMARY in UNUSABLE:
            # SQLite names no file, and a log has none beside it.
            raise type(cause)(f"{cause}: {path}") from cause
        raise


def _connected(path: str, busy_ms: int, cache_kib: int) -> PatientConnection:
    if path != MEMORY:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        make_private(path)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=64, factory=PatientConnection
    )
    try:
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
        if path != MEMORY:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        bring_up(connection)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        connection.wait_for_writers(busy_ms)
    except BaseException:
        connection.close()
        raise
    return connection


class StepBudget:
    """Interrupts a query that takes too many steps; SQLite calls it as a progress handler."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._max_checks = steps // STEPS_PER_CHECK
        self._checks = 0

    def reset(self) -> None:
        """Start counting for another query."""
        self._checks = 0

    def __call__(self) -> bool:
        """Return whether the query is to be interrupted."""
        self._checks += 1
        return self._checks > self._max_checks


class SqliteFile:
    """A separate connection to a file, opened at the first use. Its thread does one work after the other.

    Work that has begun is done to its end although its caller was cancelled, and the next one waits for it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        # Until when the thread rests, by the event loop's clock.
        self._rest_until = 0.0

    async def do(self, work: Callable[[sqlite3.Connection], T], *, rests: bool = True) -> T:
        """Run work with the connection; the errors of the database become StoreError.

        After long work that writes it rests for as long: a connection that waits for the only writer's place
        asks for it every few milliseconds, and would not get it between two works in a row.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "kron-file")
        time = asyncio.get_running_loop().time
        return await asyncio.wrap_future(
            self._thread.submit(translated, self._with_connection, (work, time, rests))
        )

    def _with_connection(
        self, work: Callable[[sqlite3.Connection], T], time: Callable[[], float], rests: bool
    ) -> T:
        began = time()
        if rests and began < self._rest_until:
            Event().wait(self._rest_until - began)
            began = time()
        try:
            if self._connection is None:
                self._connection = connect(self._path)
            return work(self._connection)
        finally:
            ended = time()
            took = ended - began
            if rests and took > LONG_S:
                self._rest_until = ended + min(took, MAX_REST_S)

    async def close(self) -> None:
        """Close the file after the work that was asked for."""
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = thread.submit(self._close)
            thread.shutdown(wait=False)
            await asyncio.wrap_future(closing)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
