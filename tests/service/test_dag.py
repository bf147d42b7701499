"""A workflow whose executor is the DAG runtime: deployed once, it runs on its schedule in a real service."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from kron.core.dag.record import DagAttempt, DagRun
from kron.stores.sqlite.dag import sqlite_dags
from tests.service.server import Process, serving
from tests.waiting import wait_for

DAG = {"KRON_EXECUTOR": '{"kind": "dag"}'}
SHELL = "/bin/sh"
VARIABLES = {**DAG, "KRON_ALLOWED_COMMANDS": SHELL, "KRON_DRAIN_MS": "200", "KRON_LEASE_MS": "2000"}


def sh(name: str, script: str, *needs: str, **more: object) -> dict[str, object]:
    return {"id": name, "type": "process", "command": [SHELL, "-c", script], "dependsOn": list(needs), **more}


def workflow(*nodes: dict[str, object], **schedule: object) -> dict[str, object]:
    timing = {"cron_expr": "* * * * * *", "timezone": "UTC", **schedule}
    trigger = {"id": "often", "type": "schedule_based", "schedule": timing}
    return {"user_id": "ann", "nodes": list(nodes), "triggers": [trigger]}


def deploy(client: httpx.Client, document: dict[str, object], version: int = 1) -> httpx.Response:
    return client.put(f"/workflows/etl/versions/{version}", json=document)


def runs_of(client: httpx.Client) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = client.get("/schedules/etl%2Foften/runs").json()["runs"]
    return runs


def stored(folder: Path) -> tuple[list[DagRun], list[DagAttempt]]:
    async def read() -> tuple[list[DagRun], list[DagAttempt]]:
        store = sqlite_dags(str(folder / "kron.db"))
        runs = await store.runs(dag_id="etl", limit=1_000)
        attempts = [each for run in runs for each in await store.attempts(run.run_id)]
        await store.close()
        return runs, attempts

    return asyncio.run(read())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[httpx.Client, Process]]:
    with serving(tmp_path, **VARIABLES) as pair:
        yield pair


@pytest.mark.slow
def test_a_deployed_dag_runs_on_its_schedule_with_a_retry_and_a_queue(
    service: tuple[httpx.Client, Process], tmp_path: Path
) -> None:
    client, _ = service
    # The first attempt of the first task fails; each run takes longer than the interval of its schedule.
    nodes = (
        sh("first", "[ $KRON_ATTEMPT = 2 ]", retries=1, retry_delay="10ms"),
        sh("second", "sleep 1.2; echo done", "first"),
    )
    assert deploy(client, workflow(*nodes, overlap_policy="queue")).status_code == 201
    ended = wait_for(lambda: [run for run in runs_of(client) if run["status"] == "SUCCESS"][1:])
    deploy(client, {"user_id": "ann", "nodes": list(nodes)}, version=2)
    runs, attempts = stored(tmp_path)
    by_id = {run.run_id: run for run in runs}
    assert {run["run_id"] for run in ended} <= set(by_id)
    assert by_id[ended[0]["run_id"]].trigger == "scheduled"
    finished = sorted((run for run in runs if run.ended_at), key=lambda run: run.created_at)
    # With the policy `queue` a run is started after the one before has ended.
    assert all(later.created_at >= (earlier.ended_at or 0) for earlier, later in pairwise(finished))
    first = [each.outcome for each in attempts if each.run_id == ended[0]["run_id"]]
    assert sorted(map(str, first)) == ["failed", "success", "success"]


@pytest.mark.slow
def test_a_service_killed_while_a_task_runs_leaves_each_outcome_exact(tmp_path: Path) -> None:
    gate, log = tmp_path / "gate", tmp_path / "log"
    script = f"echo $KRON_TASK_ID $KRON_ATTEMPT >> {log}; while [ ! -e {gate} ]; do sleep 0.05; done"
    document = workflow(
        sh("wait", script), sh("after", f"echo after >> {log}", "wait"), overlap_policy="skip"
    )
    with serving(tmp_path, **VARIABLES) as (client, server):
        deploy(client, document)
        wait_for(log.exists)
        for pid in [*server.children(), server.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.ended()
    gate.touch()
    with serving(tmp_path, **VARIABLES) as (client, _):
        (oldest, *_) = sorted(runs_of(client), key=lambda run: run["run_at"])
        wait_for(
            lambda: [
                run
                for run in runs_of(client)
                if run["run_at"] == oldest["run_at"] and run["status"] == "SUCCESS"
            ],
            lambda: json.dumps(runs_of(client))[:2_000],
        )
    _, attempts = stored(tmp_path)
    mine = [each for each in attempts if each.run_id == oldest["run_id"]]
    assert [(each.task_id, each.attempt, each.outcome) for each in mine] == [
        ("after", 1, "success"),
        ("wait", 1, "success"),
    ]


def test_a_dag_that_cannot_run_is_refused_when_it_is_deployed_and_a_draft_has_no_schedule(
    service: tuple[httpx.Client, Process],
) -> None:
    client, _ = service
    answer = deploy(client, workflow({"id": "a", "type": "mail"}))
    assert answer.status_code == 400
    assert "unknown kind" in answer.text
    assert deploy(client, workflow()).status_code == 400
    draft = workflow(sh("a", "true"), cron_expr="0 0 * * *")
    assert deploy(client, {**draft, "draft": True}).json()["upserted"] == []
    assert deploy(client, {**draft, "nodes": [sh("b", "true")], "draft": True}).status_code == 200
    assert client.get("/schedules/etl%2Foften").status_code == 404
    assert deploy(client, draft).json()["upserted"][0]["schedule_id"] == "etl/often"
    assert deploy(client, {**draft, "nodes": [sh("c", "true")]}).status_code == 409
    refused = client.post(
        "/schedules/upsert", json={"schedule_id": "x", "cron_expr": "0 0 * * *", "launcher": {"kind": "dag"}}
    )
    assert refused.status_code == 400
    assert "setting executor" in refused.text
