"""Job files: YAML and JSON, one job or many, and every kind of invalid file."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from kron.cli.support.job_file import MAX_DEPTH, load_jobs
from kron.cli.support.read import MAX_JOBS
from kron.core.errors import InvalidJobFileError, KronError, UnreadableFileError
from kron.core.job.decision import decide
from kron.core.job.job import Job

ONE = "identity: a\nschedule: 0 0 * * *\n"
WRITE_DATES = "write 2026-12-24 or 2026-12-24..2027-01-01"
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


# --- valid files -----------------------------------------------------------------------------------

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
def test_a_job_is_the_same_in_every_kind_of_file(name: str, write: Write) -> None:
    expected = Job.from_dict({"identity": "a", "schedule": "0 0 * * *", "window": {"duration": "1h"}})
    file = write(name, SAME[name])
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
def test_a_calendar_is_part_of_the_file_or_a_file_that_it_names(kind: str, write: Write) -> None:
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


ICS = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:2025{month}\nEND:VEVENT\nEND:VCALENDAR\n"


def test_a_calendar_file_may_be_an_icalendar_file(write: Write) -> None:
    write("closed.ics", ICS.format(month="0201"))
    text = ONE + "constraints: {avoid: {calendars: closed}}\ncalendars: {closed: {file: closed.ics}}\n"
    (job,) = load_jobs(write("jobs.yaml", text))
    found = [decide(job, datetime(2025, 2, day, tzinfo=UTC)).unschedulable for day in (1, 2)]
    assert found == [True, False]


def test_an_icalendar_file_that_is_wrong_is_refused_with_both_lines(write: Write, tmp_path: Path) -> None:
    write("closed.ics", ICS.format(month="0230"))
    text = ONE + "calendars: {closed: {file: closed.ics}}\n"
    assert lines_of(write("jobs.yaml", text)) == [
        f"3: calendars.closed: {tmp_path}/closed.ics:3: DTSTART 20250230 is not a day of the calendar"
    ]


# --- invalid content -------------------------------------------------------------------------------


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
        ("10:", 'jobs[1].policy.deadline "soon": write 90s, 1h30m, PT90M or a number of seconds'),
        ("11:", found[3][4:]),
        ("12:", "jobs[2].identity: is missing"),
    ]
    assert found[0].startswith('3: jobs[0].schedule "61 * * * *": Invalid cron expression')
    assert found[3].startswith('11: jobs[1].colour "red": unknown field; use identity, schedule')


def test_json_problems_have_their_line_and_their_path_too(write: Write) -> None:
    jobs = [
        {"identity": "a", "schedule": "x"},
        5,
        {"identity": "c", "schedule": "@daily", "policy": {"deadline": "x"}},
    ]
    found = lines_of(write("jobs.json", json.dumps({"jobs": jobs}, indent=1)))
    assert [line.split(" ")[:2] for line in found] == [
        ["5:", "jobs[0].schedule"],
        ["7:", "jobs[1]"],
        ["12:", "jobs[2].policy.deadline"],
    ]


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
        pytest.param("identity: 5\nschedule: 0 0 * * *", "must be a string, got int", id="identity a number"),
        pytest.param(
            "identity: off\nschedule: 0 0 * * *", "must be a string, got bool", id="identity a YAML word"
        ),
        pytest.param("identity: null\nschedule: 0 0 * * *", "is missing", id="identity null"),
        pytest.param("name: ''\nschedule: 0 0 * * *", "must not be empty", id="name empty"),
        pytest.param(ONE + "policy: {suspend: 'yes'}", "true or false", id="suspend a text"),
        pytest.param(ONE + "window: 1h", "must be an object", id="window a text"),
        pytest.param(ONE + "1: 2", "unknown field", id="a number as a field"),
        pytest.param("jobs: {}", "must be a job, or a list of jobs", id="jobs no list"),
        pytest.param("jobs: []\nother: 1", "unknown field; use jobs, calendars", id="unknown beside jobs"),
        pytest.param("jobs: []\ncalendars: {x: [2025-02-30]}", "not a day of the calendar", id="no such day"),
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
        pytest.param(
            "2025-01-01\n\nchristmas\n", f':3: "christmas" is not a date; {WRITE_DATES}', id="no date"
        ),
        pytest.param(
            "a b\nc d\n", f':1: "a" is not a date; {WRITE_DATES}', id="only one word, and only once"
        ),
        pytest.param("x" * 41, f':1: "{"x" * 40}..." is not a date; {WRITE_DATES}', id="a long word"),
        pytest.param(
            "2025-02-30", ":1: 2025-02-30 is not a day of the calendar", id="no day of the calendar"
        ),
        pytest.param(
            "2025-02-02..2025-02-01",
            ":1: 2025-02-02..2025-02-01 is reversed; write the earlier day first",
            id="reversed",
        ),
        pytest.param("# none\n\n", ": the file has no days", id="empty"),
    ],
)
@pytest.mark.parametrize("name", ["jobs.yaml", "jobs.json"])
def test_a_calendar_file_that_is_wrong_is_refused_with_both_lines(
    name: str, days: str, problem: str, write: Write, tmp_path: Path
) -> None:
    write("days.txt", days)
    rule = '"constraints": {"avoid": {"calendars": ["closed"]}}'
    job = f'{{"identity": "a", "schedule": "@daily", {rule}}}'
    file = write(name, f'{{"jobs": [{job}],\n"calendars": {{\n"closed": {{"file": "days.txt"}}}}}}')
    assert lines_of(file) == [f"3: calendars.closed: {tmp_path}/days.txt{problem}"]


@pytest.mark.parametrize(
    ("name", "shown", "reason"),
    [
        pytest.param("nowhere.txt", "nowhere.txt", "No such file or directory", id="not there"),
        pytest.param(".", "", "Is a directory", id="a folder"),
        pytest.param("latin.txt", "latin.txt", "line 2 is not UTF-8 text", id="not text"),
        pytest.param("\\u0000", "\x00", "not a valid file name", id="no name"),
        pytest.param("/dev/zero", "/dev/zero", "it is larger than 4 MiB", id="without end"),
    ],
)
def test_a_calendar_file_that_cannot_be_read_is_named(
    name: str, shown: str, reason: str, write: Write, tmp_path: Path
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"2025-01-01\n\xff\n")
    job = f'{{"identity": "a", "schedule": "x",\n"calendars": {{"closed": {{"file": "{name}"}}}}}}'
    first, second = lines_of(write("jobs.json", f"[{job}]"))
    path = str(tmp_path / shown) if not shown.startswith("/") else shown
    assert first.startswith("1: [0].schedule")
    assert second == f"2: [0].calendars.closed: cannot read {path}: {reason}"


@pytest.mark.parametrize("content", ["[]", '{"jobs": []}'])
@pytest.mark.parametrize("command", ["next", "explain", "lint", "simulate"])
def test_a_file_without_jobs_is_refused_by_every_command(
    command: str, content: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write("jobs.json", content)
    assert run([command, file]) == BAD
    assert capsys.readouterr() == ("", f'kron: Cannot read "{file}": it has no jobs\n')


@pytest.mark.parametrize("content", ["[]", "jobs: []"])
def test_either_side_of_a_plan_may_be_empty(
    content: str, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    some, none = write("some.yaml", ONE), write("none.yaml", content)
    for files, fate in (((none, some), "1 added"), ((some, none), "1 removed")):
        assert run(["plan", *files]) == NO
        assert fate in capsys.readouterr().out
    assert run(["plan", none, none]) == GOOD


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        pytest.param(
            "a.json", '{"identity": "a",\n"window": {\n"duration": %s}}', "3: window.duration", id="JSON"
        ),
        pytest.param("a.json", '{"jobs": [1,\n%s]}', "2: jobs[1]", id="an item of a list"),
        pytest.param("a.yaml", "identity: a\nwindow:\n  duration: %s\n", "3: window.duration", id="YAML"),
        pytest.param("a.yaml", "identity: a\nwindow: [-%s]\n", "2: window[0]", id="a negative one"),
        pytest.param("a.yaml", "identity: !!set {? %s }\n", "1: identity[0]", id="in a set"),
        pytest.param("a.yaml", "%s", "1: file", id="alone"),
    ],
)
@pytest.mark.parametrize("digits", [1001, 6000])
def test_a_number_without_end_is_refused_with_its_path(
    digits: int, name: str, text: str, place: str, write: Write
) -> None:
    file = write(name, text.replace("%s", "9" * digits))
    expected = "the number is too long; use at most 1000 digits"
    assert lines_of(file) == [f"{place}: {expected}"]


def test_a_hexadecimal_number_without_end_is_refused_too(write: Write) -> None:
    for text in ("a: 0x%s", "? 0x%s\n: a"):
        assert "the number is too long" in lines_of(write("a.yaml", text.replace("%s", "f" * 5000)))[0]


def test_a_time_of_day_is_a_text_in_yaml_and_no_number_of_base_60(write: Write) -> None:
    found = lines_of(write("a.yaml", ONE + "window: {duration: 1:30}\nconstraints: {only: {hours: 9:30}}\n"))
    assert [line.partition('": ')[0] for line in found] == [
        '3: window.duration "1:30',
        '4: constraints.only.hours "9:30',
    ]
    (job,) = load_jobs(write("b.yaml", ONE + "constraints: {only: {between: 09:30-10:30}}\n"))
    assert job.constraints.applied == ["only.between"]
    assert load_jobs(write("c.yaml", ONE + "window: {duration: 90.5}\n"))[0].window.duration.seconds == 90


# --- unreadable files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        pytest.param("a.yaml", "identity: [a", "a.yaml:1: it is not YAML", id="broken YAML"),
        pytest.param("a.yaml", "a: b: c", "mapping values are not allowed", id="two colons"),
        pytest.param("a.yaml", "a: 1\n\tb: 2", "a.yaml:2: it is not YAML", id="a tab"),
        pytest.param("a.yaml", ONE + "---\n" + ONE, "document", id="two documents"),
        pytest.param(
            "a.yaml", ONE + "identity: b\n", 'a.yaml:3: duplicate field "identity"', id="twice in YAML"
        ),
        pytest.param("a.yaml", "identity: *nowhere", "undefined alias", id="alias to nothing"),
        pytest.param("a.yaml", "&a [*a]", "alias to a value that contains the alias", id="alias to itself"),
        pytest.param("a.yaml", "? [a]\n: b", "unhashable", id="a list as a field"),
        pytest.param(
            "a.yaml",
            "a: b\nc: \x07",
            "a.yaml:2: it is not YAML: invalid character U+0007",
            id="a control character",
        ),
        pytest.param("a.json", '{"identity":\n"a",}', "a.json:2: it is not JSON", id="broken JSON"),
        pytest.param("a.json", "", "Expecting value", id="empty JSON"),
        pytest.param("a.json", "{'a': 1}", "a.json:1: it is not JSON", id="single quotes"),
        pytest.param("a.json", '{"a": 1,\n"b": NaN}', "a.json:2: NaN is not JSON", id="NaN"),
        pytest.param(
            "a.json",
            '{"b": {"a": 1},\n"a": 1,\n"a": 2}',
            'a.json:3: duplicate field "a"',
            id="twice in JSON",
        ),
        pytest.param("a.json", "{} {}", "Extra data", id="two values"),
        pytest.param("a.yaml", "a: !!timestamp x", "a.yaml:1: it is not YAML: invalid timestamp", id="tag"),
        pytest.param("a.yaml", "a: !!bool x", "invalid bool", id="no bool"),
        pytest.param("a.yaml", "a: !!int x", "invalid int", id="no int"),
        pytest.param("a.yaml", "a: !!float x", "invalid float", id="no float"),
    ],
)
def test_a_file_that_is_no_yaml_or_json_is_refused_in_one_line(
    name: str, text: str, reason: str, write: Write
) -> None:
    said = str(refusal(write(name, text)))
    assert reason in said
    assert "unicode string" not in said


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
def test_an_alias_bomb_is_rejected_before_it_expands(levels: int, write: Write) -> None:
    assert "aliases expand to too many values" in str(refusal(write("jobs.yaml", bomb(levels))))


def test_a_bomb_of_merges_is_refused_too(write: Write) -> None:
    text = "a0: &a0 {k: v}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)
    )
    assert "aliases expand to too many values" in str(refusal(write("jobs.yaml", text)))


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
        file.truncate(MAX_JOBS + 1)
    assert "larger than 64 MiB" in str(refusal(str(huge)))


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
