"""The event loop of the API: no request keeps it for long, however large, so that others are answered."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.abuse.attacks import NEVER, SCHEDULE, prepare
from tests.service.server import Process, serving
from tests.service.stretches import PROGRAM, Stretches

pytestmark = pytest.mark.slow
# The processor time of the longest stretch that a request may take of the loop. Without its protection each
# takes several times as much.
MAX_STRETCH_S = 0.06
REPEATED = 3
JSON, FORM = {"content-type": "application/json"}, {"content-type": "application/x-www-form-urlencoded"}
FLAT = {f"k{number}": 1 for number in range(80_000)}
LISTS = b'{"x":[' + b"[]," * 300_000 + b"[]]}"
NODES = b'{"user_id":"u","triggers":[],"nodes":[{"id":"a","type":"log","x":[' + b"[]," * 300_000 + b"[]]}]}"


def _deployment(*, shuffled: bool = False, **further: object) -> bytes:
    """Return a DAG of nearly as many values as are read, of the kind that takes longest to read and write."""
    nodes = [{"id": f"t{number}", "type": "log", "dependsOn": [], "x": [1.1] * 15} for number in range(9_000)]
    if shuffled:
        nodes = [dict(reversed(node.items())) for node in nodes]
    document = {"user_id": "u", "nodes": nodes, "triggers": [], **further}
    return json.dumps(document, separators=(",", ":")).encode()


LINES = "\n".join(json.dumps({**SCHEDULE, "timezone": f"Eurpe/Brlin{number}"}) for number in range(5_000))
STORED = "/workflows/u.a/versions/1"
EDIT = "/ui/schedule/edit?id=never"
# What each is, the method, the path, the body, and the statuses that its answer may have.
Request = tuple[str, str, bytes, dict[str, str], tuple[int, ...]]
REQUESTS: dict[str, Request] = {
    "a body of many lists": ("PUT", "/workflows/u.c/versions/1", NODES, JSON, (400,)),
    "a request of many fields": ("POST", "/definitions", json.dumps(FLAT).encode(), JSON, (400,)),
    "a body of a megabyte for a small request": (
        "POST", "/schedules/pause", json.dumps(FLAT).encode(), JSON, (413,),
    ),
    "the same workflow in another order": (
        "PUT", STORED, _deployment(shuffled=True), JSON, (200,),
    ),
    "a draft": ("PUT", "/workflows/u.b/versions/1", _deployment(draft=True), JSON, (200, 201)),
    "a version of a workflow": ("GET", STORED, b"", {}, (200,)),
    "the dry run of an upsert": (
        "POST",
        "/schedules/upsert?dry_run=true",
        json.dumps({
            **NEVER,
            "cron_expr": "* * * * * *",
            "timezone": "America/New_York",
            "window": {"mode": "after", "duration": "1000s"},
            "constraints": {"only": {"dates": [f"20{n // 12:02}-{n % 12 + 1:02}-01" for n in range(1_200)]}},
        }).encode(),
        JSON,
        (200,),
    ),
    "a form of many escapes": ("POST", EDIT, b"etag=*&definition=" + b"%41" * 340_000, FORM, (400,)),
    "a form of many lists": ("POST", EDIT, b"etag=*&definition=" + LISTS, FORM, (400,)),
    "bulk lines of unknown zones": (
        "POST", "/schedules/bulk", LINES.encode(), {"content-type": "application/x-ndjson"}, (400,),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process, Stretches]]:
    folder = tmp_path_factory.mktemp("loop")
    notes = folder / "stretches"
    settings = {"STRETCHES": str(notes), "KRON_TICK_MS": "5000"}
    with serving(folder, program=PROGRAM, **settings) as (client, server):
        prepare(client)
        yield client, server, Stretches(notes)


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_keeps_the_event_loop(name: str, served: tuple[httpx.Client, Process, Stretches]) -> None:
    client, server, stretches = served
    method, path, body, headers, statuses = REQUESTS[name]
    headers = {**headers, "sec-fetch-site": "same-origin"}
    if path == STORED:
        client.put(path, content=_deployment(), headers=JSON).raise_for_status()
    taken = []
    stretches.longest_s(server.pid)
    for _ in range(REPEATED):
        answer = client.request(method, path, content=body, headers=headers)
        assert answer.status_code in statuses, answer.text[:500]
        # Its last stretch is noted once it has ended: another request comes later.
        client.get("/healthz")
        taken.append(stretches.longest_s(server.pid))
    # A collection of garbage can fall into any of them.
    assert min(taken) < MAX_STRETCH_S, taken


def test_the_first_to_read_the_description_of_the_api_does_not_wait_for_it(tmp_path: Path) -> None:
    notes = tmp_path / "stretches"
    settings = {"STRETCHES": str(notes), "KRON_TICK_MS": "5000", "KRON_LOG_LEVEL": "debug"}
    with serving(tmp_path, program=PROGRAM, **settings) as (client, server):
        client.get("/healthz")
        stretches = Stretches(notes)
        stretches.longest_s(server.pid)
        assert client.get("/openapi.json").status_code == 200
        server.logged("the description of the API is ready")
        assert client.get("/docs").status_code == 200
        client.get("/healthz")
        assert stretches.longest_s(server.pid) < MAX_STRETCH_S


def test_changes_of_many_long_schedules_at_once_are_computed_beside_the_event_loop(
    served: tuple[httpx.Client, Process, Stretches],
) -> None:
    client, server, stretches = served
    dates = [f"20{n // 336 + 10:02}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}" for n in range(1_500)]
    fields = {**SCHEDULE, "cron_expr": "0 3 * * *", "constraints": {"avoid": {"dates": dates}}}
    lines = "\n".join(json.dumps({**fields, "schedule_id": f"long {number:02}"}) for number in range(30))
    headers = {"content-type": "application/x-ndjson"}
    client.post("/schedules/bulk", content=lines.encode(), headers=headers).raise_for_status()
    listed = client.get("/definitions?search=long&limit=40").json()["jobs"]
    states = json.dumps({each["definition"]["identity"]: each["etag"] for each in listed})
    page = {"sec-fetch-site": "same-origin"}
    stretches.longest_s(server.pid)
    changed = client.post("/ui/fleet/apply?remedy=hash", data={"states": states}, headers=page)
    assert changed.status_code == 303, changed.text
    undone = client.post(f"/ui/fleet/undo?at={changed.headers['location'].split('at=')[1]}", headers=page)
    assert undone.status_code == 303, undone.text
    client.get("/healthz")
    assert stretches.longest_s(server.pid) < MAX_STRETCH_S


def test_thousands_of_incidents_are_logged_in_turns(served: tuple[httpx.Client, Process, Stretches]) -> None:
    client, server, stretches = served
    fields = {"schedule": "0 3 * * *", "launcher": {"kind": "log"}, "policy": {"suspend": True}}
    jobs = [{"identity": f"suspended {number}", **fields} for number in range(4_000)]
    stretches.longest_s(server.pid)
    applied = client.post("/definitions", json={"jobs": jobs})
    assert applied.status_code == 200, applied.text[:500]
    server.logged("suspended 3999: ")
    client.get("/healthz")
    assert stretches.longest_s(server.pid) < MAX_STRETCH_S
