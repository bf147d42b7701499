"""Verifying certificates: what was recorded must follow from what was recorded."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.verify_decision import differing
from kron.core.job.decision import decide
from kron.core.job.job import Job
from kron.core.job.verify import FIELDS, FOLLOWING, JOB_FIELDS, VerifyResult, verify
from tests.job_strategies import Definition, definitions, nominal_times
from tests.strategies import law

GOLDEN = Path(__file__).parents[2] / "golden" / "decisions.json"
KEPT: list[dict[str, Any]] = [entry["decision"] for entry in json.loads(GOLDEN.read_text(encoding="utf-8"))]
NOMINAL = "2026-03-01T00:00:00Z"


def certificate(**changed: Any) -> dict[str, Any]:
    job = Job.from_dict(
        {
            "identity": "prod/backup",
            "schedule": "0 0 * * *",
            "timezone": "Europe/Berlin",
            "window": {"mode": "around", "duration": "2h"},
            "distribution": {"name": "skewLate", "shape": 3},
            "seed": {"strategy": "daily", "salt": "s"},
            "constraints": {"avoid": {"hours": [1]}},
        }
    )
    return {**decide(job, datetime.fromisoformat(NOMINAL)).to_dict(), **changed}


@law(150)
@given(definitions(), nominal_times())
def test_every_decision_follows_from_its_own_certificate(definition: Definition, at: datetime) -> None:
    made = decide(Job.from_dict(definition), at).to_dict()
    through_json = json.loads(json.dumps(made))
    found = verify(through_json)
    assert found.finding is VerifyResult.OK
    assert found.recomputed == made
    assert found.note is None


@pytest.mark.parametrize("field", FOLLOWING)
def test_a_field_that_was_changed_is_found_and_named(field: str) -> None:
    true = certificate()
    others: dict[str, Any] = {"attempts": 17, "constraints_applied": ["only.dom"], "unschedulable": True}
    found = verify({**true, field: others.get(field, "2026-03-01T00:00:01Z")})
    assert found.finding is VerifyResult.DIFFERS
    # The nominal time is an input as well: from another one all times follow, and none of those recorded.
    if field == "nominal_time":
        assert {"period_id", "window_start", "window_end"} <= {change.field for change in found.differences}
        return
    (difference,) = found.differences
    assert difference.field == field
    assert difference.recomputed == true[field]
    assert difference.recorded != true[field]
    assert f"recomputed {json.dumps(true[field])}" in str(difference)


@pytest.mark.parametrize(
    "changed",
    [
        {"identity": "prod/backups"},
        {"salt": "t"},
        {"timezone": "Pacific/Honolulu"},
        {"window": {"mode": "around", "duration": "2h2s"}},
        {"window": {"mode": "after", "duration": "2h"}},
        {"seed_strategy": "stable"},
        {"constraints": {"only": {}, "avoid": {"hours": [1], "dow": [0]}}},
        {"nominal_time": "2026-03-01T00:00:01Z"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_an_input_that_was_changed_is_found_by_what_no_longer_follows(changed: dict[str, Any]) -> None:
    assert verify(certificate(**changed)).finding is VerifyResult.DIFFERS


def test_a_distribution_that_was_changed_is_found_by_its_chosen_time() -> None:
    found = verify(certificate(distribution={"name": "skewLate", "shape": 2.75}))
    assert [difference.field for difference in found.differences] == ["chosen_time"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("attempts", True, id="true is not 1"),
        pytest.param("attempts", 1.0, id="1.0 is not 1"),
        pytest.param("unschedulable", 0, id="0 is not false"),
        pytest.param("unschedulable", None, id="null is not false"),
        pytest.param("period_id", "2026-03-01T00:00:00+00:00", id="Z is Z"),
        pytest.param("nominal_time", "2026-03-01T01:00:00+01:00", id="the nominal time is in UTC"),
        pytest.param("nominal_time", "2026-03-01T00:00Z", id="the nominal time has seconds"),
        pytest.param("constraints_applied", {"avoid.hours": 1}, id="a list is a list"),
    ],
)
def test_a_value_must_have_the_exact_form(field: str, value: object) -> None:
    true = certificate()
    assert true["attempts"] == 1
    found = verify({**true, field: value})
    assert [difference.field for difference in found.differences] == [field]


def test_the_hash_is_in_small_letters() -> None:
    true = certificate()
    assert verify({**true, "seed_hash": str(true["seed_hash"]).upper()}).finding is VerifyResult.DIFFERS


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_refused_by_name(field: str) -> None:
    less = certificate()
    del less[field]
    found = verify(less)
    assert found.finding is VerifyResult.NO_DECISION
    assert [problem.path for problem in found.problems] == [field]
    assert "is missing" in found.problems[0].reason
    assert found.recomputed is None


def test_an_unknown_field_is_refused_by_name() -> None:
    found = verify(certificate(jitter=5, colour="red"))
    assert [problem.path for problem in found.problems] == ["jitter", "colour"]
    assert all("unknown field" in problem.reason for problem in found.problems)


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0, [], {}], ids=repr)
def test_an_unknown_format_is_refused_before_anything_else(version: object) -> None:
    found = verify({"kron_decision": version, "more": 1})
    assert [problem.path for problem in found.problems] == ["kron_decision"]
    assert "unknown format; this Kron knows 1" in found.problems[0].reason


@pytest.mark.parametrize("value", [None, 5, "x", [], [certificate()], {}, {"x": 1}], ids=repr)
def test_what_is_no_certificate_is_no_decision(value: object) -> None:
    assert verify(value).finding is VerifyResult.NO_DECISION


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        pytest.param({"identity": ""}, "identity", id="identity empty"),
        pytest.param({"identity": "a\nb"}, "identity", id="identity of two lines"),
        pytest.param({"identity": 5}, "identity", id="identity a number"),
        pytest.param({"salt": None}, "salt", id="salt null"),
        pytest.param({"timezone": "Mars/Olympus"}, "timezone", id="unknown zone"),
        pytest.param({"timezone": None}, "timezone", id="zone null"),
        pytest.param({"window": {"mode": "during", "duration": "1h"}}, "window.mode", id="unknown mode"),
        pytest.param(
            {"window": {"mode": "after", "duration": "-1h"}}, "window.duration", id="negative window"
        ),
        pytest.param(
            {"window": {"mode": "after", "duration": "24001h"}}, "window.duration", id="endless window"
        ),
        pytest.param({"window": "1h"}, "window", id="window no object"),
        pytest.param({"distribution": {"name": "x"}}, "distribution.name", id="unknown distribution"),
        pytest.param(
            {"distribution": {"name": "skewLate", "shape": 0}},
            "distribution.shape",
            id="parameter out of range",
        ),
        pytest.param({"seed_strategy": "hourly"}, "seed_strategy", id="unknown strategy"),
        pytest.param(
            {"constraints": {"only": {"hours": [25]}}}, "constraints.only.hours", id="bad constraint"
        ),
        pytest.param(
            {"constraints": {"only": {"calendars": ["x"]}}},
            "constraints.only.calendars",
            id="calendar by name only",
        ),
        pytest.param({"nominal_time": "yesterday"}, "nominal_time", id="no time"),
        pytest.param({"nominal_time": "2026-03-01T00:00:00"}, "nominal_time", id="no offset"),
        pytest.param({"nominal_time": "2026-03-01T00:00:00.5Z"}, "nominal_time", id="half a second"),
        pytest.param({"nominal_time": "9999-12-31T23:59:59Z"}, "nominal_time", id="beyond the calendar"),
        pytest.param({"nominal_time": 1_772_323_200}, "nominal_time", id="a number"),
        pytest.param({"nominal_time": None}, "nominal_time", id="null"),
        pytest.param({"tzdata_version": 2025}, "tzdata_version", id="release a number"),
    ],
)
def test_an_input_that_no_job_can_have_is_refused_with_its_path(changed: dict[str, Any], path: str) -> None:
    found = verify(certificate(**changed))
    assert found.finding is VerifyResult.NO_DECISION
    assert [problem.path for problem in found.problems] == [path]


def test_all_problems_are_said_at_once() -> None:
    found = verify(certificate(identity="", timezone="x", seed_strategy="x", window={"mode": "x", "size": 1}))
    assert {problem.path for problem in found.problems} == {
        "identity",
        "timezone",
        "seed_strategy",
        "window.mode",
        "window.size",
    }
    found = verify(certificate(identity="", window={"mode": "after", "duration": "99999h"}))
    assert {problem.path for problem in found.problems} == {"identity", "window.duration"}


def test_another_release_of_the_zone_database_is_noted_and_blamed_only_if_something_differs() -> None:
    same = verify(certificate(tzdata_version="1999z"))
    assert same.finding is VerifyResult.OK
    assert same.note is not None
    assert "1999z" in same.note
    assert "differ" not in same.note
    other = verify(certificate(tzdata_version="1999z", chosen_time=None))
    assert other.finding is VerifyResult.DIFFERS
    assert "which may be why they differ" in str(other.note)
    unknown = verify(certificate(tzdata_version=None))
    assert unknown.finding is VerifyResult.OK
    assert "an unknown one" in str(unknown.note)


def test_the_fields_are_inputs_or_follow_from_them() -> None:
    assert sorted(FIELDS) == sorted(certificate())
    assert not set(JOB_FIELDS) & set(FOLLOWING)


# --- the same verdicts without Kron ----------------------------------------------------------------


def test_the_example_agrees_on_every_kept_decision() -> None:
    assert [differing(kept) for kept in KEPT] == [[] for _ in KEPT]
    assert {verify(kept).finding for kept in KEPT} == {VerifyResult.OK}


@law(150)
@given(st.sampled_from(KEPT), st.sampled_from(FOLLOWING), st.data())
def test_the_example_names_the_same_fields_of_a_decision_that_was_changed(
    kept: dict[str, Any], field: str, data: st.DataObject
) -> None:
    others = [None, True, 0, 65, "2024-12-27T12:00:00Z", "2024-12-27", [], ["only.hours"]]
    if field == "nominal_time":
        others = ["2024-12-27T12:00:00Z", "2025-05-06T07:08:10Z"]
    changed = {**kept, field: data.draw(st.sampled_from(others))}
    found = [difference.field for difference in verify(changed).differences]
    assert sorted(differing(changed)) == sorted(found)
