"""Every route with every scope, every tenant and every fault of a token, over real HTTP.

The routes come from the table that guards them, and the table from the routes: a new one joins by itself.
"""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from kron.core.dag.plan import run_id_of
from kron.fronts.service.app import app_of
from kron.fronts.service.auth.middleware import (
    NEEDS,
    Need,
    UnguardedRouteError,
    check_routes,
    find,
    methods_of,
)
from kron.fronts.service.auth.principal import TokenScope
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.service.auth import forge
from tests.service.server import serving

HOUR = 3600
ROUTES = sorted(NEEDS.items())
GUARDED = [(route, need) for route, need in ROUTES if need.scope is not None]
# The parameters of paths: of Ann's schedule, and of one that does not exist.
OWN = {
    "schedule_id": "ann%2Fdaily",
    "period_id": "2026-06-01T09:00:00Z",
    "idempotency_key": "0" * 64,
    "workflow_id": "ann.flow",
    "version": "1",
    "name": "style.css",
    "dag_id": "ann.flow",
    "run_id": run_id_of("ann.flow:2026-06-01T00:00:00Z"),
}
ABSENT = OWN | {
    "schedule_id": "ann%2Fno-such",
    "idempotency_key": "f" * 64,
    "workflow_id": "ann.none",
    "dag_id": "ann.none",
    "run_id": "f" * 32,
}
SCHEDULE: dict[str, object] = {"cron_expr": "0 9 * * *", "timezone": "UTC", "launcher": {"kind": "log"}}

DAG: dict[str, object] = {"nodes": [{"id": "one", "type": "log", "dependsOn": []}], "triggers": []}
# Request bodies; the default is an empty object.
BODIES: dict[tuple[str, str], dict[str, object]] = {
    ("POST", "/schedules/upsert"): {**SCHEDULE, "schedule_id": ""},
    ("POST", "/schedules/bulk"): {**SCHEDULE, "schedule_id": ""},
    ("POST", "/schedules/pause"): {"schedule_id": "", "paused": True},
    ("POST", "/schedules/{schedule_id}/backfill"): {
        "from": "2026-05-01T00:00:00Z",
        "to": "2026-05-02T00:00:00Z",
    },
    ("POST", "/preview"): SCHEDULE,
    ("POST", "/runs/{idempotency_key}/status"): {"status": "SUCCESS"},
    ("PUT", "/workflows/{workflow_id}/versions/{version}"): DAG,
    ("PUT", "/admin/log-level"): {"level": "info"},
    ("POST", "/dags/{dag_id}/runs"): {"logical_date": "2026-06-01"},
    ("POST", "/dags/{dag_id}/catchup"): {
        "range_start_logical_date": "2026-06-01",
        "range_end_logical_date": "2026-06-01",
        "slot_interval_ms": 1_000,
    },
    ("POST", "/dags/{dag_id}/pause"): {"paused": True},
}


class Server(NamedTuple):
    """A server that knows Ann's schedule."""

    client: httpx.Client
    run_key: str


def token(**further: object) -> str:
    """Return a token that is valid now."""
    now = int(time.time())
    return forge.token("EdDSA", 0, **{"iat": now, "exp": now + HOUR, **further})


def asked(client: httpx.Client, route: tuple[str, str], text: str | None, **values: str) -> httpx.Response:
    method, template = route
    path = re.sub(r"\{(\w+)(:path)?\}", lambda match: (OWN | values)[match[1]], template)
    headers = {} if text is None else {"Authorization": f"Bearer {text}"}
    name = (OWN | values)["schedule_id"].replace("%2F", "/")
    body = BODIES.get(route, {}) if method in ("POST", "PUT") else None
    named = {**body, "schedule_id": name} if body and "schedule_id" in body else body
    return client.request(method, path, headers=headers, json=named)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("matrix")
    keys = folder / "jwks.json"
    keys.write_text(forge.jwks(forge.jwk("EdDSA"), forge.jwk("RS256")))
    variables = {
        "KRON_JWT_KEYS": str(keys),
        "KRON_JWT_SECRET": forge.SECRET,
        "KRON_JWT_ISSUER": forge.ISSUER,
        "KRON_REQUESTS_PER_S": "0",
        "KRON_EXECUTOR": '{"kind": "dag"}',
    }
    with serving(folder, **variables) as (client, _):
        ann = {"Authorization": f"Bearer {token()}"}
        document = {**SCHEDULE, "schedule_id": "ann/daily"}
        assert client.post("/schedules/upsert", json=document, headers=ann).status_code == 200
        run = client.post("/schedules/ann%2Fdaily/run", headers=ann)
        assert run.status_code == 202
        deployed = client.put("/workflows/ann.flow/versions/1", json=DAG, headers=ann)
        assert deployed.status_code == 201, deployed.text
        started = client.post("/dags/ann.flow/runs", json={"logical_date": "2026-06-01"}, headers=ann)
        assert started.json()["run_id"] == OWN["run_id"]
        yield Server(client, run.json()["idempotency_key"])


def now() -> int:
    return int(time.time())


FAULTS: dict[str, Callable[[], str | None]] = {
    "missing": lambda: None,
    "expired": lambda: token(exp=now() - HOUR),
    "future": lambda: token(nbf=now() + HOUR),
    "wrong audience": lambda: token(aud="somebody"),
    "wrong issuer": lambda: token(iss="https://evil.test"),
    "wrong key": lambda: forge.token("EdDSA", 1, iat=now(), exp=now() + HOUR),
    "none": lambda: forge.forged({"alg": "none"}, exp=now() + HOUR, iat=now()),
    "the public key as secret": lambda: forge.forged(
        {"alg": "HS256", "kid": "RS256-0"}, forge.public_pem("RS256"), exp=now() + HOUR, iat=now()
    ),
    "RS256 by HMAC": lambda: forge.forged(
        {"alg": "RS256", "kid": "RS256-0"}, forge.SECRET.encode(), exp=now() + HOUR, iat=now()
    ),
    "truncated": lambda: token()[:-10],
    "not a token": lambda: "abc",
    "somebody's run": lambda: "kron-run." + "A" * 43,
}


def is_turned_away(answer: httpx.Response, need: Need) -> bool:
    """Return whether a request was not authenticated: a redirect for a browser, a challenge for a program."""
    if need.page:
        return answer.status_code == 303 and answer.headers["location"].split("?")[0] == "/login"
    kind = answer.headers["content-type"].startswith("application/problem+json")
    return answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer") and kind


@pytest.mark.parametrize("fault", FAULTS)
def test_no_guarded_route_lets_a_faulty_token_in(fault: str, server: Server) -> None:
    ann = {"Authorization": f"Bearer {token()}"}
    before = server.client.get("/schedules", headers=ann).json()
    for route, need in GUARDED:
        answer = asked(server.client, route, FAULTS[fault]())
        assert is_turned_away(answer, need), (route, answer.text)
    after = server.client.get("/schedules", headers=ann).json()
    assert [one["updated_at"] for one in after["schedules"]] == [
        one["updated_at"] for one in before["schedules"]
    ]


@pytest.mark.parametrize(
    "proofs",
    [
        pytest.param(lambda: [f"Bearer {token()}"] * 2, id="the same token twice"),
        pytest.param(lambda: [f"Bearer {token()}", "Bearer abc"], id="a good one and another"),
        pytest.param(lambda: [f"Basic {token()}"], id="another kind of proof"),
        pytest.param(lambda: ["Bearer"], id="no token at all"),
    ],
)
def test_a_request_has_one_authorization_header(proofs: Callable[[], list[str]], server: Server) -> None:
    headers = [("Authorization", proof) for proof in proofs()]
    answer = server.client.get("/schedules", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    assert "one token" in answer.json()["detail"]


def test_a_token_signed_by_a_revoked_key_is_refused(tmp_path: Path) -> None:
    keys = tmp_path / "jwks.json"
    keys.write_text(forge.jwks(forge.jwk("EdDSA", 1)))
    with serving(tmp_path, KRON_JWT_KEYS=str(keys)) as (client, _):
        for route, need in GUARDED:
            assert is_turned_away(asked(client, route, token()), need), route


@pytest.mark.parametrize("scope", ["", *TokenScope])
def test_a_scope_opens_its_own_routes_and_no_others(scope: str, server: Server) -> None:
    for route, need in GUARDED:
        answer = asked(server.client, route, token(scope=scope), **ABSENT)
        if need.scope is not None and scope not in (need.scope, TokenScope.ADMIN):
            assert answer.status_code == 403, (route, answer.text)
            assert need.page or f'"{need.scope}"' in answer.json()["detail"]
        else:
            assert answer.status_code not in (401, 403), (route, answer.text)
            assert answer.status_code < 500, (route, answer.text)


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_the_error_of_the_store_is_hidden_from_anonymous_callers(guarded: bool, tmp_path: Path) -> None:
    keys = {"KRON_JWT_SECRET": forge.SECRET} if guarded else {}
    url = "postgresql://kron@127.0.0.1:9/kron?connect_timeout=1"
    with serving(tmp_path, KRON_STORE=url, **keys) as (client, _):
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
        assert answer.json()["worker"] == "degraded"
        assert ("127.0.0.1" in str(answer.json()["error"])) is not guarded
        assert (answer.json()["error"] is None) is guarded


def test_open_routes_need_no_token(server: Server) -> None:
    for route, need in ROUTES:
        if need.scope is None and route != ("POST", "/login"):
            assert asked(server.client, route, None).status_code < 400, route


def test_other_tenants_schedules_answer_as_if_they_did_not_exist(server: Server) -> None:
    everything = "read write run"
    for route, _ in GUARDED:
        theirs = asked(
            server.client, route, token(sub="bob", scope=everything), idempotency_key=server.run_key
        )
        nothing = asked(server.client, route, token(sub="bob", scope=everything), **ABSENT)
        assert _same(theirs) == _same(nothing), route
    ann = {"Authorization": f"Bearer {token()}"}
    assert server.client.get("/schedules/ann%2Fdaily", headers=ann).json()["schedule_id"] == "ann/daily"


def _same(answer: httpx.Response) -> tuple[int, str]:
    """Return a response without the parts that always differ: names, keys, times, and the request's id."""
    text = answer.text.replace(answer.headers["x-request-id"], "")
    text = re.sub(r"[0-9a-f]{32,64}|(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d", "x", text)
    for names in (OWN, ABSENT):
        for value in (names["schedule_id"], names["workflow_id"]):
            text = text.replace(value, "x").replace(value.replace("%2F", "/"), "x")
    return answer.status_code, text


def test_an_unknown_route_is_404_for_authenticated_callers_only(server: Server) -> None:
    assert server.client.get("/nowhere").status_code == 401
    headers = {"Authorization": f"Bearer {token()}"}
    assert server.client.get("/nowhere", headers=headers).status_code == 404
    refusal = server.client.put("/schedules", headers=headers)
    assert (refusal.status_code, refusal.headers["allow"]) == (405, "GET")


def test_every_route_is_in_the_table() -> None:
    registrar = Registrar(SqliteStore(), SimulatedClock(forge.NOW))
    routes = methods_of(app_of(registrar, Settings()).routes)
    assert set(routes) <= set(NEEDS)
    assert len(routes) > 15
    assert {name for _, path in NEEDS for name in re.findall(r"\{(\w+)", path)} <= set(OWN)


def test_a_route_that_is_not_in_the_table_is_refused_at_the_start() -> None:
    app = app_of(Registrar(SqliteStore(), SimulatedClock(forge.NOW)), Settings())
    app.add_api_route("/new", lambda: None)
    with pytest.raises(UnguardedRouteError, match="GET /new"):
        check_routes(app.routes)


@pytest.mark.parametrize(
    ("method", "path", "need"),
    [
        ("POST", "/schedules/upsert", Need(TokenScope.WRITE, large=True)),
        ("HEAD", "/schedules", Need(TokenScope.READ)),
        ("GET", "/schedules/upsert", Need(TokenScope.READ)),
        ("DELETE", "/schedules/a%2Fb", Need(TokenScope.WRITE)),
        ("POST", "/schedules/upsert/run", Need(TokenScope.RUN)),
        ("PATCH", "/schedules/a", None),
        ("GET", "/schedules/a/b", None),
    ],
)
def test_the_scope_of_a_request(method: str, path: str, need: Need | None) -> None:
    assert find(method, path).need == need
