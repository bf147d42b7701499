"""Tenants share a worker: one whose executor never answers delays only itself."""

import os
import resource
import signal
import socket
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.launchers.celery.rabbit import rabbit
from tests.service.executor import Executor, executing
from tests.service.server import serving
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow
# More than the worker sends for one tenant at a time.
HANGING = 150
# More connections than the API serves at once.
IDLE = 1_100


def schedule(client: httpx.Client, user: str, cron_expr: str, executor: Executor) -> None:
    document = {"schedule_id": user, "cron_expr": cron_expr, "timezone": "UTC", "user_id": user}
    # Longer than the test: nothing but the fairness of the queue gives others a slot.
    launcher = {"kind": "http", "url": executor.url, "timeout": "1h"}
    client.post("/schedules/upsert", json={**document, "launcher": launcher}).raise_for_status()


def test_an_executor_that_never_answers_takes_nothing_from_other_tenants(tmp_path: Path) -> None:
    released, arrived = Event(), list[str]()

    def hang(key: str) -> None:
        arrived.append(key)
        released.wait(PATIENCE_S)

    # The stop does not wait for the hanging starts.
    with (
        executing(hang) as hanging,
        executing() as other,
        serving(tmp_path, KRON_DRAIN_MS="0") as (client, _),
    ):
        schedule(client, "ann", "0 0 1 1 *", hanging)
        for number in range(HANGING):
            client.post("/schedules/ann/run", json={"request_id": f"r{number}"}).raise_for_status()
        wait_for(lambda: len(arrived) >= 100)
        schedule(client, "bob", "* * * * * *", other)
        wait_for(lambda: len(other.sent) >= 3)
        assert len(arrived) == 100
        released.set()
        wait_for(lambda: len(set(hanging.keys())) == HANGING)
    assert len(other.keys()) == len(set(other.keys()))


def test_processes_that_never_end_take_nothing_from_other_tenants(tmp_path: Path) -> None:
    limits = {"KRON_MAX_RUNNING": "2", "KRON_ALLOWED_COMMANDS": "/bin/sleep,/bin/true", "KRON_DRAIN_MS": "0"}
    with serving(tmp_path, **limits) as (client, server):
        for user, command in (("ann", ["/bin/sleep", "600"]), ("bob", ["/bin/true"])):
            document = {"schedule_id": user, "cron_expr": "* * * * * *", "timezone": "UTC", "user_id": user}
            fields = {"overlap_policy": "allow", "launcher": {"kind": "process", "command": command}}
            client.post("/schedules/upsert", json={**document, **fields}).raise_for_status()

        def ended() -> int:
            return sum(run["status"] == "SUCCESS" for run in client.get("/schedules/bob/runs").json()["runs"])

        wait_for(lambda: len(client.get("/schedules/ann/runs").json()["runs"]) >= 5)
        before = ended()
        wait_for(lambda: ended() >= before + 2)
        worker = server.children()[0]
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        running = [int(pid) for pid in children if "600" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(running) == 2
        run_at = client.get("/schedules/ann/runs").json()["runs"][0]["run_at"]
        answer = client.get(f"/schedules/ann/periods/{run_at}/why").json()
        assert "waits for one of its user's slots (max_running)" in answer["headline"]
        metrics = client.get("/metrics").text
        waiting = next(
            line
            for line in metrics.splitlines()
            if line.startswith('kron_launches_waiting{launcher="process"}')
        )
        assert float(waiting.split()[-1]) >= 3
        for pid in running:
            os.kill(pid, signal.SIGKILL)


def test_edits_of_a_paused_schedule_delay_no_start_of_another_tenant(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, server):
        document = {"schedule_id": "ann", "cron_expr": "* * * * * *", "timezone": "UTC", "user_id": "ann"}
        fields = {"catchup_policy": "fire_immediately", "launcher": {"kind": "log"}, "paused": True}
        client.post("/schedules/upsert", json={**document, **fields}).raise_for_status()
        schedule(client, "bob", "* * * * * *", executor)
        # Each definition has periods of the pause, which are planned once it is resumed.
        wait_for(lambda: len(executor.sent) >= 2)
        del fields["paused"]
        statuses = []
        for number in range(100):
            salted = {**document, **fields, "salt": f"{number}".rjust(60_000)}
            statuses.append(client.post("/schedules/upsert", json=salted).status_code)
        assert set(statuses) == {200, 409}
        pause = {"schedule_id": "ann", "paused": False}
        client.post("/schedules/pause", json=pause).raise_for_status()
        before, began = server.processor_s, len(executor.sent)
        wait_for(lambda: len(executor.sent) >= began + 3)
        # Without a bound each wake reads all of them: several seconds.
        assert server.processor_s - before < 2
        wait_for(lambda: client.post("/schedules/upsert", json=salted).status_code == 200)


def test_a_thousand_idle_connections_stop_neither_starts_nor_answers(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    idle: list[socket.socket] = []
    try:
        with executing() as executor, serving(tmp_path, KRON_PATIENCE_S="3600") as (client, server):
            schedule(client, "bob", "* * * * * *", executor)
            address = client.base_url.host, client.base_url.port or 80
            idle.extend(socket.create_connection(address) for _ in range(IDLE))
            before = len(executor.sent)
            wait_for(lambda: len(executor.sent) >= before + 3)
            with httpx.Client(base_url=client.base_url, timeout=PATIENCE_S, trust_env=False) as another:
                wait_for(lambda: another.get("/readyz").status_code == 200)
            assert len(os.listdir(f"/proc/{server.children()[0]}/fd")) < 100
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_runs_that_never_end_leave_room_for_other_tenants(tmp_path: Path) -> None:
    with (
        executing() as endless,
        executing() as other,
        serving(tmp_path, KRON_MAX_OPEN_RUNS="3") as (client, _),
    ):
        # Its executor accepts every start and reports no end.
        launcher = {"kind": "http", "url": endless.url, "reports": True}
        document = {"schedule_id": "ann", "cron_expr": "* * * * * *", "timezone": "UTC", "user_id": "ann"}
        body = {**document, "overlap_policy": "allow", "launcher": launcher}
        client.post("/schedules/upsert", json=body).raise_for_status()

        def skipped() -> list[dict[str, str]]:
            runs = client.get("/schedules/ann/runs").json()["runs"]
            return [run for run in runs if run["reason"] == "open_limit"]

        assert wait_for(skipped)[0]["status"] == "SKIPPED"
        assert len(endless.sent) == 3
        schedule(client, "bob", "* * * * * *", other)
        wait_for(lambda: len(other.sent) >= 3)
        answer = client.get(f"/schedules/ann/periods/{skipped()[0]['run_at']}/why").json()
        assert answer["headline"] == (
            "did not run: too many runs of its user (max_open_runs) or of the job were open"
        )
        assert answer["remedy"] == (
            "runs that end make room: report ends, or set a run_timeout or another overlap"
        )
        client.post(f"/runs/{endless.keys()[0]}/status", json={"status": "SUCCESS"}).raise_for_status()
        wait_for(lambda: len(endless.sent) == 4)


def test_a_queue_of_the_broker_that_hangs_takes_nothing_from_other_tenants(tmp_path: Path) -> None:
    with rabbit() as broker:
        broker.stuck.add("stuck")
        settings = {
            "KRON_CELERY_BROKER": f"amqp://127.0.0.1:{broker.port}//",
            # Longer than the test: nothing but the fairness of the threads gives others one.
            "KRON_CELERY_OPTIONS": '{"read_timeout": 3600}',
            "KRON_ALLOWED_TASKS": "work",
            "KRON_DRAIN_MS": "0",
        }
        with serving(tmp_path, **settings) as (client, _):
            for user, queue in (("ann", "stuck"), ("bob", "stuck"), ("cem", "free")):
                launcher = {"kind": "celery", "task": "work", "queue": queue}
                document = {"schedule_id": user, "cron_expr": "0 0 1 1 *", "timezone": "UTC", "user_id": user}
                body = {**document, "overlap_policy": "allow", "launcher": launcher}
                client.post("/schedules/upsert", json=body).raise_for_status()

            def run(user: str, number: int) -> None:
                client.post(f"/schedules/{user}/run", json={"request_id": f"{number}"}).raise_for_status()

            for number in range(20):
                run("ann", number)
                run("bob", number)
            # As many as the queue has at once.
            wait_for(lambda: len(broker.taken) == 8)
            for number in range(3):
                run("cem", number)
            wait_for(lambda: sum(each.queue == "free" for each in broker.taken) == 3)
            assert sum(each.queue == "stuck" for each in broker.taken) == 8
