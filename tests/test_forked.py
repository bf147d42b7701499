"""A forked `kron` command ends as a new process does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import ForkedProcess, can_fork
from tests.service.server import NEW_KRON
from tests.waiting import PATIENCE_S, wait_for

ROOT = Path(__file__).parent.parent


def test_a_forked_command_has_its_words_its_folder_and_its_environment(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("tick_ms = 1\n")
    environment = {**os.environ, "KRON_TICK_MS": "wrong"}
    words = ["config", "--config", "settings.toml"]
    forked = ForkedProcess(words, tmp_path, environment)
    code = forked.wait(PATIENCE_S)
    assert forked.stderr is not None
    with forked.stderr as stderr:
        written = stderr.read()
    new = subprocess.run(
        [*NEW_KRON, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (code, written) == (new.returncode, new.stderr)
    assert "wrong" in written


def test_the_exit_code_of_a_killed_command_is_that_of_the_signal(tmp_path: Path) -> None:
    environment = {**os.environ, "KRON_STORE": "sqlite:///kron.db"}
    forked = ForkedProcess(["serve", "--port", "0"], tmp_path, environment)
    assert forked.poll() is None
    forked.kill()
    assert forked.wait(PATIENCE_S) == forked.poll() == -signal.SIGKILL
    assert forked.stderr is not None
    forked.stderr.close()


KILLED_RUN = """
import os, signal, sys
from pathlib import Path
from tests.forked import ForkedProcess

forked = ForkedProcess(["serve", "--port", "0"], Path(sys.argv[1]), {**os.environ, "KRON_STORE": "sqlite:///kron.db"})
assert any("http://" in line for line in forked.stderr)
print(forked.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_forked_command_ends_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_RUN, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        pid = killed.stdout.readline().strip()
        assert killed.wait(PATIENCE_S) == -signal.SIGKILL
    stat = Path(f"/proc/{pid}/stat")
    wait_for(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize(
    ("name", "can"), [("KRON_TICK_MS", True), ("PYTHONPATH", False), ("LD_PRELOAD", False)]
)
def test_what_is_read_when_a_process_starts_needs_a_new_process(name: str, can: bool) -> None:
    assert can_fork({**os.environ, name: "/another"}) == can
