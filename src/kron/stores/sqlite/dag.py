"""DAG runs in a SQLite file, or in memory, over a separate connection."""

import sqlite3
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kron.stores.dag import DagTables, Row, Work, dag_statements
from kron.stores.sqlite.file import MEMORY, SqliteFile
from kron.stores.sqlite.write import Reading, Writing

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
    """One connection; SQLite has one writer, so every transaction that writes is exclusive."""

    def __init__(self, path: str) -> None:
        self._file = SqliteFile(path)

    async def do(self, work: Work[T], *, exclusive: bool = False) -> T:
        """Run work that writes in one transaction."""

        def in_transaction(connection: sqlite3.Connection) -> T:
            with Writing(connection):
                return _driven(work(SqliteTransaction(connection)))

        return await self._file.do(in_transaction)

    async def read(self, work: Work[T]) -> T:
        """Run work that writes nothing; it waits for no writer, and sees one state of the file."""

        def in_transaction(connection: sqlite3.Connection) -> T:
            with Reading(connection):
                return _driven(work(SqliteTransaction(connection)))

        return await self._file.do(in_transaction, rests=False)

    async def close(self) -> None:
        """Close the file."""
        await self._file.close()


def _driven(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a transaction waits for nothing but its statements")
