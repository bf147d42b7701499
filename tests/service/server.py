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

from tests.forked import ForkedProcess, can_fork
from tests.waiting import PATIENCE_S, wait_for

KRON = [sys.executable, "-c", "import sys; from kron.cli.main import run; sys.exit(run())"]

# The same program, started instead of forked: where a test is about the start or the process.
NEW_KRON = [*KRON]


class Process:
    """A process of Kron's, and what it has logged so far."""

    def __init__(self, *words: str, folder: Path, program: Sequence[str] = KRON, **variables: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KRON_")}
        environment |= {
            "KRON_PROCESS_FOLDER": str(folder / "processes"),
            # Where the executors of the tests are.
            "KRON_ALLOWED_HOSTS": "127.0.0.1",
            # Schedules of workflows are refused without it, or an executor; "" stands for none.
            **({} if "KRON_EXECUTOR" in variables else {"KRON_DEFAULT_LAUNCHER": '{"kind": "log"}'}),
            **{name: value for name, value in variables.items() if (name, value) != ("KRON_EXECUTOR", "")},
        }
        self._process: subprocess.Popen[str] | ForkedProcess
        if program is KRON and can_fork(environment):
            self._process = ForkedProcess([*words], folder, environment)
        else:
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

    @property
    def processor_s(self) -> float:
        """Return the processor time that the process and its children have used."""
        return sum(map(_processor_s, [self.pid, *self.children()]))

    @property
    def memory_bytes(self) -> int:
        """Return the most memory that the process and its children have used, each."""
        return max(map(_peak_bytes, [self.pid, *self.children()]))

    def children(self) -> list[int]:
        """Return the ids of the processes it has started."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end, and return the exit code."""
        try:
            code = self._process.wait(PATIENCE_S)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"{error}: {''.join(self.log[-20:])}") from error
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


def _processor_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


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
