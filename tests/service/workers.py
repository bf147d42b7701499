"""Workers of the service in this process, on a clock that moves only when told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from kron.core.plan.report import Launch
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import run_now
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import Settings
from kron.ports import Store
from kron.testing.clock import SimulatedClock

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
YEARLY = {
    "schedule_id": "job",
    "cron_expr": "0 0 1 1 *",
    "timezone": "UTC",
    "launcher": {"kind": "callback"},
}


class Member:
    """One worker, and what it was called for."""

    def __init__(self, store: Store, clock: SimulatedClock, **settings: object) -> None:
        self.store = store
        self.worker = ServiceWorker(store, clock, Settings(**settings))  # type: ignore[arg-type]
        self.calls: list[str] = []
        self.task = asyncio.create_task(self.worker.run())

    def serve(self, *names: str) -> None:
        """Have the worker do some schedules."""

        async def call(launch: Launch) -> None:
            self.calls.append(launch.run.key)

        for name in names:
            self.worker.callbacks[name] = call

    @property
    def shards(self) -> int:
        """Return how many shards it owns."""
        return len(self.worker.engine._lease.owned.shards)

    async def leave(self) -> None:
        """Stop in order."""
        self.worker.leave()
        await self.task


@asynccontextmanager
async def working(store: Store, clock: SimulatedClock, **settings: object) -> AsyncIterator[Member]:
    """Run a worker, and stop it."""
    member = Member(store, clock, **settings)
    member.serve("job")
    try:
        yield member
    finally:
        if not member.task.done():
            await member.leave()
        await store.close()


async def ask(store: Store, clock: SimulatedClock, name: str = "job") -> None:
    """Register a schedule and run it, as another process would."""
    registrar = Registrar(store, clock)
    await registrar.upsert_schedule({**YEARLY, "schedule_id": name})
    await run_now(registrar, name)
