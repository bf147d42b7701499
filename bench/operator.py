"""The operator part: many KronJobs due at one instant, against the double of the API server.

The double runs in a process of its own. On a small machine the two share the processors, so the skew is an
upper bound; requests and the operator's processor time are counted exactly.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from time import process_time
from typing import NamedTuple

from bench.row import Findings, Goal, Kind, Row, Say, shown
from kron.clocks.system import SystemClock
from kron.fronts.operator.crd import crds
from kron.fronts.operator.operator import Operator, OperatorOptions
from kron.launchers.kubernetes.access import ClusterAccess
from kron.launchers.kubernetes.api import KRONJOBS, ApiClient
from tests.kubernetes.api_server import ApiServer
from tests.kubernetes.cluster import kronjob

TITLE = "KronJobs due at one instant"
MANY, QUICK = 1_000, 100
# Time to record one KronJob before the instant, and the longest wait for the last Job, in seconds.
RECORD_S, MAX_SECONDS = 0.02, 300.0
IDLE_S = 3.0
# KronJobs that are created at the same time.
CREATORS = 16
# Goals: Jobs are created within this time after their chosen time, with so few requests each.
MOST_SKEW_S, MOST_REQUESTS = 30.0, 3.0


class OperatorFigures(NamedTuple):
    """Skew of the 99th percentile and of the last Job, requests and processor time per Job, the idle cost."""

    p99: float
    last: float
    requests: float
    idle_requests: int
    idle_share: float
    cpu: float


def run(say: Say, *, quick: bool) -> Findings:
    """Measure one burst and the idle time before it."""
    count = QUICK if quick else MANY
    say(f"{TITLE}: {count:,}")
    figures = asyncio.run(_measure(count))
    note = f"last {shown(Kind.TIME, figures.last)}; {figures.requests:.2f} requests per Job until it exists"
    note += f"; {shown(Kind.TIME, figures.cpu)} of a processor per Job"
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


def serve_double() -> None:
    """Serve the double in a process of its own, print its URL, and end with the standard input."""

    async def serve() -> None:
        async with ApiServer().running() as server:
            server.bookmark_s, server.is_trusting = 60.0, True
            for crd in crds():
                server.add("customresourcedefinitions", crd, "")
            print(server.url, flush=True)
            await asyncio.to_thread(sys.stdin.read)

    asyncio.run(serve())


@asynccontextmanager
async def _double() -> AsyncIterator[ClusterAccess]:
    """Run the double beside this process, as a real API server would be."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from bench.operator import serve_double; serve_double()",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield ClusterAccess((await process.stdout.readline()).decode().strip())
    finally:
        process.stdin.close()
        await process.wait()


async def _measure(count: int) -> OperatorFigures:
    async with _double() as access:
        api = ApiClient(access)
        due = datetime.now(UTC) + timedelta(seconds=ceil(IDLE_S + 5 + RECORD_S * count))
        due = due.replace(microsecond=0)
        await _create_all(api, count, f"{due.second} {due.minute} {due.hour} * * *")
        operator = Operator(api, SystemClock(), OperatorOptions())
        made: list[float] = []
        operator.launcher.on_created = lambda run, at: made.append((at - run.fire_time) / 1000)
        running = asyncio.create_task(operator.run())
        async with asyncio.timeout(MAX_SECONDS):
            while len(operator.store.books) < count:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.05)
        idle_requests, idle_share = await _idle(api)
        before, begin = _spent(api), process_time()
        async with asyncio.timeout(MAX_SECONDS):
            while len(made) < count:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.02)
        spent, used = _spent(api) - before, process_time() - begin
        operator.leave()
        await running
        api.close()
    ranked = sorted(made)
    return OperatorFigures(
        ranked[ceil(0.99 * count) - 1], ranked[-1], spent / count, idle_requests, idle_share, used / count
    )


async def _create_all(api: ApiClient, count: int, schedule: str) -> None:
    limit = asyncio.Semaphore(CREATORS)

    async def create(number: int) -> None:
        async with limit:
            document = kronjob(f"job-{number:05}", schedule, policy={"deadline": "never"})
            await api.create(KRONJOBS, "default", document)

    await asyncio.gather(*map(create, range(count)))


def _spent(api: ApiClient) -> int:
    """Return the requests for records and Jobs so far."""
    return sum(count for (_, name), count in api.requests.items() if name in ("jobs", "kronjobs/status"))


async def _idle(api: ApiClient) -> tuple[int, float]:
    """Return the requests and the share of a processor in which nothing is due."""
    await asyncio.sleep(0.5)
    before, begin = api.requests.total() - api.requests["update", "leases"], process_time()
    await asyncio.sleep(IDLE_S)
    after = api.requests.total() - api.requests["update", "leases"]
    return after - before, (process_time() - begin) / IDLE_S
