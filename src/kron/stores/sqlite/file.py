"""Opens the file of a SQLite store, or its memory, for one writer."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kron.core.errors import StoreError
from kron.stores.migration import bring_up, make_private

MEMORY = ":memory:"
# The steps SQLite's virtual machine may take for one listing, about a minute's work, and between two checks.
MAX_STEPS, STEPS_PER_CHECK = 4_000_000_000, 100_000
# How long a statement waits for another process's write before it fails.
BUSY_MS = 5_000

T = TypeVar("T")


def connect(path: str, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """Open a database file for one writer: WAL, every commit synced to disk, migrations applied."""
    if path != MEMORY:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        make_private(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=64)
    try:
        connection.execute(f"PRAGMA busy_timeout = {busy_ms}")
        if path != MEMORY:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        bring_up(connection)
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


def translated(work: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Run work with a database; its errors become StoreError."""
    try:
        return work(*arguments)
    except (sqlite3.Error, OSError) as cause:
        raise StoreError(f"The store cannot be used: {cause}", cause=str(cause)) from cause
