"""Procrastinate, measured like the engine, in new processes: `python -m bench.peer_procrastinate`.

Its jobs are deferred to a past time, and the figure is how quickly its worker starts them. For a future time
it polls the database every five seconds, which is excluded here.
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
    """Measure many jobs that are due when the worker starts."""
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
