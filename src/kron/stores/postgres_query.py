"""One statement of PostgreSQL, and what it answers."""

from typing import Any

from kron.stores.postgres_schema import Connection
from kron.stores.statement import statements

SQL = statements("postgres")


async def rows_of(connection: Connection, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return all rows a statement finds."""
    return await (await connection.execute(statement.encode(), values)).fetchall()


async def count_of(connection: Connection, statement: str, values: dict[str, Any]) -> int:
    """Return how many rows a statement wrote."""
    return (await connection.execute(statement.encode(), values)).rowcount
