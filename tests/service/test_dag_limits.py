"""Large DAGs of one tenant, over real HTTP: its open runs are limited, and pages and answers stay small."""

from collections.abc import Iterator

import httpx
import pytest

from tests.abuse.experiment import SECRET, token_of
from tests.service.server import Process, serving

pytestmark = pytest.mark.slow
TASKS = 5_000
# The processor time of one answer on a slow machine.
BUDGET_S = 1.5


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    variables = {
        "KRON_JWT_SECRET": SECRET,
        "KRON_EXECUTOR": '{"kind": "dag"}',
        "KRON_DRAIN_MS": "0",
        "KRON_TICK_MS": "5000",
    }
    with serving(tmp_path_factory.mktemp("dags"), **variables) as (client, server):
        client.headers["authorization"] = f"Bearer {token_of('ann')}"
        nodes = [{"id": f"t{number}", "type": "log", "dependsOn": []} for number in range(TASKS)]
        client.put(
            "/workflows/ann.large/versions/1", json={"user_id": "ann", "nodes": nodes}
        ).raise_for_status()
        # No task of a paused one starts, so that every run stays open.
        client.post("/dags/ann.large/pause", json={"paused": True}).raise_for_status()
        yield client, server


def test_a_catch_up_ends_where_the_open_runs_of_a_user_do(served: tuple[httpx.Client, Process]) -> None:
    client, _ = served
    span = {
        "range_start_logical_date": "2026-06-01T00:00:00Z",
        "range_end_logical_date": "2026-06-01T00:16:39Z",
        "slot_interval_ms": 1_000,
    }
    refused = client.post("/dags/ann.large/catchup", json=span)
    assert (refused.status_code, refused.json()["code"]) == (429, "DAG_LIMIT_OPEN_RUNS"), refused.text
    assert len(client.get("/dags/ann.large/runs").json()["runs"]) == 100_000 // TASKS


def test_the_page_of_a_large_dag_reads_few_of_its_runs(served: tuple[httpx.Client, Process]) -> None:
    client, server = served
    for day in range(1, 10):
        client.post("/dags/ann.large/runs", json={"logical_date": f"2026-07-{day:02}"})
    for path in ("/ui/dags", "/ui/dag?id=ann.large"):
        before = server.processor_s
        assert client.get(path).status_code == 200
        assert server.processor_s - before < BUDGET_S
    assert client.get("/ui/dag?id=ann.large").text.count("2026-07-0") < 60
