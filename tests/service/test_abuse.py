"""Hostile requests over real HTTP: each costs a bounded time of the processor and a bounded memory."""

import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from tests.abuse.attacks import REQUESTS, SCHEDULE, bulk, prepare
from tests.service.server import Process, serving
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
# The processor time one request may use on average: the budget of an answer (0.25 s), its last step and the
# rest of the request, on a slow machine. Without its protection each takes seconds.
BUDGET_S = 0.8
REPEATED = 5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    # With a key, references to secrets are looked for. The worker's ticks cost processor time, too.
    settings = {"KRON_SECRET_KEYS": "a key of the tests that is long enough", "KRON_TICK_MS": "5000"}
    with serving(tmp_path_factory.mktemp("abuse"), **settings) as (client, server):
        prepare(client)
        yield client, server


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_request_costs_no_more_processor_time_than_its_budget(
    name: str, served: tuple[httpx.Client, Process]
) -> None:
    client, server = served
    request, statuses = REQUESTS[name]
    assert request(client, "").status_code in statuses
    before = server.processor_s
    for _ in range(REPEATED):
        request(client, "")
    assert (server.processor_s - before) / REPEATED < BUDGET_S


def test_a_list_of_costly_schedules_is_refused_or_shortened_within_its_budget(
    served: tuple[httpx.Client, Process],
) -> None:
    client, server = served
    # At the end of its pause a thousand of 28,800 periods are spread: that takes a seventieth of a second, or
    # a tenth on a slow machine.
    fields = {"cron_expr": "* * * * * *", "catchup_policy": "spread", "paused": True}
    until = (datetime.now(UTC) + timedelta(hours=8)).isoformat(timespec="seconds")
    for number in range(80):
        name = f"costly {number}"
        client.post("/schedules/upsert", json={**SCHEDULE, **fields, "schedule_id": name}).raise_for_status()
        pause = {"schedule_id": name, "paused": True, "until": until}
        client.post("/schedules/pause", json=pause).raise_for_status()
    before = server.processor_s
    listed = client.get("/schedules?search=costly")
    assert (listed.status_code, listed.json()["code"]) == (422, "too_costly")
    page = client.get("/?search=costly")
    assert (page.status_code, "not computed" in page.text) == (200, True)
    # The budgets of list and page, and one schedule beyond each.
    assert server.processor_s - before < 4 * BUDGET_S
    assert client.get("/schedules?search=costly&limit=1").status_code == 200


def test_bulk_lines_of_nested_lists_do_not_fill_the_memory(served: tuple[httpx.Client, Process]) -> None:
    client, server = served
    before = server.memory_bytes
    assert bulk(client, "").status_code == 400
    assert server.memory_bytes - before < 200 * 1024 * 1024


def test_outputs_that_are_not_read_do_not_fill_the_memory(tmp_path: Path) -> None:
    size, count = 8_000_000, 40
    settings = {"KRON_ALLOWED_COMMANDS": "/usr/bin/head", "KRON_PATIENCE_S": "60", "KRON_DRAIN_MS": "0"}
    launcher = {
        "kind": "process",
        "command": ["/usr/bin/head", "-c", str(size), "/dev/zero"],
        "max_output": 2 * size,
    }
    with serving(tmp_path, **settings) as (client, server), ExitStack() as stack:
        document = {**SCHEDULE, "schedule_id": "prints", "launcher": launcher}
        client.post("/schedules/upsert", json=document).raise_for_status()
        client.post("/schedules/prints/run").raise_for_status()

        def ended() -> dict[str, str] | None:
            (run,) = client.get("/schedules/prints/runs").json()["runs"]
            return run if run["result"] else None

        run = wait_for(ended)
        query = urlencode({"id": "prints", "at": run["run_at"], "key": run["idempotency_key"]})
        whole = client.get(f"/ui/run/output?{query}")
        assert (whole.status_code, len(whole.content)) == (200, size)
        before = server.memory_bytes
        place = client.base_url
        request = f"GET /ui/run/output?{query} HTTP/1.1\r\nHost: {place.host}:{place.port}\r\n\r\n".encode()
        statuses = Counter[bytes]()
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection((place.host, place.port or 80), 60))
            connection.sendall(request)
            statuses[connection.recv(12)] += 1
        assert server.memory_bytes - before < 200 * 1024 * 1024
        assert set(statuses) == {b"HTTP/1.1 200", b"HTTP/1.1 429"}
        assert client.get("/schedules").status_code == 200
