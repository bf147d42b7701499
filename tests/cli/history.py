"""A store with the last hours of some schedules, which the engine ran in virtual time."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kron.core.plan.report import Launch
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.launchers.callback import CallbackLauncher
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock

CALLBACK = {"timezone": "UTC", "launcher": {"kind": "callback"}}
# How long the work of a schedule takes.
LASTS = timedelta(seconds=75)


def last_hour() -> datetime:
    """Return the last full hour."""
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def fill(path: Path, errors: Mapping[str, str | None], *, hours: int = 2) -> datetime:
    """Run schedules named by `errors` at each full hour, with their errors; return the last hour."""
    return asyncio.run(_fill(path, errors, last_hour(), hours))


async def _fill(path: Path, errors: Mapping[str, str | None], now: datetime, hours: int) -> datetime:
    clock, store = SimulatedClock(now - timedelta(hours=hours, minutes=-1)), SqliteStore(str(path))
    calls = CallbackLauncher(clock)

    async def work(launch: Launch) -> None:
        await clock.sleep_until(clock.now() + LASTS)
        error = errors[launch.run.identity]
        if error is not None:
            raise RuntimeError(error)

    calls.callbacks.update(dict.fromkeys(errors, work))
    engine = Engine(
        store, clock, {"callback": calls}, namespace=NAMESPACE, owner="test", journal=LogJournal()
    )
    registrar = Registrar(store, clock, wake=engine.call)
    for name in errors:
        await registrar.upsert_schedule({"schedule_id": name, "cron_expr": "0 * * * *", **CALLBACK})
    await engine.acquire()
    engine.run()
    await clock.advance_to(now + timedelta(minutes=2))
    await engine.stop()
    await store.close()
    return now
