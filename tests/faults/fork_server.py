"""A process that forks real workers quickly, and kills them by their process ids."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from threading import Lock

import kron
from tests.faults.worker import Setting, text_of
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(kron.__file__).resolve().parents[1]


class ForkServer:
    """A process that has imported everything and forks workers."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), str(SOURCE)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.worker"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._alive: set[int] = set()
        # Threads that start workers at the same time must not read each other's answers.
        self._starting = Lock()

    def start(self, setting: Setting) -> int:
        """Start a worker; return its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._starting:
            self._process.stdin.write(text_of(setting) + "\n")
            self._process.stdin.flush()
            pid = int(self._process.stdout.readline())
        self._alive.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        """Kill a worker, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.wait(pid)

    def wait(self, pid: int) -> None:
        """Wait until a worker is gone."""
        wait_for(lambda: not is_there(pid))
        self._alive.discard(pid)

    def close(self) -> None:
        """End all workers, and the fork_server."""
        for pid in list(self._alive):
            self.kill(pid)
        self._process.kill()
        self._process.communicate()


def is_there(pid: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def seed_of(name: str) -> str:
    """Return the test's own seed, or the one in KRON_FAULT_SEED; `make chaos` draws fresh ones."""
    seed = os.environ.get("KRON_FAULT_SEED") or name
    print(f"{name}: KRON_FAULT_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return seed
