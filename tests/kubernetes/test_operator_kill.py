"""The operator killed at each of its requests: its records are judged by the theory and by a ledger.

Every effect outside the operator is a request, so it is killed before and after each of them, one after the
other. The ledger reads what the API server had, and nothing of the operator: every version of the status, and
every Job that was ever created.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from kron.core.plan.record import RunKind, RunRecord
from kron.fronts.operator.state import Book, book_of
from kron.theory import Trace, check
from tests.kubernetes.cluster import PERIOD_ID, START, Cluster, kronjob, minute, running_cluster
from tests.waiting import PATIENCE_S

PERIODS = ["12:01", "12:02", "12:03"]
MINUTE_MS = 60_000


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_operator_killed_at_any_request_creates_each_job_once(when: str) -> None:
    kills, number, requests = 0, 0, 1
    while number < requests:
        requests, was_killed = await _killed_at(number, when)
        kills += was_killed
        number += 1
    assert kills > 10


async def _killed_at(number: int, when: str) -> tuple[int, bool]:
    """Run three periods with a kill at one request; return how many requests there were, and if it was."""
    async with running_cluster() as cluster:
        await cluster.start()
        await cluster.add(kronjob(policy={"concurrency": "forbid", "deadline": "never"}))
        first = len(cluster.server.requests)
        killed: list[int] = []

        def on_request(count: int, moment: str) -> bool:
            if killed or moment != when or count != first + 1 + number:
                return False
            killed.append(count)
            cluster.crash()
            return True

        cluster.server.on_request = on_request
        for index, period in enumerate(PERIODS, 1):
            await cluster.advance(minute(index, 10))
            await _run_period(cluster, period)
        requests = len(cluster.server.requests) - first
        assert ledger_faults(cluster) == []
        report = check(Trace.from_jsonl(trace_of(_book(cluster))), reading="kron", within=MINUTE_MS)
        assert report.conforms, report.failed
        return requests, bool(killed)


async def _run_period(cluster: Cluster, period: str) -> None:
    """Wait for the Job of a period, end it, and wait until that is recorded."""
    await _alive_until(cluster, lambda: period in cluster.ever_created())
    cluster.server.complete(cluster.job_of(period)["metadata"]["name"])
    await _alive_until(cluster, lambda: _result(cluster, period) == "success")


async def _alive_until(cluster: Cluster, condition: Callable[[], object]) -> None:
    """Wait until a condition holds, while time passes slowly; another operator follows one that is killed."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            if not cluster.operators:
                await cluster.start()
            await cluster.clock.advance_to(cluster.clock.now() + timedelta(milliseconds=100))
            await asyncio.sleep(0.005)


def _result(cluster: Cluster, period: str) -> object:
    rows = [row for row in cluster.status().get("periods", ()) if row["periodId"][11:16] == period]
    return rows[0].get("result") if rows else None


def _book(cluster: Cluster) -> Book:
    return _read(cluster.server.object("kronjobs", "a")["status"])


def _read(status: dict[str, Any]) -> Book:
    return book_of(status["state"], status["identity"], launcher="{}", kind="kubernetes")


# --- the ledger ----------------------------------------------------------------------------------------


def ledger_faults(cluster: Cluster) -> list[str]:
    """Return what is wrong with the records and Jobs that the API server had, in their order."""
    created = [each for _, event, each in cluster.server.kind("jobs").events if event == "ADDED"]
    notes = [each["metadata"]["annotations"] for each in created]
    jobs = Counter((each[PERIOD_ID], each["kron.io/attempt"]) for each in notes)
    faults = [f"{count} Jobs for {period}" for period, count in jobs.items() if count > 1]
    versions = [each.get("status", {}) for _, _, each in cluster.server.kind("kronjobs").events]
    books = [_read(status) for status in versions if "state" in status]
    faults += [fault for before, after in pairwise(books) for fault in undone(before, after)]
    outcomes = {run.nominal_time: run.outcome for run in _runs(books[-1])}
    wanted = {int(minute(number).timestamp()): "executed" for number in range(1, 4)}
    if outcomes != wanted:
        faults.append(f"the outcomes are {outcomes}")
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


def _runs(book: Book) -> list[RunRecord]:
    return [run for run in (*book.runs, *book.closed) if run.kind is RunKind.PERIOD]


def test_the_ledger_sees_what_is_undone() -> None:
    async def books() -> tuple[Book, Book]:
        async with running_cluster() as cluster:
            await cluster.start()
            await cluster.add(kronjob(policy={"concurrency": "allow", "deadline": "never"}))
            before = _book(cluster)
            await cluster.advance(minute(1, 10))
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
    for run in _runs(book):
        runs.append({"t": run.started_at, "event": "RunStart", "task": "a"})
        if run.ended_at is not None:
            runs.append({"t": run.ended_at, "event": "RunSuccess", "task": "a"})
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
            await cluster.advance(minute(1, 10))
            await cluster.eventually(lambda: cluster.jobs() == ["12:01"])
            await cluster.complete("12:01")
            return trace_of(_book(cluster))

    good = asyncio.run(lines())
    assert check(Trace.from_jsonl(good), reading="kron", within=MINUTE_MS).conforms
    start, end = json.loads(good[-2]), json.loads(good[-1])
    again = json.dumps({**start, "t": end["t"]})
    assert not check(Trace.from_jsonl([*good, again]), reading="kron", within=MINUTE_MS).conforms
