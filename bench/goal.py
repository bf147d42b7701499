"""Goals as sentences: a cost with an upper bound, a rate or a ratio with a lower bound."""

from collections.abc import Sequence

from bench.row import Goal, Kind, Row, shown

NOT_MEASURED = "not measured"


def at_most(what: str, wanted: float, cost: float | None, *, kind: Kind = Kind.TIME) -> Goal:
    """Compare a cost with its upper bound."""
    return Goal(
        what=what,
        wanted=f"<= {shown(kind, wanted)}",
        measured=NOT_MEASURED if cost is None else shown(kind, cost),
        met=None if cost is None else cost <= wanted,
    )


def at_least(what: str, rate: float, cost: float | None, *, remark: str = "") -> Goal:
    """Compare a rate, given as seconds per call, with its lower bound."""
    return Goal(
        what=what,
        wanted=f">= {shown(Kind.RATE, 1 / rate)}{remark}",
        measured=NOT_MEASURED if cost is None else shown(Kind.RATE, cost),
        met=None if cost is None else cost <= 1 / rate,
    )


def row_of(rows: Sequence[Row], title: str, contender: str) -> Row | None:
    """Return one contender's row in one comparison."""
    return next((row for row in rows if row.title == title and row.contender == contender), None)


def cost_of(rows: Sequence[Row], title: str, contender: str) -> float | None:
    """Return the cost of one contender, or None if it was not measured."""
    row = row_of(rows, title, contender)
    return None if row is None else row.cost


def detail_of(rows: Sequence[Row], title: str, contender: str, name: str) -> float | None:
    """Return a detail of one contender's row, or None if it was not measured."""
    row = row_of(rows, title, contender)
    found = None if row is None else row.details.get(name)
    return None if found is None else float(found)
