"""The engine and process parts of the benchmark in the smallest size: every comparison has its figures."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from bench import engine, engine_gap, million, process
from bench.child import PROJECT, ChildError, ask
from bench.engine_due import Burst
from bench.engine_goal import (
    APSCHEDULER,
    KRON,
    LATE,
    ONE,
    PROCRASTINATE,
    SHARE,
    SIZE,
    TWO,
    WORKERS,
    due,
    goals,
    on,
    registered,
)
from bench.engine_late import spread
from bench.place import MEMORY, PLACES, POSTGRES, SQLITE
from bench.row import Findings, Kind, Row, shown

TINY = engine.Size(
    rounds=1, few=70, many=140, rounds_of_many=1, registered=50, durable=5, deferred=5,
    idle=200, idle_s=0.2, late_s=1.0, shared=128,
)  # fmt: skip
TITLES = (
    *(due(count, place) for count in (70, 140) for place in PLACES),
    registered(SQLITE),
    registered(POSTGRES),
    WORKERS,
    SIZE,
    SHARE,
    LATE,
    engine_gap.TITLE,
)
# The packages of the peers; `make bench` installs them.
NEEDS = {APSCHEDULER: {"apscheduler"}, PROCRASTINATE: {"procrastinate"}}
DURABLE = {title for title in TITLES if "SQL" in title}


def is_missing(row: Row) -> bool:
    """Return whether a row is of a peer that is not installed."""
    peer = next((peer for peer in NEEDS if row.contender.startswith(peer)), None)
    if peer is None:
        return False
    needed = NEEDS[peer] | ({"sqlalchemy"} if peer == APSCHEDULER and row.title in DURABLE else set())
    return any(find_spec(module) is None for module in needed)


# The first test waits for all the processes.
pytestmark = pytest.mark.timeout(480)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(said: list[str]) -> Findings:
    return engine.measure(said.append, TINY)


def row_of(found: Findings, title: str, contender: str) -> Row:
    (row,) = [row for row in found.rows if (row.title, row.contender) == (title, contender)]
    return row


@pytest.mark.slow
def test_all_that_is_promised_is_measured(found: Findings, said: list[str]) -> None:
    assert tuple(dict.fromkeys(row.title for row in found.rows)) == TITLES
    assert {"idle jobs: round 1 of 1", f"{LATE}: round 1 of 1", f"{WORKERS}: round 1 of 1"} <= set(said)


@pytest.mark.slow
def test_each_contender_has_a_figure_unless_it_is_not_installed(found: Findings) -> None:
    for row in found.rows:
        assert (row.cost is None) == is_missing(row), row
        assert row.cost is None or row.cost > 0, row
        assert bool(re.search("ModuleNotFoundError|ImportError", row.note)) == is_missing(row), row


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_peers_stand_beside_every_burst_they_can_bear(found: Findings, place: str) -> None:
    peers = {APSCHEDULER, PROCRASTINATE} if place == POSTGRES else {APSCHEDULER}
    assert {row.contender for row in found.rows if row.title == due(70, place)} == {KRON, *peers}


@pytest.mark.slow
def test_a_burst_says_how_many_there_were_and_when_they_started(found: Findings) -> None:
    row = row_of(found, due(140, SQLITE), KRON)
    first, last, ended = (float(row.details[f"{name} seconds"]) for name in ("first", "last", "ended"))
    assert 0 < first < last < ended
    assert row.cost == pytest.approx(last / 140)
    wanted = f"the first start after {shown(Kind.TIME, first)}, the last after {shown(Kind.TIME, last)}"
    assert row.note == f"140 jobs: {wanted}"


@pytest.mark.slow
def test_late_starts_are_counted_on_every_store(found: Findings) -> None:
    for place in (MEMORY, SQLITE):
        details = row_of(found, LATE, on(place)).details
        assert 0 < float(details["p50 seconds"]) <= float(details["p99 seconds"])


@pytest.mark.slow
def test_goals_are_about_the_size_they_name(found: Findings) -> None:
    verdicts = {goal.what: goal.met for goal in found.goals}
    assert {what for what, met in verdicts.items() if met is None} == {
        what for what in verdicts if what.startswith("100,000")
    }
    assert len(verdicts) == len(found.goals) == 18


def test_a_goal_is_met_or_not() -> None:
    title = due(100_000, MEMORY)
    details = {"first seconds": 0.020, "last seconds": 1.001}
    rows = [
        Row(title=title, contender=KRON, kind=Kind.RATE, cost=1e-5, details=details),
        Row(title=due(100_000, SQLITE), contender=KRON, kind=Kind.RATE, cost=1 / 50_000, details=details),
        Row(title=SIZE, contender=KRON, kind=Kind.SIZE, cost=501.0),
        Row(title=WORKERS, contender=TWO, kind=Kind.RATE, cost=1e-4, ratio=1.0),
        Row(title=WORKERS, contender=ONE, kind=Kind.RATE, cost=1.5e-4, ratio=1.5),
    ]
    verdicts = {goal.what: goal.met for goal in goals(rows) if goal.met is not None}
    assert verdicts == {
        f"{title}, the first start": True,
        f"{title}, the last start": False,
        f"{due(100_000, SQLITE)}, the first start": True,
        due(100_000, SQLITE): True,
        SIZE: False,
        "two PostgreSQL workers beside one": True,
    }


def test_percentiles_are_those_of_the_starts() -> None:
    assert spread([float(number) for number in range(1, 100)]) == {"p50": 50.0, "p99": 99.0, "count": 99}


def test_a_rate_counts_from_the_instant_to_the_last_start() -> None:
    assert Burst(100, first=0.1, last=2.0, ended=3.0).rate == 50.0


def test_a_burst_can_be_asked_for_by_hand() -> None:
    command = [sys.executable, "-m", "bench.engine_due", MEMORY, "10"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("10 due at one instant: first start ")


def test_a_measurement_that_fails_says_why() -> None:
    with pytest.raises(ChildError, match="InvalidOptionError"):
        ask("engine_register", "kron", "oracle://somewhere", 10)


@pytest.mark.slow
def test_a_million_are_a_hundredth_when_it_has_to_be_quick() -> None:
    found = million.run(lambda _: None, quick=True)
    assert all(row.note.startswith("10,000 in ") for row in found.rows), found.rows
    assert {goal.met for goal in found.goals} == {None}


@pytest.mark.slow
def test_processes_are_measured_beside_those_of_the_standard_library() -> None:
    found = process.measure(lambda _: None, count=3, rounds=1, ballast=1 << 20)
    names = [
        process.KRON,
        process.LARGE,
        process.SURVIVOR,
        process.KROND,
        process.DISK,
        process.POPEN,
        process.ASYNCIO,
        process.BARE,
    ]
    assert [row.contender for row in found.rows] == 2 * names
    assert all(row.cost for row in found.rows), found.rows
    assert all(goal.met is not None for goal in found.goals)


@pytest.mark.parametrize(
    ("kind", "cost", "text"),
    [
        pytest.param(Kind.SIZE, 357.0, "357 bytes", id="bytes"),
        pytest.param(Kind.SIZE, 1_150.0, "1.15 kB", id="kilobytes"),
        pytest.param(Kind.SHARE, 0.00017, "0.017 %", id="percent"),
    ],
)
def test_sizes_and_shares_have_their_units(kind: Kind, cost: float, text: str) -> None:
    assert shown(kind, cost) == text
