"""Forks `kron` commands from a process that has imported Kron, so that none costs its imports."""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TextIO

# What `kron serve` and `kron worker` import; a forked process imports the rest when it needs it.
IMPORTED = (
    "ctypes",
    "kron.cli.app",
    "kron.cli.commands.serve",
    "kron.fronts.service.serve",
    "kron.fronts.service.worker_process",
    "kron.launchers.process.host",
    "kron.stores.postgres.store",
    "kron.stores.sqlite.store",
    "pydantic.v1",
    "typer._adapters",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.h11_impl",
)

# Python and the loader read these when a process starts, so a forked one would ignore them.
READ_AT_STARTUP = ("PYTHON", "LC_", "LANG", "LD_")
MAX_MESSAGE_BYTES = 1 << 18


def can_fork(environment: Mapping[str, str]) -> bool:
    """Say whether a forked process would treat an environment like a new one."""
    return _read_at_startup(environment) == _read_at_startup(os.environ)


def _read_at_startup(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_STARTUP)}


class ForkedProcess:
    """A running `kron` command; has the methods of `subprocess.Popen` that tests use."""

    def __init__(self, words: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        reading, writing = os.pipe()
        try:
            self._parent = _parent()
            self.pid = self._parent.fork(words, folder, environment, writing)
        finally:
            os.close(writing)
        self.stderr: TextIO | None = os.fdopen(reading, encoding="utf-8", errors="backslashreplace")
        self._ended = os.pidfd_open(self.pid)
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._result(0)

    def wait(self, timeout: float) -> int:
        """Wait for the end, and return the exit code; negative: that of the signal."""
        code = self._result(timeout)
        assert code is not None, f"process {self.pid} has not ended after {timeout:.0f} s"
        return code

    def _result(self, timeout: float) -> int | None:
        if self._code is None and select.select([self._ended], [], [], timeout)[0]:
            # Until here the process was not reaped, so its id was not used again.
            self._code = self._parent.reap(self.pid)
            os.close(self._ended)
        return self._code


class _Parent:
    """The process that has imported Kron."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -P: the folder of this file is not on the path of the processes.
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_MESSAGE_BYTES)
        # Threads must not read each other's answers.
        self._asking = threading.Lock()
        atexit.register(self.close)

    def fork(self, words: list[str], folder: Path, environment: Mapping[str, str], stderr: int) -> int:
        """Start a command, and return its process id."""
        request = {"words": words, "folder": str(folder), "environment": dict(environment)}
        return self._ask(request, [1, stderr])

    def reap(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        return self._ask({"reap": pid}, [])

    def _ask(self, request: Mapping[str, object], files: list[int]) -> int:
        with self._asking:
            socket.send_fds(self._channel, [json.dumps(request).encode()], files)
            answer = self._channel.recv(100)
        assert answer, "the parent of the forked processes has ended"
        return int(answer)

    def close(self) -> None:
        self._channel.close()
        self._process.wait()


@cache
def _parent() -> _Parent:
    return _Parent()


# --- in the process that has imported Kron ---


def _serve(channel: socket.socket) -> None:
    """Fork a process for each request; returns in the forked process only."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, MAX_MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        request = json.loads(message)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            channel.send(str(os.waitstatus_to_exitcode(status)).encode())
        elif pid := os.fork():
            for file in files:
                os.close(file)
            channel.send(str(pid).encode())
        else:
            channel.close()
            return _become(request, files)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Make this process what a new one would be; it ends with a test run that is killed."""
    from kron.launchers.process.host import end_with_parent

    end_with_parent()
    for target, file in enumerate(files, 1):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv[1:] = request["words"]


def _import_kron() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()


if __name__ == "__main__":
    _import_kron()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from kron.cli.main import run

    sys.exit(run())
