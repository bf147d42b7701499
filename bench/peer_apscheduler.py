"""APScheduler 3, measured like the engine, in new processes: `python -m bench.peer_apscheduler`."""

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import ceil
from time import perf_counter, time
from typing import Any

from apscheduler.jobstores.base import BaseJobStore
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from bench import started
from bench.child import answer
from bench.engine_due import MAX_SECONDS, READY_S, Burst
from bench.engine_idle import days_far_off, resident, share_of_processor
from bench.engine_job import names
from bench.engine_late import JOBS, WARM_UP_S, spread
from bench.place import MEMORY, url_of

# The function by name, because stores keep names.
NOTE = "bench.started:note"
# The approximate time to add a job: in memory, and in a database.
ADD_S, ADD_DURABLY_S = 150e-6, 3e-3


@contextmanager
def scheduler_on(place: str) -> Iterator[AsyncIOScheduler]:
    """Yield a running scheduler without jobs."""
    with url_of(place) as url:
        store = _store(url)
        scheduler = AsyncIOScheduler(jobstores={"default": store}, timezone=UTC)
        scheduler.start(paused=True)
        try:
            yield scheduler
            assert store.get_next_run_time() is not None, "the jobs are in another store"
        finally:
            scheduler.shutdown(wait=False)


def _store(url: str) -> BaseJobStore:
    if url.startswith(MEMORY):
        return MemoryJobStore()
    from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore

    return SQLAlchemyJobStore(url.replace("postgresql://", "postgresql+psycopg://"))


def _add(scheduler: AsyncIOScheduler, count: int, trigger: CronTrigger, function: str = NOTE) -> None:
    for name in names(count):
        scheduler.add_job(function, trigger, id=name, misfire_grace_time=None)


async def due(place: str, count: int) -> dict[str, float]:
    """Measure many jobs that are due at one instant."""
    with scheduler_on(place) as scheduler:
        ahead = 1 + READY_S + count * (ADD_S if place == MEMORY else ADD_DURABLY_S)
        second = ceil(time() + ahead)
        moment = datetime.fromtimestamp(second, UTC)
        trigger = CronTrigger(hour=moment.hour, minute=moment.minute, second=moment.second, timezone=UTC)
        _add(scheduler, count, trigger)
        gc.collect()
        scheduler.resume()
        instant = perf_counter() + second - time()
        if instant < perf_counter():
            raise TimeoutError("the jobs were not added in time")
        await started.wait_for(count, most=MAX_SECONDS)
    first, last = min(started.times) - instant, max(started.times) - instant
    return Burst(count, first, last, last).figures()


async def register(place: str, count: int) -> dict[str, float]:
    """Measure adding jobs to a running scheduler; they share one trigger, which is fastest."""
    with scheduler_on(place) as scheduler:
        trigger = CronTrigger.from_crontab("0 3 1 1 *", timezone=UTC)
        begin = perf_counter()
        _add(scheduler, count, trigger)
        return {"seconds": perf_counter() - begin}


async def idle(count: int, seconds: float) -> dict[str, float]:
    """Measure jobs in memory that are not due for half a year."""
    with scheduler_on(MEMORY) as scheduler:
        scheduler.resume()
        before = resident()
        day, month = days_far_off().split()
        # As for Kron, jobs share 1,440 schedules.
        triggers = [
            CronTrigger(month=month, day=day, hour=number // 60, minute=number % 60, timezone=UTC)
            for number in range(1440)
        ]
        for number, name in enumerate(names(count)):
            scheduler.add_job(started.note, triggers[number % 1440], id=name)
        size = (resident() - before) / count
        return {"bytes": size, "share": await share_of_processor(seconds)}


async def late(place: str, seconds: float) -> dict[str, float]:
    """Measure a few jobs that start every second, at different instants."""
    found: list[float] = []
    with scheduler_on(place) as scheduler:
        begin = time() + WARM_UP_S
        for number in range(JOBS):
            first = begin + number / JOBS

            async def note(first: float = first) -> None:
                found.append((time() - first) % 1)

            start = datetime.fromtimestamp(first, UTC)
            scheduler.add_job(note, IntervalTrigger(seconds=1, start_date=start, timezone=UTC))
        scheduler.resume()
        await asyncio.sleep(WARM_UP_S + seconds)
    return spread(found)


def _run(
    work: Callable[..., Coroutine[Any, Any, dict[str, float]]], *kinds: Callable[[str], object]
) -> Callable[..., dict[str, float]]:
    """Return a measurement that takes its arguments as strings."""
    return lambda *words: asyncio.run(work(*(kind(word) for kind, word in zip(kinds, words, strict=True))))


if __name__ == "__main__":
    answer(
        {
            "due": _run(due, str, int),
            "register": _run(register, str, int),
            "idle": _run(idle, int, float),
            "late": _run(late, str, float),
        }
    )
