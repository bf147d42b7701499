"""`kron serve` is two processes: whatever the API does, the worker starts what is due."""

import os
import re
import resource
import signal
import socket
from pathlib import Path
from threading import Event

import httpx
import pytest

from kron.app.process import MAX_FILES
from tests.service.executor import Executor, executing
from tests.service.server import Process, process, serving
from tests.service.test_worker import SECONDLY, runs_of, upsert
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow


def secondly(client: httpx.Client, executor: Executor) -> None:
    launcher = {"kind": "http", "url": executor.url}
    schedule = {"schedule_id": "each-second", "cron_expr": "* * * * * *", "timezone": "UTC"}
    client.post("/schedules/upsert", json={**schedule, "launcher": launcher}).raise_for_status()


def worker_of(server: Process) -> int:
    (pid,) = server.children()
    return pid


def is_alive(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_starts_go_out_while_the_api_is_frozen(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, server):
        secondly(client, executor)
        wait_for(lambda: executor.sent)
        server.signal(signal.SIGSTOP)
        before = len(executor.sent)
        wait_for(lambda: len(executor.sent) >= before + 4)
        server.signal(signal.SIGCONT)
        assert client.get("/readyz").json()["worker"] == "running"
        times = [str(run["run_at"]) for run in client.get("/schedules/each-second/runs").json()["runs"]]
    assert len(times) == len(set(times)) >= 4


def test_the_table_of_open_files_of_both_processes_has_its_full_size(tmp_path: Path) -> None:
    """To double it, the kernel stops all threads of a process for up to 50 ms."""
    with serving(tmp_path) as (_, server):
        for pid in (server.pid, worker_of(server)):
            found = re.search(r"^FDSize:\s+(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            assert found
            assert int(found[1]) >= min(MAX_FILES, resource.prlimit(pid, resource.RLIMIT_NOFILE)[0])


def test_a_frozen_worker_is_not_ready_until_it_answers_again(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, server):
        wait_for(lambda: client.get("/readyz").status_code == 200)
        os.kill(worker_of(server), signal.SIGSTOP)
        response = client.get("/readyz")
        assert (response.status_code, response.json()["worker"]) == (503, "unresponsive")
        assert 'kron_engine_state{state="failed"} 1.0' in client.get("/metrics").text
        os.kill(worker_of(server), signal.SIGCONT)
        wait_for(lambda: client.get("/readyz").status_code == 200)


def test_a_service_whose_worker_was_killed_ends_with_an_error(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, server):
        wait_for(lambda: client.get("/readyz").status_code == 200)
        os.kill(worker_of(server), signal.SIGKILL)
        assert server.ended() == 2
        server.logged("The worker's process ended with signal 9")


def test_a_killed_service_leaves_no_worker(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, server):
        wait_for(lambda: client.get("/readyz").status_code == 200)
        worker = worker_of(server)
        server.signal(signal.SIGKILL)
        wait_for(lambda: not is_alive(worker))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_both_processes_ends_them_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, server):
        secondly(client, executor)
        wait_for(lambda: executor.sent)
        worker = worker_of(server)
        # As Ctrl-C in a terminal and the stop of a systemd unit do.
        os.kill(worker, number)
        server.signal(number)
        assert server.ended() == 0
        assert not is_alive(worker)
    assert "Traceback" not in "".join(server.log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_api_listens_hands_over_what_the_worker_has_sent(
    number: signal.Signals, tmp_path: Path
) -> None:
    """The API reads the keys of its tokens while its worker runs; here their server does not answer."""
    url, sent, released = f"sqlite:///{tmp_path}/kron.db", list[str](), Event()

    def look(key: str) -> None:
        sent.append(key)
        released.wait(PATIENCE_S)

    with executing(look) as executor, socket.create_server(("127.0.0.1", 0)) as keys:
        upsert(url, {**SECONDLY, "launcher": {"kind": "http", "url": executor.url}})
        place = f"http://127.0.0.1:{keys.getsockname()[1]}/keys"
        with process("serve", "--port", "0", folder=tmp_path, KRON_STORE=url, KRON_JWT_KEYS=place) as server:
            held, _ = keys.accept()
            wait_for(lambda: sent)
            server.signal(number)
            server.logged(f"{number.name}: stopping")
            released.set()
            held.close()
            assert server.ended() == 0
    assert sent
    assert all(run.acked for run in runs_of(url))


def test_metrics_and_log_level_are_those_of_both_processes(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, server):
        secondly(client, executor)
        wait_for(lambda: executor.sent)
        text = client.get("/metrics").text
        emitted = next(line for line in text.splitlines() if line.startswith("runs_emitted_total"))
        assert float(emitted.split()[1]) >= 1
        assert 'kron_http_requests_total{method="POST",route="/schedules/upsert"' in text
        assert 'kron_engine_state{state="running"} 1.0' in text
        client.put("/admin/log-level", json={"level": "error"}).raise_for_status()
        wait_for(lambda: len(executor.sent) >= 4)
        lines = len(server.log)
        wait_for(lambda: len(executor.sent) >= 6)
        assert server.log[lines:] == []
