"""Idle jobs: memory per job, and processor time of all, as `python -m bench.engine_idle`."""

import asyncio
import gc
import resource
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time, time

from bench.child import answer
from bench.engine_job import NAMESPACE, definitions, rig_of
from kron.core.job.job import Job
from kron.core.plan.registration import create
from kron.core.plan.report import Launch
from kron.stores.url import open_store

STATM = Path("/proc/self/statm")
# The batch size, so that temporary memory stays small.
BATCH = 1_000
# The time for the first wake and deferred work of loading before processor time is measured.
SETTLE_S = 1.0


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


def days_far_off() -> str:
    """Return a day and a month about half a year ahead."""
    day = datetime.fromtimestamp(time(), UTC) + timedelta(days=180)
    return f"{day.day} {day.month}"


async def share_of_processor(seconds: float) -> float:
    """Return the processor seconds per second that this process uses while it waits."""
    await asyncio.sleep(SETTLE_S)
    begin, used = perf_counter(), process_time()
    await asyncio.sleep(seconds)
    return (process_time() - used) / (perf_counter() - begin)


async def kron(count: int, seconds: float) -> dict[str, float]:
    """Measure jobs in memory that are not due for half a year."""
    store, now = open_store("memory://"), int(1000 * time())
    engine, launcher, journal = rig_of(store)

    async def callback(_: Launch) -> None:
        raise AssertionError("nothing is due")

    await engine.acquire()
    engine.run()
    before = resident()
    rest = definitions(count, days_far_off())
    while batch := [create(Job.from_dict(one), now=now) for one in islice(rest, BATCH)]:
        launcher.callbacks.update((job.identity, callback) for job in batch)
        await store.put(NAMESPACE, created=batch, changed=[], now=now)
    engine.call()
    figures = {"bytes": (resident() - before) / count, "share": await share_of_processor(seconds)}
    await engine.stop()
    assert not journal.counts, "something was due"
    return figures


def _kron(count: str, seconds: str) -> dict[str, float]:
    return asyncio.run(kron(int(count), float(seconds)))


if __name__ == "__main__":
    answer({"kron": _kron})
