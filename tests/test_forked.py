"""A forked `kron` command ends as a new process does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.forked import ForkedProcess, can_fork
from tests.service.server import NEW_KRON
from tests.waiting import PATIENCE_S


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


@pytest.mark.parametrize(
    ("name", "can"), [("KRON_TICK_MS", True), ("PYTHONPATH", False), ("LD_PRELOAD", False)]
)
def test_what_is_read_when_a_process_starts_needs_a_new_process(name: str, can: bool) -> None:
    assert can_fork({**os.environ, name: "/another"}) == can
