"""Requests that need many times their size in memory, if the service lets them."""

import json
import random
from collections.abc import Iterator
from datetime import date, timedelta

import httpx
import pytest

from tests.abuse.attacks import SCHEDULE
from tests.service.server import Process, serving

pytestmark = pytest.mark.slow
MIB = 1 << 20


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    with serving(tmp_path_factory.mktemp("memory")) as (client, server):
        # What is loaded with the first request.
        client.post("/preview", json=SCHEDULE).raise_for_status()
        yield client, server


def test_a_long_name_around_many_values_is_not_written_for_each_of_them(
    served: tuple[httpx.Client, Process],
) -> None:
    client, server = served
    before = server.memory_bytes
    # Each value once had a path of its own, with the name in it: 800 MB, and 100 GB for a document of 1 MB.
    document = {"nodes": [{"id": "a", "type": "log"}], "user_id": "ann", "n" * 40_000: [0] * 20_000}
    answer = client.put("/workflows/large/versions/1?dry_run=true", json=document)
    assert answer.status_code == 200
    assert server.memory_bytes - before < 100 * MIB


# Schedules whose definitions and launchers are nearly as long as they may be: 18 MB.
LONG = 150


@pytest.fixture(scope="module")
def long_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    """A service with schedules of long definitions, each of which was edited."""
    launcher = {"kind": "process", "command": ["/bin/echo", *["a" * 1_000] * 58]}
    variables = {"KRON_ALLOWED_COMMANDS": "/bin/echo", "KRON_TICK_MS": "60000"}
    with serving(tmp_path_factory.mktemp("long"), **variables) as (client, server):
        for hour in (1, 2):
            fields = {**SCHEDULE, "cron_expr": f"0 {hour} 1 1 *", "launcher": launcher, "salt": "s" * 60_000}
            for start in range(0, LONG, 25):
                numbers = range(start, start + 25)
                lines = [json.dumps({**fields, "schedule_id": f"long {number:03}"}) for number in numbers]
                content = "\n".join(lines).encode()
                headers = {"content-type": "application/x-ndjson"}
                client.post("/schedules/bulk", content=content, headers=headers).raise_for_status()
        yield client, server


@pytest.mark.parametrize(
    ("path", "field", "count"),
    [("/schedules", "schedules", 1), ("/definitions", "jobs", 1), ("/audit", "entries", 2)],
)
def test_a_page_of_long_items_ends_early(
    path: str, field: str, count: int, long_fleet: tuple[httpx.Client, Process]
) -> None:
    client, server = long_fleet
    before, listed, cursor = server.memory_bytes, 0, ""
    while True:
        page = client.get(path, params={"limit": 1_000, **({"cursor": cursor} if cursor else {})})
        assert page.status_code == 200
        assert len(page.content) < 6 * MIB
        listed, cursor = listed + len(page.json()[field]), page.json()["next_cursor"]
        if not cursor:
            break
    assert listed == count * LONG
    # A page of all of them would take 100 MB, of those of the audit log 200.
    assert server.memory_bytes - before < 64 * MIB


def test_schedules_whose_definitions_are_long_are_applied_in_parts(
    long_fleet: tuple[httpx.Client, Process],
) -> None:
    client, server = long_fleet
    jobs = [
        {"identity": f"long {number:03}", "schedule": "@daily", "launcher": {"kind": "log"}}
        for number in range(LONG)
    ]
    before = server.memory_bytes
    answer = client.post("/definitions", json={"jobs": jobs, "dry_run": True})
    assert (answer.status_code, answer.json()["problems"][0]["path"]) == (400, "jobs")
    assert "apply fewer at once" in answer.text
    assert server.memory_bytes - before < 100 * MIB
    some = client.post("/definitions", json={"jobs": jobs[:20], "dry_run": True})
    assert len(some.json()["changes"]) == 20


def test_a_list_that_is_sorted_says_that_definitions_are_too_long(
    long_fleet: tuple[httpx.Client, Process],
) -> None:
    client, server = long_fleet
    before = server.memory_bytes
    page = client.get("/?sort=next", headers={"accept": "text/html"})
    assert (page.status_code, "more have too long definitions" in page.text) == (200, True)
    assert server.memory_bytes - before < 64 * MIB


def test_definitions_that_differ_do_not_stay_in_memory(served: tuple[httpx.Client, Process]) -> None:
    client, server = served
    first = date(2001, 1, 1)
    dates = [str(first + timedelta(days=day)) for day in range(20_000)]
    # Some are refused by their size, and some are valid; each once left fourteen megabytes, or one.
    for number, count in enumerate([10_000] * 40 + [4_000] * 40):
        constraints = {"avoid": {"dates": dates[number : number + count]}}
        client.post(
            "/preview",
            content=json.dumps({**SCHEDULE, "constraints": constraints}),
            headers={"content-type": "application/json"},
        )
        if number == 3:
            before = server.memory_bytes
    assert server.memory_bytes - before < 100 * MIB


@pytest.mark.parametrize("days", [25, 199])
def test_small_definitions_that_differ_do_not_stay_in_memory(
    days: int, served: tuple[httpx.Client, Process]
) -> None:
    """Each once left up to a hundred kilobytes, of which a hundred thousand were kept."""
    client, server = served
    drawn = random.Random(days)

    def preview(number: int) -> None:
        # Nearly every second: distinct ones share no plan.
        parts = (f"0-{drawn.randrange(2, 28)},{drawn.randrange(30, 57)}-59" for _ in range(2))
        dates = [str(date(2001, 1, 1) + timedelta(days=number + 2 * day)) for day in range(days)]
        document = {
            **SCHEDULE,
            "cron_expr": f"{' '.join(parts)} * * * *",
            "constraints": {"avoid": {"dates": dates}},
        }
        assert client.post("/preview?count=1", json=document).status_code in (200, 422)

    for number in range(500):
        preview(number)
    before = server.memory_bytes
    for number in range(500, 1_500):
        preview(number)
    assert server.memory_bytes - before < 16 * MIB
