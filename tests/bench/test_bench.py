"""The benchmark's code, run in the smallest size; its figures are not checked here."""

import gc
import json
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import __main__, cron, report, start
from bench.cron_goal import BULK, COLD_ZONE, DATETIMES, INTEGERS, PARSE, PARSE_RANDOM, PREVIOUS, WORST, goals
from bench.expression import EXPRESSIONS, ZONES, batches, cases, plain_questions, texts
from bench.peer import PEERS
from bench.row import Findings, Kind, Row, shown
from bench.timing import ALL, Series, joined, round_robin, rows_of
from kron.core.time.zone import zone_of

TINY = cron.Size(rounds=1, most=2, turn=0.0, batches=1, batch=10, schedules=600)
# Only the first two come with the development tools; `make bench` installs all five.
MODULES = dict(zip(PEERS, ("croniter", "cronsim", "apscheduler", "celery", "cronstable"), strict=True))
MISSING = {kind.name for kind, module in MODULES.items() if find_spec(module) is None}
TITLES = (INTEGERS, DATETIMES, PREVIOUS, PARSE, PARSE_RANDOM, WORST, COLD_ZONE, BULK, start.TITLE)
NAMES = {"kron", *(kind.name for kind in PEERS)}


def is_of_missing_peer(row: Row) -> bool:
    """Return whether a row is of a peer that is not installed; a cold start names the module it imports."""
    modules = [module for kind, module in MODULES.items() if kind.name in MISSING]
    return row.contender in MISSING or any(row.contender.startswith(f"import {name}") for name in modules)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def found(said: list[str]) -> Findings:
    found = cron.measure(said.append, TINY)
    # The measurement ends the exemption of the collected tests (tests/conftest.py).
    gc.freeze()
    return found


@pytest.mark.slow
def test_all_that_is_promised_is_measured(found: Findings, said: list[str]) -> None:
    assert tuple(dict.fromkeys(row.title for row in found.rows)) == TITLES
    for title in (INTEGERS, DATETIMES, PREVIOUS, PARSE, PARSE_RANDOM, WORST, BULK):
        assert {row.contender for row in found.rows if row.title == title} >= NAMES
    assert all(any(line.startswith(title) for line in said) for title in TITLES)


@pytest.mark.slow
def test_each_contender_has_a_figure_or_a_reason(found: Findings) -> None:
    for row in found.rows:
        assert row.cost is not None or row.note, row
        assert ("failed" in row.note) == is_of_missing_peer(row), row
    able = {row.contender for row in found.rows if row.title == PREVIOUS and row.cost}
    assert able == {"kron", "croniter", "cronsim", "cronstable"} - MISSING
    assert [row.contender for row in found.rows if row.title == BULK and row.cost] == [
        "kron",
        "kron, datetimes",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("title", [INTEGERS, DATETIMES, PREVIOUS])
@pytest.mark.parametrize("peer", ["croniter", "cronsim"])
def test_peers_with_the_same_day_rule_give_the_same_answers(found: Findings, title: str, peer: str) -> None:
    (row,) = [row for row in found.rows if (row.title, row.contender) == (title, peer)]
    same, asked = row.note.removeprefix("same answer in ").split(" of ")
    assert same == asked
    assert int(asked) > len(EXPRESSIONS) * len(ZONES)


@pytest.mark.slow
def test_every_goal_has_a_measurement(found: Findings) -> None:
    assert all(goal.met is not None for goal in found.goals)
    wanted = [goal.wanted for goal in found.goals]
    assert {f">= {ratio} x {peer}" for ratio, peer in RATIOS} <= set(wanted)
    assert {"<= 10 us", "<= 300 ms", "<= 30 ms", "<= 200 ms", "refused while parsing"} <= set(wanted)


RATIOS = [
    (50, "croniter"),
    (25, "cronsim"),
    (35, "croniter"),
    (15, "cronsim"),
    (20, "croniter"),
    (4, "cronsim"),
]


@pytest.mark.slow
def test_the_report_can_be_read_by_machines_and_people(
    found: Findings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new" / "latest.json"
    report.write(file, {"cron": found}, machine={"cpus": 2}, quick=True)
    read = json.loads(file.read_text())
    assert len(read["parts"]["cron"]["rows"]) == len(found.rows)
    assert len(read["parts"]["cron"]["goals"]) == len(found.goals)
    report.show({"cron": found})
    shown_text = capsys.readouterr().out
    assert all(title in shown_text for title in TITLES)


def test_a_goal_is_met_or_not_or_unknown() -> None:
    kron = Row(title=INTEGERS, contender="kron", kind=Kind.RATE, cost=1e-6, ratio=1.0)
    slow = Row(title=INTEGERS, contender="croniter", kind=Kind.RATE, cost=5e-5, ratio=50.0)
    verdicts = {(goal.what, goal.wanted): goal.met for goal in goals([kron, slow])}
    assert verdicts[INTEGERS, ">= 50 x croniter"] is True
    assert verdicts[INTEGERS, ">= 25 x cronsim"] is None
    nearly = {(goal.what, goal.wanted): goal.met for goal in goals([kron, replace(slow, ratio=49.9)])}
    assert nearly[INTEGERS, ">= 50 x croniter"] is False


def test_a_contender_that_fails_costs_its_own_row_only() -> None:
    def fails() -> dict[str, float]:
        raise ValueError("cannot read /etc/somewhere")

    series = round_robin({"good": lambda: {ALL: 2.0}, "bad": fails}, repetitions=3, say=lambda _: None)
    good, bad = rows_of("title", Kind.TIME, series, reference="good")
    assert (good.cost, good.ratio) == (2.0, 1.0)
    assert (bad.cost, bad.note) == (None, "failed: ValueError: cannot read ...")


def test_zones_weigh_the_same_however_long_they_take() -> None:
    parts = {"a": Series(samples=[{ALL: 1.0}, {ALL: 2.0}]), "b": Series(samples=[{ALL: 3.0}, {ALL: 6.0}])}
    assert joined(parts).samples == [{"a": 1.0, "b": 3.0, ALL: 2.0}, {"a": 2.0, "b": 6.0, ALL: 4.0}]
    assert joined(parts | {"c": Series(failure="why")}).failure == "why"


def test_the_set_is_mixed_and_has_29_february() -> None:
    assert len(EXPRESSIONS) >= 25
    assert len(ZONES) == 3
    assert "0 0 29 2 *" in EXPRESSIONS
    assert all(case.count > 0 for case in cases(3))


@pytest.mark.parametrize("common", [True, False])
def test_no_text_comes_twice(common: bool) -> None:
    asked = [case.text for batch in batches(4, 50, common=common) for case in batch]
    assert len(set(asked)) == len(asked) == 200
    assert texts(200, common=common) == tuple(asked)


def test_compared_answers_lie_outside_clock_changes() -> None:
    berlin = zone_of("Europe/Berlin")
    day = int(datetime(2028, 3, 26, tzinfo=UTC).timestamp())
    assert next(berlin.changes(day, day + 86_400), None)
    for case in plain_questions():
        assert next(zone_of(case.zone).changes(case.start - 86_400, case.start + 86_400), None) is None


@pytest.mark.parametrize(
    ("kind", "seconds", "text"),
    [
        pytest.param(Kind.RATE, 1e-6, "1 M/s", id="millions"),
        pytest.param(Kind.RATE, 50e-6, "20 k/s", id="thousands"),
        pytest.param(Kind.TIME, 0.0354, "35.4 ms", id="milliseconds"),
        pytest.param(Kind.TIME, 4.5e-6, "4.5 us", id="microseconds"),
        pytest.param(Kind.TIME, None, "-", id="nothing"),
    ],
)
def test_costs_are_written_in_the_unit_that_fits(kind: Kind, seconds: float | None, text: str) -> None:
    assert shown(kind, seconds) == text


def test_parts_are_chosen_by_name() -> None:
    assert __main__.options(["--only", "cron", "--quick"]).only == ["cron"]
    assert __main__.options([]).only == [
        "cron",
        "decisions",
        "theory",
        "progress",
        "engine",
        "embed",
        "process",
        "krond",
        "service",
        "dag",
        "operator",
    ]
    assert __main__.options(["--full"]).only == list(__main__.PARTS)
    with pytest.raises(SystemExit):
        __main__.options(["--only", "everything"])
