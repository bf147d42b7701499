"""An engine in virtual time with a panel, over schedules that do everything a schedule can."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from kron.app.launchers import traits_by_kind
from kron.core.plan.record import RunRecord
from kron.core.time.instant import EPOCH
from kron.fronts.service.auth.principal import current_request_id
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.runs import run_now
from kron.ports import Launcher, Store
from kron.runtime.engine import Engine
from kron.telemetry.metrics import Metrics
from kron.testing import ScriptedLauncher, SimulatedClock, Step
from kron.testing.faulty_store import FaultyStore, Injected
from tests.service.registrar_rig import NOON

UTC_CALL = {"timezone": "UTC", "launcher": {"kind": "callback"}}
EVERY_MINUTE = {"cron_expr": "* * * * *", **UTC_CALL}
SCHEDULES: dict[str, dict[str, object]] = {
    "plain": {**EVERY_MINUTE, "overlap_policy": "allow"},
    "named by H": {"cron_expr": "H/7 * * * *", **UTC_CALL},
    "windowed": {
        "cron_expr": "*/5 * * * *",
        "window": {"mode": "around", "duration": "3m"},
        "distribution": {"name": "skewLate", "shape": 2.5},
        **UTC_CALL,
    },
    "constrained": {
        "cron_expr": "*/10 * * * *",
        "timezone": "Asia/Kolkata",
        "window": {"duration": "8m"},
        "distribution": {"name": "normal", "sigma": "2m"},
        "constraints": {"avoid": {"between": ["17:30-17:33", "18:02-18:03"]}},
        "launcher": {"kind": "callback"},
    },
    "daily seed": {
        "cron_expr": "3-59/4 * * * *",
        "window": {"mode": "before", "duration": "2m"},
        "seed": {"strategy": "daily", "salt": 'a "salt" \u00fc'},
        "distribution": {"name": "exponential", "lambda": 3.0, "dir": "late"},
        **UTC_CALL,
    },
    "impossible": {
        "cron_expr": "*/20 * * * *",
        "window": {"duration": "1m"},
        "constraints": {"only": {"hours": [3]}},
        **UTC_CALL,
    },
    "jittered": {"cron_expr": "*/2 * * * *", "jitter_ms": 5000, **UTC_CALL},
    "hanging": {**EVERY_MINUTE, "overlap_policy": "skip"},
    "queueing": {**EVERY_MINUTE, "overlap_policy": "queue", "queue_max": 3},
    "replacing": {"cron_expr": "*/15 * * * *", "overlap_policy": "replace", **UTC_CALL},
    "refused": {"cron_expr": "*/6 * * * *", **UTC_CALL},
    "failing": {"cron_expr": "*/9 * * * *", "retry_delay": "30s", **UTC_CALL},
    "paused": {**EVERY_MINUTE, "catchup_policy": "none"},
    "caught up": {**EVERY_MINUTE, "catchup_policy": "once"},
    "edited": {"cron_expr": "*/5 * * * *", "window": {"duration": "4m"}, **UTC_CALL},
    "deleted": {"cron_expr": "*/30 * * * *", "window": {"duration": "25m"}, **UTC_CALL},
    "sent out": {
        **EVERY_MINUTE,
        "launcher": {"kind": "http", "url": "http://127.0.0.1:9/", "user_id": "ann"},
    },
}
SCRIPT = {
    "hanging": [Step.HANG],
    "queueing": [Step.HANG],
    "replacing": [Step.HANG],
    "refused": [Step.REFUSE] * 3,
    "failing": [Step.FAIL, Step.FAIL, Step.SUCCEED, Step.FAIL],
}


class Rig:
    """A registrar and an engine that report to one panel."""

    def __init__(self, store: Store, script: Sequence[Injected] = ()) -> None:
        self.clock = SimulatedClock(NOON + timedelta(milliseconds=1))
        faulty = FaultyStore(store, self.clock, script=script)
        self.panel = Metrics(
            faulty if script else store,
            self.clock,
            namespace=NAMESPACE,
            kind="memory",
            current_request=current_request_id,
        )
        self.scripted = {
            kind: ScriptedLauncher(self.clock, traits=traits) for kind, traits in traits_by_kind().items()
        }
        launchers: Mapping[str, Launcher] = {
            kind: self.panel.measured(kind, launcher) for kind, launcher in self.scripted.items()
        }
        self.engine = Engine(
            self.panel.store, self.clock, launchers, namespace=NAMESPACE, owner="test", journal=self.panel
        )
        self.registrar = Registrar(self.panel.store, self.clock, wake=self.engine.call)

    async def begin(self, schedules: Mapping[str, Mapping[str, object]]) -> None:
        """Register schedules and run them."""
        for name, document in schedules.items():
            await self.registrar.upsert_schedule({"schedule_id": name, **document})
            self.scripted["callback"].then(name, *SCRIPT.get(name, []))
        await self.engine.acquire()
        self.engine.run()

    async def until(self, minutes: float) -> None:
        """Let time pass up to some minutes after noon."""
        await self.clock.advance_to(NOON + timedelta(minutes=minutes))

    async def busy_hour(self) -> None:
        """Do in an hour everything that can be done with schedules."""
        await self.begin(SCHEDULES)
        await self.until(10.5)
        await self.registrar.pause_schedule("paused", True)
        await self.registrar.pause_schedule("caught up", True)
        await run_now(self.registrar, "plain", "by hand")
        await self.until(21.25)
        await self.registrar.upsert_schedule(
            {"schedule_id": "edited", **SCHEDULES["edited"], "window": {"duration": "2m"}}
        )
        await self.until(30.5)
        for run in list(self.scripted["callback"].running):
            self.scripted["callback"].finish(run)
        await self.registrar.pause_schedule("paused", False)
        await self.registrar.pause_schedule("caught up", False)
        await self.registrar.delete_schedule("deleted")
        self.clock.jump_to(self.clock.now() + timedelta(seconds=5))
        await self.until(60)

    async def runs(self, name: str) -> list[RunRecord]:
        """Return all records of a schedule's runs."""
        return await self.panel.store.runs(NAMESPACE, name, limit=10_000)

    @property
    def now(self) -> int:
        """Return the present instant in milliseconds."""
        return (self.clock.now() - EPOCH) // timedelta(milliseconds=1)


@asynccontextmanager
async def rig_on(store: Store, script: Sequence[Injected] = ()) -> AsyncIterator[Rig]:
    """Make a rig over a store that fails as the script says, and drop it whatever happens."""
    rig = Rig(store, script)
    try:
        yield rig
    finally:
        rig.engine.kill()
        for launcher in rig.scripted.values():
            await launcher.close(wait=False)
        await store.close()
