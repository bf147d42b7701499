"""Databases that go away, fill up or are locked under a running engine: degraded, then recovered."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.job.policy import Overlap
from kron.stores.postgres.schema import CONNECT_S
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from tests.faults.comparison import faults_of
from tests.faults.rig import SPACE, Rig, evidence_of, job_of, rig_of
from tests.postgres import Server
from tests.waiting import until

EVERY_SECOND = "* * * * * *"
SHORT_TTL_MS = 600


async def check_every_period(rig: Rig, back_at: int, *names: str) -> None:
    """Each second since the jobs started has one outcome; each record was called once, and succeeded."""
    for name in names:
        assert faults_of(await evidence_of(rig.store, name, rig.lines)) == []
        (case,) = await rig.store.cases(SPACE, [name])
        assert 1000 * case.job.cursor > back_at
        assert {run.status for run in await rig.runs(name)} <= {"SUCCESS", "SKIPPED"}


async def recovered(rig: Rig, *names: str) -> None:
    """Wait until each job runs a period that is due after now, stop, and check every period."""
    back_at = rig.now()
    await until(lambda: all(1000 * max(starts_of(rig, name)) > back_at for name in names))
    await until(lambda: rig.engine.health.state == "running")
    await rig.engine.stop()
    await check_every_period(rig, back_at, *names)


def starts_of(rig: Rig, name: str) -> list[int]:
    """Return the nominal times of a job's calls, in seconds."""
    return [0, *(nominal for who, nominal, _, _ in rig.calls if who == name)]


@asynccontextmanager
async def on_postgres(url: str) -> AsyncIterator[Rig]:
    store = PostgresStore(url, ttl_ms=SHORT_TTL_MS, margin_ms=200)
    async with rig_of(store, SystemClock()) as rig:
        await rig.add(job_of("allow", EVERY_SECOND), job_of("skip", EVERY_SECOND, overlap=Overlap.SKIP))
        await rig.run()
        await until(lambda: len(rig.calls) >= 2)
        yield rig


@pytest.mark.parametrize(
    ("how", "away_s"),
    [
        pytest.param("crash", 1.2, marks=pytest.mark.slow),
        pytest.param("fast", 1.2, marks=pytest.mark.slow),
        # Longer than the pool keeps trying to connect again.
        pytest.param("fast", 1.5 * CONNECT_S, marks=pytest.mark.slow),
    ],
)
async def test_a_server_that_goes_away_and_comes_back_costs_no_period(
    postgres: Server, postgres_url: str, how: str, away_s: float
) -> None:
    async with on_postgres(postgres_url) as rig:
        await asyncio.to_thread(postgres.halt if how == "fast" else postgres.crash)
        try:
            await until(lambda: rig.engine.health.state == "degraded")
            # Due work accumulates.
            await asyncio.sleep(away_s)
            assert rig.engine.health.state == "degraded"
            assert "store_failed" in rig.journal.events()
        finally:
            await asyncio.to_thread(postgres.start)
        await recovered(rig, "allow", "skip")


@pytest.mark.slow
async def test_connections_that_are_cut_again_and_again_cost_no_period(
    postgres: Server, postgres_url: str
) -> None:
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'kron' AND pid <> pg_backend_pid()"
    )
    async with on_postgres(postgres_url) as rig:
        ends_at = time.monotonic() + 1.5
        while time.monotonic() < ends_at:
            await asyncio.to_thread(postgres.execute, cut)
            await asyncio.sleep(0.05)
        await recovered(rig, "allow", "skip")


# --- SQLite ----------------------------------------------------------------------------------------


class BoundedStore(SqliteStore):
    """A store whose file may not grow beyond a number of pages, as on a full disk."""

    async def allow(self, pages: int | None) -> None:
        """Allow this number of further pages; None for no limit."""
        await self._do(self._allow, pages)

    def _allow(self, pages: int | None) -> None:
        connection = self._open()
        (now,) = connection.execute("PRAGMA page_count").fetchone()
        (free,) = connection.execute("PRAGMA freelist_count").fetchone()
        most = 1 << 30 if pages is None else now + pages - free
        connection.execute(f"PRAGMA max_page_count = {most}").fetchone()


@pytest.mark.slow
async def test_a_full_disk_costs_no_period(tmp_path: Path) -> None:
    store = BoundedStore(str(tmp_path / "kron.db"))
    # Many jobs, so that every second needs new pages.
    names = [f"job-{number}" for number in range(60)]
    async with rig_of(store, SystemClock()) as rig:
        await rig.add(*(job_of(name, EVERY_SECOND) for name in names))
        await rig.run()
        await until(lambda: len(rig.calls) >= len(names))
        await store.allow(0)
        await until(lambda: rig.engine.health.state == "degraded")
        assert "full" in str(rig.engine.health.error)
        await asyncio.sleep(1.2)
        assert rig.engine.health.state == "degraded"
        await store.allow(None)
        await recovered(rig, *names)


@pytest.mark.slow
async def test_a_locked_file_costs_no_period(tmp_path: Path) -> None:
    path = str(tmp_path / "kron.db")
    async with rig_of(SqliteStore(path, busy_ms=100), SystemClock()) as rig:
        await rig.add(job_of("allow", EVERY_SECOND), job_of("skip", EVERY_SECOND, overlap=Overlap.SKIP))
        await rig.run()
        await until(lambda: len(rig.calls) >= 2)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await until(lambda: rig.engine.health.state == "degraded")
        assert "locked" in str(rig.engine.health.error)
        await asyncio.sleep(1.2)
        other.execute("ROLLBACK")
        other.close()
        await recovered(rig, "allow", "skip")


@pytest.mark.slow
async def test_an_end_during_an_outage_is_on_record_afterwards(tmp_path: Path) -> None:
    """Retries wait for their delay as counted from the end itself, not from the end of the outage."""
    path = str(tmp_path / "kron.db")

    async def fails_once(launch: object) -> None:
        await asyncio.sleep(0.3)
        if len(rig.calls) == 1:
            raise ValueError("broken")

    async with rig_of(SqliteStore(path, busy_ms=20), SystemClock()) as rig:
        await rig.add(job_of("job", EVERY_SECOND, retry_delay=timedelta(0), remaining=1), callback=fails_once)
        await rig.run()
        await until(lambda: len(rig.calls) == 1)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await until(lambda: rig.engine.health.failures >= 2)
        other.execute("ROLLBACK")
        other.close()
        await until(lambda: len(rig.calls) == 2)
        await until(lambda: not rig.launcher.busy)
        await rig.engine.stop()
        (run,) = await rig.runs()
        assert (run.status, run.attempt) == ("SUCCESS", 2)
