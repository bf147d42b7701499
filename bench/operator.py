"""The operator part: many KronJobs due at one instant, against the double of the API server.

The double shares the processor and the event loop with the operator, so the figures are upper bounds of the
operator's share; requests are counted exactly.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from math import ceil
from time import process_time
from typing import NamedTuple

from bench.row import Findings, Goal, Kind, Row, Say, shown
from kron.clocks.system import SystemClock
from kron.fronts.operator.crd import crds
from kron.fronts.operator.operator import Operator, OperatorOptions
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import ApiClient
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.cluster import kronjob

TITLE = "KronJobs due at one instant"
MANY, QUICK = 1_000, 100
# Time to record one KronJob before the instant, and the longest wait for the last Job, in seconds.
RECORD_S, MAX_SECONDS = 0.02, 300.0
IDLE_S = 3.0
# Goals: Jobs are created within this time after their chosen time, with so few requests each.
MOST_SKEW_S, MOST_REQUESTS = 30.0, 3.0


class OperatorFigures(NamedTuple):
    """Skew of the 99th percentile and of the last Job, requests per Job, and the idle cost."""

    p99: float
    last: float
    requests: float
    idle_requests: int
    idle_share: float


def run(say: Say, *, quick: bool) -> Findings:
    """Measure one burst and the idle time before it."""
    count = QUICK if quick else MANY
    say(f"{TITLE}: {count:,}")
    figures = asyncio.run(_measure(count))
    note = f"last {shown(Kind.TIME, figures.last)}; {figures.requests:.2f} requests per Job until it exists"
    idle = f"{figures.idle_requests} requests in {IDLE_S:g} s beside the Lease's"
    rows = (
        Row(
            title=TITLE,
            contender=f"kron, {count:,}: creation skew p99",
            kind=Kind.TIME,
            cost=figures.p99,
            note=note,
        ),
        Row(
            title=TITLE,
            contender=f"kron, {count:,}: idle",
            kind=Kind.SHARE,
            cost=figures.idle_share,
            note=idle,
        ),
    )
    is_measured = count == MANY
    skew = Goal(
        what=f"creation skew p99, {MANY:,} KronJobs due at one instant",
        wanted=f"<= {shown(Kind.TIME, MOST_SKEW_S)}",
        measured=shown(Kind.TIME, figures.p99) if is_measured else "not measured",
        met=figures.p99 <= MOST_SKEW_S if is_measured else None,
    )
    requests = Goal(
        what="requests per Job until it exists",
        wanted=f"<= {MOST_REQUESTS:g}",
        measured=f"{figures.requests:.2f}",
        met=figures.requests <= MOST_REQUESTS,
    )
    return Findings(rows=rows, goals=(skew, requests))


async def _measure(count: int) -> OperatorFigures:
    async with ApiServer().running() as server:
        server.bookmark_s, server.is_trusting = 60.0, True
        for crd in crds():
            server.add("customresourcedefinitions", crd, "")
        due = datetime.now(UTC) + timedelta(seconds=ceil(IDLE_S + 3 + RECORD_S * count))
        due = due.replace(microsecond=0)
        schedule = f"{due.second} {due.minute} {due.hour} * * *"
        for number in range(count):
            server.add("kronjobs", kronjob(f"job-{number:05}", schedule, policy={"deadline": "never"}))
        api = ApiClient(ClusterAccess(server.url))
        operator = Operator(api, SystemClock(), OperatorOptions())
        running = asyncio.create_task(operator.run())
        async with asyncio.timeout(MAX_SECONDS):
            while len(operator.store.books) < count:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.05)
        idle_requests, idle_share = await _idle(server)
        first = len(server.requests)
        made = await _created(server, due, count)
        spent = [each for each in server.requests[first:] if each.resource in ("jobs", "kronjobs/status")]
        operator.leave()
        await running
        api.close()
    ranked = sorted(made)
    return OperatorFigures(
        ranked[ceil(0.99 * count) - 1], ranked[-1], len(spent) / count, idle_requests, idle_share
    )


async def _idle(server: ApiServer) -> tuple[int, float]:
    """Return the requests and the share of a processor in which nothing is due."""
    await asyncio.sleep(0.5)
    before, begin = len(server.requests), process_time()
    await asyncio.sleep(IDLE_S)
    used = [each for each in server.requests[before:] if each.resource != "leases"]
    return len(used), (process_time() - begin) / IDLE_S


async def _created(server: ApiServer, due: datetime, count: int) -> list[float]:
    """Return how long after the instant each Job was created."""
    made: list[float] = []

    def on_request(number: int, when: str) -> bool:
        each = server.requests[number - 1]
        if when == "after" and (each.verb, each.resource) == ("create", "jobs"):
            made.append((datetime.now(UTC) - due).total_seconds())
        return False

    server.on_request = on_request
    async with asyncio.timeout(MAX_SECONDS):
        while len(made) < count:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.02)
    return made
