"""The content of job files: one job or many, shared calendars, and every problem with its path."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kron.core.errors import InvalidJobFileError, Problem
from kron.core.job.decision import decide
from kron.core.job.file import jobs_from

A, B = ({"identity": name, "schedule": "0 0 * * *"} for name in "ab")


def problems_of(content: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidJobFileError) as caught:
        jobs_from(content)
    return [(found.path, found.reason) for found in caught.value.problems if isinstance(found, Problem)]


@pytest.mark.parametrize(
    ("content", "identities"),
    [
        pytest.param(A, ["a"], id="one job"),
        pytest.param([A, B], ["a", "b"], id="a list"),
        pytest.param({"jobs": [B, A]}, ["b", "a"], id="jobs in their order"),
        pytest.param([], [], id="none"),
        pytest.param({"jobs": []}, [], id="no jobs"),
    ],
)
def test_a_file_has_one_job_or_many(content: Any, identities: list[str]) -> None:
    assert [job.identity for job in jobs_from(content)] == identities


def test_jobs_share_the_calendars_of_their_file() -> None:
    avoid = {"constraints": {"avoid": {"calendars": ["holidays"]}}}
    one, two = jobs_from(
        {"calendars": {"holidays": ["2025-01-01"]}, "jobs": [{**A, **avoid}, {**B, **avoid}]}
    )
    new_year = datetime(2025, 1, 1, tzinfo=UTC)
    assert decide(one, new_year).unschedulable
    assert decide(two, new_year).unschedulable


def test_a_jobs_own_calendar_goes_before_the_shared_one() -> None:
    rule = {"constraints": {"avoid": {"calendars": ["off"]}}, "calendars": {"off": ["2025-01-02"]}}
    (job,) = jobs_from({"calendars": {"off": ["2025-01-01"]}, "jobs": [{**A, **rule}]})
    assert not decide(job, datetime(2025, 1, 1, tzinfo=UTC)).unschedulable
    assert decide(job, datetime(2025, 1, 2, tzinfo=UTC)).unschedulable


def test_every_problem_of_every_job_is_said_at_once_with_its_path() -> None:
    content = {
        "calendars": {"x": ["never"], "y": ["2025-13-01"], "z": ["2025-01-01"]},
        "jobs": [
            {**A, "window": {"duration": "-1s"}, "constraints": {"only": {"calendars": ["x", "z"]}}},
            B,
            {"identity": "c", "policy": {"deadline": "x"}},
            5,
        ],
        "other": 1,
    }
    assert [path for path, _ in problems_of(content)] == [
        "calendars.x",
        "calendars.y",
        "other",
        "jobs[0].window.duration",
        "jobs[2].schedule",
        "jobs[2].policy.deadline",
        "jobs[3]",
    ]


def test_two_jobs_with_one_identity_are_refused_wherever_they_stand() -> None:
    assert problems_of([A, B, A, A]) == [
        ("[2].identity", "[0] has it already"),
        ("[3].identity", "[0] has it already"),
    ]
    # A job that is wrong for itself does not shift the count.
    wrong = {"identity": "c"}
    assert [path for path, _ in problems_of({"jobs": [wrong, A, wrong, A]})] == [
        "jobs[0].schedule",
        "jobs[2].schedule",
        "jobs[3].identity",
    ]


@pytest.mark.parametrize("content", [None, 5, "text", True, {"jobs": A}, {"jobs": None}], ids=repr)
def test_what_holds_no_jobs_is_refused(content: Any) -> None:
    ((path, reason),) = problems_of(content)
    assert path in ("file", "jobs")
    assert reason == "must be a job, or a list of jobs"


def test_calendars_that_are_no_object_are_refused() -> None:
    assert problems_of({"jobs": [A], "calendars": ["2025-01-01"]}) == [
        ("calendars", "must be an object: a name, and a list of days")
    ]


def test_nothing_is_returned_when_one_job_is_wrong() -> None:
    with pytest.raises(InvalidJobFileError) as caught:
        jobs_from([A, {**B, "schedule": "x"}])
    assert caught.value.code == "invalid_job_file"
    assert len(caught.value.lines()) == 1
