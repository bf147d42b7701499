"""`kron explain` on expressions, crontabs and job files: text and JSON."""

import json
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run
from kron.core.job.policy import POLICY

EITHER = """\
0 9 1,15 * mon   UTC
At 09:00 on the 1st and 15th of the month, and also every Monday, UTC

  minute    0
  hour      9
  day       1,15
  month     *               every month
  weekday   1               Monday
  day rule  day or weekday: one match is enough, because neither starts with *
  strict    0 9 1,15 * 1
  next      Thu 2026-01-01 09:00  UTC    2026-01-01T09:00:00Z
            Mon 2026-01-05 09:00  UTC    2026-01-05T09:00:00Z
            Mon 2026-01-12 09:00  UTC    2026-01-12T09:00:00Z
  clocks    no clock change in two years affects it
"""
CLOCKS = """\
30 2 * * *   Europe/Berlin
At 02:30 every day, Europe/Berlin time

  minute    30
  hour      2
  day       *               every day
  month     *               every month
  weekday   *               every day of the week
  day rule  every day
  strict    30 2 * * *
  next      Sat 2026-03-28 02:30  CET    2026-03-28T01:30:00Z
          - Sun 2026-03-29 02:30         -                     02:30 skipped: clocks go forward 02:00 to 03:00
            Mon 2026-03-30 02:30  CEST   2026-03-30T00:30:00Z
  clocks  - Sun 2026-03-29 02:30         -                     02:30 skipped: clocks go forward 02:00 to 03:00
          1 Sun 2026-10-25 02:30  CEST   2026-10-25T00:30:00Z  first of two: clocks go back 03:00 to 02:00
          2 Sun 2026-10-25 02:30  CET    2026-10-25T01:30:00Z  second of two: clocks go back 03:00 to 02:00
          - Sun 2027-03-28 02:30         -                     02:30 skipped: clocks go forward 02:00 to 03:00
          1 Sun 2027-10-31 02:30  CEST   2027-10-31T00:30:00Z  first of two: clocks go back 03:00 to 02:00
          2 Sun 2027-10-31 02:30  CET    2027-10-31T01:30:00Z  second of two: clocks go back 03:00 to 02:00
          - Sun 2028-03-26 02:30         -                     02:30 skipped: clocks go forward 02:00 to 03:00
"""
SECONDS = """\
*/30 0 9 L jun,dec */2   UTC
At 09:00:00 and 09:00:30 on the last day of the month in June and December, but only if it falls on Tuesday, \
Thursday, Saturday or Sunday, UTC

  second    0,30
  minute    0
  hour      9
  day       L
  month     6,12            June, December
  weekday   */2             Sunday, Tuesday, Thursday, Saturday
  day rule  day and weekday: both must match, because one starts with *
  strict    has no equivalent in the posix dialect
  next      Tue 2026-06-30 09:00:00  UTC    2026-06-30T09:00:00Z
            Tue 2026-06-30 09:00:30  UTC    2026-06-30T09:00:30Z
            Thu 2026-12-31 09:00:00  UTC    2026-12-31T09:00:00Z
  clocks    no clock change in two years affects it
"""

JOBS = """\
- identity: prod/backup
  schedule: "0 0 * * *"
  window: {mode: after, duration: 1h}
- identity: prod/report
  schedule: "30 8 * * mon"
  timezone: Europe/Berlin
"""
CHAIN = """\
prod/report   30 8 * * mon   Europe/Berlin
At 08:30 on Monday, Europe/Berlin time

  nominal time  Mon 2026-01-05 08:30:00  CET    2026-01-05T07:30:00Z
"""


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        pytest.param(["0 9 1,15 * mon", "--from", "2026-01-01"], EITHER, id="either day"),
        pytest.param(
            ["30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28", "-n", "2"], CLOCKS, id="clocks"
        ),
        pytest.param(["*/30 0 9 L jun,dec */2", "--from", "2026-01-01"], SECONDS, id="seconds and marks"),
    ],
)
def test_an_expression_is_explained(
    arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", *arguments]) == GOOD
    assert capsys.readouterr() == (shown, "")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0 0 * * *", "every day"),
        ("0 0 1 * *", "the day alone counts, because weekday is *"),
        ("0 0 */2 * *", "the day alone counts, because weekday is *"),
        ("0 0 * * 1", "the weekday alone counts, because day is *"),
        ("0 0 * * 5#2", "the weekday alone counts, because day is *"),
        ("0 0 1 * 1", "day or weekday: one match is enough, because neither starts with *"),
        ("0 0 1-31 * 1", "day or weekday: one match is enough, because neither starts with *"),
        ("0 0 */2 * 1", "day and weekday: both must match, because one starts with *"),
        ("0 0 1 * */2", "day and weekday: both must match, because one starts with *"),
    ],
)
def test_the_day_rule_is_described(text: str, rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["explain", text, "--json"])
    assert json.loads(capsys.readouterr().out)["day_rule"] == rule


@pytest.mark.parametrize(
    ("text", "strict"),
    [
        ("*/15 9-17 * * mon-fri", "0,15,30,45 9-17 * * 1-5"),
        ("@weekly", "0 0 * * 0"),
        ("0 22-2 * nov-feb 7", "0 0-2,22,23 * 1,2,11,12 0"),
        ("0 0 */2 * *", "0 0 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31 * *"),
        ("0 0 */2 * 1", None),
        ("0 0 L * *", None),
        ("30 0 0 * * *", None),
        ("0 0 0 * * *", "0 0 * * *"),
    ],
)
def test_the_strict_equivalent_is_named(
    text: str, strict: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["explain", text, "--json"])
    assert json.loads(capsys.readouterr().out)["strict"] == strict


def test_json_has_everything_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "30 2 1,L * *",
        "--tz",
        "Europe/Berlin",
        "--dst-gap",
        "next",
        "--from",
        "2026-10-25",
        "-n",
        "1",
    ]
    assert run(["explain", *arguments, "--json"]) == GOOD
    document = json.loads(capsys.readouterr().out)
    days = document["fields"].pop("day")
    assert days == {"text": "1,L", "values": [1], "marks": ["L"]}
    assert list(document["fields"]) == ["minute", "hour", "month", "weekday"]
    del document["fields"]
    moved = "; times skipped by a clock change run once, right after it"
    assert document == {
        "expression": "30 2 1,L * *",
        "canonical": "30 2 1,L * *",
        "strict": None,
        "timezone": "Europe/Berlin",
        "dialect": "extended",
        "dst_gap": "next",
        "dst_repeat": "both",
        "sentence": f"At 02:30 on the 1st and the last day of the month, Europe/Berlin time{moved}",
        "day_rule": "the day alone counts, because weekday is *",
        "times": [
            {
                "utc": "2026-10-31T01:30:00Z",
                "local": "2026-10-31T02:30:00+01:00",
                "wall": "2026-10-31T02:30:00",
                "mark": None,
                "note": None,
            }
        ],
        "clock_changes": [
            {
                "utc": f"2027-10-31T0{hour}:30:00Z",
                "local": f"2027-10-31T02:30:00+0{offset}:00",
                "wall": "2027-10-31T02:30:00",
                "mark": f"{showing}_of_two",
                "note": f"{showing} of two: clocks go back 03:00 to 02:00",
            }
            for hour, offset, showing in ((0, 2, "first"), (1, 1, "second"))
        ],
    }


# --- files -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work.cron").write_text("# ours\n0 9 1,15 * mon /opt/a\nCRON_TZ=Europe/Berlin\n30 2 * * *\n")
    (tmp_path / "jobs.yaml").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_each_entry_of_a_crontab_is_explained_at_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "work.cron", "--from", "2026-03-28", "-n", "2"]) == GOOD
    first, second = capsys.readouterr().out.split("\n\nwork.cron:4\n")
    assert first.startswith("work.cron:2  /opt/a\n0 9 1,15 * mon   UTC\nAt 09:00 on the 1st and 15th")
    assert second == CLOCKS


@pytest.mark.usefixtures("folder")
def test_a_crontab_in_json_is_a_list_with_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "work.cron", "--from", "2026-03-28", "--json"]) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert [(it["line"], it["command"], it["timezone"]) for it in found] == [
        (2, "/opt/a", "UTC"),
        (4, "", "Europe/Berlin"),
    ]


@pytest.mark.usefixtures("folder")
def test_a_job_is_explained_from_nominal_time_to_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--job", "prod/report", "--at", "2026-01-05T12:00", "--now", "2026-01-05T08:30"]
    assert run(["explain", "jobs.yaml", *arguments]) == GOOD
    shown = capsys.readouterr().out
    assert shown.startswith(CHAIN)
    assert shown.endswith(
        "  chosen time   Mon 2026-01-05 08:30:00  CET    2026-01-05T07:30:00Z\n"
        "  policy        concurrency forbid  (default of a job)\n"
        "                deadline 0s  (default of a job)\n"
        "                catchup all  (default of a job)\n"
        "                on_orphan fail  (default of a job)\n"
        "  verdict       at 2026-01-05T07:30:00Z: start\n"
    )


ORIGINS = """\
- schedule_id: a
  cron_expr: 0 2 * * *
  policy:
    queue_max: 5
  overlap_policy: queue
"""


@pytest.mark.parametrize(
    ("front", "setting", "lines"),
    [
        pytest.param(
            "job",
            "",
            [
                "policy        concurrency queue  (origins.yaml:5)",
                "deadline 0s  (default of a job)",
                "catchup all  (default of a job)",
                "on_orphan fail  (default of a job)",
                "queue_max 5  (origins.yaml:4)",
            ],
            id="a job",
        ),
        pytest.param(
            "service",
            "once",
            [
                "policy        concurrency queue  (origins.yaml:5)",
                "deadline none  (default of the service)",
                "catchup once  (setting default_catchup_policy)",
                "on_orphan fail  (default of the service)",
                "queue_max 5  (origins.yaml:4)",
            ],
            id="a schedule document",
        ),
    ],
)
def test_each_value_of_the_effective_policy_has_its_origin(
    front: str,
    setting: str,
    lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("origins.yaml").write_text(ORIGINS)
    if setting:
        monkeypatch.setenv("KRON_DEFAULT_CATCHUP_POLICY", setting)
    assert run(["explain", "origins.yaml", "--front", front]) == GOOD
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    start = shown.index(lines[0])
    assert shown[start : start + len(lines)] == lines
    assert run(["explain", "origins.yaml", "--front", front, "--json"]) == GOOD
    (document,) = json.loads(capsys.readouterr().out)
    entries = {entry["field"]: (entry["value"], entry["from"]) for entry in document["policy"]}
    assert entries["concurrency"] == ("queue", "origins.yaml:5")
    assert len(entries) == len(POLICY.rows)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        pytest.param("suspend: true", "wait until the job is resumed", id="suspended"),
        pytest.param("concurrency: queue", "wait until the active run ends", id="queued"),
        pytest.param("concurrency: replace", "start, after ending the active run", id="replaced"),
        pytest.param("concurrency: allow", "start", id="started beside"),
        pytest.param("concurrency: forbid", "skipped: another run of the job was active", id="skipped"),
    ],
)
def test_the_verdict_with_an_active_run_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, words: str
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(f'{{identity: a, schedule: "0 9 * * *", policy: {{{policy}}}}}')
    when = "2026-01-05T09:00Z"
    assert run(["explain", str(file), "--at", when, "--now", when, "--active"]) == GOOD
    assert capsys.readouterr().out.endswith(f"  verdict       at 2026-01-05T09:00:00Z: {words}\n")


@pytest.mark.usefixtures("folder")
def test_the_jobs_of_a_file_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "jobs.yaml", "--now", "2026-01-04T00:00Z", "--json"]) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert [(it["decision"]["identity"], it["decision"]["chosen_time"], it["verdict"]) for it in found] == [
        (
            "prod/backup",
            "2026-01-04T00:59:28Z",
            {"kind": "wait", "at": "2026-01-04T00:00:00Z", "until": "2026-01-04T00:59:28Z"},
        ),
        (
            "prod/report",
            "2026-01-05T07:30:00Z",
            {"kind": "wait", "at": "2026-01-04T00:00:00Z", "until": "2026-01-05T07:30:00Z"},
        ),
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0 9 * * *", "--at", "2026-01-01"], 'Invalid --at "2026-01-01": only for job files'),
        (["0 9 * * *", "--now", "2026-01-01"], 'Invalid --now "2026-01-01": only for job files'),
        (["work.cron", "--job", "a"], 'Invalid --job "a": only for job files'),
        (["work.cron", "--active"], "Invalid --active: only for job files"),
        (
            ["jobs.yaml", "--from", "2026-01-01"],
            'Invalid --from "2026-01-01": for job files use --at or --now',
        ),
        (
            ["jobs.yaml", "-n", "3"],
            'Invalid -n "3": one period of each job is explained; choose it with --at',
        ),
        (
            ["jobs.yaml", "--at", ""],
            'Invalid --at "": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
        ),
        (
            ["jobs.yaml", "--job", "prod/report", "--at", "0001-01-01"],
            'Invalid --at "0001-01-01": it lies outside the years 1 to 9999 in UTC',
        ),
        (
            ["jobs.yaml", "--now", "soon"],
            'Invalid --now "soon": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
        ),
        (["0 9 * * *", "--system"], "Invalid --system: it is for crontabs only"),
        (["jobs.yaml", "--system"], "Invalid --system: it is for crontabs only"),
        (["jobs.yaml", "--job", "a"], 'Invalid --job "a": jobs.yaml has prod/backup, prod/report'),
        (
            ["jobs.yaml", "--at", "soon"],
            'Invalid --at "soon": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
        ),
        (
            ["0 0 * * tues"],
            (
                'Invalid cron expression "0 0 * * tues": weekday field has the unknown name "tues"; '
                "did you mean tue?"
            ),
        ),
    ],
)
def test_bad_usage_gets_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", *arguments]) == BAD
    assert capsys.readouterr() == ("", f"kron: {message}\n")
