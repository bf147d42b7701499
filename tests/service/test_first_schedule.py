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

CURL = re.compile(r"curl (?:-s )?(http\S+)/schedules/upsert .*?-d '(\{.*?\})'", re.DOTALL)


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
    with serving(tmp_path, KRON_ALLOWED_HOSTS="", KRON_LOG_LEVEL="info") as (client, server):
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
    with serving(tmp_path, KRON_ALLOWED_HOSTS="") as (client, _):
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
    with serving(tmp_path, KRON_ALLOWED_HOSTS="") as (client, _):
        assert client.post("/schedules/upsert", json=document).status_code == 200
        has_run(client, document["schedule_id"])


@pytest.mark.slow
def test_the_request_of_the_tutorial_runs_in_its_demo(tmp_path: Path) -> None:
    _, document = command_in((ROOT / "docs" / "tutorial" / "service.md").read_text(encoding="utf-8"))
    with serving(tmp_path, "--demo", KRON_LOG_LEVEL="info") as (client, _):
        assert client.post("/schedules/upsert", json=document).status_code == 200
        has_run(client, document["schedule_id"])
