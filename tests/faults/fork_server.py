"""A process that forks real workers quickly, and kills them by their process ids."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from threading import Lock

import kron
from tests.faults.worker import Setting, text_of
from tests.waiting import PATIENCE_S

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
        # File descriptors of the workers that may live. Their parent never reaps them, so no id is reused.
        self._workers: dict[int, int] = {}
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
        self._workers[pid] = os.pidfd_open(pid)
        return pid

    def kill(self, pid: int) -> None:
        """Kill a worker, and wait until it is gone."""
        os.kill(pid, signal.SIGKILL)
        self.wait(pid)

    def wait(self, pid: int) -> None:
        """Wait until a worker is gone."""
        ended, _, _ = select.select([self._workers[pid]], [], [], PATIENCE_S)
        assert ended, f"worker {pid} has not ended"
        os.close(self._workers.pop(pid))

    def close(self) -> None:
        """Kill all workers and their parent."""
        for pid in list(self._workers):
            self.kill(pid)
        self._process.kill()
        self._process.communicate()


def seed_of(name: str) -> str:
    """Return the test's own seed, or the one in KRON_FAULT_SEED; `make chaos` draws fresh ones."""
    seed = os.environ.get("KRON_FAULT_SEED") or name
    print(f"{name}: KRON_FAULT_SEED={seed}")  # noqa: T201 - pytest shows it with a failure
    return seed
