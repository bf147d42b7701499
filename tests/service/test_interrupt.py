"""Ctrl-C for a server that waits for nothing: it ends well, whatever is under way, and says nothing odd."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.service.server import Process, serving
from tests.waiting import wait_for

# How often each server is started and interrupted; every time something else is under way.
ROUNDS = 3
HASTY = {"KRON_DRAIN_MS": "0", "KRON_LOG_LEVEL": "info", "KRON_ALLOWED_COMMANDS": "/bin/sleep"}


@contextmanager
def hasty(folder: Path, *words: str) -> Iterator[httpx.Client]:
    """Serve, interrupt, and see that it ended as it should."""
    with serving(folder, *words, **HASTY) as (client, server):
        yield client
        see_the_end_of(server)


def see_the_end_of(server: Process) -> None:
    server.signal(signal.SIGINT)
    code, log = server.ended(), "".join(server.log)
    assert code == 0, log
    assert "SIGINT: stopping" in log
    assert "Traceback" not in log


def started(client: httpx.Client) -> list[str]:
    """Return the schedules of which a run is under way."""
    runs = client.get("/runs", params={"status": "STARTED"}).json()["runs"]
    return [run["schedule_id"] for run in runs]


@pytest.mark.slow
def test_a_server_that_is_interrupted_while_functions_run_ends_well(tmp_path: Path) -> None:
    for number in range(ROUNDS):
        with hasty(tmp_path, "--demo") as client:
            for name in ("backup", "nightly-close", "office-hours")[: number + 1]:
                client.post(f"/schedules/demo%2F{name}/run")
            wait_for(lambda: "demo/backup" in started(client), lambda: client.get("/runs").text)


@pytest.mark.slow
def test_a_server_that_is_interrupted_while_processes_run_ends_well(tmp_path: Path) -> None:
    document = {
        "schedule_id": "naps",
        "workflow_id": "naps",
        "version": 1,
        "user_id": "ann",
        "cron_expr": "* * * * * *",
        "timezone": "UTC",
        "overlap_policy": "allow",
        "launcher": {"kind": "process", "command": ["sleep", "2"]},
    }
    for _ in range(ROUNDS):
        with hasty(tmp_path) as client:
            assert client.post("/schedules/upsert", json=document).is_success
            wait_for(lambda: "naps" in started(client), lambda: client.get("/runs").text)
