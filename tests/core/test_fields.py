"""One row per field: what reads it, describes it, writes it and documents it agrees."""

import json
import re
from dataclasses import MISSING, dataclass, field, fields
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kron.core.errors import InputError, InvalidJobError, InvalidOptionError, Problem
from kron.core.fields import (
    NO_DEFAULT,
    WORDS_ELSEWHERE,
    FieldReader,
    FieldSpec,
    FieldTable,
    row,
    suggestion,
    table_of,
)
from kron.core.job.constraint import CONSTRAINTS, RULE, ConstraintRule, Constraints
from kron.core.job.distribution import KINDS, PARAMETERS
from kron.core.job.job import JOB, KNOWN_WORDS, Job
from kron.core.job.policy import POLICY, Policy
from kron.core.job.seed import SEED, Seed
from kron.core.job.window import WINDOW, Window
from kron.core.value_types import DURATION, FLAG, nullable, whole_number
from tests.strategies import law

# Every table with the dataclass it is read into; a job's document is spread over several.
TABLES: dict[str, tuple[FieldTable, type | None]] = {
    "job": (JOB, None),
    "policy": (POLICY, Policy),
    "window": (WINDOW, Window),
    "seed": (SEED, Seed),
    "constraints": (CONSTRAINTS, Constraints),
    "rule": (RULE, ConstraintRule),
    **{name: (PARAMETERS[name], kind) for name, kind in KINDS.items()},
}
ROWS = [
    pytest.param(spec, id=f"{name}.{spec.name}") for name, (table, _) in TABLES.items() for spec in table.rows
]
SPECS = [spec for table, _ in TABLES.values() for spec in table.rows]
# Values near the edge of some field, beside those that Hypothesis makes up.
EDGES: list[Any] = [
    None, True, False, 0, 1, 2, 2.5, -1, 7, 23, 31, 100, 10_000, 10_001, 60_000, 60_001, 1e-10, "", "a", "0s",
    "10m", "PT1H", "-1s", "UTC", "Mars", "mon", "jan-mar", "forbid", "once", "fail", "after", "daily",
    "posix", "next", "first", "mid", "late", "uniform", "2026-12-24", "2026-12-24..2027-01-01", "09:00-17:30",
    "2026-03-29T01:00:00Z", [], [1], ["mon"], ["2026-12-24"], {}, {"x": 1}, {"mode": "after"},
    {"strategy": "weekly"}, {"name": "normal", "sigma": "1m"}, {"only": {"hours": 0}},
    {"holidays": ["2026-05-01"]},
    {"concurrency": "allow"}, {"concurrency": "allow", "overlap": "allow"},
]  # fmt: skip
plain_data = st.recursive(
    st.one_of(
        st.sampled_from(EDGES),
        st.booleans(),
        st.integers(-5, 100_000),
        st.floats(0, 9e9),
        st.text(max_size=6),
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(list(POLICY.words)), inner),
    max_leaves=3,
)


def accepted(spec: FieldSpec, value: object) -> bool:
    try:
        spec.type.parse(value)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("spec", ROWS)
def test_every_row_has_words_a_schema_and_a_line_of_documentation(spec: FieldSpec) -> None:
    Draft202012Validator.check_schema(spec.type.schema)
    assert spec.words
    assert spec.doc
    assert "\n" not in spec.doc
    assert spec.schema_of(spec.word)["description"] != ""


@pytest.mark.parametrize("spec", ROWS)
def test_every_choice_of_a_row_is_in_its_documentation(spec: FieldSpec) -> None:
    named = set(re.findall(r"`([^`]*)`", spec.doc))
    choices = spec.type.schema.get("enum", [])
    assert isinstance(choices, list)
    assert {name for name in choices if name is not None} <= named


@pytest.mark.parametrize("name", [name for name, (_, kind) in TABLES.items() if kind is not None])
def test_every_field_of_a_dataclass_has_a_row(name: str) -> None:
    table, kind = TABLES[name]
    assert kind is not None
    declared = [each for each in fields(kind) if each.init]
    assert [spec.name for spec in table.rows] == [each.name for each in declared]
    for spec, each in zip(table.rows, declared, strict=True):
        assert spec.default is (NO_DEFAULT if each.default is MISSING else each.default)


@pytest.mark.parametrize("spec", ROWS)
def test_a_default_is_valid_as_it_is_written(spec: FieldSpec) -> None:
    schema = spec.schema_of(spec.word)
    if "default" in schema:
        assert Draft202012Validator(schema).is_valid(schema["default"])
        assert accepted(spec, schema["default"])
        json.dumps(schema["default"])


@law(400)
@given(st.sampled_from(SPECS), plain_data)
def test_the_schema_of_a_row_allows_what_its_parser_accepts(spec: FieldSpec, value: Any) -> None:
    if accepted(spec, value):
        Draft202012Validator(spec.type.schema).validate(value)


@law(300)
@given(st.sampled_from(POLICY.rows), plain_data)
def test_what_the_schema_of_a_policy_field_allows_is_accepted(spec: FieldSpec, value: Any) -> None:
    # No pattern says which texts are instants or how long a duration may be, and JSON's 2.0 is whole.
    beyond = isinstance(value, str | float)
    if not beyond and Draft202012Validator(spec.type.schema).is_valid(value):
        assert accepted(spec, value)


@law(200)
@given(st.sampled_from(SPECS), plain_data)
def test_an_accepted_value_is_written_as_one_that_is_accepted(spec: FieldSpec, value: Any) -> None:
    if accepted(spec, value) and spec not in JOB.rows and spec not in CONSTRAINTS.rows:
        parsed = spec.type.parse(value)
        written = spec.type.write(parsed)
        assert spec.type.parse(written) == parsed
        Draft202012Validator(spec.written_schema()).validate(written)


# --- a new field -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Extended:
    """A definition with fields that Kron does not have."""

    cooldown: timedelta | None = field(
        default=None, metadata=row(nullable(DURATION), "pause between two runs", sparse=True)
    )
    weight: int = field(
        default=1, metadata=row(whole_number(1, 9), "its share", words=("weight", "share"), service_word="w")
    )
    draft: bool = field(default=False, metadata=row(FLAG, "not yet in use", service_word=None))
    # Derived, so no part of the document.
    label: str = field(default="", init=False)


NEW = table_of(Extended)


def read(document: object) -> tuple[Extended, list[Problem]]:
    reader = FieldReader(document, "", [], known=NEW.words)
    return NEW.build(reader, Extended), reader.problems


def test_a_field_that_is_declared_is_read_described_and_written() -> None:
    assert read({"cooldown": "90s", "share": 3}) == (Extended(cooldown=timedelta(seconds=90), weight=3), [])
    assert read({}) == (Extended(), [])
    assert NEW.write(Extended()) == {"weight": 1, "draft": False}
    assert NEW.write(Extended(cooldown=timedelta(seconds=90))) == {
        "cooldown": "1m30s", "weight": 1, "draft": False,
    }  # fmt: skip
    schema: Any = NEW.schema()
    assert list(schema["properties"]) == ["cooldown", "weight", "share", "draft"]
    assert schema["properties"]["weight"] == {
        "type": "integer", "minimum": 1, "maximum": 9, "description": "its share", "default": 1,
    }  # fmt: skip
    assert schema["properties"]["share"]["description"] == "another word for weight"
    assert schema["not"] == {"required": ["weight", "share"]}
    assert [spec.service_word for spec in NEW.rows] == ["cooldown", "w", None]


def test_a_field_that_is_declared_has_its_problems_reported() -> None:
    value, problems = read({"cooldown": "soon", "weight": 10, "drft": True})
    assert value == Extended()
    assert [problem.path for problem in problems] == ["drft", "cooldown", "weight"]
    value, problems = read({"weight": 2, "share": 3})
    assert value == Extended(weight=2)
    assert [str(problem) for problem in problems] == ['share "3": conflicts with weight; use one of the two']


def test_several_fields_with_two_words_each_are_described() -> None:
    both = FieldTable((*NEW.rows, *POLICY.rows))
    schema = Draft202012Validator(both.schema())
    assert schema.is_valid({"weight": 1, "overlap": "allow"})
    assert not schema.is_valid({"weight": 1, "share": 1})
    assert not schema.is_valid({"concurrency": "allow", "overlap": "allow"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"weight": 10}, 'Invalid weight "10": must be a whole number from 1 to 9'),
        ({"weight": True}, 'Invalid weight "True": must be a whole number from 1 to 9'),
        ({"cooldown": "90s"}, 'Invalid cooldown "90s": must be None or a timedelta that is not negative'),
        ({"draft": None}, 'Invalid draft "None": must be True or False'),
    ],
)
def test_a_value_given_in_python_is_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        NEW.check(Extended(**values))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("expression", "cron_expr"),
        ("tz", "timezone"),
        ("id", "schedule_id"),
        ("paused", "suspend"),
        ("misfire_grace_time", "deadline"),
        ("startingDeadlineSeconds", "deadline"),
        ("max_instances", "overlap"),
        ("time_limit", "run_timeout"),
        ("wndow", "window"),
    ],
)
def test_a_word_of_another_scheduler_is_answered_with_the_word_that_means_the_same(
    word: str, meant: str
) -> None:
    with pytest.raises(InvalidJobError, match=f"unknown field; did you mean {meant}\\?"):
        Job.from_dict({"identity": "report", "schedule": "0 3 * * *", word: "x"})


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("concurrencyPolicy", "overlap_policy"),
        ("max_instances", "overlap_policy"),
        ("coalesce", "catchup_policy"),
    ],
)
def test_a_word_of_another_scheduler_is_answered_in_the_words_of_a_service(word: str, meant: str) -> None:
    assert suggestion(word, ("deadline", "overlap_policy", "catchup_policy")) == f"did you mean {meant}?"


def test_every_word_of_another_scheduler_leads_to_a_word_of_a_job_and_is_none_itself() -> None:
    assert not WORDS_ELSEWHERE.keys() & KNOWN_WORDS.keys()
    assert all(set(meant) & KNOWN_WORDS.keys() for meant in WORDS_ELSEWHERE.values())
