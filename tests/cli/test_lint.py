"""`kron lint`: the examples of its page, text, JSON, and errors."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from kron.core.lint.finding import RULES, Code

KRON = Path(sys.executable).with_name("kron")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lint.md"
FROM = ["--from", "2026-01-01"]

CRONTAB = """\
# nightly work
MAILTO=ops
CRON_TZ=Europe/Berlin
30 2 * * * /opt/backup
0 9 * * 1-5 /opt/report
0 0 13 * 5 /opt/friday
61 * * * * /opt/oops
0 9 * * mon-fri /opt/report
"""
CRONTAB_FINDINGS = """\
{file}:4: KRON009 warning: runs are skipped in Europe/Berlin when the clocks go forward: 2026-03-29 02:30, \
2027-03-28 02:30; set dst_gap to "next", or choose a time that is not skipped
{file}:4: KRON010 warning: runs twice in Europe/Berlin when the clocks go back: 2026-10-25 02:30, \
2027-10-31 02:30; set dst_repeat to "first", or choose a time that is not repeated
{file}:6: KRON005 warning: either day field is enough: it runs on day 13 of the month and also on weekday 5; \
leave one of them *, or test the other in the command
{file}:7: KRON001 error: Invalid cron expression "61 * * * *": minute field has the value 61, outside 0-59; \
correct the minute field
{file}:8: KRON014 warning: same times, same time zone and same command as line 5; remove one of the two
1 error, 4 warnings in 5 schedules
"""

JOBS = """\
jobs:
  - identity: prod/backup
    schedule: "30 2 * * *"
    timezone: Europe/Berlin
    dst_repeat: first
    deadline: 10m
  - identity: prod/report
    schedule: "0 9 * * mon-fri"
    dialect: posix
    deadline: 10m
  - identity: prod/poll
    schedule: "H/5 * * * *"
    wndow: {mode: after}
    deadline: 10m
  - identity: prod/lost
    timezone: Europe/Berln
    schedule: "0 3 * * *"
    deadline: 10m
"""
JOBS_FINDINGS = """\
{file}:3: KRON009 warning: runs are skipped in Europe/Berlin when the clocks go forward: 2026-03-29 02:30, \
2027-03-28 02:30; set dst_gap to "next", or choose a time that is not skipped
{file}:8: KRON004 error: Invalid cron expression "0 9 * * mon-fri": weekday field uses the name "mon", \
which POSIX cron does not have; write 1; the equivalent in the posix dialect is 0 9 * * 1-5
{file}:13: KRON016 error: jobs[2].wndow "{{mode: after}}": unknown field; did you mean window?; \
kron schema prints the fields of a job
{file}:16: KRON003 error: unknown time zone "Europe/Berln"; write Europe/Berlin or Europe/Dublin
3 errors, 1 warning in 4 schedules
"""


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


# --- the page --------------------------------------------------------------------------------------


class Example(NamedTuple):
    """One example of the page: whether its code fires, the options and the content of the file."""

    fires: bool
    code: str
    options: list[str]
    suffix: str
    text: str


FENCE = re.compile(r'```(text|yaml|krontab) title="(fires|quiet) (KRON\d\d\d)"\n(.*?)```\n', re.DOTALL)


def examples() -> list[Example]:
    found = []
    for language, kind, code, text in FENCE.findall(PAGE.read_text()):
        first, _, rest = text.partition("\n")
        options = shlex.split(first.removeprefix("# kron lint")) if first.startswith("# kron lint") else []
        suffix = ".cron" if language == "text" else f".{language}"
        found.append(Example(kind == "fires", code, options, suffix, text if not options else rest))
    return found


EXAMPLES = examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda it: f"{'fires' if it.fires else 'quiet'} {it.code}")
def test_an_example_of_the_page(example: Example, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, f"example{example.suffix}", example.text)
    code = run(["lint", file, "--json", "--strict", *FROM, *example.options])
    found = {finding["code"] for finding in json.loads(capsys.readouterr().out)}
    assert (example.code in found) == example.fires
    assert code == (NO if found else GOOD)
    # Where the clocks change, some say so besides, and a field too many makes another one wrong.
    assert found - {example.code} <= {"KRON001", "KRON009", "KRON010"}


def test_every_code_has_a_firing_and_a_quiet_example_on_the_page() -> None:
    for fires in (True, False):
        assert {it.code for it in EXAMPLES if it.fires is fires} == set(Code)


def test_the_page_has_no_example_that_is_not_run() -> None:
    assert PAGE.read_text().count("title=") == len(EXAMPLES)


def test_the_table_of_the_page_is_that_of_the_codes() -> None:
    rows = re.findall(r"\| \[(KRON\d\d\d)\]\(#(\w+)\) \| (\w+) \| (.*) \|", PAGE.read_text())
    assert rows == [(code, code.lower(), rule.severity, rule.meaning) for code, rule in RULES.items()]
    headings = re.findall(r"^### (KRON\d\d\d)$", PAGE.read_text(), re.MULTILINE)
    assert headings == list(Code)


def test_the_session_on_the_page_is_real(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = re.search(r"```text\n\$ kron (lint jobs\.cron .*)\n((?:.*\n)+?)```", PAGE.read_text())
    assert session is not None
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "jobs.cron", "0 9 * * * /opt/a\n0 0 13 * 5 /opt/b\n")
    assert run(shlex.split(session[1])) == NO
    assert capsys.readouterr().out == session[2]


# --- text ------------------------------------------------------------------------------------------


def test_a_crontab_is_checked_line_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "jobs.cron", CRONTAB)
    assert run(["lint", file, *FROM]) == NO
    assert capsys.readouterr() == (CRONTAB_FINDINGS.format(file=file), "")


def beside_deadlines(output: str) -> list[tuple[int, str]]:
    """Return the lines and codes of findings, without those about jobs that name no deadline."""
    return [(it["line"], it["code"]) for it in json.loads(output) if it["code"] != "KRON017"]


def test_a_job_file_is_checked_job_by_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "jobs.yaml", JOBS)
    assert run(["lint", file, *FROM]) == NO
    assert capsys.readouterr() == (JOBS_FINDINGS.format(file=file), "")


def test_expressions_are_checked_each_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "0 0 13 * 5", "0 9 * * *", "*/90 * * * *"]) == NO
    assert capsys.readouterr().out == (
        "0 0 13 * 5: KRON005 warning: either day field is enough: it runs on day 13 of the month and also on "
        "weekday 5; leave one of them *, or test the other in the command\n"
        "*/90 * * * *: KRON008 warning: the step in minute */90 has no effect: only 0 matches; "
        "write 0, or a smaller step\n"
        "2 warnings in 3 schedules\n"
    )


def test_files_and_expressions_may_be_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crontab = written(tmp_path, "a.cron", "* 2 * * * x\n")
    jobs = written(
        tmp_path,
        "b.json",
        json.dumps([{"identity": "a", "schedule": "*/90 * * * *", "deadline": "1m"}], indent=1),
    )
    assert run(["lint", crontab, jobs, "0 0 30 2 *"]) == NO
    places = [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()]
    assert places == [f"{crontab}:1:", f"{jobs}:4:", "0", "1"]


def test_a_file_without_findings_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "0 9 * * *"]) == GOOD
    assert capsys.readouterr().out == "no findings in 1 schedule\n"


@pytest.mark.parametrize(("options", "code"), [([], GOOD), (["--strict"], NO)])
def test_info_counts_only_when_strict(
    options: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lint", "*/10 * * * * *", *options]) == code
    assert capsys.readouterr().out.endswith("1 info in 1 schedule\n")


def test_the_options_are_those_of_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    berlin = ["--tz", "Europe/Berlin", *FROM]
    assert run(["lint", "30 2 * * *", *berlin, "--dst-gap", "next", "--dst-repeat", "last"]) == GOOD
    assert run(["lint", "H 3 * * *", "--identity", "backup"]) == GOOD
    assert run(["lint", "*/5 * * * *", "--dialect", "posix"]) == NO
    assert "KRON004" in capsys.readouterr().out


def test_a_system_crontab_has_a_user_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "crontab", "0 9 * * * root run\n0 9 * * * www run\n")
    assert run(["lint", file, "--system"]) == GOOD
    assert capsys.readouterr().out == "no findings in 2 schedules\n"


def test_control_characters_of_a_file_cannot_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "evil.cron", "\x1b[31m * * * * x\n")
    assert run(["lint", file]) == NO
    assert "\x1b" not in capsys.readouterr().out


def test_standard_input_is_a_crontab() -> None:
    done = subprocess.run([KRON, "lint", "-"], input=CRONTAB, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (NO, "")
    assert "-:7: KRON001 error" in done.stdout
    assert done.stdout.endswith("in 5 schedules\n")


# --- JSON ------------------------------------------------------------------------------------------


def test_json_has_every_finding_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "jobs.cron", "\n* 2 * * * /opt/a\n")
    assert run(["lint", file, "*/90 * * * *", "--json"]) == NO
    assert json.loads(capsys.readouterr().out) == [
        {
            "file": file,
            "line": 2,
            "code": "KRON012",
            "severity": "warning",
            "expression": "* 2 * * *",
            "message": "* runs every minute of hour 2",
            "remedy": "for one run write 0 2 * * *, or 0-59 to mean it",
        },
        {
            "file": None,
            "line": None,
            "code": "KRON008",
            "severity": "warning",
            "expression": "*/90 * * * *",
            "message": "the step in minute */90 has no effect: only 0 matches",
            "remedy": "write 0, or a smaller step",
        },
    ]


def test_json_of_nothing_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "0 9 * * *", "--json"]) == GOOD
    assert json.loads(capsys.readouterr().out) == []


def test_the_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "--codes"]) == GOOD
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(Code)
    assert run(["lint", "--codes", "--json"]) == GOOD
    listed = json.loads(capsys.readouterr().out)
    assert [(it["code"], it["severity"], it["meaning"]) for it in listed] == [
        (code, rule.severity, rule.meaning) for code, rule in RULES.items()
    ]


# --- job files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("definition", "found"),
    [
        pytest.param({"identity": "a", "schedule": "0 0 13 * 5"}, [(3, "KRON005")], id="one job"),
        pytest.param([{"identity": "a", "schedule": "* 2 * * *"}], [(4, "KRON012")], id="a list"),
        pytest.param({"identity": "a"}, [(1, "KRON016")], id="no schedule"),
        pytest.param({"identity": "a", "schedule": 5}, [(3, "KRON016")], id="a number for a schedule"),
        pytest.param({"schedule": "61 * * * *"}, [(1, "KRON016"), (2, "KRON001")], id="no identity"),
        pytest.param({"jobs": 5}, [(2, "KRON016")], id="no list"),
        pytest.param({"jobs": [7]}, [(3, "KRON016")], id="no job"),
        pytest.param(
            {"identity": "a", "dialect": "quartz", "schedule": "61 * * * *"},
            [(3, "KRON016"), (4, "KRON001")],
            id="no dialect",
        ),
        pytest.param(
            {"identity": "a", "timezone": "Mars", "schedule": "CRON_TZ=Venus 0 9 * * *"},
            [(3, "KRON003")] * 3,
            id="two wrong zones",
        ),
        pytest.param(
            [{"identity": "a", "schedule": "0 9 * * *"}, {"identity": "a", "schedule": "0 9 * * *"}],
            [(7, "KRON016")],
            id="one identity twice",
        ),
        pytest.param({"identity": "a", "schedule": "H H * * *"}, [], id="H has the job's identity"),
    ],
)
def test_a_job_file_in_json_has_lines_too(
    definition: object, found: list[tuple[int, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, "jobs.json", json.dumps(definition, indent=1))
    run(["lint", file, "--json", *FROM])
    assert beside_deadlines(capsys.readouterr().out) == found


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        pytest.param(
            "jobs.yaml",
            "- &a\n  identity: a\n  schedule: '* 2 * * *'\n- <<: *a\n  identity: b\n",
            [(3, "KRON012"), (4, "KRON012")],
            id="a schedule by an alias has the line of its job",
        ),
        pytest.param(
            "jobs.json",
            '{\n\t"identity": "a",\n\t"schedule": "* 2 * * *"}',
            [(3, "KRON012")],
            id="JSON with tabs",
        ),
        pytest.param(
            "jobs.yaml",
            "identity: a\nschedule: '@daily'\npolicy:\n  suspend: false\n  deadline: soon\n",
            [(5, "KRON016")],
            id="a field inside a field",
        ),
    ],
)
def test_the_line_is_the_nearest_there_is(
    name: str,
    text: str,
    found: list[tuple[int, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["lint", written(tmp_path, name, text), "--json"]) == NO
    assert beside_deadlines(capsys.readouterr().out) == found


def test_the_lint_of_a_job_file_fails_exactly_where_its_jobs_cannot_be_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, text in enumerate(
        (JOBS, JOBS.replace("wndow", "window"), "identity: a\nschedule: '@daily'\n")
    ):
        file = written(tmp_path, f"jobs{number}.yml", text)
        run(["lint", file, "--json", *FROM])
        errors = [it for it in json.loads(capsys.readouterr().out) if it["severity"] == "error"]
        assert (run(["next", file, *FROM]) == BAD) == bool(errors)
        capsys.readouterr()


# --- bad usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "Nothing to check: give a FILE or an EXPR (see kron lint --help)", id="nothing"),
        pytest.param(
            ["jobs.cron"],
            'No such file: "jobs.cron" (put an expression in quotes, as in "0 9 * * 1-5")',
            id="no file",
        ),
        pytest.param(
            ["no/such.yaml"],
            'No such file: "no/such.yaml" (put an expression in quotes, as in "0 9 * * 1-5")',
            id="no job file",
        ),
        pytest.param(["{tmp}"], 'Cannot read "{tmp}": it is a directory', id="folder"),
        pytest.param(["{tmp}/latin"], 'Cannot read "{tmp}/latin": line 2 is not UTF-8 text', id="not UTF-8"),
        pytest.param(
            ["{tmp}/deep.json"], '{tmp}/deep.json:1: it is not JSON: Expecting value at column 3',
            id="not JSON",
        ),
        pytest.param(
            ["0 9 * * *", "--from", ""],
            'Invalid --from "": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
            id="no from",
        ),
        pytest.param(
            ["--codes", "x"],
            'Invalid --codes: it cannot be combined with "x"',
            id="codes and something to check",
        ),
        pytest.param(
            ["-", "-"], "- is given twice: standard input can be read only once", id="standard input twice"
        ),
        pytest.param(
            ["{tmp}/ok.yaml", "--tz", "UTC"],
            'Invalid option for "{tmp}/ok.yaml": a job file sets zone, dialect, identity and DST options '
            "itself",
            id="option for a job file",
        ),
        pytest.param(
            ["0 9 * * *", "--tz", "europe/berlin"],
            'Unknown timezone "europe/berlin": did you mean Europe/Berlin?',
            id="zone",
        ),
        pytest.param(
            ["0 9 * * *", "--dialect", "quartz"],
            'Invalid dialect "quartz": use one of posix, extended',
            id="dialect",
        ),
        pytest.param(
            ["0 9 * * *", "--from", "soon"],
            'Invalid --from "soon": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
            id="from",
        ),
    ],
)  # fmt: skip
def test_bad_usage_gets_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin").write_bytes(b"# a\n0 9 * * * caf\xe9\n")
    (tmp_path / "deep.json").write_text("[[}")
    (tmp_path / "ok.yaml").write_text("identity: a\nschedule: '@daily'\n")
    assert run(["lint", *(word.format(tmp=tmp_path) for word in arguments)]) == BAD
    assert capsys.readouterr() == ("", f"kron: {message.format(tmp=tmp_path)}\n")


def test_an_empty_argument_is_an_expression(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", ""]) == NO
    assert "must have 5 fields, or 6 with seconds first, got 0" in capsys.readouterr().out


def test_the_process_ends_with_the_exit_code() -> None:
    for text, code in (("0 9 * * *", GOOD), ("0 0 30 2 *", NO), ("no.such", BAD)):
        done = subprocess.run([KRON, "lint", text], capture_output=True, check=False)
        assert done.returncode == code
