"""Without a zone of its own a scheduler reads its expressions in the host's, and follows it."""

import asyncio
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.core.errors import InvalidOptionError
from kron.fronts.embed.scheduler import Scheduler
from kron.testing import SimulatedClock

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def test_expressions_are_read_in_the_hosts_zone_and_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    calls: list[datetime] = []
    clock = SimulatedClock(NOON)

    async def call() -> None:
        calls.append(clock.now())

    async with Scheduler(f"sqlite:///{tmp_path}/kron.db", clock=clock) as scheduler:
        assert scheduler.timezone is None
        await scheduler.initialize([("a", "30 22 * * *", call, HOUR)])
        assert scheduler.timezone == "Asia/Tokyo"
        await clock.advance_to(NOON + 24 * HOUR)
    assert calls == [datetime(2026, 1, 1, 13, 30, tzinfo=UTC)]
    with closing(sqlite3.connect(tmp_path / "kron.db")) as connection:
        ((definition,),) = connection.execute("SELECT definition FROM jobs")
    assert json.loads(definition)["timezone"] == "Asia/Tokyo"


async def test_a_host_that_moves_is_followed_while_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    calls: list[datetime] = []
    clock = SimulatedClock(NOON)

    async def call() -> None:
        calls.append(clock.now())

    async with Scheduler("memory://", clock=clock) as scheduler:
        await scheduler.initialize([("a", "0 15 * * *", call, HOUR)])
        await clock.advance_to(NOON + 4 * HOUR)
        monkeypatch.setenv("TZ", "America/New_York")
        await clock.advance_to(NOON + 48 * HOUR)
        assert scheduler.timezone == "America/New_York"
    # The first at three in the afternoon of Greenwich, all others in New York's.
    assert calls == [NOON + 3 * HOUR, NOON + 32 * HOUR]


async def test_a_host_that_moved_while_nothing_ran_overrides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    calls: list[datetime] = []
    clock = SimulatedClock(NOON)

    async def call() -> None:
        calls.append(clock.now())

    scheduler = Scheduler("memory://", clock=clock)
    await scheduler.initialize([("a", "0 15 * * *", call, HOUR)])
    await scheduler.stop()
    await clock.advance_to(NOON + 4 * HOUR)
    monkeypatch.setenv("TZ", "America/New_York")
    await scheduler.initialize([("a", "0 15 * * *", call, HOUR)])
    assert dict(scheduler.standings) == {"a": "preserved"}
    await clock.advance_to(NOON + 24 * HOUR)
    await scheduler.stop()
    # What was due by Greenwich's clock runs late; then it is three in the afternoon in New York.
    assert calls == [NOON + 4 * HOUR, NOON + 8 * HOUR]


async def test_a_zone_of_its_own_is_kept_whatever_the_host_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "nonsense")
    async with Scheduler("memory://", clock=SimulatedClock(NOON), timezone="Europe/Berlin") as scheduler:
        await scheduler.initialize([])
        assert scheduler.timezone == "Europe/Berlin"


def test_a_host_without_a_zone_is_an_error_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "nonsense")

    async def try_it() -> None:
        scheduler = Scheduler("memory://", clock=SimulatedClock(NOON))
        with pytest.raises(InvalidOptionError, match="pass timezone="):
            await scheduler.initialize([])
        assert scheduler.state == "uninitialized"
        monkeypatch.setenv("TZ", "UTC")
        await scheduler.initialize([])
        await scheduler.stop()

    asyncio.run(try_it())
