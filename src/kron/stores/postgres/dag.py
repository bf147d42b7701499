"""DAG runs in a PostgreSQL database, over separate connections."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from kron.stores.dag import DagTables, Row, Work, dag_statements
from kron.stores.postgres.connection import PostgresPool
from kron.stores.postgres.schema import Connection

SQL = {name: text.encode() for name, text in dag_statements(lambda name: f"%({name})s").items()}
MAX_CONNECTIONS = 4
# The advisory lock that claims of all workers take turns with; the limits count the tasks of all of them.
LOCK = b"SELECT pg_advisory_xact_lock(hashtextextended('kron dag claims ' || current_schema(), 0))"
T = TypeVar("T")


def postgres_dags(url: str) -> DagTables:
    """Return the DAG runs in a database; it is opened at the first use."""
    return DagTables(PostgresDatabase(url))


class PostgresTransaction:
    """A transaction over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def rows(self, name: str, values: Mapping[str, object]) -> Sequence[Row]:
        """Return all rows of a statement."""
        return await (await self._connection.execute(SQL[name], values)).fetchall()

    async def count(self, name: str, values: Mapping[str, object]) -> int:
        """Return how many rows a statement wrote."""
        return (await self._connection.execute(SQL[name], values)).rowcount

    async def many(self, name: str, values: Iterable[Mapping[str, object]]) -> None:
        """Execute a statement for each set of values."""
        async with self._connection.cursor() as cursor:
            await cursor.executemany(SQL[name], values)


class PostgresDatabase:
    """A few connections to one database."""

    def __init__(self, url: str) -> None:
        pool = PostgresPool(url, min_size=0, max_size=MAX_CONNECTIONS)
        self._connection = pool.connection
        self.close = pool.close

    async def do(self, work: Work[T], *, exclusive: bool = False) -> T:
        """Run work in one transaction."""
        async with self._connection() as connection, connection.transaction():
            if exclusive:
                await connection.execute(LOCK)
            return await work(PostgresTransaction(connection))

    async def read(self, work: Work[T]) -> T:
        """Run work that writes nothing in one transaction."""
        return await self.do(work)
