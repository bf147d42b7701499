"""The published schema and the reader agree on what a job and a file of jobs may be."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from kron.core.errors import InvalidJobError, InvalidJobFileError
from kron.core.job.file import jobs_from
from kron.core.job.job import JOB, PLACES, Job
from kron.core.job.schema import SCHEMAS
from tests.core.job.test_job import TOGETHER, VALUES, definition_of, placed
from tests.job_strategies import Definition, definitions
from tests.strategies import law

ONE_JOB = Draft202012Validator(SCHEMAS["job"])
FILE = Draft202012Validator(SCHEMAS["jobfile"])

# Values that are wrong only in what they mean, which a schema cannot say.
BEYOND_SHAPES = {
    "identity not Unicode", "salt not Unicode", "shape huge", "shape infinite", "shape nan",
    "duration too long to count", "window too long",
    "unknown zone", "zone with other letters", "zone empty", "zone a path", "two zones",
    "unknown zone in the schedule", "schedule wrong", "schedule never", "schedule not strict",
    "hours reversed",
    "dow reversed", "dom reversed", "months reversed",
    "dates reversed", "dates no day", "unknown calendar", "other calendar",

}  # fmt: skip
# Not to be had in JSON at all.
BEYOND_JSON = {"dates a time"}


def accepts(definition: Any) -> bool:
    try:
        Job.from_dict(definition)
    except InvalidJobError:
        return False
    return True


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_a_schema_is_a_valid_schema(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


def test_the_schema_names_the_fields_the_reader_knows() -> None:
    properties = SCHEMAS["job"]["properties"]
    assert isinstance(properties, dict)
    assert set(properties) == {*JOB.words, *PLACES}


@law(200)
@given(definitions())
def test_whatever_is_accepted_is_valid(definition: Definition) -> None:
    assert accepts(definition)
    ONE_JOB.validate(definition)
    ONE_JOB.validate(Job.from_dict(definition).to_dict())
    FILE.validate([definition])


ODD: list[Any] = [None, True, 0, -1, 7, 7.5, 1e9, "", "x", "mon", "1h", "09:00-17:00", "2025-01-01", []]
ODD += [["x"], {}, {"x": 1}]


def mangled(definition: Definition, data: st.DataObject) -> Any:
    """Return the definition with something in it replaced, taken out or put in."""
    value: Any = copy.deepcopy(definition)
    place = value
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.integers(0, 2)) or not isinstance(place[key], dict | list):
            place[key] = data.draw(st.sampled_from(ODD))
            break
        place = place[key]
    if isinstance(place, dict) and data.draw(st.booleans()):
        place[data.draw(st.sampled_from((*JOB.words, "mode", "duration", "only", "hours", "file")))] = "x"
    return value


@law(400)
@given(definitions(), st.data())
def test_whatever_the_schema_refuses_is_refused(definition: Definition, data: st.DataObject) -> None:
    changed = mangled(definition, data)
    if accepts(changed):
        ONE_JOB.validate(changed)


@pytest.mark.parametrize(("name", "path", "value", "_reason"), VALUES, ids=[row[0] for row in VALUES])
def test_a_bad_shape_is_refused_by_the_schema_too(name: str, path: str, value: Any, _reason: str) -> None:
    if name not in BEYOND_JSON:
        assert ONE_JOB.is_valid(placed(path, value)) is (name in BEYOND_SHAPES)


@pytest.mark.parametrize(("name", "changed", "_path", "_reason"), TOGETHER, ids=[row[0] for row in TOGETHER])
def test_a_bad_combination_is_refused_by_the_schema_where_it_can(
    name: str, changed: Definition, _path: str, _reason: str
) -> None:
    assert ONE_JOB.is_valid(definition_of(**changed)) is (name in BEYOND_SHAPES)


def test_every_exception_is_a_case_that_exists() -> None:
    assert {row[0] for row in (*VALUES, *TOGETHER)} >= BEYOND_SHAPES | BEYOND_JSON


@pytest.mark.parametrize("missing", ["identity", "schedule"])
def test_what_is_required_is_required_by_the_schema(missing: str) -> None:
    definition = definition_of()
    del definition[missing]
    assert not ONE_JOB.is_valid(definition)
    assert not accepts(definition)


# --- files -----------------------------------------------------------------------------------------

ONE = {"identity": "a", "schedule": "0 0 * * *"}
FILES = [
    pytest.param(ONE, True, id="one job"),
    pytest.param([ONE], True, id="a list"),
    pytest.param([], True, id="an empty list"),
    pytest.param({"jobs": [ONE]}, True, id="jobs"),
    pytest.param({"jobs": [ONE], "calendars": {"x": ["2025-01-01"]}}, True, id="jobs and calendars"),
    pytest.param({"jobs": [ONE], "calendars": None}, True, id="no calendars"),
    pytest.param({"jobs": [ONE], "calendars": {"x": "2025-01-01"}}, True, id="a calendar of one day"),
    pytest.param({"jobs": ONE}, False, id="jobs no list"),
    pytest.param({"jobs": None}, False, id="jobs null"),
    pytest.param({"jobs": [ONE], "zones": {}}, False, id="unknown field"),
    pytest.param({"jobs": [ONE], "calendars": {"x": []}}, False, id="an empty calendar"),
    pytest.param({"jobs": [ONE], "calendars": ["x"]}, False, id="calendars no object"),
    pytest.param({"calendars": {}}, False, id="no jobs"),
    pytest.param([[ONE]], False, id="a list in a list"),
    pytest.param([None], False, id="nothing in a list"),
    pytest.param("0 0 * * *", False, id="a text"),
    pytest.param(None, False, id="nothing"),
]


@pytest.mark.parametrize(("content", "good"), FILES)
def test_the_schema_of_files_agrees_with_their_reader(content: Any, good: bool) -> None:
    assert FILE.is_valid(content) is good
    if good:
        jobs_from(content)
    else:
        with pytest.raises(InvalidJobFileError):
            jobs_from(content)


@pytest.mark.parametrize(
    "content",
    [
        {"jobs": [ONE], "calendars": {"x": {"file": "days.txt"}}},
        {**ONE, "calendars": {"x": {"file": "days.txt"}}},
    ],
    ids=["beside the jobs", "in a job"],
)
def test_a_calendar_in_a_file_of_its_own_is_valid_in_files_only(content: Definition) -> None:
    FILE.validate(content)
    assert not ONE_JOB.is_valid(content)
