"""One statement of PostgreSQL, and what it answers."""

from collections.abc import Sequence
from typing import Any

from kron.stores.postgres.schema import Connection
from kron.stores.statement import statements

SQL = statements("postgres")
# The name of a job that has something to do, and when; a row may say more.
Due = tuple[Any, ...]


async def rows_of(connection: Connection, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return all rows a statement finds."""
    return await (await connection.execute(statement.encode(), values)).fetchall()


async def count_of(connection: Connection, statement: str, values: dict[str, Any]) -> int:
    """Return how many rows a statement wrote."""
    return (await connection.execute(statement.encode(), values)).rowcount


def first_of(jobs: Sequence[Due], runs: Sequence[Due], limit: int) -> tuple[dict[str, None], int | None]:
    """Return the names of so many jobs, oldest first, and when the first of those left over is due.

    Each list is the oldest of its kind and may have been cut behind its last entry.
    """
    names: dict[str, None] = {}
    for name, at in sorted([*jobs, *runs], key=lambda due: due[1]):
        if name not in names and len(names) == limit:
            return names, at
        names[name] = None
    cut = [due[-1][1] for due in (jobs, runs) if len(due) > limit]
    return names, min(cut, default=None)
