"""A cluster with an operator in simulated time, and what its tests ask it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from kron.fronts.operator.crd import crds
from kron.fronts.operator.operator import Operator, OperatorOptions
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from kron.ports import Store
from kron.testing import SimulatedClock
from tests.kubernetes.api_server import ApiServer
from tests.waiting import PATIENCE_S, until

START = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
TEMPLATE: dict[str, Any] = {"spec": {"template": {"spec": POD}}}
PERIOD_ID = "kron.io/period-id"


def kronjob(name: str = "a", schedule: str = "* * * * *", **spec: Any) -> dict[str, Any]:
    document = {"apiVersion": "kron.io/v1alpha1", "kind": "KronJob", "metadata": {"name": name}}
    return {**document, "spec": {"schedule": schedule, "jobTemplate": TEMPLATE, **spec}}


def minute(number: int, second: int = 0) -> datetime:
    """Return a minute after the start of the simulated hour."""
    return START.replace(second=0) + timedelta(minutes=number, seconds=second)


class Cluster:
    """The double, a simulated clock, and at most one operator at a time unless a test starts more."""

    def __init__(self, server: ApiServer, **options: Any) -> None:
        self.server = server
        self.clock = SimulatedClock(START)
        self.options = OperatorOptions(
            **{"lease_duration": timedelta(minutes=10), "tick_ms": 60_000, **options}
        )
        self.operators: list[tuple[Operator, asyncio.Task[None]]] = []
        # How long an operator waits for an answer, in seconds.
        self.request_s = 5.0
        # How long the server may take to create a Job, in seconds.
        self.create_s = 30.0
        # Opens the store of the history for each operator.
        self.history: Callable[[], Store] | None = None

    @property
    def operator(self) -> Operator:
        return self.operators[-1][0]

    async def start(self, *, wait: bool = True) -> Operator:
        api = ApiClient(ClusterAccess(self.server.url), request_s=self.request_s)
        history = None if self.history is None else self.history()
        operator = Operator(api, self.clock, self.options, history=history)
        operator.launcher.create_s = self.create_s
        self.operators.append((operator, asyncio.create_task(operator.run())))
        if wait:
            await until(lambda: operator.worker.state == "running")
        return operator

    async def stop(self) -> None:
        operator, task = self.operators.pop()
        operator.leave()
        await task

    def crash(self) -> asyncio.Task[None]:
        """End the newest operator as a crash would; its Lease is then free, as after its expiry."""
        operator, task = self.operators.pop()
        operator.kill()
        task.cancel()
        operator.api.close()
        self.free_lease()
        return task

    async def kill(self) -> None:
        """End the newest operator as a crash would, and wait until nothing of it is left."""
        await asyncio.wait([self.crash()])

    def free_lease(self) -> None:
        for lease in self.server.objects("leases"):
            self.server.edit("leases", lease["metadata"]["name"], {"spec": {"holderIdentity": ""}})

    async def add(self, document: dict[str, Any], namespace: str = "default") -> None:
        """Create a KronJob, and wait until it is recorded."""
        self.server.add("kronjobs", document, namespace)
        await self.observed(document["metadata"]["name"], namespace)

    async def edit(self, name: str, change: dict[str, Any], namespace: str = "default") -> None:
        self.server.edit("kronjobs", name, change, namespace)
        await self.observed(name, namespace)

    async def observed(self, name: str, namespace: str = "default") -> None:
        def is_observed() -> bool:
            generation = self.server.object("kronjobs", name, namespace)["metadata"]["generation"]
            return bool(self.status(name, namespace).get("observedGeneration") == generation)

        await until(is_observed)

    def status(self, name: str = "a", namespace: str = "default") -> dict[str, Any]:
        status: dict[str, Any] = self.server.object("kronjobs", name, namespace).get("status", {})
        return status

    def periods(self, name: str = "a") -> dict[str, str]:
        """Return the last periods with their outcomes and reasons, oldest first."""
        rows = reversed(self.status(name)["periods"])
        return {row["periodId"][11:16]: f"{row.get('outcome')}: {row['reason']}" for row in rows}

    def jobs(self) -> list[str]:
        """Return the periods of all Jobs that exist, sorted."""
        return _periods(self.server.objects("jobs"))

    def ever_created(self) -> list[str]:
        """Return the periods of all Jobs that were ever created, those deleted since included."""
        return _periods([each for _, event, each in self.server.kind("jobs").events if event == "ADDED"])

    def creations(self) -> int:
        """Return how many times the creation of a Job was requested."""
        return sum((each.verb, each.resource) == ("create", "jobs") for each in self.server.requests)

    def job_of(self, period: str) -> dict[str, Any]:
        return next(
            each
            for each in self.server.objects("jobs")
            if each["metadata"]["annotations"][PERIOD_ID][11:16] == period
        )

    async def complete(self, period: str, *, failed: bool = False) -> None:
        """End the Job of a period, and wait until that is recorded."""
        job = self.job_of(period)
        self.server.complete(job["metadata"]["name"], failed=failed)
        identity = job["metadata"]["annotations"]["kron.io/identity"]
        key = job["metadata"]["annotations"]["kron.io/idempotency-key"]
        await until(lambda: all(run.key != key for run in self.operator.store.books[identity].runs))

    async def advance(self, instant: datetime) -> None:
        await self.clock.advance_to(instant)

    async def eventually(self, condition: Callable[[], object], *, step_ms: int = 100) -> None:
        """Wait until a condition holds, while time passes slowly."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.clock.advance_to(self.clock.now() + timedelta(milliseconds=step_ms))
                await asyncio.sleep(0.005)

    def condition(self, kind: str, name: str = "a") -> dict[str, Any]:
        return next(each for each in self.status(name)["conditions"] if each["type"] == kind)

    async def events(self, count: int) -> list[tuple[str, str]]:
        await until(lambda: len(self.server.objects("events")) >= count)
        return sorted((each["reason"], each["note"]) for each in self.server.objects("events"))


def _periods(jobs: list[dict[str, Any]]) -> list[str]:
    return sorted(each["metadata"]["annotations"][PERIOD_ID][11:16] for each in jobs)


@asynccontextmanager
async def running_cluster(**options: Any) -> AsyncIterator[Cluster]:
    """Run a double with the custom resources; operators that a test leaves behind are ended."""
    async with ApiServer().running() as server:
        for crd in crds():
            server.add("customresourcedefinitions", crd, "")
        cluster = Cluster(server, **options)
        try:
            yield cluster
        finally:
            while cluster.operators:
                await cluster.kill()
