"""The fleet as values: its heat maps count every start, and a suggestion is what its windows would do."""

from collections import defaultdict
from datetime import UTC, datetime

import pytest

from kron.core.plan.compiled import compiled_job
from kron.core.plan.registration import create
from kron.core.plan.step import JobState
from kron.fronts.service.schedule_spec import Rules, parse_schedule_spec
from kron.fronts.service.web.fleet import WINDOW, FleetPage, Remedy, change_of, fleet_of, load_of
from kron.fronts.service.web.start_group import StartGroup, StartGroups

NOW = int(datetime(2026, 3, 27, 12, 20, 0, tzinfo=UTC).timestamp()) * 1000


def a_state(name: str, cron_expr: str, **fields: object) -> JobState:
    work = {"workflow_id": "w", "version": 1, "user_id": "u", "timezone": "UTC"}
    document = {**work, "schedule_id": name, "cron_expr": cron_expr, **fields}
    return JobState(create(parse_schedule_spec(document, Rules(), schedule_id=name).job, now=NOW))


def page_of(states: list[JobState], now: int) -> FleetPage:
    """Return the page of some schedules: those of one definition together, as a store groups them."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for state in states:
        identity, definition = state.job.identity, state.job.definition
        compiled = compiled_job(definition, identity)
        together = compiled.is_shared and compiled.plain
        names[definition if together else f"{definition} {identity}"].append(identity)
    definitions = {state.job.identity: state.job.definition for state in states}
    groups = [StartGroup(definitions[theirs[0]], theirs[0], len(theirs)) for theirs in names.values()]
    load = load_of(StartGroups(groups, {None: len(states)}), now)
    members = [StartGroup(definitions[name], name) for theirs in names.values() for name in theirs]
    return fleet_of(load, [one for one in members if one.definition in load.definitions])


def test_a_heat_map_has_every_start_of_the_next_day_in_its_minute() -> None:
    page = page_of([a_state("a", "30 * * * *"), a_state("b", "30 14 * * *")], NOW)
    assert page.minutes.summary == "25 starts, at most 2 in one cell"
    cells = {(cell.y, cell.x): cell for cell in page.minutes.cells}
    assert page.minutes.rows[:3] == ["12:00", "13:00", "14:00"]
    assert cells[2, 30].title == "2026-03-27T14:30:00Z: 2 starts"
    assert (cells[2, 30].level, cells[1, 30].level) == (4, 2)
    assert page.minutes.legend == [(2, "1"), (4, "2")]
    # Of today, the hours before now are over.
    assert page.hours.summary == "163 starts, at most 2 in one cell"
    assert [(worst.at, worst.names) for worst in page.worst] == [("2026-03-27T14:30:00Z", ["a", "b"])]


def test_a_time_of_day_that_has_just_passed_is_in_the_load_of_the_next_day() -> None:
    page = page_of([a_state(str(number), "17 12 * * *") for number in range(3)], NOW + 19 * 60_000)
    assert [(worst.at, worst.starts) for worst in page.worst] == [("2026-03-28T12:17:00Z", 3)]
    assert page.minutes.rows[-1] == "12:00"
    assert page.suggestion is not None


def test_a_fuller_minute_that_nothing_would_spread_does_not_hide_a_suggestion() -> None:
    dense = [a_state(f"dense {number}", "30,31 14 * * *") for number in range(5)]
    page = page_of([*dense, *(a_state(str(number), "0 3 * * *") for number in range(4))], NOW)
    assert (page.worst[0].at, page.worst[0].starts) == ("2026-03-27T14:30:00Z", 5)
    assert page.suggestion is not None
    assert (page.suggestion.at, page.suggestion.before) == ("2026-03-28T03:00:00Z", 4)


def test_a_worst_minute_names_those_that_start_in_it_and_no_other() -> None:
    there = [a_state(f"there {number}", "0 3 * * *") for number in range(3)]
    page = page_of([*there, a_state("a minute later", "1 3 * * *"), a_state("dense", "* * * * *")], NOW)
    worst = page.worst[0]
    assert (worst.at, worst.starts, worst.more) == ("2026-03-28T03:00:00Z", 4, 0)
    assert worst.names == ["dense", "there 0", "there 1", "there 2"]
    many = page_of([a_state(f"{number:02}", "0 3 * * *") for number in range(40)], NOW).worst[0]
    assert len(many.names) + many.more == 40


def test_a_suggestion_spreads_the_fullest_minute_and_says_what_it_does() -> None:
    states = [a_state(f"{number:02}", "0 3 * * *") for number in range(40)]
    page = page_of([*states, a_state("dense", "* * * * *")], NOW)
    assert page.worst[0].starts == 41
    assert page.suggestion is not None
    assert (page.suggestion.at, page.suggestion.before) == ("2026-03-28T03:00:00Z", 41)
    assert page.suggestion.names == [f"{number:02}" for number in range(40)]
    assert page.suggestion.after.keys() == {Remedy.WINDOW, Remedy.HASH}
    spread = [
        a_state(f"{number:02}", "0 3 * * *", window={"mode": "after", "duration": "10m"})
        for number in range(40)
    ]
    after = page_of([*spread, a_state("dense", "* * * * *")], NOW)
    assert after.worst[0].starts == page.suggestion.after[Remedy.WINDOW] < 12
    hashed = [a_state(f"{number:02}", "H 3 * * *") for number in range(40)]
    after = page_of([*hashed, a_state("dense", "* * * * *")], NOW)
    assert after.worst[0].starts == page.suggestion.after[Remedy.HASH] < 8


@pytest.mark.parametrize("expression", ["0,30 3 * * *", "*/5 3 * * *", "30 0 3 * * *", "@daily"])
def test_a_minute_that_is_not_one_number_gets_no_hash(expression: str) -> None:
    assert change_of(expression, Remedy.HASH) is None
    assert change_of(expression, Remedy.WINDOW) == {"window": {"mode": "after", "duration": WINDOW}}


def test_a_calm_fleet_has_no_suggestion() -> None:
    assert page_of([a_state("a", "0 * * * *"), a_state("b", "0 * * * *")], NOW).suggestion is None
    empty = page_of([], NOW)
    assert (empty.worst, empty.suggestion, empty.minutes.summary) == (
        [],
        None,
        "0 starts, at most 0 in one cell",
    )
