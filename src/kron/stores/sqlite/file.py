"""The file a SQLite store keeps, or the memory in its place, opened for one writer."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kron.core.errors import StoreError
from kron.stores.migration import bring_up, make_private

MEMORY = ":memory:"
# How many steps of its machine SQLite may take over one question of somebody who only looks, which is about a
# minute's work, and how often it is asked whether that is enough.
MAX_STEPS, STEPS_PER_LOOK = 4_000_000_000, 100_000
# How long a statement waits for another process that is writing before it fails.
BUSY_MS = 5_000

T = TypeVar("T")


def connect(path: str, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """Open a database file for one writer: WAL, every commit on disk before it counts, newest tables."""
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


class Patience:
    """Gives up a question that takes too many steps; SQLite asks it every so often."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._most = steps // STEPS_PER_LOOK
        self._looks = 0

    def renew(self) -> None:
        """Begin anew, for another question."""
        self._looks = 0

    def __call__(self) -> bool:
        """Say whether it is enough."""
        self._looks += 1
        return self._looks > self._most


def translated(work: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Do work with a database; what it fails with becomes an error of the store's."""
    try:
        return work(*arguments)
    except (sqlite3.Error, OSError) as cause:
        raise StoreError(f"The store cannot be used: {cause}", cause=str(cause)) from cause
