"""A service whose store was last used with a clock a day ahead: shown everywhere, and running again soon."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from kron.cli.main import GOOD, run
from kron.clocks.system import SystemClock
from kron.fronts.service.app import app_of
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.settings import Settings
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.service.executor import executing
from tests.service.server import serving
from tests.waiting import wait_for

SECONDLY = {
    "schedule_id": "fast",
    "workflow_id": "wf",
    "version": 1,
    "user_id": "ann",
    "cron_expr": "* * * * * *",
    "timezone": "UTC",
    "overlap_policy": "allow",
}
BEHIND = "is behind the latest recorded instant"


async def register_tomorrow(path: Path, url: str) -> None:
    """Register a schedule of every second with a clock that is a day ahead."""
    store = SqliteStore(str(path))
    registrar = Registrar(store, SimulatedClock(datetime.now(UTC) + timedelta(days=1)))
    await registrar.upsert_schedule({**SECONDLY, "launcher": {"kind": "http", "url": url}})
    await store.close()


def test_a_service_shows_by_how_much_its_clock_is_behind(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(register_tomorrow(tmp_path / "kron.db", "http://127.0.0.1:9/"))
    with serving(tmp_path, KRON_LOOKAHEAD_MS="3600000") as (client, server):
        problem = wait_for(lambda: client.get("/readyz").json()["error"])
        assert f"{BEHIND} (" in problem
        assert "by 23:5" in problem or "by 1 day" in problem
        assert BEHIND in client.get("/").text
        metrics = client.get("/metrics").text
        (behind,) = [line for line in metrics.splitlines() if line.startswith("kron_clock_behind_seconds ")]
        assert float(behind.split()[1]) > 80_000
        assert 'kron_clock_excursions_total{event="clock_behind"} 1.0' in metrics
        server.logged("ERROR.*clock_behind")
        capfd.readouterr()
        assert run(("status", "--server", str(client.base_url))) == GOOD
        assert BEHIND in capfd.readouterr().out


@pytest.mark.slow
def test_a_service_runs_again_once_its_clock_is_steady(tmp_path: Path) -> None:
    with executing() as executor:
        asyncio.run(register_tomorrow(tmp_path / "kron.db", executor.url))
        with serving(tmp_path, KRON_LOOKAHEAD_MS="2000") as (client, _):
            wait_for(lambda: len(executor.sent) >= 5)
            assert "is right again" in client.get("/readyz").json()["error"]
            assert 'kron_clock_excursions_total{event="clock_corrected"} 1.0' in client.get("/metrics").text
        assert len(executor.keys()) == len(set(executor.keys()))


# --- a service apart from its workers --------------------------------------------------------------------


class OffsetClock(SystemClock):
    """The host's clock, set wrong by some time."""

    by = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.by


def api(store: PostgresStore, clock: SystemClock) -> httpx.AsyncClient:
    """Return a client of a service over a store, with a clock of its own and without a worker."""
    app = app_of(Registrar(store, clock), Settings())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1")


@pytest.mark.parametrize(
    ("by", "told"),
    [(timedelta(hours=1), "ahead of"), (-timedelta(hours=1), "behind")],
    ids=["ahead", "behind"],
)
async def test_a_service_whose_clock_differs_from_the_databases_writes_nothing_that_starts(
    postgres_url: str, by: timedelta, told: str
) -> None:
    store, clock = PostgresStore(postgres_url), OffsetClock()
    document = {**SECONDLY, "launcher": {"kind": "http", "url": "http://127.0.0.1:9/"}}
    async with api(store, clock) as client:
        assert (await client.post("/schedules/upsert", json=document)).status_code == 200
        before = await store.cases(NAMESPACE)
        clock.by = by
        writes = {
            "/schedules/upsert": {**document, "cron_expr": "0 0 * * *"},
            "/schedules/fast/run": {"request_id": "once"},
            "/schedules/fast/backfill": {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:02Z"},
        }
        for path, body in writes.items():
            answer = await client.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "clocks_differ"), (path, answer.text)
            assert answer.headers["Retry-After"]
            wrong = f"{told} the database's; set the wrong one of them"
            assert answer.json()["detail"].startswith("Nothing was written: this host's clock is ")
            assert answer.json()["detail"].endswith(wrong)
        assert await store.cases(NAMESPACE) == before
        # What makes nothing start is written, with the database's instant.
        answer = await client.post("/schedules/pause", json={"schedule_id": "fast", "paused": True})
        assert answer.status_code == 200, answer.text
        ((state,), now) = await store.cases(NAMESPACE), await store.read_clock()
        (pause,) = await store.incidents(NAMESPACE, "fast", since=0, until=2 * (now or 0))
        assert state.job.paused
        assert abs((now or 0) - pause.from_at) < 60_000
        answer = await client.post("/schedules/pause", json={"schedule_id": "fast", "paused": False})
        assert (answer.status_code, answer.json()["code"]) == (503, "clocks_differ")
        clock.by = timedelta(0)
        assert (
            await client.post("/schedules/pause", json={"schedule_id": "fast", "paused": False})
        ).status_code == 200
    await store.close()
