"""Measures every page with many schedules and runs: `python -m tests.service.pages_bench 100000`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx

from kron.clocks.system import SystemClock
from kron.core.job.outcome import Reason
from kron.core.plan.query import JobFilter
from kron.core.plan.record import RunRecord, RunStatus, key_of
from kron.core.plan.step import Change
from kron.fronts.service.app import app_of
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore

PAGES = (
    "/",
    "/?search=job9",
    "/?tag=team7",
    "/?state=failing",
    "/ui/now",
    "/ui/now?zoom=hour",
    "/ui/now?zoom=week",
    "/ui/now?zoom=month",
    "/ui/now?tag=team7",
    "/ui/schedule?id=job0",
    "/ui/runs",
    "/ui/fleet",
    "/ui/audit",
    "/ui/workers",
    "/?sort=next&tag=team7",
)
BATCH, RUNS_EACH = 1_000, 10


class Measured(NamedTuple):
    """A page: its address, its status, its size, and the processor time it took, in seconds."""

    path: str
    status: int
    size: int
    seconds: float


@asynccontextmanager
async def filled(folder: Path, schedules: int) -> AsyncIterator[Registrar]:
    """Give a registrar with many schedules, each with its last runs; every hundredth one is failing."""
    store = SqliteStore(str(folder / "kron.db"))
    registrar = Registrar(store, SystemClock())
    for first in range(0, schedules, BATCH):
        numbers = range(first, min(first + BATCH, schedules))
        await registrar.upsert_schedules([registrar.read_spec(_document(number)) for number in numbers])
        names = [f"job{number}" for number in numbers]
        now = registrar.now()
        jobs = [found.job for found in await store.find_jobs(NAMESPACE, JobFilter(names=names), limit=BATCH)]
        changes = []
        for job in jobs:
            failures = int(job.identity[3:]) % 100 == 0
            runs = [
                _run(job.identity, now // 1000 - 600 * back, failures) for back in range(1, RUNS_EACH + 1)
            ]
            changed = job._replace(failures=RUNS_EACH * failures, revision=job.revision + 1)
            changes.append(Change(changed, job.revision, inserts=runs))
        await store.put(NAMESPACE, created=[], changed=changes, now=now)
    try:
        yield registrar
    finally:
        await store.close()


def _document(number: int) -> dict[str, object]:
    window = {"window": {"mode": "after", "duration": "20m"}} if number % 7 == 0 else {}
    return {
        "schedule_id": f"job{number}",
        "cron_expr": f"{number % 60} */{1 + number % 5} * * *",
        "timezone": "UTC",
        "launcher": {"kind": "log", "message": "x"},
        "tags": [f"team{number % 50}"],
        **window,
    }


def _run(name: str, time_s: int, is_failed: bool) -> RunRecord:
    status = RunStatus.FAILED if is_failed else RunStatus.SUCCESS
    at = 1000 * time_s
    return RunRecord(
        key_of(name, time_s),
        name,
        time_s,
        at,
        status,
        Reason.DUE,
        at,
        1,
        attempt=1,
        started_at=at,
        ended_at=at + 900,
    )


async def measured(registrar: Registrar) -> list[Measured]:
    """Request every page, and return how large it is and how long it took."""
    transport = httpx.ASGITransport(app_of(registrar, Settings()))
    pages = []
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for path in PAGES:
            began = time.process_time()
            answer = await client.get(path)
            pages.append(Measured(path, answer.status_code, len(answer.content), time.process_time() - began))
    return pages


async def main(schedules: int) -> None:
    """Fill a store and write a line for each page."""
    with TemporaryDirectory() as folder:
        async with filled(Path(folder), schedules) as registrar:
            for page in await measured(registrar):
                milliseconds, size = 1000 * page.seconds, page.size / 1000
                sys.stdout.write(f"{milliseconds:8.0f} ms of processor time {size:7.0f} kB  {page.path}\n")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
