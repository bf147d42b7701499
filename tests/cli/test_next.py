"""`kron next`: text, JSON, and errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, NO, brief, run
from tests.tiers import mostly_slow

KRON = Path(sys.executable).with_name("kron")
COUNT_CUT = f'Invalid -n "{"1" * 132}...{"1" * 39}": use 1 to 10000'


def test_the_next_times_are_shown_in_the_zone_and_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "0 9 * * 1-5", "--tz", "Europe/Berlin", "--from", "2026-06-05", "-n", "2"]) == GOOD
    assert capsys.readouterr().out.splitlines() == [
        "0 9 * * 1-5   Europe/Berlin",
        "  Fri 2026-06-05 09:00  CEST   2026-06-05T07:00:00Z",
        "  Mon 2026-06-08 09:00  CEST   2026-06-08T07:00:00Z",
    ]


def test_a_time_the_clocks_jump_over_is_marked_as_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    run(["next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-29", "-n", "1"])
    dropped, following = capsys.readouterr().out.splitlines()[1:]
    assert dropped.startswith("- Sun 2026-03-29 02:30")
    assert dropped.endswith("02:30 skipped: clocks go forward 02:00 to 03:00")
    assert following == "  Mon 2026-03-30 02:30  CEST   2026-03-30T00:30:00Z"


def test_a_repeated_time_is_marked_twice(capsys: pytest.CaptureFixture[str]) -> None:
    run(["next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-10-25", "-n", "2"])
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.startswith("1 Sun 2026-10-25 02:30  CEST   2026-10-25T00:30:00Z  first of two")
    assert second.startswith("2 Sun 2026-10-25 02:30  CET    2026-10-25T01:30:00Z  second of two")


def test_a_moved_time_names_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--tz", "Europe/Berlin", "--from", "2026-03-29", "-n", "1", "--dst-gap", "next"]
    run(["next", "*/15 2 * * *", *common])
    moved = capsys.readouterr().out.splitlines()[1]
    assert moved.startswith("> Sun 2026-03-29 03:00  CEST   2026-03-29T01:00:00Z")
    assert "02:00 to 02:45 (4 times) moved here" in moved


@pytest.mark.parametrize(("choice", "showing"), [("first", "second"), ("last", "first")])
def test_a_repetition_that_is_left_out_is_marked(
    choice: str, showing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--tz", "Europe/Berlin", "--from", "2026-10-25", "-n", "2", "--dst-repeat", choice]
    run(["next", "30 2 * * *", *common])
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len([line for line in lines if line.startswith("-")]) == 1
    assert any(f"{showing} 02:30 left out: clocks go back 03:00 to 02:00" in line for line in lines)


def test_json_has_the_same_times_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    run(["next", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-29", "-n", "1", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["timezone"] == "Europe/Berlin"
    assert [(time["utc"], time["mark"]) for time in document["times"]] == [
        (None, "skipped"),
        ("2026-03-30T00:30:00Z", None),
    ]
    assert document["times"][1]["local"] == "2026-03-30T02:30:00+02:00"


def test_a_start_without_an_offset_is_read_in_the_schedules_zone(capsys: pytest.CaptureFixture[str]) -> None:
    run(["next", "* * * * *", "--tz", "Asia/Kolkata", "--from", "2026-01-01T00:00", "-n", "1"])
    assert "2025-12-31T18:30:00Z" in capsys.readouterr().out
    run(["next", "* * * * *", "--tz", "Asia/Kolkata", "--from", "2026-01-01T00:00:30Z", "-n", "1"])
    assert "2026-01-01T00:01:00Z" in capsys.readouterr().out


def test_the_end_of_the_calendar_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "0 0 1 1 *", "--from", "9999-06-01"]) == GOOD
    assert "the calendar ends" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["*/15 * * *"],
            'Invalid cron expression "*/15 * * *": expression field must have 5 fields, '
            "or 6 with seconds first, got 4",
            id="field count",
        ),
        pytest.param(
            ["*/15 * * * *", "--dialect", "posix"],
            'Invalid cron expression "*/15 * * * *": minute field uses step syntax "*/15", '
            "which POSIX cron does not have; write 0,15,30,45",
            id="strict",
        ),
        pytest.param(
            ["* * * * *", "--tz", "europe/berlin"],
            'Unknown timezone "europe/berlin": did you mean Europe/Berlin?',
            id="zone",
        ),
        pytest.param(["* * * * *", "-n", "0"], 'Invalid -n "0": use 1 to 10000', id="count"),
        pytest.param(["* * * * *", "-n", "abc"], 'Invalid -n "abc": use 1 to 10000', id="no count"),
        pytest.param(["* * * * *", "--count", "1" * 5000], COUNT_CUT, id="a count without end"),
        pytest.param(
            ["* * * * *", "--from", ""],
            'Invalid --from "": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
            id="no from",
        ),
        pytest.param(
            ["* * * * *", "--tz", "Asia/Tokyo", "--from", "0001-01-01"],
            'Invalid --from "0001-01-01": it lies outside the years 1 to 9999 in UTC',
            id="from before the calendar",
        ),
        pytest.param(["* * * * *", "--system"], "Invalid --system: it is for crontabs only", id="system"),
        pytest.param(
            ["* * * * *", "--from", "tomorrow"],
            'Invalid --from "tomorrow": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
            id="from",
        ),
        pytest.param(
            ["* * * * *", "--dialect", "quartz"],
            'Invalid dialect "quartz": use one of posix, extended',
            id="dialect",
        ),
        pytest.param(
            ["* * * * *", "--dst-gap", "run"], 'Invalid dst_gap "run": use one of skip, next', id="option"
        ),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["next", *arguments]) == BAD
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"kron: {message}\n"


@pytest.mark.parametrize(
    "arguments",
    [["nxt"], ["next"], ["next", "--what"], ["next", "0", "9", "*", "*", "1-5"]],
)
def test_bad_usage_gets_one_line_that_points_to_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == BAD
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "--help)" in captured.err


def test_control_characters_in_the_input_cannot_reach_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["next", "* * * * *\n\x1b[31m"]) == BAD
    error = capsys.readouterr().err
    assert "\x1b" not in error
    assert error.count("\n") == 1


def test_the_installed_command_works_as_a_process() -> None:
    command = [str(KRON), "next", "0 0 29 2 *", "--from", "2026-01-01", "-n", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (GOOD, "")
    assert "2028-02-29T00:00:00Z" in done.stdout


def test_errors_of_the_process_show_no_traceback() -> None:
    done = subprocess.run([KRON, "next", "0 0 * * mon,tues"], capture_output=True, text=True, check=False)
    assert done.returncode == BAD
    assert done.stderr == (
        'kron: Invalid cron expression "0 0 * * mon,tues": weekday field has the unknown name "tues"; '
        "did you mean tue?\n"
    )


def in_bash(command: str, unbuffered: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash; buffered output is written later, and fails later."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    return subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "reader"),
    [
        pytest.param("next '* * * * *' -n 10000", "head -n 1", id="more than a pipe holds"),
        pytest.param("next '* * * * *'", "true", id="less than a pipe holds", marks=pytest.mark.slow),
        pytest.param("--help", "true", id="help", marks=pytest.mark.slow),
        pytest.param("lint '0 0 13 * 5'", "true", id="an answer that is no", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("unbuffered", mostly_slow(["", "1"]), ids=["buffered", "unbuffered"])
def test_a_reader_that_stops_early_is_no_error(arguments: str, reader: str, unbuffered: str) -> None:
    # The reader is given the time to go before anything is written.
    command = f"(sleep 0.4; '{KRON}' {arguments}) | {reader} > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = in_bash(command, unbuffered)
    assert (done.stdout, done.stderr) == (f"{GOOD}\n", "")


@pytest.mark.parametrize(
    ("arguments", "redirection", "message"),
    [
        pytest.param("next '* * * * *'", ">&-", "it is closed", id="closed"),
        pytest.param("next '* * * * *'", "> /dev/full", "No space left on device", id="full"),
        pytest.param(
            "lint '* * * * *' --json",
            "> /dev/full",
            "No space left on device",
            id="lint",
            marks=pytest.mark.slow,
        ),
        pytest.param("schema", "> /dev/full", "No space left on device", id="schema", marks=pytest.mark.slow),
        pytest.param("--help", "> /dev/full", "No space left on device", id="help", marks=pytest.mark.slow),
        pytest.param(
            "--version", "> /dev/full", "No space left on device", id="version", marks=pytest.mark.slow
        ),
        pytest.param(
            "next '* * * * *' -n 10000",
            "> /dev/full",
            "No space left on device",
            id="more than a buffer holds",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.parametrize("unbuffered", mostly_slow(["", "1"]), ids=["buffered", "unbuffered"])
def test_an_output_that_cannot_be_written_gets_one_line(
    arguments: str, redirection: str, message: str, unbuffered: str
) -> None:
    done = in_bash(f"'{KRON}' {arguments} {redirection}", unbuffered)
    assert (done.returncode, done.stdout) == (BAD, "")
    assert done.stderr == f"kron: Cannot write to standard output: {message}\n"


@pytest.mark.parametrize("unbuffered", mostly_slow(["", "1"]), ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("redirection", ["2>&-", "2> /dev/full"])
def test_an_error_that_cannot_be_written_keeps_its_exit_code(redirection: str, unbuffered: str) -> None:
    """With a buffer, Python tries to write it again at exit, and would exit with 120."""
    done = in_bash(f"'{KRON}' next x {redirection}", unbuffered)
    assert (done.returncode, done.stdout) == (BAD, "")


LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["next", LONG], id="expression"),
        pytest.param(["next", f"0 9 * * {LONG}"], id="field"),
        pytest.param(["next", " ".join(["1"] * 2500)], id="many fields"),
        pytest.param(["next", '"' * 5000], id="quotes"),
        pytest.param(["next", "* * * * *", "--tz", LONG], id="zone"),
        pytest.param(["next", "* * * * *", "--from", LONG], id="time"),
        pytest.param(["next", f"/{LONG}/{LONG}"], id="path"),
        pytest.param(["verify", LONG], id="file"),
        pytest.param(["next", "* * * * *", LONG], id="an argument too many"),
        pytest.param([LONG], id="command"),
    ],
)
def test_a_long_value_is_cut_in_an_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == BAD
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kron: ")
    assert "..." in line
    assert len(line) <= 1010


def test_a_short_value_is_not_cut() -> None:
    prose = " ".join(["word"] * 60)
    for text in (f'"a" {prose} "b" {prose}', f'"{"a" * 198}" {"b" * 200}', prose):
        assert brief(text) == text


def test_a_long_value_is_cut_in_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", LONG]) == NO
    assert len(capsys.readouterr().out.splitlines()[0]) <= 1010


@pytest.mark.parametrize(
    ("arguments", "advised"),
    [
        (["next", "0", "9"], True),
        (["explain", "0", "9"], True),
        (["schema", "job", "x"], False),
        (["plan", "a", "b", "c"], False),
    ],
)
def test_only_commands_that_take_an_expression_suggest_quotes(
    arguments: list[str], advised: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == BAD
    assert ("put an expression in quotes" in capsys.readouterr().err) is advised


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("20260601", "2026-06-01T00:00:00Z"),
        ("2026-W23-1", "2026-06-01T00:00:00Z"),
        ("2026-06-01 02", "2026-06-01T02:00:00Z"),
        ("2026-06-01T02:00:30", "2026-06-01T02:01:00Z"),
        ("20260601T0200+0130", "2026-06-01T00:30:00Z"),
        ("2026-06-01T02:00Z", "2026-06-01T02:00:00Z"),
    ],
)
def test_a_time_may_be_written_as_iso_8601_does(
    text: str, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["next", "* * * * *", "--from", text, "-n", "1"]) == GOOD
    assert first in capsys.readouterr().out


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "--help"]) == GOOD
    assert 'kron next "0 9 * * 1-5" --tz Europe/Berlin' in capsys.readouterr().out


def test_the_command_alone_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == GOOD
    assert "Show the next times of a schedule" in capsys.readouterr().out
