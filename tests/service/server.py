"""A real `kron serve` or `kron worker` process, on loopback, in a folder of its own."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.waiting import PATIENCE_S, wait_for

KRON = [sys.executable, "-c", "import sys; from kron.cli.main import run; sys.exit(run())"]


class Process:
    """A process of Kron's, and what it has logged so far."""

    def __init__(self, *words: str, folder: Path, program: Sequence[str] = KRON, **variables: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KRON_")}
        environment |= {
            "KRON_PROCESS_FOLDER": str(folder / "processes"),
            # Where the executors of the tests are.
            "KRON_ALLOWED_HOSTS": "127.0.0.1",
            **variables,
        }
        self._process = subprocess.Popen(
            [*program, *words], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)

    def logged(self, pattern: str) -> re.Match[str]:
        """Wait for a line that has something in it."""
        return wait_for(lambda: re.search(pattern, "".join(self.log)), lambda: "".join(self.log))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end, and return the exit code."""
        code = self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    @property
    def is_over(self) -> bool:
        """Say whether it has ended."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self.ended()
        assert self._process.stderr is not None
        self._process.stderr.close()


@contextmanager
def process(*words: str, folder: Path, program: Sequence[str] = KRON, **variables: str) -> Iterator[Process]:
    """Run a command of Kron's."""
    running = Process(*words, folder=folder, program=program, **variables)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def serving(
    folder: Path, *words: str, program: Sequence[str] = KRON, **variables: str
) -> Iterator[tuple[httpx.Client, Process]]:
    """Serve on a free port, with a fast tick, and give a client that talks to it."""
    variables = {"KRON_TICK_MS": "50", "KRON_STORE": "sqlite:///kron.db", **variables}
    with process("serve", "--port", "0", *words, folder=folder, program=program, **variables) as server:
        url = server.logged(r"serving on (http://[\w.:\[\]]+)")[1]
        with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
            yield client, server
