"""`kron next`: what people see, what machines read, and what bad input gets."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run

KRON = Path(sys.executable).with_name("kron")


def test_the_coming_times_stand_in_the_zone_and_in_utc(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_moved_time_says_where_it_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--tz", "Europe/Berlin", "--from", "2026-03-29", "-n", "1", "--dst-gap", "next"]
    run(["next", "*/15 2 * * *", *common])
    moved = capsys.readouterr().out.splitlines()[1]
    assert moved.startswith("> Sun 2026-03-29 03:00  CEST   2026-03-29T01:00:00Z")
    assert "02:00 to 02:45 (4 times) moved here" in moved


@pytest.mark.parametrize(("choice", "showing"), [("first", "second"), ("last", "first")])
def test_a_showing_left_out_is_said(choice: str, showing: str, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_end_of_the_calendar_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "0 0 1 1 *", "--from", "9999-06-01"]) == GOOD
    assert "the calendar ends" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
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
        pytest.param(
            ["* * * * *", "--from", "tomorrow"],
            'Invalid instant "tomorrow": write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00',
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
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["next", *arguments]) == BAD
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"kron: {complaint}\n"


@pytest.mark.parametrize(
    "arguments",
    [["nxt"], ["next"], ["next", "--what"], ["next", "0", "9", "*", "*", "1-5"], ["next", "x", "-n", "y"]],
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


def test_a_reader_that_stops_early_is_no_error() -> None:
    command = f"'{KRON}' next '* * * * *' -n 10000 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["next", "--help"]) == GOOD
    assert 'kron next "0 9 * * 1-5" --tz Europe/Berlin' in capsys.readouterr().out


def test_the_command_alone_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == GOOD
    assert "Show the coming times of a schedule" in capsys.readouterr().out
