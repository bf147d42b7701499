"""Constraints: which local times each kind allows, with the edges on both sides."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kron.core.job.constraint import ConstraintKind
from kron.core.job.job import Job
from kron.core.time.instant import seconds_of
from kron.core.time.zone import zone_of

BERLIN = "Europe/Berlin"


def rejected_by(constraints: dict[str, Any], local: str, *, fold: int = 0, zone: str = BERLIN) -> str | None:
    job = Job.from_dict({"identity": "a", "schedule": "0 0 * * *", "constraints": constraints})
    instant = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return job.constraints.rejected_by(seconds_of(instant), zone_of(zone))


# The rule, times that match it, and times that just do not. 2025-06-01 is a Sunday.
MATCHES: list[tuple[str, Any, list[str], list[str]]] = [
    (
        "hours",
        [9, 17],
        ["2025-06-01T09:00:00", "2025-06-01T17:59:59"],
        ["2025-06-01T08:59:59", "2025-06-01T10:00"],
    ),
    (
        "hours",
        "22-23",
        ["2025-06-01T22:00", "2025-06-01T23:59:59"],
        ["2025-06-01T21:59:59", "2025-06-02T00:00"],
    ),
    ("dow", [0], ["2025-06-01T00:00", "2025-06-01T23:59:59"], ["2025-05-31T23:59:59", "2025-06-02T00:00"]),
    ("dow", [7], ["2025-06-01T12:00"], ["2025-06-02T12:00", "2025-05-31T12:00"]),
    (
        "dow",
        ["mon-fri"],
        ["2025-06-02T00:00", "2025-06-06T23:59:59"],
        ["2025-06-01T23:59:59", "2025-06-07T00:00"],
    ),
    (
        "dom",
        [1, "30-31"],
        ["2025-06-01T12:00", "2025-05-31T12:00"],
        ["2025-06-02T00:00", "2025-05-29T23:59:59"],
    ),
    (
        "months",
        ["jun", 12],
        ["2025-06-01T00:00", "2025-12-31T23:59:59"],
        ["2025-05-31T23:59:59", "2025-07-01T00:00"],
    ),
    (
        "between",
        ["09:00-17:30"],
        ["2025-06-01T09:00", "2025-06-01T17:30:59"],
        ["2025-06-01T08:59:59", "2025-06-01T17:31"],
    ),
    (
        "between",
        ["22:00-02:00"],
        ["2025-06-01T22:00", "2025-06-01T00:00", "2025-06-01T02:00:59"],
        ["2025-06-01T21:59:59", "2025-06-01T02:01", "2025-06-01T12:00"],
    ),
    (
        "between",
        ["12:00-12:00"],
        ["2025-06-01T12:00", "2025-06-01T12:00:59"],
        ["2025-06-01T11:59:59", "2025-06-01T12:01"],
    ),
    ("between", ["12:01-12:00"], ["2025-06-01T12:01", "2025-06-01T12:00", "2025-06-01T00:00"], []),
    (
        "dates",
        ["2025-06-01"],
        ["2025-06-01T00:00", "2025-06-01T23:59:59"],
        ["2025-05-31T23:59:59", "2025-06-02T00:00"],
    ),
    (
        "dates",
        ["2024-12-24..2025-01-01"],
        ["2024-12-24T00:00", "2025-01-01T23:59:59"],
        ["2024-12-23T23:59:59", "2025-01-02T00:00"],
    ),
    (
        "calendars",
        {"a": ["2025-06-01"], "b": ["2025-06-03..2025-06-04"]},
        ["2025-06-01T12:00", "2025-06-04T12:00"],
        ["2025-06-02T12:00", "2025-06-05T00:00"],
    ),
]


@pytest.mark.parametrize(
    ("kind", "values", "inside", "outside"), MATCHES, ids=[f"{row[0]} {row[1]}" for row in MATCHES]
)
def test_a_kind_matches_up_to_its_edges(
    kind: str, values: Any, inside: list[str], outside: list[str]
) -> None:
    only, avoid = {"only": {kind: values}}, {"avoid": {kind: values}}
    assert [rejected_by(only, local) for local in inside] == [None] * len(inside)
    assert [rejected_by(only, local) for local in outside] == [f"only.{kind}"] * len(outside)
    assert [rejected_by(avoid, local) for local in inside] == [f"avoid.{kind}"] * len(inside)
    assert [rejected_by(avoid, local) for local in outside] == [None] * len(outside)


def test_every_kind_has_its_row() -> None:
    assert {row[0] for row in MATCHES} == {kind.value for kind in ConstraintKind}


@pytest.mark.parametrize(
    ("local", "rejection"),
    [
        pytest.param("2025-06-02T09:00", None, id="allowed"),
        pytest.param("2025-06-02T08:00", "only.hours", id="one kind of only does not match"),
        pytest.param("2025-06-01T09:00", "only.dow", id="the other kind of only does not match"),
        pytest.param("2025-06-02T12:30", "avoid.between", id="only allows it, avoid does not"),
        pytest.param("2025-06-03T09:00", "avoid.dates", id="one match of avoid is enough"),
        pytest.param("2025-06-03T12:30", "avoid.between", id="the first in order is named"),
        pytest.param("2025-06-01T12:30", "only.dow", id="only is asked first"),
    ],
)
def test_only_wants_every_kind_and_avoid_any(local: str, rejection: str | None) -> None:
    constraints = {
        "only": {"hours": ["9-17"], "dow": ["mon-fri"]},
        "avoid": {"between": ["12:00-12:59"], "dates": ["2025-06-03"]},
    }
    assert rejected_by(constraints, local) == rejection


def test_without_constraints_every_time_is_allowed() -> None:
    assert rejected_by({}, "2025-06-01T00:00") is None
    assert rejected_by({"only": {}, "avoid": {}}, "2025-06-01T00:00") is None


def test_the_wall_clock_of_the_zone_decides() -> None:
    nine = {"only": {"hours": [9]}}
    assert rejected_by(nine, "2025-06-01T09:30", zone="Asia/Kathmandu") is None
    assert rejected_by(nine, "2025-06-01T09:30", zone="Pacific/Pago_Pago") is None
    # Both showings of a repeated hour are that hour.
    assert rejected_by({"only": {"hours": [2]}}, "2025-10-26T02:30", fold=0) is None
    assert rejected_by({"only": {"hours": [2]}}, "2025-10-26T02:30", fold=1) is None
