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

from kron.clocks.system import SystemClock
from kron.core.dag.contract import DagError
from kron.core.dag.plan import run_id_of
from kron.core.dag.record import DagAttempt, DagRun
from kron.core.workflow import WorkflowRecord
from kron.fronts.service.auth.principal import Caller, TokenScope, acting_as
from kron.fronts.service.dags import TenantDags
from kron.fronts.service.registrar import Registrar
from kron.stores.sqlite.dag import sqlite_dags
from kron.stores.sqlite.store import SqliteStore
from kron.stores.sqlite.workflow import SqliteWorkflows
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
def test_a_backfill_of_24_periods_of_which_3_ran_executes_21(
    service: tuple[httpx.Client, Process], tmp_path: Path
) -> None:
    client, _ = service
    assert deploy(client, workflow(sh("only", "true"), cron_expr="0 * * * *")).status_code == 201
    hours = [f"2026-06-01T{hour:02}:00:00Z" for hour in range(24)]
    for hour in (hours[0], hours[7], hours[23]):
        client.post("/dags/etl/runs", json={"logical_date": hour})
    wait_for(lambda: len([run for run in stored(tmp_path)[0] if run.ended_at]) == 3)
    before = {(each.run_id, each.started_at) for each in stored(tmp_path)[1]}
    answer = client.post(
        "/schedules/etl%2Foften/backfill", json={"from": hours[0], "to": "2026-06-02T00:00:00Z"}
    )
    assert answer.status_code == 202, answer.text

    def backfilled() -> list[dict[str, Any]]:
        return [run for run in runs_of(client) if run["run_at"] in hours and run["status"] == "SUCCESS"]

    wait_for(lambda: len(backfilled()) == 24, lambda: json.dumps(runs_of(client))[:2_000])
    runs, attempts = stored(tmp_path)
    assert {run.run_key for run in runs} == {f"etl:{hour}" for hour in hours}
    assert len(attempts) == 24
    assert before <= {(each.run_id, each.started_at) for each in attempts}


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


def test_runs_are_started_caught_up_listed_retried_and_cancelled_over_http(
    service: tuple[httpx.Client, Process],
) -> None:
    client, _ = service
    nodes = [sh("first", "echo first; exit 3"), sh("second", "true", "first")]
    deploy(client, {"user_id": "ann", "nodes": nodes})
    started = client.post("/dags/etl/runs", json={"logical_date": "2026-06-01T07:00:00Z"}).json()
    assert (started["run_key"], started["created"]) == ("etl:2026-06-01T07:00:00Z", True)
    path = f"/dag-runs/{started['run_id']}"
    failed = wait_for(lambda: (run := client.get(path).json())["status"] == "failed" and run)
    assert [task["status"] for task in failed["tasks"]] == ["failed", "upstream_failed"]
    (attempt,) = client.get(f"{path}/attempts", params={"task_id": "first"}).json()["attempts"]
    assert (attempt["output"], attempt["outcome"]) == ("first\n", "failed")
    assert client.post("/dags/etl/pause", json={"paused": True}).json() == {"dag_id": "etl", "paused": True}
    span = {
        "range_start_logical_date": "2026-06-01",
        "range_end_logical_date": "2026-06-01T23:00:00Z",
        "slot_interval_ms": 3_600_000,
    }
    dry = client.post("/dags/etl/catchup", json={**span, "dry_run": True}).json()
    assert (dry["requested_slot_count"], dry["started_runs"], dry["slots"][7]) == (
        24, [], "2026-06-01T07:00:00Z",
    )  # fmt: skip
    assert [run["logical_date"] for run in dry["existing_runs"]] == ["2026-06-01T07:00:00Z"]
    caught = client.post("/dags/etl/catchup", json=span).json()
    assert [run["created"] for run in caught["started_runs"]].count(True) == 23
    page = client.get("/dags/etl/runs", params={"limit": 20}).json()
    rest = client.get("/dags/etl/runs", params={"limit": 20, "cursor": page["cursor"]}).json()
    assert (len(page["runs"]), len(rest["runs"]), rest["cursor"]) == (20, 4, None)
    again = client.post(f"{path}/retry", json={}).json()
    assert (again["status"], again["tasks"][0]["status"]) == ("running", "queued")
    ended = client.post(f"{path}/cancel").json()
    assert ended["status"] == "cancelled"
    audited(client, started["run_key"])
    for method, route, body, status in (
        ("POST", "/dags/none/runs", {"logical_date": "2026-06-01"}, 404),
        ("POST", "/dags/etl/runs", {"logical_date": "soon"}, 400),
        ("POST", "/dags/etl/catchup", {**span, "max_slots": 23}, 400),
        ("GET", "/dag-runs/none", None, 404),
        ("POST", f"{path}/retry", {"tasks": ["z"]}, 400),
    ):
        assert client.request(method, route, json=body).status_code == status, route


def audited(client: httpx.Client, run_key: str) -> None:
    """Check the audit of the test above; requests that change nothing leave no record."""
    path = f"/dag-runs/{run_id_of(run_key)}"
    for route, body in (
        ("/dags/etl/runs", {"logical_date": "2026-06-01T07:00:00Z"}),
        ("/dags/etl/pause", {"paused": True}),
        (f"{path}/cancel", {}),
    ):
        assert client.post(route, json=body).status_code == 200
    entries = client.get("/audit", params={"name": "etl"}).json()["entries"]
    assert [entry["action"] for entry in reversed(entries)] == [
        "deploy", "trigger", "pause", "catchup", "retry", "cancel",
    ]  # fmt: skip
    cancel, retry, catchup, pause, trigger = (entry["after"] for entry in entries[:5])
    assert cancel == {"run_key": run_key}
    assert retry == {"run_key": run_key, "tasks": ["first", "second"]}
    assert (catchup["runs"], len(catchup["run_keys"])) == (23, 23)
    assert pause == {"paused": True}
    assert trigger == {"runs": 1, "run_keys": [run_key]}


async def test_runs_of_another_tenant_do_not_exist() -> None:
    workflows, dags = SqliteWorkflows(), sqlite_dags()
    store = SqliteStore()
    registrar = Registrar(store, SystemClock(), workflows=workflows)
    tenants = TenantDags(dags, registrar)
    callers = Caller("ann", frozenset(TokenScope), ("ann",)), Caller("eve", frozenset(TokenScope), ("eve",))
    text = json.dumps({"nodes": [sh("a", "true")]})
    await workflows.put(WorkflowRecord("ann.etl", 1, text, "ann", 0))
    with acting_as(callers[0]):
        started = await tenants.orchestrator.start_run(dag_id="ann.etl", logical_date="2026-06-01")
        assert (await tenants.run(started.run_id)).user_id == "ann"
    with acting_as(callers[1]):
        for refused in (
            tenants.run(started.run_id),
            tenants.page("ann.etl", None, None, 10),
            tenants.orchestrator.start_run(dag_id="ann.etl", logical_date="2026-06-01"),
        ):
            with pytest.raises(DagError) as caught:
                await refused
            assert caught.value.category == "not_found"
    await workflows.close()
    await dags.close()
    await store.close()


@pytest.mark.parametrize(
    ("task", "path", "reason"),
    [
        ({"type": "process", "command": ["/bin/ls"]}, "nodes.1.command", "allowed_commands"),
        (
            {"type": "process", "command": [SHELL, "-c", "true"], "env": {"LD_PRELOAD": "x"}},
            "nodes.1.env.LD_PRELOAD",
            "",
        ),
        ({"type": "http", "url": "http://169.254.169.254/latest"}, "nodes.1.url", ""),
        ({"type": "celery", "task": "app.run"}, "nodes.1.type", "celery_broker"),
        ({"type": "callback"}, "nodes.1.type", "functions"),
    ],
    ids=["command", "variable", "address", "celery", "callback"],
)
def test_a_task_that_the_operator_does_not_allow_is_refused_when_it_is_deployed(
    forbidding: httpx.Client, task: dict[str, object], path: str, reason: str
) -> None:
    document = {"user_id": "ann", "nodes": [sh("fine", "true"), {"id": "bad", "dependsOn": [], **task}]}
    for query in ("?dry_run=true", ""):
        refused = forbidding.put(f"/workflows/bad/versions/1{query}", json=document)
        assert refused.status_code == 400, refused.text
        (problem,) = refused.json()["problems"]
        assert problem["path"] == path, problem
        assert reason in problem["reason"]
        assert '(in the task "bad")' in problem["reason"]
    assert forbidding.get("/workflows/bad/versions/1").status_code == 404


DEFAULT = {"kind": "process", "command": ["/bin/echo", "the operator's"]}


@pytest.fixture(scope="module")
def forbidding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    variables = {**VARIABLES, "KRON_DEFAULT_LAUNCHER": json.dumps(DEFAULT)}
    with serving(tmp_path_factory.mktemp("forbidding"), **variables) as (client, _):
        yield client


@pytest.mark.parametrize("more", [{}, {"max_output": 2_048}], ids=["equal", "near"])
def test_a_task_like_the_operators_default_launcher_is_allowed_as_in_schedules(
    more: dict[str, object], forbidding: httpx.Client
) -> None:
    node = {"id": "only", "type": "process", "command": DEFAULT["command"], "dependsOn": [], **more}
    name = f"usual{len(more)}"
    document = {"user_id": "ann", "nodes": [node]}
    forbidding.put(f"/workflows/{name}/versions/1", json=document).raise_for_status()
    run = forbidding.post(f"/dags/{name}/runs", json={"logical_date": "2026-06-01"}).raise_for_status().json()

    def task() -> dict[str, Any] | None:
        (found,) = forbidding.get(f"/dag-runs/{run['run_id']}").json()["tasks"]
        return found if found["status"] in ("success", "failed") else None

    assert wait_for(task)["status"] == "success"
    launcher = {**DEFAULT, **more}
    schedule = {"schedule_id": name, "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": launcher}
    forbidding.post("/schedules/upsert", json=schedule).raise_for_status()
    forbidding.post(f"/schedules/{name}/run").raise_for_status()

    def ended() -> dict[str, Any] | None:
        (found,) = forbidding.get(f"/schedules/{name}/runs").json()["runs"]
        return found if found["status"] in ("SUCCESS", "FAILED") else None

    assert wait_for(ended)["status"] == "SUCCESS"


@pytest.mark.parametrize(
    "more",
    [{"env": {"LD_PRELOAD": "x"}}, {"cwd": "/tmp"}, {"user": "root"}, {"command": ["/bin/echo", "mine"]}],
    ids=["variables", "folder", "user", "arguments"],
)
def test_what_differs_from_the_default_launcher_in_what_it_does_is_refused(
    more: dict[str, object], forbidding: httpx.Client
) -> None:
    launcher = {**DEFAULT, **more}
    schedule = {"schedule_id": "other", "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": launcher}
    refused = forbidding.post("/schedules/upsert", json=schedule)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_schedule"), refused.text


def test_a_stored_version_is_checked_again_with_the_settings_of_today(tmp_path: Path) -> None:
    document: dict[str, object] = {"user_id": "ann", "nodes": [sh("only", "true")]}
    with serving(tmp_path, **VARIABLES) as (client, _):
        assert deploy(client, document).status_code == 201
    with serving(tmp_path, **{**VARIABLES, "KRON_ALLOWED_COMMANDS": "/bin/true"}) as (client, _):
        assert deploy(client, document).status_code == 400
        # What is stored stays, and can be read.
        assert client.get("/workflows/etl/versions/1").status_code == 200
