"""Texts that a terminal would obey: stored and given ones are escaped in the output of every command."""

import ast
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from kron.cli.app import COMMANDS
from kron.cli.main import BAD, GOOD, NO, run
from kron.cli.support.terminal import to_json
from tests.cli.history import fill
from tests.cli.pseudo_terminal import on_terminal
from tests.service.server import KRON
from tests.waiting import awaited

CLI = Path(__file__).parent.parent.parent / "src" / "kron" / "cli"
# A window title, a clear screen in one character, a backspace, a right-to-left override, and DEL.
HOSTILE = "x\x1b]0;pwned\x07\x9b2J\b\u202ey\x7f"
STORE = ["--store", "sqlite:///kron.db"]
OWN = re.compile(r"\x1b\[\d+m")
PERIOD = "2098-01-01T00:00:00Z"


def unsafe(text: str) -> str:
    return "".join(character for character in text if character != "\n" and not character.isprintable())


@pytest.fixture
def hostile_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the last hour of a store whose names, errors and reasons are hostile."""
    monkeypatch.chdir(tmp_path)
    hour = fill(tmp_path / "kron.db", {HOSTILE: HOSTILE}, hours=1)
    assert run(["pause", HOSTILE, "--because", HOSTILE, *STORE]) == GOOD
    return f"{hour:%Y-%m-%dT%H:%M:%SZ}"


READS = [
    ["runs"],
    ["runs", HOSTILE],
    ["runs", HOSTILE, "{hour}"],
    ["status"],
    ["why", HOSTILE],
    ["why", HOSTILE, "{hour}"],
    ["audit"],
    ["schedules", "list"],
    ["schedules", "show", HOSTILE],
    ["schedules", "why", HOSTILE],
    [
        "schedules",
        "backfill",
        HOSTILE,
        "--from",
        "2026-01-01T00:00Z",
        "--to",
        "2026-01-02T00:00Z",
        "--dry-run",
    ],
    ["schedules", "upsert", "--id", HOSTILE, "--cron", "0 * * * *", "--set", 'launcher={"kind": "log"}'],
    ["pause", HOSTILE, "--because", HOSTILE],
    ["resume", HOSTILE, "--yes"],
    ["run", HOSTILE],
    ["schedules", "delete", HOSTILE],
]


def test_no_command_prints_a_control_character_of_stored_data(
    hostile_store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    for words in READS:
        for extra in ([], ["--json"]):
            command = [word.replace("{hour}", hostile_store) for word in words]
            run([*command, *extra, *STORE])
            captured = capsys.readouterr()
            assert unsafe(captured.out + captured.err) == "", command
            assert captured.out + captured.err, command


@pytest.mark.slow
def test_a_terminal_gets_no_sequence_but_the_colours(hostile_store: str, tmp_path: Path) -> None:
    for words in (["runs"], ["status"], ["why", HOSTILE]):
        code, output = on_terminal([*words, *STORE], tmp_path, columns=300)
        assert (code, unsafe(OWN.sub("", output))) == (GOOD, "")
        assert OWN.search(output)
        assert "\\x1b]0;pwned\\x07\\x9b2J" in output


@pytest.mark.parametrize(
    "words",
    [
        ["next", "jobs.yaml"],
        ["explain", "jobs.yaml"],
        ["lint", "jobs.yaml"],
        ["plan", "jobs.yaml", "empty.yaml"],
        ["simulate", "jobs.yaml"],
        ["next", "crontab"],
        ["explain", "crontab"],
        ["lint", "crontab"],
        ["next", HOSTILE],
        [HOSTILE],
        ["runs", "--status", HOSTILE],
    ],
    ids=" ".join,
)
def test_no_command_prints_a_control_character_of_its_input(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.yaml").write_text(json.dumps([{"identity": HOSTILE, "schedule": "0 9 * * *"}]))
    Path("empty.yaml").write_text("[]")
    Path("crontab").write_text(f"0 9 * * * {HOSTILE}\n")
    for extra in ([], ["--json"]):
        run([*words, *extra])
        captured = capsys.readouterr()
        assert captured.out + captured.err
        assert unsafe(captured.out + captured.err) == ""


def test_json_keeps_every_character_and_shows_the_readable_ones() -> None:
    text = HOSTILE + "größe 日本 \U0001f600 \U000e0001"
    assert json.loads(to_json({text: text})) == {text: text}
    assert "größe 日本 \U0001f600" in to_json(text)
    assert unsafe(to_json(text, indent=2)) == ""


def test_only_the_functions_that_escape_print() -> None:
    may_print = {"main.py", "app.py", "krond.py", "terminal.py"}
    for file in CLI.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
        prints = [
            call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"
        ]
        assert file.name in may_print or not prints, f"{file}:{prints}: use say or show_json"


BROKEN = '''
def broken_command() -> int:
    """Break.

    Examples: kron broken
    """
    raise ZeroDivisionError("at postgresql://ann:hunter2@db/kron\\x1b[2J")
'''


def test_a_defect_is_one_line_without_a_stack_trace_and_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "broken", "broken:broken_command")
    assert run(["broken"]) == BAD
    error = "internal error: ZeroDivisionError: at postgresql://ann:***@db/kron\\x1b[2J"
    remedy = "please report it; KRON_DEBUG=1 shows where it happened"
    assert capsys.readouterr() == ("", f"kron: {error}; {remedy}\n")
    monkeypatch.setenv("KRON_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["broken"])


def test_an_unknown_schedule_gets_the_closest_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "kron.db", {"daily-report": None, "nightly": None}, hours=0)
    monkeypatch.chdir(tmp_path)
    for name in ("daly-report", "DAILY-REPORT", "aily-report"):
        assert run(["why", name, *STORE]) == NO
        error = f'kron: There is no schedule "{name}"; did you mean daily-report?\n'
        assert capsys.readouterr() == ("", error)
    assert run(["runs", "unlike", *STORE]) == NO
    assert capsys.readouterr() == ("", 'kron: There is no schedule "unlike"\n')


def test_ctrl_c_ends_a_command_without_a_stack_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "jobs")
    started = subprocess.Popen(
        [*KRON, "next", "jobs"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with awaited(started) as process:
        # Opening the pipe waits until the command reads it.
        with (tmp_path / "jobs").open("w"):
            process.send_signal(signal.SIGINT)
            assert process.communicate() == ("", "")
        assert process.returncode == 130
