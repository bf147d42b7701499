"""Jobs from plain data: what is accepted, and what is refused with the path of every field that is wrong."""

from dataclasses import FrozenInstanceError, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.core.cron.schedule import Schedule
from kron.core.errors import InputError, InvalidJobError
from kron.core.job.calendar import read_calendars
from kron.core.job.decision import decide
from kron.core.job.job import MAX_OPEN_WINDOWS, Job
from kron.core.job.policy import Overlap, Policy
from kron.core.job.seed import SeedStrategy
from kron.core.job.window import Window, WindowMode
from tests.job_strategies import Definition, definitions
from tests.strategies import law

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
DAYS = {"holidays": ["2025-01-01"]}


def definition_of(**changed: Any) -> Definition:
    return {"identity": "prod/backup", "schedule": "0 0 * * *", **changed}


def problems_of(definition: Any) -> dict[str, str]:
    """Return the paths that are wrong, each with its reason."""
    with pytest.raises(InvalidJobError) as caught:
        Job.from_dict(definition)
    error = caught.value
    assert isinstance(error, InputError)
    assert error.code == "invalid_job"
    assert error.details["problems"] == error.problems
    assert all(str(problem) in str(error) for problem in error.problems)
    assert len({problem.path for problem in error.problems}) == len(error.problems)
    return {problem.path: problem.reason for problem in error.problems}


# --- what is missing has a default -----------------------------------------------------------------


def test_a_job_needs_no_more_than_an_identity_and_a_schedule() -> None:
    job = Job.from_dict(definition_of())
    assert job == Job(identity="prod/backup", schedule=Schedule("0 0 * * *", identity="prod/backup"))
    assert job.schedule.timezone == "UTC"
    assert job.window == Window(WindowMode.AFTER, timedelta(0))
    assert (job.seed_strategy, job.salt) == (SeedStrategy.STABLE, "")
    assert job.constraints.applied == []
    assert job.policy == Policy(overlap=Overlap.SKIP, deadline=timedelta(0), suspend=False)


def test_the_whole_definition_is_given_back() -> None:
    whole = {
        "identity": "prod/backup",
        "schedule": "0 0 * * *",
        "timezone": "Europe/Berlin",
        "dialect": "posix",
        "dst_gap": "next",
        "dst_repeat": "first",
        "window": {"mode": "around", "duration": "1h30m"},
        "distribution": {"name": "exponential", "lambda": 2.0, "dir": "late"},
        "seed": {"strategy": "weekly", "salt": "s"},
        "constraints": {
            "only": {"hours": [1, 2], "dow": [0, 6], "months": [1]},
            "avoid": {
                "dom": [13],
                "between": ["22:00-02:00"],
                "dates": ["2025-01-01", "2025-02-01..2025-02-03"],
                "calendars": {"a": ["2025-03-01"], "b": ["2025-03-02"]},
            },
        },
        "policy": {"concurrency": "replace", "deadline": "10m", "suspend": True},
    }
    assert Job.from_dict(whole).to_dict() == whole


@law(200)
@given(definitions())
def test_a_job_is_read_back_from_what_it_gives(definition: Definition) -> None:
    job = Job.from_dict(definition)
    again = Job.from_dict(job.to_dict())
    assert again == job
    assert again.to_dict() == job.to_dict()
    assert decide(again, NOON) == decide(job, NOON)


@law(100)
@given(definitions())
def test_reading_changes_nothing_in_what_is_read(definition: Definition) -> None:
    before = repr(definition)
    Job.from_dict(definition)
    assert repr(definition) == before


@pytest.mark.parametrize(
    ("part", "short", "long"),
    [
        pytest.param("distribution", "skewLate", {"name": "skewLate", "shape": 2}, id="a name alone"),
        pytest.param("window", {"mode": "center"}, {"mode": "around", "duration": 0}, id="center"),
        pytest.param("window", {"duration": "PT90M"}, {"duration": "1h30m"}, id="ISO duration"),
        pytest.param("window", {"duration": 90}, {"duration": "1m30s"}, id="seconds"),
        pytest.param("policy", {"overlap": "skip"}, {"concurrency": "forbid"}, id="overlap"),
        pytest.param("policy", {"concurrency": "skip"}, {"concurrency": "forbid"}, id="skip"),
        pytest.param("timezone", None, "UTC", id="no zone"),
        pytest.param("dst_gap", None, "skip", id="no choice"),
        pytest.param("seed", {}, {"strategy": "stable", "salt": ""}, id="no seed"),
        pytest.param("constraints", {}, {"only": {}, "avoid": {}}, id="no constraints"),
        pytest.param("constraints", {"only": {"hours": 9}}, {"only": {"hours": [9]}}, id="one value"),
        pytest.param(
            "constraints", {"only": {"hours": "9-11"}}, {"only": {"hours": [9, 10, 11]}}, id="a range"
        ),
        pytest.param(
            "constraints", {"only": {"hours": ["09"]}}, {"only": {"hours": [9]}}, id="a leading zero"
        ),
        pytest.param(
            "constraints", {"only": {"dow": [7]}}, {"only": {"dow": ["sun"]}}, id="Sunday is 7 or 0"
        ),
        pytest.param("constraints", {"only": {"dow": "FRI-7"}}, {"only": {"dow": [5, 6, 0]}}, id="to Sunday"),
        pytest.param(
            "constraints", {"only": {"months": ["jan-Mar"]}}, {"only": {"months": [1, 2, 3]}}, id="names"
        ),
        pytest.param(
            "constraints",
            {"only": {"dates": [date(2025, 1, 1)]}},
            {"only": {"dates": "2025-01-01"}},
            id="a date as YAML gives it",
        ),
    ],
)
def test_there_are_short_ways_to_say_it(part: str, short: Any, long: Any) -> None:
    assert Job.from_dict(definition_of(**{part: short})) == Job.from_dict(definition_of(**{part: long}))


def test_a_calendar_may_be_shared_or_brought_along() -> None:
    rule = {"constraints": {"avoid": {"calendars": ["holidays"]}}}
    shared = Job.from_dict(definition_of(**rule), calendars=read_calendars(DAYS, []))
    own = Job.from_dict(definition_of(**rule, calendars=DAYS))
    full = Job.from_dict(definition_of(constraints={"avoid": {"calendars": DAYS}}))
    assert shared == own == full
    assert decide(full, NOON).unschedulable


# --- bad input, one thing at a time ----------------------------------------------------------------

PARAMETER_OF = {
    "shape": "skewEarly",
    "lambda": "exponential",
    "dir": "exponential",
    "mu": "normal",
    "sigma": "normal",
}
# One value that is wrong, in its place.
VALUES: list[tuple[str, str, Any, str]] = [
    ("unknown field", "windw", {}, "did you mean window"),
    ("unknown field far off", "zzz", 1, "unknown field; use identity"),
    ("unknown field inside", "window.mod", "after", "did you mean mode"),
    ("unknown field deep inside", "constraints.only.hour", [1], "hours"),
    ("unknown side", "constraints.never", {}, "unknown field"),
    ("unknown policy", "policy.retries", 3, "unknown field"),
    ("unknown seed field", "seed.pepper", "", "unknown field"),
    ("unknown distribution", "distribution.name", "unifrom", "did you mean uniform"),
    ("distribution no object", "distribution", 7, "must be an object"),
    ("distribution null", "distribution", None, "must be an object"),
    ("shape 0", "distribution.shape", 0, "greater than 0"),
    ("shape negative", "distribution.shape", -1, "greater than 0"),
    ("shape infinite", "distribution.shape", float("inf"), "finite"),
    ("shape nan", "distribution.shape", float("nan"), "finite"),
    ("shape huge", "distribution.shape", 10**400, "finite"),
    ("shape a text", "distribution.shape", "2", "must be a number"),
    ("shape true", "distribution.shape", True, "must be a number"),
    ("lambda 0", "distribution.lambda", 0, "greater than 0"),
    ("unknown dir", "distribution.dir", "up", "use early, late"),
    ("unknown mu", "distribution.mu", "middle", "mid"),
    ("sigma 0", "distribution.sigma", "0s", "longer than 0"),
    ("sigma negative", "distribution.sigma", "-1s", "negative"),
    ("unknown strategy", "seed.strategy", "hourly", "use stable, daily, weekly"),
    ("strategy null", "seed.strategy", None, "use stable"),
    ("salt a number", "seed.salt", 5, "must be a string"),
    ("salt not Unicode", "seed.salt", "\ud800", "valid Unicode"),
    ("unknown mode", "window.mode", "during", "use after, before, around, center"),
    ("mode a number", "window.mode", 3, "use after"),
    ("window no object", "window", "1h", "must be an object"),
    ("window null", "window", None, "must be an object"),
    ("duration negative", "window.duration", "-1h", "negative"),
    ("duration unreadable", "window.duration", "1 fortnight", "write 90s"),
    ("duration null", "window.duration", None, "write 90s"),
    ("duration too long to count", "window.duration", 1e+300, "is too long"),
    ("window too long", "window.duration", "24001h", "use at most 24000h"),
    ("unknown zone", "timezone", "Europe/Berln", "Europe/Berlin"),
    ("zone with other letters", "timezone", "europe/berlin", "Europe/Berlin"),
    ("zone empty", "timezone", "", "IANA"),
    ("zone a path", "timezone", "../../etc/passwd", "Unknown timezone"),
    ("zone a number", "timezone", 1, "must be a string"),
    ("unknown zone in the schedule", "schedule", "CRON_TZ=Asia/Tokio 0 0 * * *", "Asia/Tokyo"),
    ("schedule missing", "schedule", None, "is missing"),
    ("schedule wrong", "schedule", "61 * * * *", "minute field"),
    ("schedule never", "schedule", "0 0 30 2 *", "never"),
    ("schedule a number", "schedule", 5, "must be a string"),
    ("unknown dialect", "dialect", "quartz", "extended"),
    ("unknown gap choice", "dst_gap", "previous", "use skip, next"),
    ("unknown repeat choice", "dst_repeat", "twice", "use both, first, last"),
    ("identity missing", "identity", None, "is missing"),
    ("identity empty", "identity", "", "must not be empty"),
    ("identity blank", "identity", " \t", "must not be empty"),
    ("identity a number", "identity", 7, "must be a string"),
    ("identity not Unicode", "identity", "a\udfff", "valid Unicode"),
    ("hours out of range", "constraints.only.hours", [24], "0-23"),
    ("hours negative", "constraints.only.hours", [-1], "0-23"),
    ("hours reversed", "constraints.only.hours", ["17-9"], "reversed"),
    ("hours empty", "constraints.only.hours", [], "must not be empty"),
    ("hours a fraction", "constraints.only.hours", [9.5], "0-23"),
    ("hours true", "constraints.only.hours", [True], "0-23"),
    ("hours null", "constraints.avoid.hours", None, "0-23"),
    ("hours half a range", "constraints.avoid.hours", ["9-"], "0-23"),
    ("hours in other digits", "constraints.avoid.hours", ["٣"], "0-23"),
    ("dow out of range", "constraints.avoid.dow", [8], "0-7 or names"),
    ("dow unknown name", "constraints.avoid.dow", ["mo"], "0-7 or names"),
    ("dow reversed", "constraints.avoid.dow", ["fri-mon"], "reversed"),
    ("dow empty", "constraints.avoid.dow", [], "must not be empty"),
    ("dom zero", "constraints.only.dom", [0], "1-31"),
    ("dom reversed", "constraints.only.dom", ["31-1"], "reversed"),
    ("dom empty", "constraints.only.dom", [], "must not be empty"),
    ("months out of range", "constraints.only.months", [13], "1-12 or names"),
    ("months reversed", "constraints.only.months", ["dec-jan"], "reversed"),
    ("months empty", "constraints.only.months", [], "must not be empty"),
    ("between no span", "constraints.only.between", ["9-17"], "09:00-17:30"),
    ("between 24:00", "constraints.only.between", "09:00-24:00", "time span"),
    ("between empty", "constraints.only.between", [], "must not be empty"),
    ("dates reversed", "constraints.avoid.dates", ["2025-02-01..2025-01-01"], "reversed"),
    ("dates no day", "constraints.avoid.dates", ["2025-02-30"], "not a day"),
    ("dates a word", "constraints.avoid.dates", ["today"], "2026-12-24"),
    ("dates a time", "constraints.avoid.dates", [NOON], "2026-12-24"),
    ("dates half a span", "constraints.avoid.dates", ["2025-01-01.."], "day"),
    ("dates empty", "constraints.avoid.dates", [], "must not be empty"),
    ("unknown calendar", "constraints.avoid.calendars", ["xmas"], '"xmas"; none are defined'),
    ("calendars empty", "constraints.avoid.calendars", {}, "empty"),
    ("calendars none", "constraints.avoid.calendars", [], "empty"),
    ("calendar without days", "constraints.avoid.calendars", {"x": []}, "empty"),
    ("own calendar wrong", "calendars.x", ["2025-13-01"], "not a day of the calendar"),
    ("calendars a list", "calendars", ["2025-01-01"], "must be an object"),
    ("constraints a list", "constraints", [], "must be an object"),
    ("only a list", "constraints.only", [9], "must be an object"),
    ("unknown concurrency", "policy.concurrency", "maybe", "use allow"),
    ("concurrency null", "policy.concurrency", None, "use allow"),
    ("overlap null", "policy.overlap", None, "use allow"),
    ("deadline negative", "policy.deadline", "-5m", "negative"),
    ("deadline unreadable", "policy.deadline", "soon", "write 90s"),
    ("deadline true", "policy.deadline", True, "write 90s"),
    ("suspend a text", "policy.suspend", "yes", "true or false"),
    ("suspend a number", "policy.suspend", 1, "true or false"),
    ("suspend null", "policy.suspend", None, "true or false"),
    ("policy null", "policy", None, "must be an object"),
]  # fmt: skip
# What is wrong only together with something else.
TOGETHER: list[tuple[str, Definition, str, str]] = [
    ("unknown distribution alone",
     {"distribution": "gauss"}, "distribution.name", "use uniform, skewEarly"),
    ("distribution without a name",
     {"distribution": {"shape": 2}}, "distribution.name", "use uniform"),
    ("unknown parameter",
     {"distribution": {"name": "uniform", "shape": 2}}, "distribution.shape", "unknown field"),
    ("parameter of another",
     {"distribution": {"name": "normal", "lambda": 1}}, "distribution.lambda", "unknown"),
    ("two zones",
     {"schedule": "CRON_TZ=Asia/Tokyo 0 0 * * *", "timezone": "UTC"}, "timezone", "CRON_TZ=Asia/Tokyo"),
    ("schedule not strict",
     {"schedule": "*/5 * * * *", "dialect": "posix"}, "schedule", "minute field"),
    ("other calendar",
     {"constraints": {"avoid": {"calendars": ["xmas"]}}, "calendars": DAYS},
     "constraints.avoid.calendars", "known are holidays"),
    ("overlap twice",
     {"policy": {"overlap": "allow", "concurrency": "forbid"}}, "policy.overlap", "one of the two"),
]  # fmt: skip


def placed(path: str, value: Any) -> Definition:
    """Return a definition with one value in its place."""
    *outer, last = path.split(".")
    part: Definition = {last: value}
    if outer == ["distribution"] and last in PARAMETER_OF:
        part["name"] = PARAMETER_OF[last]
    for name in reversed(outer):
        part = {name: part}
    return definition_of(**part)


@pytest.mark.parametrize(("path", "value", "reason"), [pytest.param(*row[1:], id=row[0]) for row in VALUES])
def test_a_bad_value_is_refused_with_the_path_of_its_field(path: str, value: Any, reason: str) -> None:
    found = problems_of(placed(path, value))
    assert list(found) == [path]
    assert reason in found[path]


@pytest.mark.parametrize(
    ("changed", "path", "reason"), [pytest.param(*row[1:], id=row[0]) for row in TOGETHER]
)
def test_a_bad_combination_is_refused_with_the_path_of_its_field(
    changed: Definition, path: str, reason: str
) -> None:
    found = problems_of(definition_of(**changed))
    assert list(found) == [path]
    assert reason in found[path]


@pytest.mark.parametrize(
    "sign", ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"], ids=ascii
)
def test_an_identity_with_a_line_break_is_refused_since_two_jobs_could_share_a_seed(sign: str) -> None:
    found = problems_of(definition_of(identity=f"a{sign}b"))
    assert list(found) == ["identity"]
    assert "line break" in found["identity"]


@pytest.mark.parametrize("bad", [None, 5, "0 0 * * *", [], [definition_of()], True], ids=repr)
def test_what_is_no_object_is_refused(bad: Any) -> None:
    ((path, reason),) = problems_of(bad).items()
    assert path == "job"
    assert "must be an object" in reason


# --- bad input, all at once ------------------------------------------------------------------------


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems_of(
        {
            "identity": "",
            "schedule": "61 * * * *",
            "timezone": "Mars/Olympus",
            "dialect": "quartz",
            "dst_gap": "maybe",
            "dst_repeat": "maybe",
            "colour": "red",
            "window": {"mode": "during", "duration": "-1s", "size": 1},
            "distribution": {"name": "skewEarly", "shape": 0, "mu": "mid"},
            "seed": {"strategy": "hourly", "salt": 1},
            "calendars": {"x": ["never"], "y": [], "z": ["2025-01-01"]},
            "constraints": {
                "only": {"hours": [99], "dow": ["x"], "dom": [], "months": [0]},
                "avoid": {"between": ["x"], "dates": ["x"], "calendars": ["x", "nowhere"]},
            },
            "policy": {"concurrency": "x", "deadline": "x", "suspend": "x", "retry": 1},
        }
    )
    assert set(found) == {
        "identity", "schedule", "timezone", "dialect", "dst_gap", "dst_repeat", "colour",
        "window.mode", "window.duration", "window.size", "distribution.shape", "distribution.mu",
        "seed.strategy", "seed.salt", "calendars.x", "calendars.y",
        "constraints.only.hours", "constraints.only.dow", "constraints.only.dom", "constraints.only.months",
        "constraints.avoid.between", "constraints.avoid.dates", "constraints.avoid.calendars",
        "policy.concurrency", "policy.deadline", "policy.suspend", "policy.retry",
    }  # fmt: skip
    # A calendar that is wrong is not also unknown; the one that is not there is.
    assert "nowhere" in found["constraints.avoid.calendars"]


def test_a_window_too_long_is_said_beside_other_problems() -> None:
    found = problems_of(definition_of(window={"duration": "99999h"}, policy={"deadline": "-1s"}))
    assert list(found) == ["policy.deadline", "window.duration"]


def test_a_message_names_the_job_the_path_the_value_and_the_remedy() -> None:
    with pytest.raises(InvalidJobError) as caught:
        Job.from_dict(definition_of(policy={"deadline": "soon"}))
    assert str(caught.value) == (
        'Invalid job "prod/backup": policy.deadline "soon": write 90s, 1h30m, PT90M or a number of seconds'
    )
    assert caught.value.details["identity"] == "prod/backup"


def test_a_message_stays_short_however_long_the_value_is() -> None:
    with pytest.raises(InvalidJobError) as caught:
        Job.from_dict(definition_of(window={"mode": "x" * 100_000}))
    assert len(str(caught.value)) < 300


@law(300)
@given(
    definitions(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    st.data(),
)
def test_any_value_anywhere_is_accepted_or_refused_by_name(
    definition: Definition, value: Any, data: st.DataObject
) -> None:
    changed = {name: dict(part) if isinstance(part, dict) else part for name, part in definition.items()}
    name = data.draw(st.sampled_from([*changed, "calendars", "dialect", "dst_gap", "other"]))
    inside = changed.get(name)
    deeper: bool = data.draw(st.booleans())
    if isinstance(inside, dict) and inside and deeper:
        inside[data.draw(st.sampled_from(sorted(inside)))] = value
    else:
        changed[name] = value
    try:
        job = Job.from_dict(changed)
    except InvalidJobError as error:
        assert error.problems  # noqa: PT017
    else:
        assert Job.from_dict(job.to_dict()) == job


# --- nothing half-made -----------------------------------------------------------------------------


def test_a_job_made_by_hand_is_checked_too() -> None:
    schedule = Schedule("* * * * *")
    with pytest.raises(InvalidJobError) as caught:
        Job(
            identity="a\nb",
            salt="\ud800",
            schedule=schedule,
            window=Window(WindowMode.AFTER, timedelta(hours=17)),
        )
    paths = [getattr(problem, "path", None) for problem in caught.value.problems]
    assert paths == ["identity", "seed.salt", "window.duration"]


def test_a_job_cannot_be_changed() -> None:
    job = Job.from_dict(definition_of())
    for field in fields(job):
        with pytest.raises(FrozenInstanceError):
            setattr(job, field.name, None)


@pytest.mark.parametrize(
    ("schedule", "longest"),
    [
        pytest.param("0 0 * * *", timedelta(days=1000), id="once a day"),
        pytest.param("0 0 1 1 *", timedelta(days=1000), id="once a year counts by its densest day"),
        pytest.param("0 * * * *", timedelta(hours=1000), id="hourly"),
        pytest.param("* * * * *", timedelta(minutes=1000), id="every minute"),
        pytest.param("* * * * * *", timedelta(seconds=1000), id="every second"),
    ],
)
@pytest.mark.parametrize("mode", ["after", "before", "around"])
def test_no_more_than_a_thousand_windows_may_be_open_at_once(
    schedule: str, longest: timedelta, mode: str
) -> None:
    assert MAX_OPEN_WINDOWS == 1000
    common = {"identity": "a", "schedule": schedule}
    assert Job.from_dict({**common, "window": {"mode": mode, "duration": longest}}).window.duration == longest
    with pytest.raises(InvalidJobError, match="too long for a schedule"):
        Job.from_dict({**common, "window": {"mode": mode, "duration": longest + timedelta(microseconds=1)}})


def test_an_end_before_the_start_is_a_problem_of_the_policy() -> None:
    policy = {"start_at": "2027-01-01T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"}
    assert problems_of(definition_of(policy=policy)) == {"policy.end_at": "lies before start_at"}
