"""APScheduler 4, measured like `kron.Scheduler`, in new processes: `python -m bench.peer_apscheduler4`.

It cannot be installed beside APScheduler 3, so it has a separate folder that is first on the path.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from math import ceil
from time import perf_counter, time
from typing import Any

from bench import started
from bench.child import PROJECT, answer
from bench.embed_task import asking
from bench.engine_due import MAX_SECONDS, READY_S, Burst
from bench.engine_idle import days_far_off, resident, share_of_processor
from bench.engine_job import names
from bench.engine_late import JOBS, WARM_UP_S, spread
from bench.place import MEMORY, url_of

FOLDER = PROJECT / ".cache" / "apscheduler4"
if not (FOLDER / "apscheduler").is_dir():
    raise ModuleNotFoundError("No module named 'apscheduler' of version 4; make bench installs it")
sys.path.insert(0, str(FOLDER))

from apscheduler import AsyncScheduler  # noqa: E402 (the folder has to come first)
from apscheduler.triggers.cron import CronTrigger  # noqa: E402
from apscheduler.triggers.interval import IntervalTrigger  # noqa: E402

TASK = "note"
# The approximate time to add a schedule: in memory, and in a database.
ADD_S, ADD_DURABLY_S = 400e-6, 10e-3


@asynccontextmanager
async def scheduler_on(place: str, most: int) -> AsyncIterator[AsyncScheduler]:
    """Yield a scheduler without schedules that is not started, with a bound on concurrent jobs."""
    with url_of(place) as url:
        async with AsyncScheduler(_store(url), max_concurrent_jobs=most) as scheduler:
            await scheduler.configure_task(
                TASK, func=started.note, max_running_jobs=most, misfire_grace_time=None
            )
            yield scheduler
            await scheduler.stop()


def _store(url: str) -> Any:
    if url.startswith(MEMORY):
        from apscheduler.datastores.memory import MemoryDataStore

        return MemoryDataStore()
    from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
    from sqlalchemy import create_engine

    return SQLAlchemyDataStore(create_engine(url))


async def due(place: str, count: int) -> dict[str, float]:
    """Measure many schedules that are due at one instant."""
    async with scheduler_on(place, count) as scheduler:
        ahead = 1 + READY_S + count * (ADD_S if place == MEMORY else ADD_DURABLY_S)
        second = ceil(time() + ahead)
        moment = datetime.fromtimestamp(second, UTC)
        at = partial(CronTrigger, hour=moment.hour, minute=moment.minute, second=moment.second, timezone=UTC)
        for name in names(count):
            await scheduler.add_schedule(TASK, at(), id=name)
        gc.collect()
        await scheduler.start_in_background()
        instant = perf_counter() + second - time()
        if instant < perf_counter():
            raise TimeoutError("the schedules were not added in time")
        await started.wait_for(count, most=MAX_SECONDS)
    first, last = min(started.times) - instant, max(started.times) - instant
    return Burst(count, first, last, last).figures()


async def register(place: str, count: int) -> dict[str, float]:
    """Measure adding schedules; each has a trigger, which is stateful."""
    async with scheduler_on(place, 1) as scheduler:
        begin = perf_counter()
        for name in names(count):
            trigger = CronTrigger.from_crontab("0 3 1 1 *", timezone=UTC)
            await scheduler.add_schedule(TASK, trigger, id=name)
        return {"seconds": perf_counter() - begin}


async def idle(count: int, seconds: float) -> dict[str, float]:
    """Measure schedules in memory that are not due for half a year."""
    async with scheduler_on(MEMORY, 1) as scheduler:
        await scheduler.start_in_background()
        before = resident()
        day, month = days_far_off().split()
        for number, name in enumerate(names(count)):
            hour, minute = number // 60 % 24, number % 60
            trigger = CronTrigger(month=month, day=day, hour=hour, minute=minute, timezone=UTC)
            await scheduler.add_schedule(TASK, trigger, id=name)
        size = (resident() - before) / count
        return {"bytes": size, "share": await share_of_processor(seconds)}


async def late(place: str, seconds: float) -> dict[str, float]:
    """Measure a few schedules that are due every second, at different instants."""
    found: list[float] = []
    async with scheduler_on(place, JOBS) as scheduler:
        begin = time() + WARM_UP_S
        for number in range(JOBS):
            first = begin + number / JOBS

            async def note(first: float = first) -> None:
                found.append((time() - first) % 1)

            await scheduler.configure_task(f"late-{number}", func=note)
            start = datetime.fromtimestamp(first, UTC)
            await scheduler.add_schedule(f"late-{number}", IntervalTrigger(seconds=1, start_time=start))
        await scheduler.start_in_background()
        await asyncio.sleep(WARM_UP_S + seconds)
    return spread(found)


if __name__ == "__main__":
    answer(
        {
            "due": asking(due, str, int),
            "register": asking(register, str, int),
            "idle": asking(idle, int, float),
            "late": asking(late, str, float),
        }
    )
