"""The operator killed or frozen at each of its awaits: its records are judged by the theory and by a ledger.

A run without a fault counts the awaits that suspend a task of the operator. Then there is a run for each of
them, in which the operator is killed or frozen there and another one follows; the coroutines of one that is
killed are never resumed. The ledger reads what the API server had, and nothing of the operator: every version
of the status, and every Job that was ever created.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kron.core.plan.record import Result, RunKind, RunRecord
from kron.core.time.instant import rfc3339
from kron.fronts.operator.operator import Operator
from kron.fronts.operator.state import Book, book_of
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from kron.theory import Trace, check
from tests.kubernetes.cluster import PERIOD_ID, START, Cluster, kronjob, minute, running_cluster
from tests.kubernetes.process import Process, processes
from tests.waiting import PATIENCE_S

MINUTE_MS = 60_000
# Short enough that another operator takes over from a frozen one before the next period.
LEASE = timedelta(seconds=10)
# Outcomes of three periods, where the Job of the first still runs when the second is due.
OUTCOMES = {
    "forbid": ["executed", "skipped", "executed"],
    "allow": ["executed", "executed", "executed"],
    "replace": ["executed", "executed", "executed"],
    "queue": ["executed", "executed", "executed"],
}
# One await of how many is tried, for each policy another one; with KRON_EVERY_AWAIT=1 all, in minutes.
IS_THOROUGH = bool(os.environ.get("KRON_EVERY_AWAIT"))
KILL_STRIDE, FREEZE_STRIDE = (1, 1) if IS_THOROUGH else (6, 9)
FREEZES = [*OUTCOMES] if IS_THOROUGH else ["replace"]


class Host:
    """Runs operators, each as a process of its own; one that is killed is followed by another.

    The first is interrupted at the await with a given number, by `interrupt`.
    """

    def __init__(self, cluster: Cluster, number: int, interrupt: Callable[[Process], None]) -> None:
        self.cluster = cluster
        self.awaits = 0
        self.is_over = False
        self._number = number
        self.interrupt = interrupt
        # How much time passes between two looks; the Lease of a frozen operator has to expire.
        self._step = timedelta(milliseconds=100 if interrupt is Process.kill else 500)
        self.operators: list[tuple[Operator, Process, asyncio.Task[None]]] = []

    def start(self) -> None:
        process = Process(self.cluster.clock)
        if not self.operators:
            process.on_await = lambda: self._count(process)
        api = ApiClient(ClusterAccess(self.cluster.server.url), request_s=5.0)
        operator = Operator(api, process.clock, self.cluster.options)
        self.operators.append((operator, process, process.run(operator.run())))

    def _count(self, process: Process) -> None:
        self.awaits += not self.is_over
        if self.awaits == self._number and not self.is_over:
            self.is_over = True
            self.interrupt(process)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, while time passes slowly."""
        clock = self.cluster.clock
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._keep_one_running()
                await clock.advance_to(clock.now() + self._step)
                await asyncio.sleep(0.002)

    def _keep_one_running(self) -> None:
        """Start another operator if none runs; the Lease of a dead one need not expire first."""
        running = [operator for operator, process, _ in self.operators if process.is_running]
        if not running:
            self.start()
        if self.interrupt is not Process.kill:
            return
        for lease in self.cluster.server.objects("leases"):
            holder = lease["spec"]["holderIdentity"]
            if holder and holder not in [operator.worker.engine.owner for operator in running]:
                self.cluster.free_lease()

    def thaw(self) -> None:
        self.operators[0][1].thaw()

    async def close(self) -> None:
        for operator, process, task in self.operators:
            process.kill()
            if not task.done():
                operator.store.abandon()
        await asyncio.wait([task for _, _, task in self.operators])
        for _, process, _ in self.operators:
            process.forget()


@asynccontextmanager
async def running_host(
    number: int = 0, interrupt: Callable[[Process], None] = Process.kill
) -> AsyncIterator[Host]:
    # Futures of a process that is dead end without anyone who asks how.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    with processes():
        options = {} if interrupt is Process.kill else {"lease_duration": LEASE, "tick_ms": 5_000}
        async with running_cluster(**options) as cluster:
            host = Host(cluster, number, interrupt)
            host.start()
            try:
                yield host
            finally:
                await host.close()


async def run_periods(host: Host, policy: str) -> None:
    """Run three periods; the Job of the first ends after the second is due."""
    cluster = host.cluster
    job = kronjob(policy={"concurrency": policy, "deadline": "never"})
    cluster.server.add("kronjobs", job, "default")
    await host.until(lambda: cluster.status().get("observedGeneration"))
    await cluster.advance(minute(1, 2))
    await host.until(lambda: "12:01" in cluster.ever_created())
    await cluster.advance(minute(2, 2))
    if policy in ("allow", "replace"):
        await host.until(lambda: "12:02" in cluster.ever_created())
    else:
        await host.until(lambda: "12:02" in cluster.periods())
    host.thaw()
    await end_all(host)
    await cluster.advance(minute(3, 2))
    await host.until(lambda: "12:03" in cluster.ever_created())
    await end_all(host)


async def end_all(host: Host) -> None:
    """End every Job, also those that start then, and wait until no run is open."""

    def are_over() -> bool:
        for job in host.cluster.server.objects("jobs"):
            if not (job.get("status") or {}).get("conditions"):
                host.cluster.server.complete(job["metadata"]["name"])
        return not _book(host.cluster).runs

    await host.until(are_over)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "interrupt"),
    [*((policy, Process.kill) for policy in OUTCOMES), *((policy, Process.freeze) for policy in FREEZES)],
)
@pytest.mark.timeout(1_200)
async def test_an_operator_interrupted_at_any_await_creates_each_job_once(
    policy: str, interrupt: Callable[[Process], None]
) -> None:
    """A frozen operator goes on when another one has taken over and handled a period."""
    stride = KILL_STRIDE if interrupt is Process.kill else FREEZE_STRIDE
    number = list(OUTCOMES).index(policy) % stride + 1
    count, is_over = 0, False
    while not is_over:
        async with running_host(number, interrupt) as host:
            await run_periods(host, policy)
            assert ledger_faults(host.cluster, OUTCOMES[policy]) == [], f"at await {number}"
            check_by_theory(host.cluster, policy, number)
            count, is_over = count + host.is_over, not host.is_over
        number += stride
    assert count * stride > 80


@pytest.mark.slow
async def test_an_operator_that_leaves_at_any_await_hands_its_lease_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    number, is_over = 1, False
    while not is_over:
        async with running_host(number) as host:
            operator, _, task = host.operators[0]
            host.interrupt = partial(_leave, operator)
            periods = asyncio.create_task(run_periods(host, "allow"))
            async with asyncio.timeout(PATIENCE_S):
                while not (periods.done() or task.done()):  # noqa: ASYNC110 - nothing signals both
                    await asyncio.sleep(0.002)
            periods.cancel()
            is_over = not host.is_over
            if host.is_over:
                (lease,) = host.cluster.server.objects("leases")
                assert lease["spec"]["holderIdentity"] == "", f"at await {number}"
                assert operator.worker.engine.health.state == "stopped", f"at await {number}"
        number += 3 * KILL_STRIDE
    assert [each.message for each in caplog.records if each.name == "kron.worker"] == []


def _leave(operator: Operator, _: Process) -> None:
    operator.leave()


def check_by_theory(cluster: Cluster, policy: str, number: int) -> None:
    """Judge the starts and ends of a job; the theory knows no task that runs twice at the same time."""
    if policy != "allow":
        report = check(Trace.from_jsonl(trace_of(_book(cluster))), reading="kron", within=2 * MINUTE_MS)
        assert report.conforms, (number, report.failed)


def _book(cluster: Cluster) -> Book:
    return _read(cluster.server.object("kronjobs", "a")["status"])


def _read(status: dict[str, Any]) -> Book:
    return book_of(status["state"], status["identity"], launcher="{}", kind="kubernetes")


# --- the ledger ----------------------------------------------------------------------------------------


def ledger_faults(cluster: Cluster, wanted: list[str]) -> list[str]:
    """Return what is wrong with the records and Jobs that the API server had, in their order."""
    created = [each for _, event, each in cluster.server.kind("jobs").events if event == "ADDED"]
    notes = [each["metadata"]["annotations"] for each in created]
    jobs = Counter((each[PERIOD_ID], each["kron.io/attempt"]) for each in notes)
    faults = [f"{count} Jobs for {period}" for period, count in jobs.items() if count > 1]
    versions = [each.get("status", {}) for _, _, each in cluster.server.kind("kronjobs").events]
    books = [_read(status) for status in versions if "state" in status]
    faults += [fault for before, after in pairwise(books) for fault in undone(before, after)]
    outcomes = {minute_of(run): str(run.outcome) for run in _runs(books[-1])}
    if outcomes != dict(zip(("12:01", "12:02", "12:03"), wanted, strict=True)):
        faults.append(f"the outcomes are {outcomes}")
    executed = sorted(minute_of(run) for run in _runs(books[-1]) if run.outcome == "executed")
    if cluster.ever_created() != executed:
        faults.append(f"there were Jobs for {cluster.ever_created()}, and {executed} are executed")
    return faults


def undone(before: Book, after: Book) -> list[str]:
    """Return what a record had handled and a later one has not."""
    faults = [] if after.job.cursor >= before.job.cursor else ["the cursor went back"]
    later = {run.key: run for run in _runs(after)}
    for run in _runs(before):
        now = later.get(run.key)
        if run.outcome is not None and (now is None or now.outcome != run.outcome):
            faults.append(f"{run.nominal_time} was {run.outcome}, and is {now and now.outcome}")
        if now is not None and (now.attempt, now.token) < (run.attempt, run.token):
            faults.append(f"{run.nominal_time} has an earlier attempt or token")
    return faults


def minute_of(run: RunRecord) -> str:
    return rfc3339(run.nominal_time)[11:16]


def _runs(book: Book) -> list[RunRecord]:
    return [run for run in (*book.runs, *book.closed) if run.kind is RunKind.PERIOD]


def test_the_ledger_sees_what_is_undone() -> None:
    async def books() -> tuple[Book, Book]:
        async with running_cluster() as cluster:
            await cluster.start()
            await cluster.add(kronjob(policy={"concurrency": "allow", "deadline": "never"}))
            before = _book(cluster)
            await cluster.advance(minute(1, 2))
            await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
            return before, _book(cluster)

    before, after = asyncio.run(books())
    assert undone(before, after) == []
    assert len(undone(after, before)) == 2


# --- the theory ----------------------------------------------------------------------------------------


def trace_of(book: Book) -> list[str]:
    """Return the trace of a job's record: a crash of the operator ends no Job, so it is no event of it."""
    start = round(START.timestamp() * 1000)
    task = {"id": "a", "schedule": "* * * * *", "retry_delay": 0}
    runs: list[dict[str, object]] = []
    started = [run for run in _runs(book) if run.started_at is not None]
    for run in sorted(started, key=lambda run: run.nominal_time):
        runs.append({"t": run.started_at, "event": "RunStart", "task": "a"})
        if run.ended_at is not None:
            end = "RunSuccess" if run.result is Result.SUCCESS else "RunFailure"
            runs.append({"t": run.ended_at, "event": end, "task": "a"})
    runs.sort(key=lambda line: int(str(line["t"])))
    header = {
        "kron_trace": 1,
        "unit": "ms",
        "derive": ["MinuteStart", "Due", "RetryDue"],
        "timezone": "UTC",
        "compute": "none",
    }
    call = {"call": 1, "list": 1}
    lines = [
        header,
        {"t": start, "event": "InitStart", **call, "tasks": [task]},
        {"t": start, "event": "InitSuccess", **call},
        *runs,
    ]
    return [json.dumps(line) for line in lines]


def test_the_theory_refuses_a_start_that_is_too_many() -> None:
    async def lines() -> list[str]:
        async with running_cluster() as cluster:
            await cluster.start()
            await cluster.add(kronjob())
            await cluster.advance(minute(1, 2))
            await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
            await cluster.complete("12:01")
            return trace_of(_book(cluster))

    good = asyncio.run(lines())
    assert check(Trace.from_jsonl(good), reading="kron", within=MINUTE_MS).conforms
    start, end = json.loads(good[-2]), json.loads(good[-1])
    again = json.dumps({**start, "t": end["t"]})
    assert not check(Trace.from_jsonl([*good, again]), reading="kron", within=MINUTE_MS).conforms
