"""Every field of a definition is read under SPEC 3's and SPEC 4's words, and written under one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kron.core.errors import InvalidJobError
from kron.core.job.job import PLACES, Job
from kron.core.job.schema import SCHEMAS
from tests.job_strategies import Definition, definitions
from tests.strategies import law

SCHEMA = Draft202012Validator(SCHEMAS["job"])
SPEC_3 = {
    "schedule_id": "billing/report",
    "workflow_id": "report",
    "version": 3,
    "user_id": "ann",
    "cron_expr": "30 8 * * mon-fri",
    "timezone": "Europe/Berlin",
    "start_at": "2026-01-01T00:00:00Z",
    "jitter_ms": 500,
    "overlap_policy": "skip",
    "catchup_policy": "fire_immediately",
    "deadline": "10m",
}
SPEC_4 = {
    "identity": "prod/db-backup",
    "schedule": "0 0 * * *",
    "timezone": "UTC",
    "window_mode": "around",
    "window_duration": "1h",
    "distribution": {"name": "skewLate", "shape": 2.5},
    "seed_strategy": "daily",
    "salt": "x",
    "constraints": {"only": {"hours": [0]}},
    "policy": {"concurrency": "replace", "deadline": "10m", "suspend": True},
}


def problems_of(definition: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidJobError) as caught:
        Job.from_dict(definition)
    return [(problem.path, problem.reason) for problem in caught.value.problems]


def test_a_schedule_document_of_spec_3_is_a_job() -> None:
    written = Job.from_dict(SPEC_3).to_dict()
    assert (written["identity"], written["schedule"]) == ("billing/report", "30 8 * * mon-fri")
    assert written["policy"] == {
        "concurrency": "forbid",
        "deadline": "10m",
        "suspend": False,
        "jitter_ms": 500,
        "start_at": "2026-01-01T00:00:00Z",
    }
    assert written["launcher"] == {
        "kind": "workflow",
        "workflow_id": "report",
        "version": 3,
        "user_id": "ann",
    }
    SCHEMA.validate(SPEC_3)


def test_a_flat_definition_of_spec_4_is_a_job() -> None:
    written = Job.from_dict(SPEC_4).to_dict()
    assert written["window"] == {"mode": "around", "duration": "1h"}
    assert written["seed"] == {"strategy": "daily", "salt": "x"}
    SCHEMA.validate(SPEC_4)


@law(200)
@given(definitions(), st.randoms(use_true_random=False))
def test_a_definition_with_its_fields_beside_their_objects_is_the_same_job(
    definition: Definition, chance: Any
) -> None:
    words: dict[str, list[str]] = {}
    for word, place in PLACES.items():
        for inner in place.words:
            words.setdefault(inner if place.holder is None else f"{place.holder}.{inner}", []).append(word)
    flat: dict[str, Any] = {}
    for name, value in definition.items():
        if name in ("window", "seed", "policy"):
            flat |= {chance.choice(words[f"{name}.{inner}"]): each for inner, each in value.items()}
        else:
            flat[chance.choice([name, *words.get(name, [])])] = value
    assert Job.from_dict(flat) == Job.from_dict(definition)
    SCHEMA.validate(flat)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        pytest.param(
            {"cron_expr": "* * * * *"},
            ("cron_expr", "conflicts with schedule; use one of the two"),
            id="two words at the top",
        ),
        pytest.param(
            {"deadline": "1m", "policy": {"deadline": "1m"}},
            ("deadline", "conflicts with policy.deadline; use one of the two"),
            id="beside and inside its object",
        ),
        pytest.param(
            {"overlap_policy": "skip", "policy": {"overlap": "skip"}},
            ("overlap_policy", "conflicts with policy.overlap; use one of the two"),
            id="under another word inside",
        ),
        pytest.param(
            {"overlap_policy": "skip", "concurrency": "forbid"},
            ("concurrency", "conflicts with overlap_policy; use one of the two"),
            id="two words beside",
        ),
    ],
)
def test_a_field_that_is_given_twice_is_refused(fields: Definition, problem: tuple[str, str]) -> None:
    definition = {"identity": "a", "schedule": "0 0 * * *", **fields}
    assert problems_of(definition) == [problem]
    assert not SCHEMA.is_valid(definition)


def test_a_problem_is_reported_under_the_word_that_was_used() -> None:
    definition = {"schedule_id": "a", "cron_expr": "x", "catchup_policy": "never", "window_duration": "-1s"}
    assert [path for path, _ in problems_of(definition)] == ["cron_expr", "window_duration", "catchup_policy"]
