"""Real processes: killed in the middle of callbacks, again and again; two with one state."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kron.theory import Trace, check
from tests.embed.stage import check_trace
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parents[2]
KILLS = 20
TASKS = frozenset({"quick", "slow", "long", "failing"})


@contextmanager
def victim(folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.embed.victim", str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def lines_of(folder: Path) -> list[tuple[str, str, int]]:
    path = folder / "lines.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [tuple(json.loads(line)) for line in text.split("\n")[:-1]]


def ended(lines: list[tuple[str, str, int]]) -> set[str]:
    """Return the tasks of which a call came to its end."""
    return {task for task, what, _ in lines if what == "end"}


def wait_for_calls(
    folder: Path, process: subprocess.Popen[str], begun: int, tasks: frozenset[str] = frozenset()
) -> None:
    """Wait until a process has begun so many calls, and calls of these tasks have ended, whenever."""

    def is_so() -> bool:
        assert process.poll() is None, process.communicate()
        lines = lines_of(folder)
        mine = [what for _, what, pid in lines if pid == process.pid]
        return "up" in mine and mine.count("begin") >= begun and ended(lines) >= tasks

    wait_for(is_so)


@pytest.mark.slow
def test_killed_twenty_times_in_the_middle_of_callbacks_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    for kill in range(KILLS):
        with victim(tmp_path) as process:
            wait_for_calls(tmp_path, process, begun=kill % 7)
    with victim(tmp_path) as process:
        wait_for_calls(tmp_path, process, begun=12, tasks=TASKS)
    _check_calls(lines_of(tmp_path))
    with closing(sqlite3.connect(tmp_path / "kron.db")) as connection:
        (tokens,) = connection.execute("SELECT token FROM leases").fetchone()
        assert tokens == KILLS + 1
        # Everything an earlier owner left behind was looked at: nothing is under way that has not begun here.
        left = connection.execute(
            "SELECT count(*) FROM runs WHERE is_open = 1 AND status = 'STARTED' AND token < ?", [tokens]
        ).fetchone()
        assert left == (0,)
        # An orphan is started again, or ends when the next period is due; always so on a busy machine.
        tables = ("attempts", "runs")
        counts = [f"SELECT count(*) FROM {table} WHERE result = 'orphaned'" for table in tables]
        assert sum(connection.execute(count).fetchone()[0] for count in counts) > 0
    events = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    check_trace(events[1:])
    report = check(Trace.from_jsonl((tmp_path / "trace.jsonl").read_text().splitlines()), reading="kron")
    for axiom in ("S1", "S2", "S3", "S4", "S5", "S6", "EA6", "EA7"):
        assert str(report[axiom].status) == "passed", report[axiom]
    assert sum(event.get("event") == "UnexpectedShutdown" for event in events) == KILLS


def _check_calls(lines: list[tuple[str, str, int]]) -> None:
    """No task runs twice at once, and every one of them comes to an end now and then."""
    running: dict[str, int] = {}
    for task, what, pid in lines:
        if what == "begin":
            assert running.get(task) != pid, f"{task} runs twice"
            running[task] = pid
        elif what == "end":
            assert running.pop(task) == pid
    assert ended(lines) == TASKS


def test_a_second_process_with_the_same_state_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with victim(tmp_path) as first:
        wait_for_calls(tmp_path, first, begun=0)
        with victim(tmp_path) as second:
            _, said = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 1
        assert 'The jobs of "embed:main" in ' in said
        assert "kron.db are owned by another process" in said
        assert first.poll() is None
