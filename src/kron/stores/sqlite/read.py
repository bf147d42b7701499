"""Rows that SQLite hands over in one piece.

Row by row, its thread would have to wait its turn for each of them in a program that is busy.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from kron.core.plan.record import JobRecord
from kron.stores.statement import statements

SQL = statements("sqlite")
# A record from as many columns as it has fields. `_make` counts them, which takes longer than all the rest.
job_of: Callable[[Iterable[Any]], JobRecord] = partial(tuple.__new__, JobRecord)


def rows_at_once(
    connection: sqlite3.Connection, name: str, values: Mapping[str, Any]
) -> Iterable[Sequence[Any]]:
    """Return the rows of a statement."""
    try:
        ((text,),) = connection.execute(_in_one_piece(name), values)
        rows: list[list[Any]] = json.loads(text)
    except (sqlite3.OperationalError, ValueError):
        # A damaged row may hold what JSON cannot.
        return connection.execute(SQL[name], values).fetchall()
    return rows


@cache
def _in_one_piece(name: str) -> str:
    """Return a statement whose answer is one text; its columns stand between SELECT and FROM."""
    columns = SQL[name].partition("FROM")[0].removeprefix("SELECT")
    return f"SELECT json_group_array(json_array({columns})) FROM ({SQL[name]})"  # noqa: S608 - our own text
