"""The comparison of host schedulers: its commands and its table, without running one."""

from pathlib import Path

from bench.crons import PEERS, Cronstable, Krond, Line, shell_of, table_of
from kron.cli.support.job_file import load_jobs
from tests.docs.page import ROOT


def test_a_job_writes_its_start_and_its_end_outside_the_fast_clock() -> None:
    text = shell_of(Line("a", "* * * * *", 120), Path("/log"))
    assert text.count("env -u LD_PRELOAD") == 3
    assert "sleep 2.0" in text
    assert '"a start' in text
    assert '"a end' in text


def test_every_program_gets_its_own_form_of_a_job(tmp_path: Path) -> None:
    lines = [Line("fixed", "30 2 * * *")]
    Krond().install(lines, tmp_path / "log", tmp_path)
    (job,) = load_jobs(str(tmp_path / "jobs.json"))
    assert (job.identity, job.schedule.text, job.schedule.timezone) == (
        "fixed",
        "30 2 * * *",
        "Europe/Berlin",
    )
    Cronstable().install(lines, tmp_path / "log", tmp_path)
    assert 'schedule: "30 2 * * *"' in (tmp_path / "cronstable.yaml").read_text()


def test_the_table_has_a_row_for_each_case_and_says_what_was_not_run() -> None:
    table = table_of({"one": {"a *": "x", "b": "y"}, "two": {"b": "z"}})
    assert table.splitlines()[2:] == ["| a \\* | x | not run |", "| b | y | z |"]


def test_the_page_has_a_column_for_each_program() -> None:
    page = (ROOT / "docs" / "reference" / "cron-differences.md").read_text(encoding="utf-8")
    header = next(line for line in page.splitlines() if line.startswith("| case |"))
    assert all(make().name in header for make in PEERS.values())
