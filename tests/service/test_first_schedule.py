"""A first schedule that works: what the empty page, the API's description and the tutorial suggest runs."""

import json
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docs.page import ROOT
from tests.service.server import Process, serving
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

CURL = re.compile(r"curl (?:-s )?(http\S+)/schedules/upsert .*?-d '(\{.*?\})'", re.DOTALL)

# A service without settings: the rig of the tests allows loopback and has an executor.
FRESH = {"KRON_ALLOWED_HOSTS": "", "KRON_EXECUTOR": ""}
# A schedule that names no launcher starts its workflow.
WORKFLOW: dict[str, object] = {"workflow_id": "w", "version": 1, "user_id": "u"}
DAILY = {"cron_expr": "0 0 * * *", "timezone": "UTC"}
LOG = 'or name another launcher, such as {"kind": "log"}'
NO_EXECUTOR = f"this service has no executor for workflows: set executor (KRON_EXECUTOR), {LOG}"
NO_BROKER = f"this service has no broker for Celery tasks: set celery_broker (KRON_CELERY_BROKER), {LOG}"
NO_FUNCTION = (
    "kron serve has no functions to call: run the worker in a program that registers them, "
    'or name another launcher, such as {"kind": "http", "url": "https://..."} or {"kind": "log"}'
)
CELERY: dict[str, object] = {"launcher": {"kind": "celery", "task": "a.b"}}
CALLBACK: dict[str, object] = {"launcher": {"kind": "callback"}}


def command_in(text: str) -> tuple[str, Any]:
    """Return the address and the document of a suggested request."""
    found = CURL.search(unescape(text))
    assert found is not None, text
    return found[1], json.loads(found[2])


def has_run(client: httpx.Client, name: str) -> None:
    """Run a schedule now, and wait for its success."""
    path = f"/schedules/{name.replace('/', '%2F')}"
    assert client.post(f"{path}/run", json={"request_id": "first"}).status_code == 202
    wait_for(lambda: client.get(f"{path}/runs").json()["runs"][0]["status"] == "SUCCESS")


def test_the_request_of_the_empty_page_runs_when_it_is_copied(tmp_path: Path) -> None:
    with serving(tmp_path, **FRESH, KRON_LOG_LEVEL="info") as (client, server):
        address, document = command_in(client.get("/").text)
        assert address == str(client.base_url).rstrip("/")
        answer = client.post("/schedules/upsert", json=document)
        assert answer.status_code == 200, answer.text
        has_run(client, document["schedule_id"])
        assert isinstance(server, Process)
        server.logged("kron.runs hello for .*: hello")
        assert "hello" in client.get("/").text


def bodies_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the example of each request body of an OpenAPI document, by method and path."""
    examples = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                schema = content.get("schema", {})
                name = schema.get("$ref", "").rpartition("/")[2]
                known = document["components"]["schemas"].get(name, schema)
                fields = known.get("properties", {})
                made = {key: field["examples"][0] for key, field in fields.items() if field.get("examples")}
                examples[f"{method.upper()} {path}"] = content.get("example", known.get("example", made))
    return examples


def test_the_requests_of_the_description_of_the_api_work_when_they_are_copied(tmp_path: Path) -> None:
    with serving(tmp_path, **FRESH) as (client, _):
        bodies = bodies_of(client.get("/openapi.json").json())
        upsert = bodies["POST /schedules/upsert"]
        assert client.post("/schedules/upsert", json=upsert).status_code == 200
        has_run(client, upsert["schedule_id"])
        lines = client.post(
            "/schedules/bulk",
            content=bodies["POST /schedules/bulk"],
            headers={"content-type": "application/x-ndjson"},
        )
        assert lines.status_code == 200, lines.text
        assert client.post("/preview", json=bodies["POST /preview"]).status_code == 200
        applied = client.post("/definitions", json=bodies["POST /definitions"])
        assert applied.status_code == 200, applied.text
        has_run(client, bodies["POST /definitions"]["jobs"][0]["identity"])
        pause = {**bodies["POST /schedules/pause"], "paused": True}
        assert client.post("/schedules/pause", json=pause).status_code == 200
        assert client.post("/schedules/pause", json={**pause, "paused": False}).status_code == 400
        backfill = bodies["POST /schedules/{schedule_id}/backfill"]
        answer = client.post(
            f"/schedules/{upsert['schedule_id']}/backfill", json={**backfill, "dry_run": True}
        )
        assert answer.status_code == 202, answer.text


def test_the_request_of_the_reference_runs_when_it_is_copied(tmp_path: Path) -> None:
    _, document = command_in((ROOT / "docs" / "reference" / "service.md").read_text(encoding="utf-8"))
    with serving(tmp_path, **FRESH) as (client, _):
        assert client.post("/schedules/upsert", json=document).status_code == 200
        has_run(client, document["schedule_id"])


@pytest.mark.slow
def test_the_request_of_the_tutorial_runs_in_its_demo(tmp_path: Path) -> None:
    _, document = command_in((ROOT / "docs" / "tutorial" / "service.md").read_text(encoding="utf-8"))
    with serving(tmp_path, "--demo", KRON_LOG_LEVEL="info") as (client, _):
        assert client.post("/schedules/upsert", json=document).status_code == 200
        has_run(client, document["schedule_id"])


# What a fresh service cannot launch: the fields of a schedule, and the problem they are refused with.
UNLAUNCHABLE: list[tuple[dict[str, object], dict[str, str]]] = [
    (WORKFLOW, {"path": "launcher", "value": "workflow", "reason": NO_EXECUTOR}),
    (
        {"launcher": {"kind": "workflow", **WORKFLOW}},
        {"path": "launcher.kind", "value": "workflow", "reason": NO_EXECUTOR},
    ),
    (CELERY, {"path": "launcher.kind", "value": "celery", "reason": NO_BROKER}),
    (CALLBACK, {"path": "launcher.kind", "value": "callback", "reason": NO_FUNCTION}),
]


def refused(answer: httpx.Response) -> Any:
    """Return the only problem of a refused schedule."""
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_schedule"), answer.text
    (problem,) = answer.json()["problems"]
    return problem


def upsert(client: httpx.Client, **fields: object) -> httpx.Response:
    """Request a schedule."""
    return client.post("/schedules/upsert", json={"schedule_id": "a", **DAILY, **fields})


def test_a_schedule_that_nothing_here_could_launch_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with serving(tmp_path, **FRESH) as (client, _):
        for fields, problem in UNLAUNCHABLE:
            assert refused(upsert(client, **fields)) == problem
        assert client.get("/schedules").json()["schedules"] == []
        # The alternative that each reason names is accepted.
        assert upsert(client, launcher={"kind": "log"}).status_code == 200


def test_a_bulk_line_and_an_applied_job_that_nothing_here_could_launch_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path, **FRESH) as (client, _):
        for fields, problem in UNLAUNCHABLE:
            line = json.dumps({"schedule_id": "a", **DAILY, **fields})
            answer = client.post(
                "/schedules/bulk", content=line, headers={"content-type": "application/x-ndjson"}
            )
            assert (answer.status_code, problem["reason"] in answer.text.replace("\\", "")) == (400, True)
            launcher = fields.get("launcher", {"kind": "workflow", **WORKFLOW})
            job = {"identity": "a", "schedule": DAILY["cron_expr"], "launcher": launcher}
            answer = client.post("/definitions", json={"jobs": [job]})
            assert (answer.status_code, problem["reason"] in answer.text.replace("\\", "")) == (400, True)
        assert client.get("/schedules").json()["schedules"] == []


def test_a_launcher_that_the_settings_make_possible_is_accepted(tmp_path: Path) -> None:
    settings = {"KRON_CELERY_BROKER": "memory://", "KRON_ALLOWED_TASKS": "a.b"}
    with serving(tmp_path, **FRESH | {"KRON_EXECUTOR": '{"kind": "log"}'}, **settings) as (client, _):
        problem = refused(upsert(client, **WORKFLOW))
        assert (problem["path"], problem["value"]) == ("version", str(WORKFLOW["version"]))
        name, version = WORKFLOW["workflow_id"], WORKFLOW["version"]
        remedy = f"deploy it first (PUT /workflows/{name}/versions/{version}), or name a version that is"
        assert problem["reason"] == f'of the workflow "{name}" is not deployed here: {remedy}'
        job = {"identity": "a", "schedule": DAILY["cron_expr"], "launcher": {"kind": "workflow", **WORKFLOW}}
        assert refused(client.post("/definitions", json={"jobs": [job]}))["path"] == "version"
        place = f"/workflows/{name}/versions/{version}?user_id={WORKFLOW['user_id']}"
        assert client.put(place, json={"nodes": []}).status_code == 201
        assert upsert(client, **WORKFLOW).status_code == 200
        assert upsert(client, **CELERY).status_code == 200
        assert refused(upsert(client, **CALLBACK))["reason"] == NO_FUNCTION
    with serving(tmp_path, **FRESH, KRON_DEFAULT_LAUNCHER='{"kind": "log"}') as (client, _):
        assert upsert(client, **WORKFLOW).status_code == 200


def test_an_executor_or_a_default_launcher_that_cannot_run_is_refused_like_a_launcher(tmp_path: Path) -> None:
    executor = FRESH | {"KRON_EXECUTOR": '{"kind": "celery", "task": "a.b"}'}
    with serving(tmp_path, **executor) as (client, _):
        reason = f"the executor is of the kind celery, and {NO_BROKER}"
        assert refused(upsert(client, **WORKFLOW))["reason"] == reason
    with serving(tmp_path, **FRESH, KRON_DEFAULT_LAUNCHER='{"kind": "callback"}') as (client, _):
        problem = {"path": "launcher", "value": "callback", "reason": NO_FUNCTION}
        assert refused(upsert(client, **WORKFLOW)) == problem


def test_the_times_of_a_schedule_are_previewed_where_nothing_could_launch_it(tmp_path: Path) -> None:
    with serving(tmp_path, **FRESH) as (client, _):
        for launcher in ({}, CALLBACK, CELERY):
            answer = client.post("/preview", json={**DAILY, **launcher})
            allowed = launcher is not CELERY  # its task is not among the allowed ones
            assert answer.status_code == (200 if allowed else 400), answer.text


@pytest.mark.slow
def test_the_demo_accepts_functions_for_its_own_schedules_alone(tmp_path: Path) -> None:
    with serving(tmp_path, "--demo", **FRESH, KRON_LOG_LEVEL="info") as (client, _):
        assert upsert(client, schedule_id="demo/heartbeat", **CALLBACK).status_code == 200
        assert refused(upsert(client, **CALLBACK))["reason"] == NO_FUNCTION
