"""A krond in a process of its own, for tests: started, killed, and asked over its control socket."""

import asyncio
import atexit
import os
import signal
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

from kron.cli.support.control import ControlClient, ControlError
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest
from tests.waiting import wait_for

# Runs `krond` as its entry point does.
PROGRAM = "import sys; from kron.cli.krond import run; sys.exit(run())"
YEARLY = "0 0 1 1 *"


class Krond:
    """One krond with its own state folder and folder of job files."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.config, self.state = folder / "jobs", folder / "state"
        self.config.mkdir(parents=True, exist_ok=True)
        self.log = folder / "krond.log"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, name: str, text: str) -> Path:
        """Write a job file, all at once."""
        place = self.config / name
        new = place.with_suffix(".new")
        new.write_text(text)
        return new.replace(place)

    def start(self, *, wait: bool = True, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
        """Start it, and wait until it answers."""
        # As from its script, no module comes from the folder that it is started in.
        argv = [sys.executable, "-P", "-c", PROGRAM, "--config", str(self.config), "--state", str(self.state)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*argv, *self._options], stdout=log, stderr=log, env={**os.environ, **(env or {})}, cwd=cwd
            )
        # A test that fails half-way leaves no daemon behind.
        atexit.register(self._process.kill)
        if wait:
            wait_for(self.answers, self.log_text)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def answers(self) -> bool:
        try:
            return bool(self.call("health")["worker"] == "running")
        except ControlError:
            assert self._process is not None
            assert self._process.poll() is None, self.log_text()
            return False

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it without warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Stop it, and return its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait()

    def log_text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def call(self, verb: str, *arguments: object, **options: object) -> Any:
        """Send one request to it."""
        return asyncio.run(ControlClient(self.state / "krond.sock").call(verb, *arguments, **options))

    def names(self) -> list[str]:
        page = self.call("schedules", JobFilter(), PageRequest())
        return [str(each["schedule_id"]) for each in page["schedules"]]

    def runs(self, name: str) -> list[dict[str, Any]]:
        """Return the runs of a job, newest first."""
        found: list[dict[str, Any]] = self.call("runs", name, PageRequest(limit=1000))["runs"]
        return found

    def run(self, name: str) -> dict[str, Any]:
        """Run a job now, wait for its end, and return the run."""
        key = self.call("run", name)["idempotency_key"]
        return self.ended(name, key)

    def ended(self, name: str, key: str) -> dict[str, Any]:
        """Wait for the end of a run, and return it."""

        def run() -> dict[str, Any] | None:
            found = next(each for each in self.runs(name) if each["idempotency_key"] == key)
            return found if found["status"] in ("SUCCESS", "FAILED", "CANCELLED") else None

        return wait_for(run, self.log_text)

    def output(self, name: str, key: str | None = None) -> str:
        """Return the output of a run of a job, by default of the latest."""
        document = self.call("logs", name, None, **({} if key is None else {"key": key}))
        return b64decode(document["output"]).decode()
