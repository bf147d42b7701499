"""`kron next` on crontabs and job files: text, JSON, and errors."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run
from kron.core.job.job import Job
from kron.core.plan.next_start import starts_ahead
from kron.core.plan.registration import create
from kron.core.plan.step import JobState
from kron.core.time.instant import rfc3339

KRON = Path(sys.executable).with_name("kron")
WRONG = "Invalid cron expression"

CRONTAB = """\
# work
MAILTO=ops
0 12 * * * /opt/noon
CRON_TZ=Europe/Berlin
30 2 * * * /opt/backup --all
15 30 2 * * sun
"""
JOBS = """\
jobs:
  - identity: prod/backup
    schedule: "0 0 * * *"
    window: {mode: after, duration: 1h}
  - identity: prod/report
    schedule: "30 8 * * mon"
    timezone: Europe/Berlin
  - identity: prod/never
    schedule: "0 6 * * *"
    constraints: {only: {hours: [7]}}
  - identity: prod/paused
    schedule: "* * * * *"
    policy: {suspend: true}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a directory with one file of each kind, so that outputs have short names."""
    (tmp_path / "work.cron").write_text(CRONTAB)
    (tmp_path / "jobs.yaml").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_entries_of_a_crontab_come_in_the_order_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "work.cron", "--from", "2026-01-03T11:00Z", "-n", "4"]) == GOOD
    assert capsys.readouterr().out.splitlines() == [
        "work.cron   3 entries",
        "  Sat 2026-01-03 12:00:00  UTC    2026-01-03T12:00:00Z  work.cron:3  /opt/noon",
        "  Sun 2026-01-04 02:30:00  CET    2026-01-04T01:30:00Z  work.cron:5  /opt/backup --all",
        "  Sun 2026-01-04 02:30:15  CET    2026-01-04T01:30:15Z  work.cron:6  15 30 2 * * sun",
        "  Sun 2026-01-04 12:00:00  UTC    2026-01-04T12:00:00Z  work.cron:3  /opt/noon",
    ]


@pytest.mark.usefixtures("folder")
def test_a_crontab_shows_the_effects_of_clock_changes(capsys: pytest.CaptureFixture[str]) -> None:
    story = "clocks go back 03:00 to 02:00"
    assert run(["next", "work.cron", "--from", "2026-10-25T00:30Z", "-n", "4"]) == GOOD
    assert capsys.readouterr().out.splitlines()[1:] == [
        (
            f"1 Sun 2026-10-25 02:30:00  CEST   2026-10-25T00:30:00Z  first of two: {story}  "
            "work.cron:5  /opt/backup --all"
        ),
        (
            f"1 Sun 2026-10-25 02:30:15  CEST   2026-10-25T00:30:15Z  first of two: {story}  "
            "work.cron:6  15 30 2 * * sun"
        ),
        (
            f"2 Sun 2026-10-25 02:30:00  CET    2026-10-25T01:30:00Z  second of two: {story}  "
            "work.cron:5  /opt/backup --all"
        ),
        (
            f"2 Sun 2026-10-25 02:30:15  CET    2026-10-25T01:30:15Z  second of two: {story}  "
            "work.cron:6  15 30 2 * * sun"
        ),
    ]


@pytest.mark.usefixtures("folder")
def test_options_are_for_the_entries_that_say_nothing_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    run(["next", "work.cron", "--tz", "Asia/Tokyo", "--from", "2026-01-05T00:00Z", "-n", "2"])
    assert [line.split("Z  ")[0][-19:] for line in capsys.readouterr().out.splitlines()[1:]] == [
        "2026-01-05T01:30:00",
        "2026-01-05T03:00:00",
    ]


@pytest.mark.usefixtures("folder")
def test_a_crontab_in_json_names_line_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "work.cron", "--from", "2026-01-03T11:00Z", "-n", "2", "--json"]) == GOOD
    noon, backup = json.loads(capsys.readouterr().out)
    assert noon == {
        "line": 3,
        "command": "/opt/noon",
        "expression": "0 12 * * *",
        "canonical": "0 12 * * *",
        "timezone": "UTC",
        "dialect": "extended",
        "dst_gap": "skip",
        "dst_repeat": "both",
        "times": [
            {
                "utc": "2026-01-03T12:00:00Z",
                "local": "2026-01-03T12:00:00+00:00",
                "wall": "2026-01-03T12:00:00",
                "mark": None,
                "note": None,
            }
        ],
    }
    assert (backup["line"], backup["timezone"], backup["times"][0]["local"]) == (
        5,
        "Europe/Berlin",
        "2026-01-04T02:30:00+01:00",
    )


@pytest.mark.usefixtures("folder")
def test_the_jobs_of_a_file_come_in_the_order_of_their_chosen_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["next", "jobs.yaml", "--from", "2026-01-04T00:00Z", "-n", "5"]) == GOOD
    nowhere = "!                                 -                   "
    assert capsys.readouterr().out.splitlines() == [
        "jobs.yaml   4 jobs, 1 of them suspended",
        "  Sun 2026-01-04 00:59:28  UTC    2026-01-04T00:59:28Z  prod/backup  for Sun 2026-01-04 00:00  UTC",
        f"{nowhere}  prod/never   for Sun 2026-01-04 06:00  UTC: unschedulable",
        "  Mon 2026-01-05 00:25:52  UTC    2026-01-05T00:25:52Z  prod/backup  for Mon 2026-01-05 00:00  UTC",
        f"{nowhere}  prod/never   for Mon 2026-01-05 06:00  UTC: unschedulable",
        "  Mon 2026-01-05 08:30:00  CET    2026-01-05T07:30:00Z  prod/report  for Mon 2026-01-05 08:30  CET",
    ]


@pytest.mark.usefixtures("folder")
def test_jobs_in_json_are_their_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "jobs.yaml", "--from", "2026-01-04T00:00Z", "-n", "3", "--json"]) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert [(it["identity"], it["nominal_time"], it["chosen_time"], it["unschedulable"]) for it in found] == [
        ("prod/backup", "2026-01-04T00:00:00Z", "2026-01-04T00:59:28Z", False),
        ("prod/never", "2026-01-04T06:00:00Z", None, True),
        ("prod/backup", "2026-01-05T00:00:00Z", "2026-01-05T00:25:52Z", False),
    ]
    assert {it["kron_decision"] for it in found} == {1}


def test_a_job_file_in_json_is_read_as_one_in_yaml(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"identity": "a", "schedule": "0 9 * * *", "timezone": "Asia/Tokyo"}
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "job.yml").write_text("identity: a\nschedule: 0 9 * * *\ntimezone: Asia/Tokyo\n")
    answers = []
    for name in ("job.json", "job.yml"):
        assert run(["next", name, "--from", "2026-01-01", "-n", "2"]) == GOOD
        answers.append(capsys.readouterr().out.splitlines()[1:])
    assert answers[0] == answers[1]
    assert len(answers[0]) == 2


def test_a_file_may_be_a_pipe() -> None:
    done = subprocess.run(
        [KRON, "next", "/dev/stdin", "--from", "2026-01-01", "-n", "1"],
        input="0 9 * * * run\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert "  Thu 2026-01-01 09:00  UTC    2026-01-01T09:00:00Z  /dev/stdin:1  run" in done.stdout


@pytest.mark.parametrize("command", ["next", "explain"])
@pytest.mark.parametrize(
    ("name", "content", "messages"),
    [
        pytest.param(
            "bad.cron",
            "0 9 * * * ok\n61 * * * * x\n\nno entry\nCRON_TZ=Mars 0 9 * * * y\n",
            [
                f'bad.cron:2: {WRONG} "61 * * * *": minute field has the value 61, outside 0-59',
                (
                    f'bad.cron:4: {WRONG} "no entry": expression field must have 5 fields, '
                    "or 6 with seconds first, got 2"
                ),
                'bad.cron:5: Unknown timezone "Mars": use an IANA name such as "Europe/Berlin"',
            ],
            id="every wrong line of a crontab",
        ),
        pytest.param(
            "zone.cron",
            "CRON_TZ=Mars\n0 9 * * * a\n0 10 * * * b\n",
            ['zone.cron:1: Unknown timezone "Mars": use an IANA name such as "Europe/Berlin"'],
            id="a wrong zone where it is assigned, once",
        ),
        pytest.param(
            "empty.cron", "# nothing\n", ['Cannot read "empty.cron": it has no times'], id="no times"
        ),
        pytest.param(
            "latin.cron", b"caf\xe9", ['Cannot read "latin.cron": line 1 is not UTF-8 text'], id="not UTF-8"
        ),
        pytest.param(
            "bad.json",
            '[\n {"identity": "a", "schedule": "0 0 30 2 *"},\n {"identity": "b"}\n]',
            [
                (
                    f'bad.json:2: [0].schedule "0 0 30 2 *": {WRONG} "0 0 30 2 *": expression field '
                    "can never match: no year has a day 30 in month 2"
                ),
                "bad.json:3: [1].schedule: is missing",
            ],
            id="every wrong job of a file",
        ),
    ],
)
def test_a_bad_file_gets_one_line_for_each_thing_that_is_wrong(
    command: str,
    name: str,
    content: str | bytes,
    messages: list[str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    assert run([command, name]) == BAD
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [f"kron: {message}" for message in messages]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", ["next", "explain"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["none.yaml"],
            'No such file: "none.yaml" (put an expression in quotes, as in "0 9 * * 1-5")',
            id="no file",
        ),
        pytest.param(["."], 'Cannot read ".": it is a directory', id="folder"),
        pytest.param(
            ["jobs.yaml", "--tz", "UTC"],
            'Invalid option for "jobs.yaml": a job file sets zone, dialect, identity and DST options itself',
            id="option for jobs",
        ),
        pytest.param(
            ["*/15"],
            f'{WRONG} "*/15": expression field must have 5 fields, or 6 with seconds first, got 1',
            id="a field is no file",
        ),
        pytest.param(
            [""],
            f'{WRONG} "": expression field must have 5 fields, or 6 with seconds first, got 0',
            id="nothing is no folder",
        ),
        pytest.param(["work.cron", "-n", "0"], 'Invalid -n "0": use 1 to 10000', id="count"),
    ],
)
def test_bad_usage_gets_one_line(
    command: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *arguments]) == BAD
    assert capsys.readouterr() == ("", f"kron: {message}\n")


def test_the_starts_of_a_job_file_are_those_of_its_policy(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Bounds, jitter and remaining runs are those the engine has: the same next start on every front."""
    job = {
        "identity": "x/y",
        "schedule": "0 6 * * *",
        "policy": {"deadline": "1h", "start_at": "2098-01-01T00:00:00Z", "jitter_ms": 30_000, "remaining": 2},
    }
    over = {"identity": "over", "schedule": "0 6 * * *", "policy": {"end_at": "2001-01-01T00:00:00Z"}}
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps({"jobs": [job, over]}))
    assert run(["next", str(file)]) == GOOD
    times = re.findall(r"2098-01-0[0-9]T[0-9:]+Z", capfd.readouterr().out)
    now = 4_000_000_000_000
    state = JobState(create(Job.from_dict(job), now=now))
    starts = [rfc3339(start.fire_time // 1000) for start in starts_ahead(state, now)]
    assert (times, len(starts)) == (starts, 2)
    file.write_text(json.dumps({"jobs": [over]}))
    assert run(["next", str(file)]) == GOOD
    assert "no further times" in capfd.readouterr().out
    assert run(["explain", str(file), "--job", "over"]) == BAD
    assert "has no further period" in capfd.readouterr().err
