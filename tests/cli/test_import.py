"""`kron import`: job files from crontabs, and the report line by line."""

import json
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, run
from tests.core.job.test_from_crontab import PACKAGES

CRONTAB = """\
MAILTO=ops@example.com
30 2 * * * /opt/backup
0,30 2 * * * /opt/report
@reboot /opt/start
"""
OPTIONS = ["--tz", "Europe/Berlin", "--from", "2026-01-01"]
REPORT = """\
starts in the year from 2025-12-31T23:00:00Z, beside those of Debian's cron:
{file}:2: jobs/backup-363b48f9: 366 starts, the same
    note: cron mails the output to ops@example.com; Kron keeps it with the run and sends notices of \
failures: name a channel in notify.to
{file}:3: jobs/report-06fe75cb: 731 starts; cron differs at 1 instant
    Sun 2026-03-29 03:00  CEST   2026-03-29T01:00:00Z  cron starts 2, Kron 1
{file}:4: jobs/start-cb240b2d: starts at every boot
"""


@pytest.fixture
def crontab(tmp_path: Path) -> str:
    file = tmp_path / "jobs.cron"
    file.write_text(CRONTAB)
    return str(file)


def test_a_crontab_becomes_a_job_file_and_a_report(
    crontab: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", crontab, "-o", str(tmp_path / "new"), *OPTIONS]) == GOOD
    assert capsys.readouterr() == (REPORT.format(file=crontab), "")
    written = (tmp_path / "new" / "jobs.yaml").read_text()
    assert written.startswith(f"# Imported from {crontab}\njobs:\n- identity: jobs/backup-")
    assert run(["import", crontab, "-o", str(tmp_path / "new"), *OPTIONS]) == BAD
    assert "it exists; use --force" in capsys.readouterr().err
    assert run(["import", crontab, "-o", str(tmp_path / "new"), "--force", *OPTIONS]) == GOOD
    assert (tmp_path / "new" / "jobs.yaml").read_text() == written


def test_without_a_folder_the_job_file_is_printed_and_the_report_is_an_error_output(
    crontab: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", crontab, *OPTIONS]) == GOOD
    output, errors = capsys.readouterr()
    assert output.startswith("jobs:\n- identity: jobs/backup-")
    assert len(errors.splitlines()) == len(REPORT.splitlines())


def test_an_imported_file_is_a_job_file_whose_schedules_lint_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cron.d"
    folder.mkdir()
    (folder / "packages").write_text(PACKAGES)
    assert run(["import", str(folder / "packages"), "-o", str(tmp_path), *OPTIONS]) == GOOD
    assert "differs" not in capsys.readouterr().out
    assert run(["next", str(tmp_path / "packages.yaml"), "--from", "2026-01-01", "-n", "1"]) == GOOD
    output, errors = capsys.readouterr()
    assert "packages.yaml   7 jobs" in output
    assert errors == ""
    assert run(["lint", str(tmp_path / "packages.yaml"), "--json"]) == GOOD
    assert json.loads(capsys.readouterr().out) == []


def test_json_has_every_line_with_its_job_its_differences_and_its_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.cron"
    file.write_text(f"{CRONTAB}61 * * * * x\n")
    assert run(["import", str(file), "--json", *OPTIONS]) == NO
    [document] = json.loads(capsys.readouterr().out)
    assert (document["file"], document["job_file"]) == (str(file), "jobs.yaml")
    lines = document["lines"]
    assert [line["line"] for line in lines] == [2, 3, 4, 5]
    assert lines[1]["differences"] == [{"at": "2026-03-29T01:00:00Z", "cron": 2, "kron": 1}]
    assert (lines[0]["starts"], lines[0]["job"]["command"]) == (366, "/opt/backup")
    assert lines[2]["starts"] is None
    assert "outside 0-59" in lines[3]["problem"]


def test_the_literal_rule_lists_what_clock_changes_would_do(
    crontab: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", crontab, "--literal", "--json", *OPTIONS]) == GOOD
    [document] = json.loads(capsys.readouterr().out)
    assert [each["at"] for each in document["lines"][0]["differences"]] == [
        "2026-03-29T01:00:00Z",
        "2026-10-25T01:30:00Z",
    ]


def test_a_system_crontab_has_a_user(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "etc"
    file.write_text("@daily www /opt/x\n")
    assert run(["import", str(file), "--system", "--json", *OPTIONS]) == GOOD
    [document] = json.loads(capsys.readouterr().out)
    assert document["lines"][0]["job"]["user"] == "www"


def test_a_file_without_entries_and_two_of_one_name_are_errors(
    crontab: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    assert run(["import", str(tmp_path / "empty")]) == BAD
    assert "it has no entries" in capsys.readouterr().err
    other = tmp_path / "jobs"
    other.write_text("@daily x\n")
    assert run(["import", crontab, str(other), "-o", str(tmp_path / "new")]) == BAD
    assert "Two crontabs would become" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
