"""Columns of records as PostgreSQL arrays, written as one text each.

A busy chunk has twenty columns of a thousand values; a driver that adapts them one by one takes
longer over it than the database.
"""

from collections.abc import Iterable, Sequence

from kron.core.plan.record import JobRecord
from kron.stores.row import storable

# The fields of records that are texts; all others are integers.
TEXTS = frozenset(
    {
        "identity", "definition", "launcher", "launcher_kind", "past", "paused_because", "key", "status",
        "reason", "kind", "result", "error", "run_id", "outcome", "who", "request_id", "action", "user_id",
        "before", "after",
    }
)  # fmt: skip
# All of a job that PostgreSQL keeps; a number is SQLite's own name for it.
JOB = tuple(name for name in JobRecord._fields if name != "number")
# What may change of a run, by its key; and what is kept of an earlier attempt.
ENDED = (
    "key", "fire_time", "status", "reason", "epoch", "due_at", "is_open", "attempt", "token", "started_at",
    "ended_at", "result", "error", "run_id", "acked",
)  # fmt: skip
ATTEMPT = ("key", "attempt", "token", "started_at", "ended_at", "result", "error", "run_id")
# What other programs said of themselves, so it may hold what no database column can.
FOREIGN = frozenset({"error", "run_id", "paused_because", "before", "after", "request_id", "who", "user_id"})


def arrays(
    fields: Sequence[str], rows: Sequence[tuple[object, ...]], wanted: Iterable[str]
) -> dict[str, str]:
    """Return the wanted columns of rows by name."""
    columns = dict(zip(fields, zip(*rows, strict=True), strict=True))
    return {name: array(name, columns[name]) for name in wanted}


def array(name: str, column: Sequence[object]) -> str:
    """Return one column of texts or of integers."""
    if name not in TEXTS:
        return numbers(column)
    if name in FOREIGN:
        return texts([None if value is None else storable(str(value)) for value in column])
    return texts(column)


def numbers(column: Iterable[object]) -> str:
    """Return integers, some of which may be absent."""
    return "{" + str(list(column))[1:-1].replace("None", "NULL") + "}"


def texts(column: Sequence[object]) -> str:
    """Return texts, some of which may be absent."""
    if None in column:
        return "{" + ",".join(["NULL" if text is None else _quoted(str(text)) for text in column]) + "}"
    joined = '","'.join(column)  # type: ignore[arg-type]
    if "\\" in joined or joined.count('"') != 2 * max(len(column) - 1, 0):
        return "{" + ",".join([_quoted(str(text)) for text in column]) + "}"
    return f'{{"{joined}"}}' if column else "{}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
