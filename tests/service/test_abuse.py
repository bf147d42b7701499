"""Hostile requests over real HTTP: each costs a bounded time of the processor and a bounded memory."""

import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.service.server import Process, serving

pytestmark = pytest.mark.slow
# The processor time one request may use on average: the budget of an answer, and the rest of the request.
BUDGET_S = 0.4
REPEATED = 5
SCHEDULE: dict[str, object] = {"cron_expr": "0 9 * * *", "timezone": "UTC", "launcher": {"kind": "callback"}}
# Constraints that reject every time of each window, after 64 draws.
NEVER = {
    **SCHEDULE,
    "cron_expr": "* * * * *",
    "window": {"mode": "after", "duration": "10m"},
    "constraints": {"only": {"dates": ["2001-01-01"]}},
}
# Each Monday, 29 February.
RARE = {**SCHEDULE, "cron_expr": "0 0 29 2 1#5"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    with serving(tmp_path_factory.mktemp("abuse"), KRON_MIN_INTERVAL_S="0") as (client, server):
        for name, document in (("never", NEVER), ("rare", RARE)):
            client.post("/schedules/upsert", json={**document, "schedule_id": name}).raise_for_status()
        yield client, server


def _preview(document: dict[str, object], count: int) -> Callable[[httpx.Client], httpx.Response]:
    return lambda client: client.post(f"/preview?count={count}", json=document)


def _form(client: httpx.Client) -> httpx.Response:
    form = {"content-type": "application/x-www-form-urlencoded"}
    return client.post("/login", content=b"a=1&" * 250_000, headers=form)


def _dry_run(client: httpx.Client) -> httpx.Response:
    years = {"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T00:00:00Z", "dry_run": True}
    return client.post("/schedules/rare/backfill", json=years)


ATTACKS: dict[str, tuple[Callable[[httpx.Client], httpx.Response], int]] = {
    "a cookie of backslashes": (
        lambda client: client.get("/", headers={"cookie": 'a="' + "\\" * 30_000 + '"'}),
        200,
    ),
    "a thousand leap days": (
        _preview({**SCHEDULE, "cron_expr": "7 3 29 2 *", "timezone": "America/New_York"}, 1000),
        200,
    ),
    "a thousand repeated times": (
        _preview({**SCHEDULE, "cron_expr": "30 1 * 11 0#1", "timezone": "America/New_York"}, 1000),
        200,
    ),
    "a preview that finds no time": (_preview(NEVER, 1000), 422),
    "45,000 unknown fields": (_preview({**SCHEDULE, **{f"f{n}": 1 for n in range(45_000)}}, 5), 400),
    "45,000 unknown policies": (
        _preview({**SCHEDULE, "policy": {f"f{n}": 1 for n in range(45_000)}}, 5),
        400,
    ),
    "a name of a megabyte": (_preview({**SCHEDULE, "cron_exp" * 100_000: 1}, 5), 400),
    "50,000 dates": (
        _preview({**NEVER, "constraints": {"avoid": {"dates": ["2001-01-01"] * 50_000}}}, 5),
        400,
    ),
    "a list of 300,000 lists": (_preview({**SCHEDULE, "x": [[]] * 300_000}, 5), 400),
    "a dry run over all years": (_dry_run, 400),
    "a form of a megabyte": (_form, 413),
    "a schedule that finds no time": (lambda client: client.get("/schedules/never"), 200),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_hostile_request_costs_no_more_processor_time_than_its_budget(
    name: str, served: tuple[httpx.Client, Process]
) -> None:
    client, server = served
    attack, status = ATTACKS[name]
    assert attack(client).status_code == status
    before = server.processor_s
    for _ in range(REPEATED):
        attack(client)
    assert (server.processor_s - before) / REPEATED < BUDGET_S


def test_bulk_lines_of_nested_lists_do_not_fill_the_memory(served: tuple[httpx.Client, Process]) -> None:
    client, server = served
    line = json.dumps({**SCHEDULE, "x": [[]] * 250_000}, separators=(",", ":")).encode() + b"\n"
    before = server.memory_bytes

    def lines() -> Iterator[bytes]:
        for _ in range(40):
            yield line

    response = client.post(
        "/schedules/bulk", content=lines(), headers={"content-type": "application/x-ndjson"}
    )
    assert response.status_code == 400
    # Together they need 1.5 GB as objects.
    assert server.memory_bytes - before < 200 * 1024 * 1024
