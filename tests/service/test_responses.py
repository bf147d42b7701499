"""Every route answers with exactly the document that OpenAPI describes, in a real service."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from kron.fronts.service.api.models import EXAMPLES
from tests.service.executor import executing
from tests.service.server import serving
from tests.waiting import wait_for

WORK = {"workflow_id": "wf", "version": 3, "user_id": "ann"}
SECONDLY = {**WORK, "schedule_id": "fast", "cron_expr": "* * * * * *", "timezone": "Europe/Berlin"}
# An hour of every year is repeated and one is skipped, so a preview of a year has both.
NIGHTLY = {**WORK, "schedule_id": "night", "cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"}
DAG = {
    "user_id": "ann",
    "triggers": [{"id": "nightly", "type": "schedule_based", "schedule": {"cron_expr": "30 2 * * *"}}],
    "nodes": [{"id": "fetch", "type": "http", "dependsOn": []}],
}
START = {**WORK, "workflow_id": "flow", "version": 1, "scheduled_for": "2026-06-01T00:00:00Z"}
ROUTES_WITHOUT_JSON = {("DELETE", "/schedules/{schedule_id}"), ("GET", "/metrics")}
Answers = dict[tuple[str, str], list[httpx.Response]]


class Caller:
    """Sends requests, and keeps each answer under its route."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.answers: Answers = defaultdict(list)

    def send(self, method: str, route: str, body: object = None, /, **names: str) -> Any:
        """Send a request to a route and return the document of its answer."""
        query = {name: value for name, value in names.items() if f"{{{name}}}" not in route}
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        answer = self._client.request(
            method, route.format(**names), params=query, content=content, headers=headers
        )
        assert answer.is_success, answer.text
        self.answers[method, route].append(answer)
        return answer.json()


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Answers]]:
    """Return the OpenAPI document of a service, and its answers to requests to every route."""
    with executing() as executor:
        variables = {"KRON_EXECUTOR": json.dumps({"kind": "http", "url": executor.url})}
        variables["KRON_DEFAULT_LAUNCHER"] = '{"kind": "log"}'
        variables["KRON_ALLOWED_COMMANDS"] = "/bin/echo"
        with serving(tmp_path_factory.mktemp("serve"), **variables) as (client, _):
            caller = Caller(client)
            _use_schedules(caller, executor.url)
            _use_runs(caller)
            _use_workflows(caller)
            for route in ("/healthz", "/readyz", "/audit", "/admin/log-level"):
                caller.send("GET", route)
            (worker,) = caller.send("GET", "/workers")["workers"]
            for drain in (True, False):
                caller.send("POST", "/workers/drain", {"worker": worker["worker"], "drain": drain})
            caller.send("PUT", "/admin/log-level", {"level": "info"})
            yield client.get("/openapi.json").json(), caller.answers


def _use_schedules(caller: Caller, url: str) -> None:
    launcher = {"kind": "http", "url": url, "reports": True}
    caller.send("POST", "/schedules/upsert", {**SECONDLY, "launcher": launcher, "overlap_policy": "queue"})
    caller.send("POST", "/schedules/upsert", NIGHTLY)
    caller.send("POST", "/schedules/bulk", {**NIGHTLY, "schedule_id": "bulk"})
    caller.send("POST", "/preview", NIGHTLY, count="400")
    wait_for(lambda: caller.send("GET", "/schedules/{schedule_id}/runs", schedule_id="fast")["runs"])
    caller.send("POST", "/schedules/pause", {"schedule_id": "fast", "paused": True})
    caller.send("POST", "/schedules/{schedule_id}/resume-preview", schedule_id="fast")
    caller.send("POST", "/schedules/pause", {"schedule_id": "fast", "paused": False})
    stopped = {**NIGHTLY, "schedule_id": "stopped", "policy": {"suspend": True}}
    caller.send("POST", "/schedules/upsert", stopped)
    caller.send("POST", "/schedules/pause", {"schedule_id": "stopped", "paused": True})
    caller.send("POST", "/schedules/{schedule_id}/resume-preview", schedule_id="stopped")
    caller.send("GET", "/schedules/{schedule_id}", schedule_id="fast")
    caller.send("GET", "/schedules", limit="1")
    # The cursor of the next page is null on the last one.
    caller.send("GET", "/schedules")
    job = {"identity": "set/a", "schedule": "0 6 * * *", "launcher": launcher, "policy": {"deadline": "1h"}}
    lifted = {**NIGHTLY, "schedule_id": "lifted", "policy": {"suspend": True}}
    for upsert in (lifted, {**lifted, "policy": {"suspend": False}}):
        caller.send("POST", "/schedules/upsert", upsert)
    suspended = {**job, "policy": {"deadline": "1h", "suspend": True}}
    for jobs in ([suspended], [job], [{**job, "schedule": "0 7 * * *"}], []):
        caller.send("POST", "/definitions", {"jobs": jobs, "set": "test", "prune": True})
    caller.send("GET", "/definitions", limit="1")
    caller.send("GET", "/definitions")


def _use_runs(caller: Caller) -> None:
    caller.send("POST", "/schedules/{schedule_id}/run", {"request_id": "one"}, schedule_id="fast")
    span = {"from": "2020-06-01T00:00:00Z", "to": "2020-06-03T00:00:00Z"}
    caller.send("POST", "/schedules/{schedule_id}/backfill", span, schedule_id="night")
    runs = caller.send("GET", "/schedules/{schedule_id}/runs", schedule_id="fast")["runs"]
    first = min(runs, key=lambda run: str(run["created_at"]))
    report = {"status": "SUCCESS", "run_id": "x-1"}
    caller.send("POST", "/runs/{idempotency_key}/status", report, idempotency_key=first["idempotency_key"])
    caller.send("GET", "/runs", limit="2")
    names = {"schedule_id": "fast", "period_id": first["run_at"]}
    caller.send("GET", "/schedules/{schedule_id}/periods/{period_id}/runs", **names)
    caller.send("GET", "/schedules/{schedule_id}/periods/{period_id}/why", **names)
    echo = {"kind": "process", "command": ["/bin/echo", "a"]}
    caller.send("POST", "/schedules/upsert", {**NIGHTLY, "schedule_id": "echo", "launcher": echo})
    caller.send("POST", "/schedules/{schedule_id}/run", {"request_id": "two"}, schedule_id="echo")
    route = "/schedules/{schedule_id}/runs"
    wait_for(lambda: caller.send("GET", route, schedule_id="echo")["runs"][0]["status"] == "SUCCESS")
    caller.send("GET", "/schedules/{schedule_id}/output", schedule_id="echo")


def _use_workflows(caller: Caller) -> None:
    version = "/workflows/{workflow_id}/versions/{version}"
    caller.send("PUT", version, DAG, workflow_id="flow", version="1")
    caller.send("PUT", version, DAG, workflow_id="flow", version="1")
    caller.send("GET", version, workflow_id="flow", version="1")
    caller.send("GET", "/workflows/{workflow_id}", workflow_id="flow")
    caller.send("POST", "/run-launcher/start", {**START, "idempotency_key": "start-1"})


def walk(
    schema: Mapping[str, Any], value: object, shapes: Mapping[str, Any], seen: dict[str, set[str]]
) -> None:
    """Note the fields of every described object in an answer, and fail for one that is not described."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        assert isinstance(value, dict), (name, value)
        properties = shapes[name]["properties"]
        assert value.keys() <= properties.keys(), name
        seen[name] |= value.keys()
        for field, inner in value.items():
            walk(properties[field], inner, shapes, seen)
    elif isinstance(value, list) and "items" in schema:
        for inner in value:
            walk(schema["items"], inner, shapes, seen)


def test_every_answer_has_exactly_the_fields_that_are_described(
    described: tuple[dict[str, Any], Answers],
) -> None:
    document, answers = described
    shapes = document["components"]["schemas"]
    seen: dict[str, set[str]] = defaultdict(set)
    for (method, route), responses in answers.items():
        operation = document["paths"][route][method.lower()]
        for answer in responses:
            content = operation["responses"][str(answer.status_code)]["content"]
            schema = content["application/json"]["schema"]
            Draft202012Validator({**schema, "components": {"schemas": shapes}}).validate(answer.json())
            walk(schema, answer.json(), shapes, seen)
    # A field that no answer ever has would be described and not used.
    assert seen == {name: set(shapes[name]["properties"]) for name in seen}
    assert {"Receipt", "PauseReceipt", "SchedulePreview", "ClockChangeView", "BackfilledRun"} < seen.keys()
    assert {"WhyView", "FactView", "AuditView", "DeployedSchedule", "WorkflowVersionView"} < seen.keys()


def test_every_route_was_used(described: tuple[dict[str, Any], Answers]) -> None:
    document, answers = described
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert routes - answers.keys() == ROUTES_WITHOUT_JSON


def test_the_examples_of_responses_are_valid(described: tuple[dict[str, Any], Answers]) -> None:
    shapes = described[0]["components"]["schemas"]
    for name, example in EXAMPLES.items():
        assert isinstance(example, dict)
        assert set(shapes[name]["required"]) <= set(example) <= set(shapes[name]["properties"])
        Draft202012Validator({**shapes[name], "components": {"schemas": shapes}}).validate(example)


def test_a_pause_leaves_out_the_effect_that_a_resume_has(described: tuple[dict[str, Any], Answers]) -> None:
    paused, resumed, both = (answer.json() for answer in described[1]["POST", "/schedules/pause"])
    assert set(paused) == {"schedule_id", "next_run_at", "etag", "paused", "suspended"}
    assert set(resumed) - set(paused) == {"would_start", "would_wait", "would_drop", "starts"}
    assert set(both) - set(paused) == {"note"}
    shape = described[0]["components"]["schemas"]["PauseReceipt"]
    assert set(shape["required"]) == set(paused)
