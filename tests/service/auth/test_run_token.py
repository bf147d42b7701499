"""Run tokens: valid for one run, for every kind of executor, and never recorded."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kron.core.plan.record import RunKind, request_key_of
from kron.core.redaction import hide_run_tokens
from kron.fronts.service.auth.middleware import EXECUTOR, NEEDS
from kron.fronts.service.auth.principal import TokenScope
from kron.launchers.run_token import is_run_token_of, run_token_of
from tests.service.auth import forge
from tests.service.executor import executing
from tests.service.server import Process, serving
from tests.waiting import wait_for

SECRET = "another secret that is long enough"
YEARLY = {"cron_expr": "0 0 1 1 *", "timezone": "UTC", "user_id": "ann", "workflow_id": "wf", "version": 1}


@contextmanager
def guarded(folder: Path, **variables: str) -> Iterator[tuple[httpx.Client, Process]]:
    """Serve with authentication; the client is an admin."""
    keys = {"KRON_JWT_SECRET": forge.SECRET, "KRON_SIGNING_SECRET": SECRET, "KRON_LOG_LEVEL": "debug"}
    now = int(time.time())
    with serving(folder, **keys, KRON_LOG_FORMAT="json", **variables) as (client, server):
        token = forge.token(sub="ops", scope="admin", iat=now, exp=now + 3600)
        client.headers["Authorization"] = f"Bearer {token}"
        yield client, server


def asked(client: httpx.Client, name: str) -> str:
    """Run a schedule now and return the key of the run."""
    answer = client.post(f"/schedules/{name}/run")
    return str(answer.raise_for_status().json()["idempotency_key"])


def runs_of(client: httpx.Client, name: str) -> list[dict[str, object]]:
    runs: list[dict[str, object]] = client.get(f"/schedules/{name}/runs").json()["runs"]
    return runs


def reported(client: httpx.Client, key: str, token: str, **further: str) -> httpx.Response:
    document = {"status": "SUCCESS", **further}
    return client.post(f"/runs/{key}/status", json=document, headers={"Authorization": f"Bearer {token}"})


def test_a_process_gets_a_token_for_its_run_only_that_is_never_recorded(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "printf %s $KRON_RUN_TOKEN > $KRON_IDEMPOTENCY_KEY; env; exit 1"]
    launcher = {"kind": "process", "command": command, "cwd": str(tmp_path)}
    with guarded(tmp_path, KRON_ALLOWED_COMMANDS="/bin/sh") as (client, server):
        client.post("/schedules/upsert", json={**YEARLY, "schedule_id": "s", "launcher": launcher})
        keys = [asked(client, "s"), asked(client, "s")]
        wait_for(lambda: [run["result"] for run in runs_of(client, "s")] == ["failed", "failed"])
        tokens = [(tmp_path / key).read_text() for key in keys]
        for key, token in zip(keys, tokens, strict=True):
            assert is_run_token_of(token, SECRET.encode(), key)
        # It is let in; that its end is noticed by its worker is another matter.
        assert reported(client, keys[0], tokens[0]).status_code == 409
        assert reported(client, keys[0], tokens[1]).status_code == 401
        assert reported(client, "0" * 64, tokens[0]).status_code == 401
        for path in ("/schedules", "/runs", "/metrics", "/audit"):
            assert client.get(path, headers={"Authorization": f"Bearer {tokens[0]}"}).status_code == 401
        shown = client.get("/schedules/s/runs").text + client.get("/audit").text + client.get("/runs").text
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("kron.db*"))
    for token in tokens:
        assert token not in shown
        assert token not in "".join(server.log)
        assert token.encode() not in kept


def test_a_process_behind_the_run_launcher_reports_with_its_token(tmp_path: Path) -> None:
    """A worker sends the start to the run launcher, whose executor is a process that reports itself."""
    command = ["/bin/sh", "-c", "printf %s $KRON_RUN_TOKEN > token.new; mv token.new token; sleep 60"]
    executor = {"kind": "process", "command": command, "cwd": str(tmp_path)}
    variables = {"KRON_EXECUTOR": json.dumps(executor), "KRON_DRAIN_MS": "0"}
    with executing() as elsewhere, guarded(tmp_path, **variables) as (client, _):
        dag = {"nodes": [{"id": "a", "type": "t"}], "triggers": []}
        client.put("/workflows/wf/versions/1", params={"user_id": "ann"}, json=dag).raise_for_status()
        launcher = {"kind": "http", "url": elsewhere.url, "reports": True}
        client.post("/schedules/upsert", json={**YEARLY, "schedule_id": "s", "launcher": launcher})
        key = asked(client, "s")
        wait_for(lambda: elsewhere.sent)
        start = {
            "workflow_id": "wf", "version": 1, "user_id": "ann", "scheduled_for": "2026-01-01T00:00:00Z",
            "idempotency_key": key,
        }  # fmt: skip
        client.post("/run-launcher/start", json=start).raise_for_status()
        wait_for((tmp_path / "token").exists)
        answer = reported(client, key, (tmp_path / "token").read_text())
        assert (answer.status_code, answer.json()["status"]) == (200, "SUCCESS")


def test_a_token_that_an_executor_repeats_is_not_recorded(tmp_path: Path) -> None:
    with executing() as executor, guarded(tmp_path) as (client, server):
        launcher = {"kind": "http", "url": executor.url}
        client.post("/schedules/upsert", json={**YEARLY, "schedule_id": "s", "launcher": launcher})
        key = asked(client, "s")
        wait_for(lambda: executor.sent)
        token = executor.sent[0].headers["kron-run-token"]
        assert reported(client, key, token, status="FAILED", error=f"sent {token}, no").status_code == 200
        assert runs_of(client, "s")[0]["error"] == "sent ***, no"
        # The next one is rejected by an executor that quotes the request.
        key = request_key_of("s", RunKind.MANUAL, "again")
        executor.status, executor.answer = 400, f"you sent {run_token_of(SECRET.encode(), key)}"
        client.post("/schedules/s/run", json={"request_id": "again"}).raise_for_status()
        errors = wait_for(
            lambda: [run["error"] for run in runs_of(client, "s") if run["result"] == "launch_failed"]
        )
        assert "answered 400 Bad Request: you sent ***" in str(errors)
        assert token not in "".join(server.log)


def test_a_run_token_allows_reports_only() -> None:
    assert EXECUTOR.scopes == {TokenScope.RUN}
    routes = [route for route, need in NEEDS.items() if need.run_token]
    assert routes == [("POST", "/runs/{idempotency_key}/status")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kron-run.abc_-9, then", "***, then"),
        ("cut at kron-run.", "cut at ***"),
        ("kron-runs are fine", "kron-runs are fine"),
    ],
)
def test_tokens_are_taken_out_of_texts(text: str, expected: str) -> None:
    assert hide_run_tokens(text) == expected
