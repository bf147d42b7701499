"""The panel: everything that is counted, and what is asked only when somebody looks."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric

from kron.app.worker import Worker
from kron.core.errors import KronError
from kron.core.plan.query import OpenRuns
from kron.core.plan.step import Change
from kron.core.shard import SHARDS
from kron.core.time.instant import milliseconds_of
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.telemetry import exposition as family
from kron.fronts.service.telemetry.counters import Counters
from kron.fronts.service.telemetry.decision_log import DecisionLog
from kron.fronts.service.telemetry.http_meter import Requests
from kron.fronts.service.telemetry.launcher_meter import LauncherMeter
from kron.fronts.service.telemetry.request_trail import RequestTrail
from kron.fronts.service.telemetry.store_meter import StoreMeter
from kron.ports import Clock, Launcher, Ownership, Store, WriteResult

# Whoever looks sees all shards; nothing is written with it.
ONLOOKER = Ownership(NAMESPACE, "metrics", dict.fromkeys(range(SHARDS), 0))
# Earlier than anything is due.
NEVER = -1
# States in which a worker looks after something.
WORKING = frozenset({"ready", "running", "degraded"})
# How long a scrape waits for each answer of the store, in seconds; without it a gauge is left out.
ASKING_S = 1.0
# How many open runs a scrape counts; who has more of them knows enough.
MAX_OPEN = 100_000


class Metrics:
    """Counts what one process does, and logs what it decides. It is the journal of the worker's engine."""

    def __init__(self, store: Store, clock: Clock, *, kind: str) -> None:
        self.tally = Counters()
        self.requests = Requests()
        self._trail = RequestTrail(store)
        self.store = StoreMeter(store, clock, found=self._found, written=self._asked, seen=self._trail.follow)
        self.launchers: dict[str, LauncherMeter] = {}
        self._log = DecisionLog(request_of=self._trail.request_of)
        self._clock = clock
        self._kind = kind
        self._worker: Worker | None = None
        self._oldest_s: float | None = None
        self._open: OpenRuns | None = None
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    @property
    def clock(self) -> Clock:
        """Return the clock everything is timed with."""
        return self._clock

    def look_at(self, worker: Worker) -> None:
        """Show this worker's state."""
        self._worker = worker

    def timed(self, kind: str, launcher: Launcher) -> Launcher:
        """Return a launcher that is timed; a function in this program is called at once, so its is not."""
        if kind == "callback":
            return launcher
        meter = self.launchers[kind] = LauncherMeter(launcher, self._clock, self._trail)
        return meter

    # --- the journal -----------------------------------------------------------------------------

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Count and log what the engine wrote."""
        self.tally.settled(changes, settled, milliseconds_of(self._clock.now()))
        self._log.settled(changes, settled, now)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Count and log what happened to the engine itself."""
        self.tally.note(event, fields)
        self._log.note(event, fields)

    def _found(self, due: int) -> None:
        self.tally.due += due

    def _asked(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Count and log what somebody asked for over the API."""
        self._trail.begin(run for change in changes for run in change.inserts)
        self.tally.settled(changes, settled, now)
        self._log.settled(changes, settled, now)

    # --- a scrape --------------------------------------------------------------------------------

    async def scrape(self) -> bytes:
        """Return all families as Prometheus reads them."""
        self._oldest_s = await self._age_of_oldest()
        self._open = await self._open_runs()
        return generate_latest(self._registry)

    async def _open_runs(self) -> OpenRuns | None:
        """Return how many runs are open; the index of them has nothing else in it."""
        now = milliseconds_of(self._clock.now())
        try:
            async with asyncio.timeout(ASKING_S):
                return await self.store.open_runs(NAMESPACE, now=now, limit=MAX_OPEN)
        except (KronError, TimeoutError):
            return None

    async def _age_of_oldest(self) -> float | None:
        """Return for how many seconds the oldest thing to do has been due; one look at an index."""
        try:
            async with asyncio.timeout(ASKING_S):
                loaded = await self.store.load(ONLOOKER, until=NEVER, limit=0)
        except (KronError, TimeoutError):
            return None
        if loaded.next_at is None:
            return 0.0
        return max(0, milliseconds_of(self._clock.now()) - loaded.next_at) / 1000

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from family.tally_families(self.tally)
        yield from family.store_families(self.store)
        yield from family.launcher_families(self.launchers)
        yield from family.request_families(self.requests)
        yield family.build_family(self._kind)
        yield from self._engine_families()
        if self._oldest_s is not None:
            means = "For how long the oldest unhandled period has been due."
            yield family.gauge("kron_oldest_unhandled_seconds", means, self._oldest_s)

        if self._open is not None:
            yield family.open_family(self._open)

    def _engine_families(self) -> Iterator[Metric]:
        worker = self._worker
        yield family.state_family(None if worker is None else worker.state)
        if worker is None:
            return
        health = worker.health
        tenure = health.lease if worker.state in WORKING else None
        since = {} if tenure is None else tenure.since
        yield family.gauge("kron_shards_owned", "Shards this worker looks after.", len(since))
        now = milliseconds_of(self._clock.now())
        held = (now - min(since.values(), default=now)) / 1000
        yield family.gauge("kron_lease_held_seconds", "For how long it has looked after them.", held)
        if tenure is not None and isfinite(tenure.ends):
            left = tenure.ends - self._clock.monotonic()
            yield family.gauge("kron_lease_left_seconds", "How long until its lease ends.", left)
        waiting = len(health.inbox.reports)
        yield family.gauge("kron_reports_waiting", "Reports not written yet.", waiting)
