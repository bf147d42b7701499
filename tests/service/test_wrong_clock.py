"""A service whose store was last used with a clock a day ahead: shown everywhere, and running again soon."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.cli.main import GOOD, run
from kron.fronts.service.registrar import Registrar
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
