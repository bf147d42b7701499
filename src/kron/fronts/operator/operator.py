"""The operator: the worker of every front, with the API server as its store and Jobs as its executions."""

import asyncio
import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from kron.app.catalog import Catalog
from kron.app.worker import Worker, WorkerOptions
from kron.core.plan.record import RunKind, RunRecord
from kron.core.plan.step import DEFAULT_LIMITS, Limits
from kron.fronts.operator.controller import Controller
from kron.fronts.operator.history import HistoryWriter
from kron.fronts.operator.journal import OperatorJournal
from kron.fronts.operator.lease import LeaderLease
from kron.fronts.operator.resource import LAUNCHER_KIND, KronJob
from kron.fronts.operator.store import NAMESPACE, KubernetesStore
from kron.launchers.kubernetes.api import ApiClient
from kron.launchers.kubernetes.launcher import KubernetesLauncher
from kron.launchers.kubernetes.spec import TRAITS
from kron.ports import Clock, Journal, Store
from kron.telemetry.counters import DRIFT_BOUNDS, Histogram
from kron.telemetry.decision_log import DecisionLog

LEASE_NAME = "kron-operator"


def lease_name_of(namespace: str | None) -> str:
    """Return the name of the Lease of operators for one namespace, or for all of them."""
    return "-".join(filter(None, (LEASE_NAME, namespace)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """How an operator behaves.

    `namespace` is the one whose KronJobs it runs, None all of them. Operators with the same Lease stand by
    for each other, so those of different namespaces have different ones.
    """

    namespace: str | None = None
    lease_namespace: str = "default"
    lease_name: str = LEASE_NAME
    lease_duration: timedelta = timedelta(seconds=15)
    tick_ms: int = 1_000
    limits: Limits = DEFAULT_LIMITS


class Operator:
    """Runs the KronJobs of a cluster, or of a namespace, whenever it holds the Lease."""

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        options: OperatorOptions,
        *,
        journal: Journal | None = None,
        history: Store | None = None,
    ) -> None:
        self.api = api
        self.skew = Histogram(DRIFT_BOUNDS)
        self.launcher = KubernetesLauncher(clock, api, namespace=options.namespace)
        traits = {LAUNCHER_KIND: TRAITS}
        lease = LeaderLease(
            api,
            clock,
            namespace=options.lease_namespace,
            name=options.lease_name,
            duration=options.lease_duration,
        )
        self.store = KubernetesStore(api, lease, traits=traits, namespace=options.namespace)
        self.history = None if history is None else HistoryWriter(history, clock, namespace=NAMESPACE)
        self.store.history = self.history
        self.instance = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self.journal = OperatorJournal(
            api,
            clock,
            journal or DecisionLog(),
            kronjob_of=self.store.kronjobs.get,
            ended=self._ended,
            instance=self.instance,
        )
        self.worker = Worker(
            self.store,
            clock,
            {LAUNCHER_KIND: self.launcher},
            namespace=NAMESPACE,
            options=WorkerOptions(tick_ms=options.tick_ms, drain_ms=10_000, limits=options.limits),
            journal=self.journal,
        )
        self.worker.copy = history
        self.catalog = Catalog(self.store, NAMESPACE, now=self.now, wake=self._wake, traits=traits)
        self.controller = Controller(
            api, clock, self.store, self.catalog, now=self.now, namespace=options.namespace
        )
        self.launcher.on_created = self._created
        self.launcher.settled_for = self.store.settled_for
        self.store.on_take_over = self.controller.take_over
        self._pruning: set[asyncio.Task[None]] = set()

    def now(self) -> int:
        """Return the engine's time, never before the latest recorded instant."""
        return max(self.worker.engine.now(), self.store.high)

    def _wake(self, at: int | None) -> None:
        self.worker.call(at)

    # --- life cycle --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Stand by, take over and run until `leave`."""
        self.journal.start()
        if self.history is not None:
            self.history.start()
        try:
            await self.worker.run()
        finally:
            await self._close()

    def leave(self) -> None:
        """Stop; `run` returns once the Lease is handed over."""
        self.worker.leave()

    async def _close(self) -> None:
        await self.controller.stop()
        self.journal.kill()
        for task in self._pruning:
            task.cancel()
        if self.history is not None:
            await self.history.close()
        await self.store.close()

    def kill(self) -> None:
        """Stop at once without writing anything, as a crash would."""
        self.worker.kill()
        self.controller.kill()
        self.launcher.kill()
        self.journal.kill()
        if self.history is not None:
            self.history.kill()
        for task in self._pruning:
            task.cancel()
        self.store.abandon()

    # --- Jobs --------------------------------------------------------------------------------------

    def _created(self, run: RunRecord, at: int) -> None:
        """Count how long after its chosen time a Job was created; retries and manual runs have none."""
        if run.kind is RunKind.PERIOD and run.attempt == 1:
            self.skew.add(max(0, at - run.fire_time) / 1000)

    def _ended(self, identity: str) -> None:
        """Delete the oldest Jobs that ended, as far as their number exceeds the limits of their KronJob."""
        kronjob = self.store.kronjobs.get(identity)
        if kronjob is not None:
            task = asyncio.create_task(self._prune(kronjob))
            self._pruning.add(task)
            task.add_done_callback(self._pruning.discard)

    async def _prune(self, kronjob: KronJob) -> None:
        own = [each for each in self.launcher.ended.values() if each.owner == kronjob.uid]
        for succeeded in (True, False):
            ended = [each for each in own if each.succeeded is succeeded]
            ended.sort(key=lambda each: each.ended_at)
            limit = kronjob.history_limit(failed=not succeeded)
            for each in ended[: len(ended) - limit] if limit < len(ended) else ():
                await self.launcher.remove(each)
