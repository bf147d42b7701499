"""The embedded part of the benchmark in the smallest size: every comparison has its figures."""

import re
from datetime import timedelta
from importlib.util import find_spec

import pytest

from bench import embed
from bench.child import PROJECT
from bench.embed_goal import (
    APSCHEDULER_3,
    APSCHEDULER_4,
    KRON,
    LATE,
    PLACES,
    SHARE,
    SIZE,
    STANDINGS,
    due,
    goals,
    on,
    recovered,
    registered,
)
from bench.embed_task import before_minute
from bench.place import MEMORY, SQLITE
from bench.row import Findings, Kind, Row

COUNTS = (40, 80)
FEW = {APSCHEDULER_3: 10, APSCHEDULER_4: 5}
TINY = embed.Size(
    rounds=1, few=40, many=80, idle=100, idle_s=0.2, late_s=2.5, memory=FEW, durable=FEW
)  # fmt: skip
TITLES = (
    *(due(count, place) for count in COUNTS for place in PLACES),
    *map(recovered, COUNTS),
    *(registered(count, place) for count in COUNTS for place in PLACES),
    SIZE,
    SHARE,
    LATE,
)
INSTALLED = {
    APSCHEDULER_3: find_spec("apscheduler") is not None,
    APSCHEDULER_4: (PROJECT / ".cache" / "apscheduler4" / "apscheduler").is_dir(),
}

# The first test waits for all the processes.
pytestmark = pytest.mark.timeout(480)


@pytest.fixture(scope="module")
def found() -> Findings:
    return embed.measure(lambda _: None, TINY)


def row_of(found: Findings, title: str, contender: str) -> Row:
    (row,) = [row for row in found.rows if (row.title, row.contender) == (title, contender)]
    return row


def is_missing(row: Row) -> bool:
    """Return whether a row is of a peer that is not installed; on SQLite peers need SQLAlchemy as well."""
    durable = "SQLite" in row.title and find_spec("sqlalchemy") is None
    return row.contender in INSTALLED and (not INSTALLED[row.contender] or durable)


@pytest.mark.slow
def test_all_that_is_promised_is_measured(found: Findings) -> None:
    assert tuple(dict.fromkeys(row.title for row in found.rows)) == TITLES


@pytest.mark.slow
def test_each_contender_has_a_figure_unless_it_is_not_installed(found: Findings) -> None:
    for row in found.rows:
        assert (row.cost is None) == is_missing(row), row
        assert row.cost is None or row.cost > 0 or row.title == LATE, row
        assert bool(re.search("ModuleNotFoundError|ImportError", row.note)) == is_missing(row), row


@pytest.mark.slow
def test_every_task_of_a_minute_starts_once_and_the_last_start_is_counted(found: Findings) -> None:
    for count in COUNTS:
        for place in PLACES:
            row = row_of(found, due(count, place), KRON)
            first, last, ended = (
                float(row.details[f"{name} seconds"]) for name in ("first", "last", "ended")
            )
            assert 0 < first < last < ended
            assert row.cost == pytest.approx(last / count)
            assert row.note.startswith(f"{count} tasks: the first start after ")


@pytest.mark.slow
def test_every_task_that_ran_when_the_program_died_starts_again_once(found: Findings) -> None:
    for count in COUNTS:
        row = row_of(found, recovered(count), KRON)
        assert 0 < float(row.details["first seconds"]) < float(row.details["last seconds"])
        assert row.cost == pytest.approx(float(row.details["last seconds"]) / count)


@pytest.mark.slow
def test_registrations_are_new_known_and_changed_beside_those_of_the_peers(found: Findings) -> None:
    for place in PLACES:
        names = [row.contender for row in found.rows if row.title == registered(40, place)]
        assert names == [*STANDINGS.values(), APSCHEDULER_3, APSCHEDULER_4]
        assert "event loop" in row_of(found, registered(80, place), KRON).note


@pytest.mark.slow
def test_the_promised_bounds_are_asked_of_every_number_and_the_goals_of_their_own(found: Findings) -> None:
    verdicts = {goal.what: goal.met for goal in found.goals}
    assert len(verdicts) == len(found.goals)
    assert {what for what, met in verdicts.items() if met is None} == {
        what for what in verdicts if what.startswith("100,000")
    }
    bounds = [goal for goal in found.goals if goal.what.endswith(", per task")]
    assert [goal.wanted for goal in bounds] == ["<= 6 ms"] * 6


def burst(title: str, count: int, last: float) -> Row:
    details = {"first seconds": 0.02, "last seconds": last}
    return Row(title=title, contender=KRON, kind=Kind.RATE, cost=last / count, details=details)


@pytest.mark.parametrize(
    ("count", "last", "met"),
    [
        pytest.param(100_000, 599, True, id="ten minutes for 100,000"),
        pytest.param(100_000, 601, False, id="more than ten minutes for 100,000"),
        pytest.param(1_000_000, 5_999, True, id="a hundred minutes for a million"),
        pytest.param(1_000_000, 6_001, False, id="more than a hundred minutes for a million"),
    ],
)
def test_the_bound_of_a_minute_and_of_a_recovery_grows_with_the_number_of_tasks(
    count: int, last: float, met: bool
) -> None:
    for title in (due(count, SQLITE), recovered(count)):
        verdicts = {goal.what: goal.met for goal in goals([burst(title, count, last)], [count])}
        assert verdicts[f"{title}, per task"] is met


@pytest.mark.parametrize(
    ("title", "last", "met"),
    [
        pytest.param(due(100_000, MEMORY), 0.9, True, id="due in memory"),
        pytest.param(due(100_000, MEMORY), 1.1, False, id="due in memory, too slow"),
        pytest.param(due(100_000, SQLITE), 1.9, True, id="due"),
        pytest.param(due(100_000, SQLITE), 2.1, False, id="due, too slow"),
        pytest.param(recovered(100_000), 19.9, True, id="after a crash"),
        pytest.param(recovered(100_000), 20.1, False, id="after a crash, too slow"),
    ],
)
def test_a_lateness_is_far_below_the_bound_or_the_goal_is_not_met(title: str, last: float, met: bool) -> None:
    verdicts = {goal.what: goal.met for goal in goals([burst(title, 100_000, last)], [])}
    assert verdicts[title] is met


def test_a_single_late_start_counts_against_the_goal() -> None:
    late = Row(title=LATE, contender=on(MEMORY), kind=Kind.TIME, cost=0.001, details={"p99 seconds": 0.011})
    verdicts = {goal.what: goal.met for goal in goals([late], [])}
    assert verdicts["lateness of single starts of tasks, memory, p99"] is False


def test_a_shifted_clock_shows_a_minute_that_begins_soon() -> None:
    clock, minute = before_minute(5)
    assert timedelta(0) < minute - clock.now() <= timedelta(seconds=5)
    assert (minute.second, minute.microsecond) == (0, 0)
