"""The profile of a job: launcher, description, tags and retention, which change no decision."""

from datetime import timedelta
from typing import Any

import pytest

from kron.core.errors import InvalidJobError
from kron.core.job.job import Job, profile_text_of
from kron.core.job.profile import Retention, profile_fields_of, retention_of
from kron.core.plan.compiled import definition_of

PLAIN = {"identity": "a", "schedule": "0 0 * * *"}
FULL: dict[str, Any] = {
    "launcher": {"kind": "http", "url": "http://127.0.0.1/"},
    "description": "Copies the books.\nAsk the books team.",
    "tags": ["books", "nightly"],
    "retention": {"keep": "720h", "keep_runs": 5},
}


def test_a_profile_is_read_and_written_back() -> None:
    job = Job.from_dict({**PLAIN, **FULL})
    assert {name: job.to_dict()[name] for name in FULL} == FULL
    assert Job.from_dict(job.to_dict()) == job
    assert hash(job) == hash(Job.from_dict(job.to_dict()))


def test_a_profile_is_no_part_of_the_stored_definition() -> None:
    assert definition_of(Job.from_dict({**PLAIN, **FULL})) == definition_of(Job.from_dict(PLAIN))
    assert profile_text_of(Job.from_dict(PLAIN)) is None


def test_tags_have_no_order_and_stand_once() -> None:
    one, two = (Job.from_dict({**PLAIN, "tags": tags}) for tags in (["b", "a", "b"], ["a", "b"]))
    assert one == two
    assert one.tags == ("a", "b")


def test_a_stored_profile_shows_every_field() -> None:
    assert profile_fields_of(None) == {"description": None, "tags": [], "retention": None}
    assert profile_fields_of(profile_text_of(Job.from_dict({**PLAIN, **FULL}))) == {
        name: FULL[name] for name in ("description", "tags", "retention")
    }
    assert profile_fields_of("damaged") == profile_fields_of(None)


def test_a_retention_may_be_forever_or_leave_a_part_to_the_settings() -> None:
    job = Job.from_dict({**PLAIN, "retention": {"keep": "forever"}})
    assert job.retention == Retention(keep=timedelta.max)
    assert job.to_dict()["retention"] == {"keep": "forever"}
    assert retention_of(profile_text_of(job)) == job.retention


@pytest.mark.parametrize(
    ("fields", "path", "reason"),
    [
        pytest.param({"tags": "books"}, "tags", "must be a list of strings", id="tags as a text"),
        pytest.param({"tags": ["x" * 101]}, "tags", "a tag is longer than 100 characters", id="long tag"),
        pytest.param({"tags": [" "]}, "tags", "must not be empty", id="empty tag"),
        pytest.param(
            {"description": "x" * 2001}, "description", "is longer than 2000 characters", id="long text"
        ),
        pytest.param(
            {"retention": {"keep": "-1d"}},
            "retention",
            'keep "-1d": must not be negative',
            id="negative keep",
        ),
        pytest.param(
            {"launcher": {"url": "http://127.0.0.1/"}},
            "launcher",
            "must be an object with kind, with workflow_id, or with command",
            id="launcher without a kind",
        ),
    ],
)
def test_a_wrong_profile_is_refused(fields: dict[str, Any], path: str, reason: str) -> None:
    with pytest.raises(InvalidJobError) as caught:
        Job.from_dict({**PLAIN, **fields})
    (problem,) = caught.value.problems
    assert problem.path == path
    assert problem.reason == reason


def test_a_profile_made_in_python_is_checked_too() -> None:
    schedule = Job.from_dict(PLAIN).schedule
    assert Job(identity="a", schedule=schedule, tags=("b", "a")).tags == ("a", "b")
    with pytest.raises(InvalidJobError, match="retention"):
        Job(identity="a", schedule=schedule, retention="30d")  # type: ignore[arg-type]
