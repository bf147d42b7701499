"""Job files from disk: YAML and JSON, one job or many, and whatever may be wrong with a file."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from kron.cli import jobfile
from kron.cli.jobfile import MAX_DEPTH, is_job_file, load_jobs
from kron.cli.main import BAD, GOOD, run
from kron.core.decision import decide
from kron.core.errors import InvalidJobFileError, KronError, UnreadableFileError
from kron.core.job import Job

ONE = "identity: a\nschedule: 0 0 * * *\n"
Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write_file


def refusal(file: str) -> UnreadableFileError:
    with pytest.raises(UnreadableFileError) as caught:
        load_jobs(file)
    assert caught.value.details["file"] == file
    assert "\n" not in str(caught.value)
    return caught.value


def lines_of(file: str) -> list[str]:
    """Return the problems of a file, each with the line it names and without the name of the file."""
    with pytest.raises(InvalidJobFileError) as caught:
        load_jobs(file)
    assert all(line.startswith(f"{file}:") for line in caught.value.lines())
    return [line.removeprefix(f"{file}:") for line in caught.value.lines()]


# --- good files ------------------------------------------------------------------------------------

SAME = {
    "one.yaml": "identity: a\nschedule: '0 0 * * *'\nwindow: {mode: after, duration: 1h}\n",
    "list.yml": "- identity: a\n  schedule: 0 0 * * *\n  window:\n    duration: PT1H\n",
    "jobs.yaml": "jobs:\n- {identity: a, schedule: 0 0 * * *, window: {duration: 3600}}\n",
    "one.json": '{"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "60m"}}',
    "list.json": '[{"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "1h"}}]',
    "jobs.JSON": '{"jobs": [{"identity": "a", "schedule": "0 0 * * *", "window": {"duration": 3600.0}}]}',
    "bom.yaml": "\ufeffidentity: a\nschedule: 0 0 * * *\nwindow: {duration: 1h}\n",
    "merge.yaml": "- &a {identity: a, schedule: 0 0 * * *, window: &w {duration: 1h}}\n",
}


@pytest.mark.parametrize("name", list(SAME))
def test_the_same_job_may_stand_in_any_kind_of_file(name: str, write: Write) -> None:
    expected = Job.from_dict({"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "1h"}})
    file = write(name, SAME[name])
    assert is_job_file(file)
    assert load_jobs(file) == [expected]


def test_anchors_aliases_and_merges_save_writing(write: Write) -> None:
    text = """
- &usual
  identity: a
  schedule: 0 0 * * *
  window: &hour {duration: 1h}
- {<<: *usual, identity: b}
- {identity: c, schedule: 0 1 * * *, window: *hour}
"""
    a, b, c = load_jobs(write("jobs.yaml", text))
    assert [job.identity for job in (a, b, c)] == ["a", "b", "c"]
    assert a.window == b.window == c.window


def test_a_day_needs_no_quotes_in_yaml(write: Write) -> None:
    text = ONE + "constraints: {avoid: {dates: [2025-01-01, 2025-02-01..2025-02-03]}}\n"
    (job,) = load_jobs(write("jobs.yaml", text))
    assert decide(job, datetime(2025, 1, 1, tzinfo=UTC)).unschedulable
    assert decide(job, datetime(2025, 2, 2, tzinfo=UTC)).unschedulable
    assert load_jobs(write("a.yaml", ONE.replace(": a", ": 2025-01-01")))[0].identity == "2025-01-01"


CALENDARS = {
    "inline": "calendars: {closed: [2025-01-01, 2025-02-01..2025-02-03]}\n",
    "in a file": "calendars: {closed: {file: days.txt}}\n",
}


@pytest.mark.parametrize("kind", list(CALENDARS))
def test_a_calendar_stands_in_the_file_or_in_one_of_its_own(kind: str, write: Write) -> None:
    write("days.txt", "# days off\n2025-01-01   # new year\n\n2025-02-01..2025-02-03\n")
    rule = "constraints: {avoid: {calendars: closed}}"
    shared = f"{CALENDARS[kind]}jobs:\n- {{identity: a, schedule: 0 0 * * *, {rule}}}\n"
    for name, text in (("shared.yaml", shared), ("own.yaml", f"{ONE}{rule}\n{CALENDARS[kind]}")):
        (job,) = load_jobs(write(name, text))
        found = [decide(job, datetime(2025, 2, day, tzinfo=UTC)).unschedulable for day in (1, 2, 3, 4)]
        assert found == [True, True, True, False]


def test_a_calendar_file_is_looked_for_beside_the_job_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    (tmp_path / "days" / "off.txt").write_text("2025-01-01\n", encoding="utf-8")
    text = ONE + "constraints: {avoid: {calendars: closed}}\ncalendars: {closed: {file: days/off.txt}}\n"
    assert load_jobs(write("jobs.yaml", text))[0].constraints.applied == ["avoid.calendars"]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("a.yaml", True), ("a.yml", True), ("a.JSON", True), ("a.txt", False), ("crontab", False)],
)
def test_a_job_file_is_known_by_its_ending(name: str, is_one: bool, write: Write) -> None:
    assert is_job_file(write(name, ONE)) is is_one
    assert not is_job_file(f"nowhere/{name}")


# --- what is wrong inside --------------------------------------------------------------------------


def test_every_problem_has_its_file_its_line_and_its_path(write: Write) -> None:
    text = """jobs:
- identity: a
  schedule: 61 * * * *
  window:
    mode: after
    duration: -1h
- identity: b
  schedule: 0 0 * * *
  policy:
    deadline: soon
  colour: red
- schedule: 0 0 * * *
"""
    found = lines_of(write("jobs.yaml", text))
    assert [line.partition(" ")[:3:2] for line in found] == [
        ("3:", found[0][3:]),
        ("6:", 'jobs[0].window.duration "-1h": must not be negative'),
        ("11:", found[2][4:]),
        ("10:", 'jobs[1].policy.deadline "soon": write 90s, 1h30m, PT90M or a number of seconds'),
        ("12:", "jobs[2].identity: is missing"),
    ]
    assert found[0].startswith('3: jobs[0].schedule "61 * * * *": Invalid cron expression')
    assert found[2].startswith('11: jobs[1].colour "red": unknown field; use identity, schedule')


def test_json_problems_have_their_path_too(write: Write) -> None:
    text = json.dumps({"jobs": [{"identity": "a", "schedule": "x"}, 5]}, indent=1)
    found = lines_of(write("jobs.json", text))
    assert len(found) == 2
    assert "jobs[0].schedule" in found[0]
    assert 'jobs[1] "5": must be an object' in found[1]


def test_two_jobs_of_one_identity_are_refused_with_the_line_of_the_second(write: Write) -> None:
    jobs = (
        "identity: a, schedule: 0 0 * * *",
        "identity: b, schedule: x",
        "identity: a, schedule: 0 1 * * *",
    )
    text = "".join(f"- {{{job}}}\n" for job in jobs)
    found = lines_of(write("jobs.yaml", text))
    assert found[1] == '3: [2].identity "a": [0] has it already'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "must be a job, or a list of jobs", id="empty"),
        pytest.param("# nothing\n", "must be a job, or a list of jobs", id="a comment"),
        pytest.param("5", "must be a job, or a list of jobs", id="a number"),
        pytest.param("0 0 * * *", "must be a job, or a list of jobs", id="an expression"),
        pytest.param("- 0 0 * * *", "must be an object", id="a list of expressions"),
        pytest.param("identity: 5\nschedule: 0 0 * * *", "must be a text, got int", id="identity a number"),
        pytest.param(
            "identity: off\nschedule: 0 0 * * *", "must be a text, got bool", id="identity a YAML word"
        ),
        pytest.param("identity: null\nschedule: 0 0 * * *", "is missing", id="identity null"),
        pytest.param(ONE + "policy: {suspend: 'yes'}", "true or false", id="suspend a text"),
        pytest.param(ONE + "window: 1h", "must be an object", id="window a text"),
        pytest.param(ONE + "1: 2", "unknown field", id="a number as a field"),
        pytest.param("jobs: {}", "must be a job, or a list of jobs", id="jobs no list"),
        pytest.param("jobs: []\nother: 1", "unknown field; use jobs, calendars", id="unknown beside jobs"),
        pytest.param("jobs: []\ncalendars: {x: [2025-02-30]}", "no day of the calendar", id="no such day"),
        pytest.param("jobs: []\ncalendars: {x: {file: 5}}", "is not a day", id="a file that is no name"),
        pytest.param("jobs: []\ncalendars: {x: {file: a, b: c}}", "is not a day", id="a file and more"),
    ],
)
def test_a_wrong_type_is_refused(text: str, problem: str, write: Write) -> None:
    (line,) = lines_of(write("jobs.yaml", text))
    assert problem in line


@pytest.mark.parametrize(
    ("days", "problem"),
    [
        pytest.param("2025-01-01\nchristmas\n", "christmas is not a day", id="not a day"),
        pytest.param("# none\n\n", "the file has no days in it", id="empty"),
    ],
)
def test_a_calendar_file_that_is_wrong_is_refused(days: str, problem: str, write: Write) -> None:
    write("days.txt", days)
    file = write("jobs.yaml", "jobs: []\ncalendars: {closed: {file: days.txt}}\n")
    with pytest.raises(InvalidJobFileError, match=problem):
        load_jobs(file)


def test_a_calendar_file_that_is_not_there_is_named(write: Write, tmp_path: Path) -> None:
    file = write("jobs.yaml", "jobs: []\ncalendars: {closed: {file: nowhere.txt}}\n")
    with pytest.raises(UnreadableFileError) as caught:
        load_jobs(file)
    assert caught.value.details["file"] == str(tmp_path / "nowhere.txt")


# --- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        pytest.param("a.yaml", "identity: [a", "line 1", id="broken YAML"),
        pytest.param("a.yaml", "a: b: c", "mapping values are not allowed", id="two colons"),
        pytest.param("a.yaml", "a: 1\n\tb: 2", "line 2", id="a tab"),
        pytest.param("a.yaml", ONE + "---\n" + ONE, "document", id="two documents"),
        pytest.param(
            "a.yaml", ONE + "identity: b\n", 'the field "identity" stands twice', id="twice in YAML"
        ),
        pytest.param("a.yaml", "identity: *nowhere", "undefined alias", id="alias to nothing"),
        pytest.param("a.yaml", "&a [*a]", "alias to a value that contains it", id="alias to itself"),
        pytest.param("a.yaml", "? [a]\n: b", "unhashable", id="a list as a field"),
        pytest.param("a.yaml", "a: \x07", "not allowed", id="a control character"),
        pytest.param("a.json", '{"identity": "a",}', "line 1", id="broken JSON"),
        pytest.param("a.json", "", "Expecting value", id="empty JSON"),
        pytest.param("a.json", "{'a': 1}", "line 1", id="single quotes"),
        pytest.param("a.json", '{"a": NaN}', "NaN is not JSON", id="NaN"),
        pytest.param("a.json", '{"a": 1, "a": 2}', 'the field "a" stands twice', id="twice in JSON"),
        pytest.param("a.json", "{} {}", "Extra data", id="two values"),
        pytest.param("a.json", '{"a": ' + "9" * 5000 + "}", "4300 digits", id="a number without end in JSON"),
        pytest.param(
            "a.yaml", "a: 0x" + "f" * 5000, "number that is too long", id="a number without end in YAML"
        ),
    ],
)
def test_a_file_that_is_no_yaml_or_json_is_refused_in_one_line(
    name: str, text: str, reason: str, write: Write
) -> None:
    assert reason in str(refusal(write(name, text)))


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch hacked']",
        "!!python/object/new:subprocess.Popen [[touch, hacked]]",
        "!!python/name:os.system",
        "!!python/tuple [1, 2]",
        "!custom {a: 1}",
    ],
)
def test_a_tag_that_could_run_code_is_refused(
    tag: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "could not determine a constructor" in str(refusal(write("jobs.yaml", f"identity: {tag}\n")))
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.yaml"]


def bomb(levels: int) -> str:
    """Return a file whose aliases expand to nine times as much on each level."""
    names = [f"a{level}" for level in range(levels)]
    first = f"{names[0]}: &{names[0]} [x, x, x, x, x, x, x, x, x]\n"
    rest = [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise(names)]
    return first + "".join(rest)


@pytest.mark.parametrize("levels", [8, 10, 40])
def test_an_alias_bomb_is_refused_before_it_goes_off(levels: int, write: Write) -> None:
    assert "aliases expand to too much" in str(refusal(write("jobs.yaml", bomb(levels))))


def test_a_bomb_of_merges_is_refused_too(write: Write) -> None:
    text = "a0: &a0 {k: v}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    assert "aliases expand to too much" in str(refusal(write("jobs.yaml", text)))


def test_aliases_that_nest_ever_deeper_are_refused(write: Write) -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 600))
    assert f"nested more than {MAX_DEPTH} levels" in str(refusal(write("jobs.yaml", text)))


@pytest.mark.parametrize("depth", [MAX_DEPTH + 2, 900, 100_000])
@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_deep_nesting_is_refused(name: str, depth: int, write: Write) -> None:
    assert "nested" in str(refusal(write(name, "[" * depth + "]" * depth)))
    deep = '{"identity": "a", "schedule": "0 0 * * *", "window": ' + "[" * depth + "]" * depth + "}"
    assert "nested" in str(refusal(write(name, deep)))


def test_a_huge_file_is_not_even_opened(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(jobfile.MAX_BYTES + 1)
    assert "larger than 256 MiB" in str(refusal(str(huge)))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"identity: \xff\xfe\n")
    assert "not UTF-8" in str(refusal(str(tmp_path / "a.yaml")))


@pytest.mark.parametrize("name", ["nowhere.yaml", "."])
def test_a_file_that_cannot_be_opened_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError):
        load_jobs(str(tmp_path / name))


@pytest.mark.parametrize(
    "text",
    [
        "identity: {a: 1}",
        "- - - a",
        "jobs: [[]]",
        "jobs: 2025-01-01",
        "!!set {a, b}",
        "!!binary aGk=",
        "? ",
        "~",
    ],
)
def test_any_yaml_gives_jobs_or_a_named_error(text: str, write: Write) -> None:
    with pytest.raises(KronError):
        load_jobs(write("a.yaml", text))


# --- on the command line ---------------------------------------------------------------------------


def test_the_command_line_shows_a_line_for_each_problem(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(
        "jobs.yaml", "- {identity: a}\n- {identity: b, schedule: 0 0 * * *, timezone: Mars/Olympus}\n"
    )
    assert run(["next", file]) == BAD
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"kron: {file}:1: [0].schedule: is missing"
    assert second.startswith(f'kron: {file}:2: [1].timezone "Mars/Olympus": Unknown timezone')


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("job", "jobfile"):
        assert run(["schema", name]) == GOOD
        assert json.loads(capsys.readouterr().out)["$schema"].startswith("https://json-schema.org/")
    assert run(["schema", "nothing"]) == BAD


def test_explain_shows_the_chain_of_one_period(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    text = ONE + "window: {duration: 1h}\nconstraints: {only: {between: ['00:10-00:20']}}\n"
    file = write("jobs.yaml", text)
    assert run(["explain", file, "--at", "2026-03-01", "--now", "2026-03-01"]) == GOOD
    shown = capsys.readouterr().out
    (job,) = load_jobs(file)
    decision = decide(job, datetime(2026, 3, 1, tzinfo=UTC)).to_dict()
    for said in (
        decision["seed_hash"],
        decision["chosen_time"],
        decision["period_key"],
        "rejected by only.between",
    ):
        assert str(said) in shown
    assert run(["explain", file, "--at", "2026-03-01", "--now", "2026-03-01", "--json"]) == GOOD
    (document,) = json.loads(capsys.readouterr().out)
    assert document["decision"] == decision
    assert len(document["samples"]) == decision["attempts"]
    assert document["verdict"]["kind"] == "wait"
