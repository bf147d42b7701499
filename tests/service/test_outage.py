"""While the database is away every write route answers 503 with Retry-After, and never 500."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from kron.clocks.system import SystemClock
from kron.fronts.service.app import app_of
from kron.fronts.service.launchers import workflow_launcher
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.run_launcher import RunLauncher
from kron.fronts.service.settings import Settings
from kron.stores.postgres.store import PostgresStore
from kron.stores.url import open_dags, open_workflows
from tests.postgres import running

SCHEDULE = {"schedule_id": "a", "cron_expr": "* * * * *", "timezone": "UTC", "launcher": {"kind": "log"}}
DAG = {
    "user_id": "ann",
    "triggers": [{"id": "nightly", "type": "schedule_based", "schedule": {"cron_expr": "30 2 * * *"}}],
    "nodes": [{"id": "one", "type": "http", "dependsOn": []}],
}
DAY = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:05:00Z"}
SLOTS = {
    "range_start_logical_date": DAY["from"],
    "range_end_logical_date": DAY["to"],
    "slot_interval_ms": 60_000,
}
START = {
    "workflow_id": "flow",
    "version": 1,
    "user_id": "ann",
    "scheduled_for": DAY["from"],
    "idempotency_key": "one",
}
PAUSED = {"schedule_id": "a", "paused": True}
# Every route that writes, with a request that is valid, or would be if its subject existed.
WRITES: dict[tuple[str, str], object] = {
    ("POST", "/schedules/upsert"): {**SCHEDULE, "cron_expr": "0 * * * *"},
    ("POST", "/schedules/bulk"): {**SCHEDULE, "schedule_id": "b"},
    ("POST", "/schedules/pause"): PAUSED,
    ("DELETE", "/schedules/{schedule_id}"): None,
    ("POST", "/schedules/{schedule_id}/resume-preview"): None,
    ("POST", "/definitions"): {
        "jobs": [{"identity": "c", "schedule": "* * * * *", "launcher": {"kind": "log"}}]
    },
    ("POST", "/schedules/{schedule_id}/run"): {"request_id": "one"},
    ("POST", "/schedules/{schedule_id}/backfill"): DAY,
    ("POST", "/runs/{idempotency_key}/status"): {"status": "SUCCESS"},
    ("PUT", "/workflows/{workflow_id}/versions/{version}"): DAG,
    ("POST", "/run-launcher/start"): START,
    ("POST", "/workers/drain"): {"worker": "w", "drain": True},
    ("POST", "/dags/{dag_id}/runs"): {"logical_date": DAY["from"]},
    ("POST", "/dags/{dag_id}/catchup"): SLOTS,
    ("POST", "/dags/{dag_id}/pause"): {"paused": True},
    ("POST", "/dag-runs/{run_id}/cancel"): None,
    ("POST", "/dag-runs/{run_id}/retry"): {"tasks": ["one"]},
}
# These need no store.
OTHERS = {("POST", "/preview"), ("PUT", "/admin/log-level")}
NAMES = {
    "schedule_id": "a",
    "idempotency_key": "0" * 64,
    "workflow_id": "flow",
    "version": "1",
    "dag_id": "flow",
    "run_id": "r",
}


async def run_dag(dag: object, meta: object) -> None:
    raise AssertionError("nothing starts while the database is away")


@asynccontextmanager
async def service(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run a service without a worker over a database, with one schedule."""
    store, workflows, dags = PostgresStore(url), open_workflows(url), open_dags(url)
    clock, settings = SystemClock(), Settings(executor={"kind": "callback", "name": "run-dag"})
    registrar = Registrar(store, clock, workflows=workflows)
    registrar.dags = dags
    handing = workflow_launcher(clock, settings, workflows, {"run-dag": run_dag})
    app = app_of(registrar, settings, launcher=RunLauncher(clock, handing, workflows))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        answer = await client.post("/schedules/upsert", json=SCHEDULE)
        assert answer.status_code == 200, answer.text
        yield client
    for each in (store, workflows, dags):
        await each.close()


def assert_unavailable(answer: httpx.Response) -> None:
    assert answer.status_code == 503, (answer.request.method, answer.request.url, answer.text)
    assert (answer.json()["code"], answer.headers["Retry-After"]) == ("store_error", "1")


@pytest.mark.slow
async def test_every_write_is_answered_503_while_the_database_is_away(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        async with service(server.fresh()) as client:
            paths = (await client.get("/openapi.json")).json()["paths"]
            routes = {
                (verb.upper(), path) for path, verbs in paths.items() for verb in verbs if verb != "get"
            }
            assert routes == {*WRITES, *OTHERS}, "each route that writes has a request here"
            await asyncio.to_thread(server.halt)
            requests = [
                client.request(verb, path.format_map(NAMES), json=body)
                for (verb, path), body in WRITES.items()
            ]
            answers = await asyncio.gather(*requests)
            others = [(each.url.path, each.text) for each in answers if each.status_code != 503]
            assert not others
            for answer in answers:
                assert_unavailable(answer)
            await asyncio.to_thread(server.start)
            answer = await client.post("/schedules/pause", json=PAUSED)
            while answer.status_code == 503:
                answer = await client.post("/schedules/pause", json=PAUSED)
            assert answer.status_code == 200, answer.text


CUT = [
    key
    for key in WRITES
    if (key[1].startswith("/schedules") and not key[1].endswith(("bulk", "preview")))
    or key[1] == "/definitions"
]


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "path"), CUT)
async def test_a_write_whose_connection_is_cut_in_its_transaction_is_answered_503(
    postgres_url: str, verb: str, path: str
) -> None:
    """Another session holds the table, so that the write waits inside its transaction, where it is cut."""
    connecting = psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
    async with service(postgres_url) as client, await connecting as other, other.transaction():
        await other.execute("LOCK TABLE schedules IN SHARE ROW EXCLUSIVE MODE")
        body = WRITES[verb, path]
        request = asyncio.create_task(client.request(verb, path.format_map(NAMES), json=body))
        cut: list[tuple[object, ...]] = []
        while not cut and not request.done():
            found = await other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted"
                " AND relation = 'schedules'::regclass"
            )
            cut = await found.fetchall()
            await asyncio.sleep(0.01)
        assert_unavailable(await request)
        assert cut, "the write waited inside its transaction"
