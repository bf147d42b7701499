"""Nothing of other tenants shows: not in times, cursors, signatures, headers or logs; over real HTTP."""

import json
import os
import socket
import sqlite3
import subprocess
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from kron.fronts.service.auth.principal import workflow_prefix
from kron.launchers.http.launcher import is_signed, signing_key_of
from tests.service.auth import forge
from tests.service.executor import executing
from tests.service.server import KRON, Process, process, serving
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow

SIGNING = "another secret that is long enough to be one"
QUEUED = {"cron_expr": "0 0 1 1 *", "timezone": "UTC", "overlap_policy": "queue"}


def headers(user: str, scope: str = "read write run") -> dict[str, str]:
    now = int(time.time())
    return {"Authorization": f"Bearer {forge.token(sub=user, iat=now, exp=now + 3600, scope=scope)}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    variables = {
        "KRON_JWT_SECRET": forge.SECRET,
        "KRON_SIGNING_SECRET": SIGNING,
        "KRON_REQUESTS_PER_S": "0",
        "KRON_TICK_MS": "60000",
    }
    with serving(tmp_path_factory.mktemp("disclosure"), **variables) as served:
        yield served


def upsert(client: httpx.Client, user: str, name: str, **fields: object) -> None:
    launcher = {"kind": "http", "url": "http://127.0.0.1:9/"}
    document = {"schedule_id": f"{user}/{name}", "launcher": launcher, **QUEUED, **fields}
    answer = client.post("/schedules/upsert", json=document, headers=headers(user))
    assert answer.status_code == 200, answer.text


# --- time ----------------------------------------------------------------------------------------


def processor_s(server: Process, client: httpx.Client, requests: list[tuple[str, str]]) -> float:
    """Return the processor time that a service takes for some requests of Ann's, in seconds."""

    def spent() -> float:
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = spent()
    for method, path in requests:
        assert client.request(method, path, headers=headers("ann")).status_code == 404
    return spent() - before


@pytest.mark.slow
def test_a_busy_schedule_of_another_tenant_costs_what_an_unknown_one_does(tmp_path: Path) -> None:
    variables = {"KRON_JWT_SECRET": forge.SECRET, "KRON_REQUESTS_PER_S": "0", "KRON_TICK_MS": "60000"}
    with executing() as executor, serving(tmp_path, **variables) as (client, server):
        launcher = {"kind": "http", "url": executor.url, "reports": True}
        upsert(client, "bob", "busy", launcher=launcher, cron_expr="0 0 * * *", overlap_policy="allow")
        # Two thousand runs whose ends nothing reports.
        period = {"from": "2017-01-01T00:00:00Z", "to": "2019-09-01T00:00:00Z", "only": "all"}
        for number in (1, 2):
            client.post(
                "/schedules/bob%2Fbusy/backfill",
                json={**period, "request_id": str(number)},
                headers=headers("bob"),
            ).raise_for_status()
            wait_for(lambda least=973 * number: len(executor.sent) >= least)  # type: ignore[misc]
        costs: dict[str, list[float]] = {"busy": [], "none": []}
        for name in ("busy", "none") * 3:
            routes = [("GET", f"/schedules/bob%2F{name}"), ("POST", f"/schedules/bob%2F{name}/run")]
            costs[name].append(processor_s(server, client, routes * 25))
        # With the open runs read, it would cost four times as much.
        assert min(costs["busy"]) < 2 * min(costs["none"]), costs


# --- cursors -------------------------------------------------------------------------------------


def test_the_cursors_of_the_audit_log_count_only_the_callers_own_entries(
    server: tuple[httpx.Client, Process],
) -> None:
    client, _ = server
    upsert(client, "cy", "first")
    for number in range(7):
        upsert(client, "dan", f"other-{number}")
    upsert(client, "cy", "second")
    upsert(client, "cy", "third")
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query: dict[str, str] = {"limit": "1"} if cursor is None else {"limit": "1", "cursor": cursor}
        page = client.get("/audit", params=query, headers=headers("cy")).json()
        seen += [entry["name"] for entry in page["entries"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        at, listed = json.loads(urlsafe_b64decode(cursor + "=="))
        # The instant of the caller's own entry, and how many of theirs at that instant were listed.
        assert listed <= 3
        assert abs(at - time.time() * 1000) < 1000 * PATIENCE_S
    assert seen == ["cy/third", "cy/second", "cy/first"]


def test_a_bulk_request_is_listed_page_by_page_though_all_its_entries_have_one_instant(
    server: tuple[httpx.Client, Process],
) -> None:
    client, _ = server
    lines = "".join(
        json.dumps(
            {
                "schedule_id": f"eve/{number}",
                **QUEUED,
                "launcher": {"kind": "http", "url": "http://127.0.0.1:9/"},
            }
        )
        + "\n"
        for number in range(5)
    )
    kind = {"content-type": "application/x-ndjson"}
    client.post("/schedules/bulk", content=lines, headers=headers("eve") | kind).raise_for_status()
    seen: list[str] = []
    page = client.get("/audit", params={"limit": 2}, headers=headers("eve")).json()
    # Three pages; a cursor that stands still would never end.
    while len(seen) <= 5:
        seen += [entry["name"] for entry in page["entries"]]
        if page["next_cursor"] is None:
            break
        query = {"limit": 2, "cursor": page["next_cursor"]}
        page = client.get("/audit", params=query, headers=headers("eve")).json()
    assert seen == [f"eve/{number}" for number in reversed(range(5))]


@pytest.mark.parametrize("text", ["[" * 20_000, "[-1,-1]", "[1]", '["a","b"]', "{}", "\xff"])
def test_a_cursor_that_is_none_is_a_bad_request(text: str, server: tuple[httpx.Client, Process]) -> None:
    client, running = server
    cursor = urlsafe_b64encode(text.encode("latin-1")).decode().rstrip("=")
    for path in ("/audit", "/schedules", "/runs"):
        answer = client.get(path, params={"cursor": cursor}, headers=headers("ann"))
        if path == "/audit" or len(text) > 10_000:
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_option"), path
        assert answer.status_code in (200, 400)
    assert "Traceback" not in "".join(running.log)


# --- signatures ----------------------------------------------------------------------------------


def test_the_start_of_one_tenant_does_not_look_like_that_of_another(
    server: tuple[httpx.Client, Process],
) -> None:
    client, _ = server
    with executing() as executor:
        for user in ("ann", "bob"):
            upsert(client, user, "signed", launcher={"kind": "http", "url": executor.url})
            client.post(f"/schedules/{user}%2Fsigned/run", headers=headers(user)).raise_for_status()
        wait_for(lambda: len(executor.sent) == 2)
    for sent in executor.sent:
        user, body = str(sent.document["user_id"]), json.dumps(sent.document).encode()
        other = {"ann": "bob", "bob": "ann"}[user]
        now = int(sent.headers["kron-timestamp"])
        keys = {name: signing_key_of(SIGNING.encode(), name) for name in (user, other, None)}
        assert is_signed(keys[user], sent.headers, body, now=now)
        assert not is_signed(keys[other], sent.headers, body, now=now)
        assert not is_signed(keys[None], sent.headers, body, now=now)


def test_an_operator_prints_the_key_of_a_user_for_their_executor(tmp_path: Path) -> None:
    done = subprocess.run(
        [*KRON, "token", "signing-key", "--user", "ann"],
        env={**os.environ, "KRON_SIGNING_SECRET": SIGNING},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == signing_key_of(SIGNING.encode(), "ann").decode() + "\n"


# --- headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/schedules"), ("GET", "/nowhere"), ("GET", "/schedules/none"), ("PUT", "/schedules"),
        ("GET", "/healthz"), ("GET", "/openapi.json"), ("GET", "/docs"), ("GET", "/login"),
        ("POST", "/login"),
        ("GET", "/static/none"), ("GET", "/"), ("POST", "/logout"), ("GET", "/metrics"), ("HEAD", "/healthz"),
    ],
)  # fmt: skip
def test_every_answer_forbids_caching_and_sniffing(
    method: str, path: str, server: tuple[httpx.Client, Process]
) -> None:
    client, _ = server
    for sent in ({}, headers("ann"), {"accept": "text/html"}, {"x-long": "x" * 40_000}):
        answer = client.request(method, path, headers=sent)
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer
        assert answer.headers.get_list("cache-control") == ["no-store"], answer


def test_static_files_are_cached_by_their_version(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    answer = client.get("/static/style.css")
    assert answer.status_code == 200
    assert answer.headers.get_list("cache-control") == ["public, max-age=31536000, immutable"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


def test_an_answer_to_no_request_has_the_headers_too(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), PATIENCE_S) as line:
        line.sendall(b"nonsense\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(4096), b"")).lower()
    assert answer.startswith(b"http/1.1 400 ")
    assert b"\r\nx-content-type-options: nosniff\r\n" in answer
    assert b"\r\ncache-control: no-store\r\n" in answer


def test_an_answer_to_a_fault_of_the_service_has_the_headers_too(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        with sqlite3.connect(tmp_path / "kron.db") as damage:
            damage.execute("INSERT INTO audit VALUES (1, 1, 1, 'x', NULL, 'edit', 'x', NULL, '{', '{')")
        damage.close()
        answer = client.get("/audit")
        assert answer.status_code >= 500
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
        assert answer.headers.get_list("cache-control") == ["no-store"]


def test_the_metrics_of_a_worker_have_the_headers_too(tmp_path: Path) -> None:
    with process("worker", "--store", "sqlite:///kron.db", folder=tmp_path, KRON_METRICS_PORT="0") as worker:
        url = worker.logged(r"metrics on (http://[\w.:]+)/metrics")[1]
        for path in ("/metrics", "/nowhere", "/healthz"):
            answer = httpx.get(url + path, timeout=PATIENCE_S, trust_env=False)
            assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
            assert answer.headers.get_list("cache-control") == ["no-store"]


# --- addresses -----------------------------------------------------------------------------------


def test_a_schedule_cannot_send_to_a_special_purpose_address(tmp_path: Path) -> None:
    # Without allowed_hosts every public host is allowed.
    with serving(tmp_path, program=["/usr/bin/env", "-u", "KRON_ALLOWED_HOSTS", *KRON]) as (client, _):
        for host, status in (
            ("192.0.0.9", 400),
            ("192.88.99.1", 400),
            ("[fec0::1]", 400),
            ("[5f00::1]", 400),
            ("93.184.216.34", 200),
        ):
            launcher = {"kind": "http", "url": f"http://{host}/"}
            document = {**QUEUED, "schedule_id": "x", "launcher": launcher}
            answer = client.post("/schedules/upsert", json=document)
            assert answer.status_code == status, host
            assert ("is not a public address" in answer.text) is (status == 400)


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "user", ["Ängström", "李雷", "zoë@example.com", "-dash", "_x", "李" * 60, "u" * 190, "."]
)
def test_users_of_any_name_deploy_workflows(user: str, server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    trigger = {"id": "daily", "type": "schedule_based", "schedule": {"cron_expr": "0 0 1 1 *"}}
    name = f"{workflow_prefix(user)}report"
    path = f"/workflows/{quote(name)}/versions/1"
    answer = client.put(path, json={"nodes": [], "triggers": [trigger]}, headers=headers(user))
    assert answer.status_code == 201, answer.text
    listed = client.get("/schedules", headers=headers(user)).json()["schedules"]
    assert [each["workflow_id"] for each in listed] == [name]
    assert client.get(path, headers=headers("ann")).status_code == 404


def test_no_two_users_share_a_prefix_of_workflows() -> None:
    users = [
        "a",
        "A",
        "_61_",
        "a_",
        "-",
        "_2d_",
        "é",
        "_e9_",
        "e9",
        "x" * 97,
        "x" * 98,
        "_h",
        "_h" + "0" * 32 + "_",
    ]
    assert len({workflow_prefix(user) for user in users}) == len(users)


# --- logs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_name_steers_a_terminal_or_forges_a_line_of_the_log(form: str, tmp_path: Path) -> None:
    name = "x\x1b[2J\x1b]0;owned\x07\x7f\x9b31m"
    with (
        executing() as executor,
        serving(tmp_path, KRON_LOG_FORMAT=form, KRON_LOG_LEVEL="debug") as (
            client,
            server,
        ),
    ):
        executor.status, executor.answer = 400, name
        launcher = {"kind": "http", "url": executor.url}
        document = {"schedule_id": name, **QUEUED, "launcher": launcher}
        client.post("/schedules/upsert", json=document).raise_for_status()
        client.post(f"/schedules/{quote(name, safe='')}/run").raise_for_status()
        wait_for(lambda: executor.sent)
        client.get("/nowhere", headers={"X-Request-Id": "forged"})
        server.logged("owned")
    text = "".join(server.log).replace("\n", "")
    assert text.isprintable(), [line for line in server.log if not line[:-1].isprintable()]
