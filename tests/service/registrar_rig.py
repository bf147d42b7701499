"""A registrar and, when wanted, an engine over one store and one simulated clock."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from kron.app.launchers import traits_by_kind
from kron.core.plan.record import RunRecord
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.schedule_spec import Rules
from kron.ports import Launcher, Store
from kron.runtime.engine import Engine
from kron.runtime.journal import LogJournal
from kron.testing import ScriptedLauncher, SimulatedClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
WORK = {"workflow_id": "wf", "version": 3, "user_id": "ann"}
HOURLY = {**WORK, "schedule_id": "hourly", "cron_expr": "0 * * * *", "timezone": "UTC"}
MINUTELY = {**WORK, "schedule_id": "minutely", "cron_expr": "* * * * *", "timezone": "UTC"}


async def json_lines(documents: Iterable[object]) -> AsyncIterator[bytes]:
    """Yield documents as a bulk request has them."""
    for document in documents:
        yield json.dumps(document).encode() + b"\n"


class Office:
    """Where schedules are registered; `launchers` say what was started."""

    def __init__(self, store: Store, rules: Rules) -> None:
        self.clock = SimulatedClock(NOON + timedelta(milliseconds=1))
        self.store = store
        self.launchers: dict[str, ScriptedLauncher] = {
            kind: ScriptedLauncher(self.clock, traits=traits) for kind, traits in traits_by_kind().items()
        }
        launchers: dict[str, Launcher] = dict(self.launchers)
        self.engine = Engine(
            store, self.clock, launchers, namespace=NAMESPACE, owner="test", journal=LogJournal()
        )
        self.registrar = Registrar(store, self.clock, rules=rules, wake=self.engine.call)

    async def work(self) -> None:
        """Start the worker."""
        await self.engine.acquire()
        self.engine.run()

    async def until(self, instant: datetime) -> None:
        """Let time pass."""
        await self.clock.advance_to(instant)

    async def runs(self, schedule_id: str) -> list[RunRecord]:
        """Return a schedule's runs, oldest first."""
        return (await self.store.runs(NAMESPACE, schedule_id))[::-1]

    async def seen(self, schedule_id: str) -> list[str]:
        """Return what became of each run."""
        return [f"{run.status} {run.reason}" for run in await self.runs(schedule_id)]


@asynccontextmanager
async def office_on(store: Store, rules: Rules | None = None) -> AsyncIterator[Office]:
    """Open an office, and close it whatever happens."""
    office = Office(store, rules or Rules())
    try:
        yield office
    finally:
        office.engine.kill()
        for launcher in office.launchers.values():
            await launcher.close(wait=False)
