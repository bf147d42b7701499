"""Procrastinate measured as the engine is, each time in a new process: `python -m bench.peer_procrastinate`.

Its jobs are deferred until a time that has come, and what counts is how quickly its worker starts them. For a
time to come it asks the database every five seconds, which is left out here.
"""

import asyncio
import gc
from datetime import UTC, datetime
from time import perf_counter, time

from procrastinate import App, PsycopgConnector

from bench import started
from bench.child import answer
from bench.engine_due import Burst
from bench.place import url_of

CONCURRENCY = 100
BATCH = 1_000


async def due(place: str, count: int) -> dict[str, float]:
    """Measure many jobs whose time has come when the worker starts."""
    with url_of(place) as url:
        app = App(connector=PsycopgConnector(conninfo=url))
        task = app.task(name="note")(started.note)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            at = datetime.fromtimestamp(time() - 1, UTC)
            deferrer = task.configure(schedule_at=at)
            for done in range(0, count, BATCH):
                await deferrer.batch_defer_async(*({} for _ in range(done, min(done + BATCH, count))))
            gc.collect()
            begin = perf_counter()
            await app.run_worker_async(concurrency=CONCURRENCY, wait=False, install_signal_handlers=False)
            ended = perf_counter() - begin
    assert len(started.times) == count, f"{len(started.times)} of {count} started"
    return Burst(count, min(started.times) - begin, max(started.times) - begin, ended).figures()


def _due(place: str, count: str) -> dict[str, float]:
    return asyncio.run(due(place, int(count)))


if __name__ == "__main__":
    answer({"due": _due})
