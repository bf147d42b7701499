"""DAG runs in a SQLite file, or in memory, over a separate connection."""

import asyncio
import sqlite3
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kron.core.errors import StoreUnavailableError
from kron.stores.dag import DagTables, Row, Work, dag_statements
from kron.stores.sqlite.store import MEMORY, connect
from kron.stores.sqlite.write import Writing

SQL = dag_statements(lambda name: f":{name}")
T = TypeVar("T")


def sqlite_dags(path: str = MEMORY) -> DagTables:
    """Return the DAG runs in a file; it is opened at the first use."""
    return DagTables(SqliteDatabase(path))


class SqliteTransaction:
    """A transaction whose statements never wait, so that its work is run in a thread in one piece."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def rows(self, name: str, values: Mapping[str, object]) -> Sequence[Row]:
        """Return all rows of a statement."""
        return self._connection.execute(SQL[name], values).fetchall()

    async def count(self, name: str, values: Mapping[str, object]) -> int:
        """Return how many rows a statement wrote."""
        return self._connection.execute(SQL[name], values).rowcount

    async def many(self, name: str, values: Iterable[Mapping[str, object]]) -> None:
        """Execute a statement for each set of values."""
        self._connection.executemany(SQL[name], values)


class SqliteDatabase:
    """One connection; SQLite has one writer, so every transaction is exclusive."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = asyncio.Lock()
        self._connection: sqlite3.Connection | None = None

    async def do(self, work: Work[T], *, exclusive: bool = False) -> T:
        """Run work in one transaction."""
        async with self._mutex:
            return await asyncio.to_thread(self._do, work)

    def _do(self, work: Work[T]) -> T:
        try:
            if self._connection is None:
                self._connection = connect(self._path)
            with Writing(self._connection) as connection:
                return _driven(work(SqliteTransaction(connection)))
        except (sqlite3.Error, OSError) as cause:
            raise StoreUnavailableError(f"The store cannot be used: {cause}", cause=cause) from cause

    async def close(self) -> None:
        """Close the file."""
        async with self._mutex:
            connection, self._connection = self._connection, None
            if connection is not None:
                await asyncio.to_thread(connection.close)


def _driven(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a transaction waits for nothing but its statements")
