"""Values that a database would change or not take are refused over real HTTP, with the field's name."""

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.service.server import serving

NUL, HALF = "a\0b", "\ud800"
YEARLY = {"workflow_id": "wf", "version": 3, "user_id": "ann", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
START = {"workflow_id": "wf", "version": 1, "user_id": "ann", "scheduled_for": "2026-06-01T00:00:00Z"}
BACKFILL = {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z"}
KEY = "0" * 64
DAG = {"nodes": [{"id": "a", "type": "t"}], "user_id": "ann"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with serving(tmp_path_factory.mktemp("serve")) as (client, _):
        client.post("/schedules/upsert", json={**YEARLY, "schedule_id": "one"}).raise_for_status()
        yield client


WRONG = [
    *(
        pytest.param("POST", "/schedules/one/run", {"request_id": text}, "request_id", id=f"run {text!a}")
        for text in (NUL, HALF, "", "x" * 501, 7)
    ),
    *(
        pytest.param(
            "POST", "/schedules/one/backfill", {**BACKFILL, "request_id": text}, "request_id", id=f"{text!a}"
        )
        for text in (NUL, HALF)
    ),
    pytest.param("POST", "/schedules/one/backfill", {**BACKFILL, "to": NUL}, "to", id="an instant with NUL"),
    pytest.param("POST", "/schedules/one/backfill", {**BACKFILL, "dry_run": 1}, "dry_run", id="dry run 1"),
    pytest.param("POST", "/schedules/pause", {"schedule_id": "one", "paused": 1}, "paused", id="paused 1"),
    *(
        pytest.param(
            "POST",
            "/schedules/pause",
            {"schedule_id": "one", "paused": True, "reason": text},
            "reason",
            id=f"reason {text!a}",
        )
        for text in (NUL, HALF)
    ),
    *(
        pytest.param("POST", f"/runs/{KEY}/status", {"status": "SUCCESS", name: value}, name)
        for name, value in (
            ("run_id", NUL),
            ("run_id", HALF),
            ("error", NUL),
            ("error", HALF),
            ("attempt", 10**30),
            ("attempt", True),
            ("attempt", 1.0),
        )
    ),
    *(
        pytest.param("POST", "/run-launcher/start", {**START, "idempotency_key": "k", name: value}, name)
        for name, value in (
            ("workflow_id", ""),
            ("workflow_id", NUL),
            ("user_id", ""),
            ("user_id", HALF),
            ("version", 2**31),
            ("version", 1.0),
            ("version", True),
            ("attempt", 10**30),
            ("identity", NUL),
        )
    ),
    *(
        pytest.param("PUT", f"/workflows/wf/versions/{version}", DAG, "version", id=f"deploy {version}")
        for version in (-1, 2**31, 10**30, "1.0", "true")
    ),
    pytest.param("PUT", "/workflows/wf/versions/1", {**DAG, "user_id": ""}, "user_id", id="no user"),
    pytest.param("PUT", "/workflows/wf/versions/1", {**DAG, "note": NUL}, "note", id="a DAG with NUL"),
    pytest.param(
        "PUT",
        "/workflows/wf/versions/1",
        {**DAG, "nodes": [{"id": "a", "type": "t", "deep": [{"x": HALF}]}]},
        "nodes.0.deep.0.x",
        id="a DAG with half a character",
    ),
]


@pytest.mark.parametrize(("method", "path", "document", "field"), WRONG)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    client: httpx.Client, method: str, path: str, document: dict[str, object], field: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.request(method, path, content=json.dumps(document), headers=headers)
    assert 400 <= answer.status_code < 500, answer.text
    assert field in {
        problem["path"].rsplit("body.")[-1].rsplit("path.")[-1] for problem in answer.json()["problems"]
    }, answer.text
    assert client.get("/schedules/one/runs").json()["runs"] == []
    assert client.get("/workflows/wf").status_code == 404


@pytest.mark.parametrize("name", ["a%00b", "%ED%A0%80", "x" * 600])
def test_a_name_that_no_schedule_can_have_is_not_found_or_refused(client: httpx.Client, name: str) -> None:
    for method, path in (
        ("GET", f"/schedules/{name}"),
        ("DELETE", f"/schedules/{name}"),
        ("POST", f"/schedules/{name}/run"),
        ("GET", f"/schedules/{name}/runs"),
        ("GET", f"/workflows/{name}"),
        ("GET", f"/runs?cursor={name}"),
    ):
        answer = client.request(method, path)
        assert answer.status_code in (400, 404), (method, path, answer.text)
    for query in ("search", "user_id", "workflow_id"):
        answer = client.get(f"/schedules?{query}={name}")
        assert answer.status_code < 500, answer.text
        assert answer.status_code >= 400 or answer.json()["schedules"] == []


@pytest.mark.parametrize("version", [0, 2_000_000_000, 2**31 - 1])
def test_every_version_in_the_range_is_given_back(client: httpx.Client, version: int) -> None:
    client.post(
        "/schedules/upsert", json={**YEARLY, "schedule_id": "v", "version": version}
    ).raise_for_status()
    assert client.get("/schedules/v").json()["version"] == version
