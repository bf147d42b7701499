"""The service part of the benchmark in the smallest size: every row has its figures."""

import pytest

from bench import service_share
from bench.place import postgres_server
from bench.row import Findings
from bench.service import ASKED, BULK, DUE, IDLE, LATE, UPSERT, Size, goals, measure

TINY = Size(upserts=5, bulk=50, due=20, shared=0, late=3, late_s=2.0, idle=100, idle_s=0.2)

DELAY = next(iter(service_share.DELAYS))
SHARED = service_share.title_of(DELAY)


@pytest.fixture(scope="module")
def found() -> Findings:
    return measure(lambda text: None, TINY)


@pytest.mark.slow
def test_every_row_has_its_figures(found: Findings) -> None:
    titles = [
        f"{title}, {place}" for place in ("SQLite", "PostgreSQL") for title in (UPSERT, BULK, DUE, ASKED)
    ]
    assert [row.title for row in found.rows] == [*titles, f"{LATE}, SQLite", f"{IDLE}, SQLite"]
    assert all(row.cost and row.cost > 0 for row in found.rows)


@pytest.mark.slow
def test_all_that_was_due_has_come(found: Findings) -> None:
    notes = [row.note for row in found.rows if row.title.startswith(DUE)]
    assert [note.startswith("20 of 20 schedules") for note in notes] == [True, True]
    assert [row.details["sent twice"] for row in found.rows if "sent twice" in row.details] == [0, 0]


@pytest.mark.slow
def test_every_goal_is_compared(found: Findings) -> None:
    assert [goal.what for goal in found.goals] == [goal.what for goal in goals([])]
    assert [goal.what for goal in found.goals if goal.met is None] == [SHARED]


@pytest.mark.slow
def test_workers_that_share_are_compared_with_one_alone() -> None:
    with postgres_server() as empty:
        rows = list(service_share.rows_of(empty, 20, {DELAY: service_share.DELAYS[DELAY]}))
    assert [(row.title, row.contender) for row in rows] == [
        (SHARED, "two kron workers"),
        (SHARED, "one kron worker"),
    ]
    assert all(row.cost and row.ratio for row in rows)
    assert [goal.met for goal in goals(rows) if goal.what == SHARED] != [None]
