"""What people see: tables with local and relative times on a terminal, plain UTC text in a pipe."""

import json
import re
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kron.cli.app import COMMANDS, GROUPS, OTHER, names, sections
from kron.cli.main import BAD, GOOD, NO, run
from tests.cli.history import fill, last_hour
from tests.cli.pseudo_terminal import on_terminal
from tests.tiers import mostly_slow
from tests.waiting import wait_for

STORE = ["--store", "sqlite:///kron.db"]
BERLIN = ZoneInfo("Europe/Berlin")
SGR = re.compile(r"\x1b\[\d+m")


def utc(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H:%M:%SZ}"


def local(hour: datetime) -> str:
    return hour.astimezone(BERLIN).isoformat(timespec="minutes")


def test_a_terminal_shows_runs_with_header_local_times_duration_error_and_colour(tmp_path: Path) -> None:
    hour = fill(tmp_path / "kron.db", {"mail": "no space left on device", "report": None})
    code, output = on_terminal(["runs", *STORE], tmp_path, columns=200)
    assert code == GOOD
    header, *rows = output.splitlines()
    assert SGR.sub("", header).split() == [
        "PERIOD",
        "SCHEDULE",
        "STATUS",
        "STARTED",
        "DURATION",
        "ERROR",
        "OR",
        "REASON",
    ]
    row = next(row for row in rows if " mail " in row)
    assert row.startswith(local(hour))
    assert "\x1b[31mFAILED\x1b[0m" in row
    assert re.search(r"  (\d+[hms] ago|in \d+s)  +1m 15s  +RuntimeError: no space left on device$", row)
    assert any("\x1b[32mSUCCESS\x1b[0m" in row for row in rows)


def test_a_pipe_gets_the_same_table_without_colours_in_utc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hour = fill(tmp_path / "kron.db", {"mail": "x" * 200}, hours=1)
    monkeypatch.chdir(tmp_path)
    assert run(["runs", *STORE]) == GOOD
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == [utc(hour), "mail", "FAILED", utc(hour), "1m", "15s",
                           "RuntimeError:", "x" * 200]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "variables"),
    mostly_slow([(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})]),
)
def test_colours_can_be_turned_off(option: list[str], variables: dict[str, str], tmp_path: Path) -> None:
    fill(tmp_path / "kron.db", {"mail": "no"}, hours=1)
    code, output = on_terminal(["runs", *option, *STORE], tmp_path, variables=variables)
    assert (code, "\x1b" in output) == (GOOD, False)


def test_the_runs_of_one_schedule_can_be_filtered_by_their_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "kron.db", {"mail": "no", "report": None}, hours=3)
    monkeypatch.chdir(tmp_path)
    for name, status, count in (("mail", "failed", 3), ("mail", "SUCCESS", 0), ("report", "success", 3)):
        assert run(["runs", name, "--status", status, "--limit", "3", "--json", *STORE]) == GOOD
        page = json.loads(capsys.readouterr().out)
        assert [each["schedule_id"] for each in page["runs"]] == [name] * count
    # A page without such a run is passed over.
    assert run(["runs", "mail", "--status", "success", "--limit", "1", *STORE]) == GOOD
    assert capsys.readouterr().out == "none: no run has the status SUCCESS\n"


@pytest.mark.slow
def test_a_terminal_shows_the_next_run_of_an_upsert_and_a_resume_in_local_and_relative_time(
    tmp_path: Path,
) -> None:
    # Half a year from now, so that it is never hours away.
    month = (last_hour().month + 5) % 12 + 1
    upsert = ["schedules", "upsert", "--id", "yearly", "--cron", f"0 0 1 {month} *"]
    upsert += ["--set", 'launcher={"kind": "log"}', *STORE]
    shown = rf"next run \d{{4}}-{month:02}-01 0[12]:00 \(in \d+d\)"
    code, output = on_terminal(upsert, tmp_path)
    assert (code, bool(re.search(shown, output))) == (GOOD, True), output
    _, output = on_terminal([*upsert, "--utc"], tmp_path)
    assert re.search(rf"next run \d{{4}}-{month:02}-01T00:00:00Z", output)
    _, output = on_terminal(["resume", "yearly", *STORE], tmp_path)
    assert re.search(rf"not paused, {shown}", output)


@pytest.mark.slow
def test_utc_times_are_printed_on_a_terminal_too(tmp_path: Path) -> None:
    hour = fill(tmp_path / "kron.db", {"mail": None}, hours=1)
    for words in (["runs"], ["status"], ["why", "mail"]):
        _, output = on_terminal([*words, "--utc", *STORE], tmp_path, columns=200)
        assert re.search(r"T\d\d:00:00(\.000)?Z", output)
        assert not re.search(r"\+0[12]:00", output)
    assert utc(hour) in on_terminal(["runs", "--utc", *STORE], tmp_path)[1]


@pytest.mark.slow
def test_a_time_that_a_terminal_shows_can_be_pasted_into_another_command(tmp_path: Path) -> None:
    fill(tmp_path / "kron.db", {"mail": None}, hours=1)
    shown = on_terminal(["runs", *STORE], tmp_path)[1].splitlines()[1].split()[0]
    code, output = on_terminal(["why", "mail", shown, *STORE], tmp_path)
    assert (code, SGR.sub("", output.splitlines()[0])) == (GOOD, f"mail {shown}: executed")
    assert on_terminal(["runs", "mail", shown, *STORE], tmp_path)[0] == GOOD


def test_a_long_error_is_cut_to_the_terminal(tmp_path: Path) -> None:
    fill(tmp_path / "kron.db", {"mail": "x" * 500}, hours=1)
    _, output = on_terminal(["runs", *STORE], tmp_path, columns=100)
    lines = [SGR.sub("", line) for line in output.splitlines()]
    assert len(lines) == 2
    assert len(lines[1]) == 100
    assert lines[1].endswith("...")


def test_the_status_shows_when_a_schedule_runs_next_and_what_is_wrong(tmp_path: Path) -> None:
    fill(tmp_path / "kron.db", {"mail": "no", "report": None, "still": None}, hours=2)
    assert on_terminal(["pause", "still", "--because", "the target is down", *STORE], tmp_path)[0] == GOOD
    _, output = on_terminal(["status", *STORE], tmp_path)
    header, mail, report, still = output.splitlines()
    assert SGR.sub("", header).split() == ["SCHEDULE", "NEXT", "LAST", "START", "PHASE", "STATE"]
    assert re.search(r"(in \d+[ms]|\d+s ago) \(\d\d:00\)  .*\x1b\[31m2 failures in a row\x1b\[0m$", mail)
    assert report.endswith("\x1b[32mok\x1b[0m")
    assert still.endswith("\x1b[33mpaused (the target is down)\x1b[0m")


def test_why_without_a_time_explains_the_latest_period(tmp_path: Path) -> None:
    for attempt in ("first", "second"):
        folder = tmp_path / attempt
        hour = fill(folder / "kron.db", {"mail": None})
        _, output = on_terminal(["why", "mail", *STORE], folder)
        if last_hour() == hour:
            break
    assert output.splitlines()[0] == f"mail {local(hour)}: \x1b[32mexecuted\x1b[0m"


@pytest.mark.parametrize("name", ["list", "show", "report", "--", "runs"])
def test_the_runs_of_a_schedule_never_collide_with_a_verb(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "kron.db", {name: None, "other": None}, hours=1)
    monkeypatch.chdir(tmp_path)
    assert run(["runs", *STORE, *(["--"] if name == "--" else []), name]) == GOOD
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == [name]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["runs"], "none: no run is recorded here yet"),
        (["runs", "mail"], "none: no run is recorded here yet"),
        (["schedules", "--paused"], "none: no schedule matches, or none is stored yet; kron schedules"),
        (["status", "--search", "zzz"], "none: no schedule matches, or none is stored yet; kron schedules"),
        (["audit", "--who", "ann"], "none: no change is recorded here"),
    ],
)
def test_an_empty_list_says_none(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(tmp_path / "kron.db", {"mail": None}, hours=0)
    monkeypatch.chdir(tmp_path)
    assert run([*words, *STORE]) == GOOD
    assert capsys.readouterr().out.startswith(sentence)


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "--status", "FaiLed"],
        ["next", "0 9 * * *", "--dialect", "POSIX"],
        ["next", "0 9 * * *", "--dst-gap", "Next"],
        ["schema", "JobFile"],
    ],
)
def test_choices_may_be_written_in_any_case(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "kron.db", {"mail": "no"}, hours=1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KRON_STORE", "sqlite:///kron.db")
    assert run(words) == GOOD
    assert capsys.readouterr().out


def test_an_unknown_choice_gets_all_of_them_and_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "0 9 * * *", "--dialect", "possix"]) == BAD
    reason = "use one of posix, extended; did you mean posix?"
    assert capsys.readouterr().err == f'kron: Invalid dialect "possix": {reason}\n'


def test_the_help_lists_every_command_in_a_section_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert OTHER not in sections(names())
    assert run(["--help"]) == GOOD
    text = capsys.readouterr().out
    for title, members in sections(names()).items():
        rows = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()
        assert [row.split()[0] for row in rows if not row.startswith("    ")] == members
    assert "..." not in text.partition("Everyday:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_usage_line_shows_arguments_without_braces_and_types(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command.split(), "--help"]) == GOOD
    text = capsys.readouterr().out
    text = "\n".join(line for line in text.splitlines() if not line.startswith("    kron "))
    assert not re.search(r"[{}]|\[\[|<str>|<function>|<list|\.{4}|]\.\.\.]", text)
    assert text.startswith(f"Usage: kron {command} [OPTIONS]")


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_shows_the_whole_summary_of_each_command(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([group, "--help"]) == GOOD
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]


def test_an_unknown_command_or_option_gets_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stauts"]) == BAD
    assert "Did you mean 'status'?" in capsys.readouterr().err
    assert run(["runs", "--limt", "5"]) == BAD
    assert "--limit" in capsys.readouterr().err


@pytest.mark.slow
def test_a_question_that_is_not_answered_changes_nothing(tmp_path: Path) -> None:
    fields = ["paused=true", "catchup_policy=fire_immediately", 'launcher={"kind": "log"}']
    options = [word for field in fields for word in ("--set", field)]
    schedule = ["--id", "fast", "--cron", "* * * * * *", *options]
    assert on_terminal(["schedules", "upsert", *schedule, *STORE], tmp_path)[0] == GOOD

    def resumed(answer: str) -> tuple[int, str]:
        return on_terminal(["resume", "fast", *STORE], tmp_path, answer=answer)

    # In the second of its creation no period has passed yet: it would be resumed without a question.
    created_at = time.time()
    wait_for(lambda: time.time() > created_at + 2)
    code, output = resumed("\x04")
    assert "[y/N]" in output
    assert (code, output.splitlines()[-1]) == (BAD, "kron: aborted")
    code, output = resumed("n\n")
    assert code == NO
    assert output.endswith("kron: still paused; use --yes to resume it\n")
