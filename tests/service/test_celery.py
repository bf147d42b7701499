"""Runs that go through a queue: the page's tasks, a real Celery worker, a real service (SPEC 3: 8, 13)."""

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from kron.cli.main import GOOD, run
from kron.fronts.service.auth.token import make_token
from kron.fronts.service.runs import run_now
from tests.docs.page import ROOT, blocks_of
from tests.launchers.celery.folder_broker import FolderBroker
from tests.service.server import Process, process, serving
from tests.service.test_http import problem_of
from tests.service.test_worker import asked, runs_of, upsert
from tests.waiting import wait_for

PAGE = (ROOT / "docs" / "how-to" / "launch-through-celery.md").read_text(encoding="utf-8")
FILES = {block.file: block.text for block in blocks_of(PAGE) if block.file}
SCHEDULE = json.loads(FILES["report.json"])
SECRETS = {"KRON_SIGNING_SECRET": "s" * 32, "KRON_JWT_SECRET": "j" * 32}
# Who consumes alone needs to hear of no other worker.
ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


def exported() -> dict[str, str]:
    """Return the variables that the page has set for the service."""
    lines = [line.strip() for block in blocks_of(PAGE) for line in block.text.splitlines()]
    words = [shlex.split(line)[2] for line in lines if line.startswith("$ export ")]
    return dict(word.split("=", 1) for word in words)


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KRON_")}
    return {**kept, "PYTHONPATH": ":".join(filter(None, sys.path)), **variables}


@contextmanager
def consuming(folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Celery worker as the page does; what it takes from its queue passes through the folder."""
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", *ALONE]
    with (folder / "celery.log").open("w") as log:
        worker = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(KRON_SERVER=url, TMPDIR=str(folder)),
            stdout=log,
            stderr=log,
            text=True,
        )
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait()


def lay_out(folder: Path) -> FolderBroker:
    """Put the page's files into a folder, with a broker."""
    for name, text in FILES.items():
        assert name is not None
        (folder / name).write_text(text)
    return FolderBroker(folder / "broker")


def token() -> str:
    """Return a token for the service with authentication."""
    at = int(time.time())
    said = {"sub": "ann", "scope": "read write run admin", "aud": "kron", "iat": at, "exp": at + 600}
    return make_token(said, SECRETS["KRON_JWT_SECRET"].encode(), "HS256")


class Scene(NamedTuple):
    """A guarded service, a Celery worker, and the broker between them."""

    client: httpx.Client
    server: Process
    broker: FolderBroker
    folder: Path

    def upsert(self, **fields: object) -> httpx.Response:
        """Store the page's schedule, changed."""
        launcher = {**SCHEDULE["launcher"], **fields.pop("launcher", {})}  # type: ignore[dict-item]
        return self.client.post("/schedules/upsert", json={**SCHEDULE, **fields, "launcher": launcher})

    def runs(self, name: str, *statuses: str) -> list[dict[str, Any]]:
        """Return the runs of a schedule that have one of some statuses."""
        found = self.client.get(f"/schedules/{name.replace('/', '%2F')}/runs").json()["runs"]
        return [run for run in found if run["status"] in statuses]

    def run(self, name: str, *statuses: str) -> dict[str, Any]:
        """Have a schedule run now, and return that run when it has one of some statuses."""
        key = self.client.post(f"/schedules/{name.replace('/', '%2F')}/run").json()["idempotency_key"]

        def found() -> list[dict[str, Any]]:
            return [run for run in self.runs(name, *statuses) if run["idempotency_key"] == key]

        wait_for(found, self.told)
        return found()[0]

    def lines(self, name: str) -> list[list[str]]:
        """Return the words of each line that tasks have written."""
        file = self.folder / name
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def told(self) -> str:
        """Return what both sides logged."""
        return "".join(self.server.log) + (self.folder / "celery.log").read_text()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("celery")
    broker = lay_out(folder)
    # Celery would read this one; the settings alone count.
    other = {"CELERY_BROKER_URL": "amqp://127.0.0.1:1/"}
    with serving(folder, **exported(), **SECRETS, **other) as (client, server):
        client.headers["Authorization"] = f"Bearer {token()}"
        with consuming(folder, str(client.base_url)):
            yield Scene(client, server, broker, folder)


def test_launches_go_through_a_queue_that_another_process_consumes_and_reports_on(scene: Scene) -> None:
    assert scene.upsert().status_code == 200
    wait_for(lambda: len(scene.runs("report", "SUCCESS")) >= 2, scene.told)
    scene.client.post("/schedules/pause", json={"schedule_id": "report", "paused": True})
    wait_for(lambda: not scene.runs("report", "ENQUEUED", "STARTED"), scene.told)
    runs = scene.runs("report", "SUCCESS", "FAILED")
    assert {run["status"] for run in runs} == {"SUCCESS"}
    assert all(run["run_id"] == run["idempotency_key"] for run in runs)
    # Each run was done once, with its arguments, by the task that has its key as an id.
    expected = sorted([run["idempotency_key"], "north", "2", run["run_at"]] for run in runs)
    assert sorted(scene.lines("reports.txt")) == expected


def test_a_task_that_fails_says_why(scene: Scene) -> None:
    scene.upsert(schedule_id="short", cron_expr="0 0 1 1 *", launcher={"kwargs": {"pages": 0}})
    run = scene.run("short", "FAILED")
    assert (run["result"], run["error"]) == ("failed", "a report has at least one page")


def test_a_run_stays_enqueued_until_its_task_reports(scene: Scene) -> None:
    scene.upsert(schedule_id="waiting", cron_expr="0 0 1 1 *", launcher={"queue": "nobody"})
    by_hand = {"X-Request-Id": "by hand"}
    key = scene.client.post("/schedules/waiting/run", headers=by_hand).json()["idempotency_key"]
    wait_for(lambda: "nobody" in scene.broker.queues(), scene.told)
    wait_for(lambda: [run for run in scene.runs("waiting", "ENQUEUED") if run["run_id"] == key])
    (task,) = [task for task in scene.broker.published() if task.task_id == key]
    assert task.kron["request_id"] == "by hand"
    bearer = {"Authorization": f"Bearer {task.kron['run_token']}"}
    for status in ("STARTED", "SUCCESS"):
        answer = scene.client.post(f"/runs/{key}/status", json={"status": status}, headers=bearer)
        assert (answer.status_code, answer.json()["status"]) == (200, status)
    # The token is good for this run alone.
    other = scene.client.post("/schedules/waiting/run").json()["idempotency_key"]
    answer = scene.client.post(f"/runs/{other}/status", json={"status": "SUCCESS"}, headers=bearer)
    assert answer.status_code == 401


def test_an_executor_behind_the_queue_runs_workflows(scene: Scene) -> None:
    dag = {
        "nodes": [{"id": "fetch", "type": "http"}, {"id": "mail", "type": "mail", "dependsOn": ["fetch"]}],
        "triggers": [{"id": "daily", "type": "schedule_based", "schedule": {"cron_expr": "0 0 1 1 *"}}],
    }
    answer = scene.client.put("/workflows/etl/versions/1", params={"user_id": "ann"}, json=dag)
    assert answer.status_code in (200, 201), answer.text
    assert scene.run("etl/daily", "SUCCESS", "FAILED")["error"] is None
    assert scene.lines("nodes.txt") == [["etl", "fetch"], ["etl", "mail"]]


def test_a_task_that_the_settings_do_not_name_is_refused(scene: Scene) -> None:
    answer = scene.upsert(schedule_id="sly", launcher={"task": "tasks.run_dag"})
    problems = problem_of(answer, 400, "invalid_schedule")["problems"]
    assert isinstance(problems, list)
    assert [(each["path"], each["reason"]) for each in problems] == [
        ("launcher.task", "is not among the tasks the settings allow (allowed_tasks)")
    ]


@pytest.mark.slow
def test_without_names_in_the_settings_no_task_is_allowed_and_one_stored_before_is_not_published(
    tmp_path: Path,
) -> None:
    url, broker = f"sqlite:///{tmp_path}/kron.db", lay_out(tmp_path)
    upsert(url, {**SCHEDULE, "cron_expr": "0 0 1 1 *"})
    variables = {name: value for name, value in exported().items() if name != "KRON_ALLOWED_TASKS"}
    with serving(tmp_path, **{**variables, "KRON_STORE": url}) as (client, _):
        assert "allowed_tasks" in client.post("/schedules/upsert", json=SCHEDULE).text
        client.post("/schedules/report/run")
        wait_for(lambda: [run for run in runs_of(url, "report") if run.ended_at])
    (ended,) = runs_of(url, "report")
    assert (ended.result, str(ended.error).rpartition(": ")[2]) == (
        "launch_failed",
        "is not among the tasks the settings allow (allowed_tasks)",
    )
    assert not broker.published()


@pytest.mark.slow
def test_a_task_published_again_after_a_kill_has_the_same_id_and_is_done_once(tmp_path: Path) -> None:
    url, broker = f"sqlite:///{tmp_path}/kron.db", lay_out(tmp_path)
    variables = {**exported(), "KRON_STORE": url}
    upsert(url, {**SCHEDULE, "cron_expr": "0 0 1 1 *"})
    key = asyncio.run(asked(url, lambda registrar: run_now(registrar, "report")))["idempotency_key"]
    command = [sys.executable, "-m", "tests.service.killed_worker"]
    killed = subprocess.run(command, cwd=tmp_path, env=environment(**variables), timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    (before,) = runs_of(url, "report")
    assert not before.acked
    with serving(tmp_path, **variables) as (client, _):
        wait_for(lambda: [run for run in runs_of(url, "report") if run.acked])
        assert [task.task_id for task in broker.published()] == [key, key]
        assert [task.kron["attempt"] for task in broker.published()] == [1, 1]
        with consuming(tmp_path, str(client.base_url)):
            wait_for(lambda: runs_of(url, "report")[0].status == "SUCCESS")
            wait_for(lambda: not broker.queues())
            # The second one has been taken when a third has been done after it.
            last = client.post("/schedules/report/run").json()["idempotency_key"]
            wait_for(lambda: all(run.status == "SUCCESS" for run in runs_of(url, "report")))
    done = [line.split()[0] for line in (tmp_path / "reports.txt").read_text().splitlines()]
    assert done == [key, last]


@pytest.mark.slow
def test_a_broker_that_is_away_fails_the_launch_and_its_password_is_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{found.getsockname()[1]}/jobs"
    url = f"sqlite:///{tmp_path}/kron.db"
    variables = {
        "KRON_CELERY_BROKER": f"amqp://ann:opensesame@{place}",
        "KRON_CELERY_OPTIONS": '{"login_response": "opensesame"}',
        "KRON_ALLOWED_TASKS": "tasks.report",
    }
    upsert(url, {**SCHEDULE, "cron_expr": "0 0 1 1 *"})
    asyncio.run(asked(url, lambda registrar: run_now(registrar, "report")))
    with process("worker", "--store", url, folder=tmp_path, KRON_LOG_LEVEL="debug", **variables) as worker:
        wait_for(lambda: [run for run in runs_of(url, "report") if run.ended_at], lambda: worker.log)
        logged = "".join(worker.log)
    (ended,) = runs_of(url, "report")
    assert (ended.status, ended.result) == ("FAILED", "launch_failed")
    error = str(ended.error)
    assert error.startswith(f"the broker amqp://{place} cannot be reached: OperationalError: ")
    assert error.endswith("Connection refused, tried 5 times")
    assert place in logged
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert run(["config"]) == GOOD
    shown = capsys.readouterr().out
    assert f'"amqp://{place}"' in shown
    assert '{"login_response": "***"}' in shown
    assert "opensesame" not in shown + logged + error
