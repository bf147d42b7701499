"""Lateness: the delay of single starts after their fire times, as `python -m bench.engine_late`."""

import asyncio
from collections.abc import Sequence
from statistics import quantiles
from time import time

from bench.child import answer
from bench.engine_job import names, put, records, rig_of
from bench.place import url_of
from kron.core.plan.report import Launch
from kron.stores.url import open_store

# Each starts once a second, at an instant spread by jitter, so few start together.
JOBS = 10
EVERY_SECOND: dict[str, object] = {"schedule": "* * * * * *", "policy": {"jitter_ms": 900}}
# Periods of the first second may have been due before the engine started.
WARM_UP_S = 1.5


def spread(late: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th percentile, and the count."""
    cuts = quantiles(late, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "count": len(late)}


async def kron(place: str, seconds: float) -> dict[str, float]:
    """Measure a few jobs that start every second, for some seconds."""
    with url_of(place) as url:
        store, now, late = open_store(url), int(1000 * time()), list[float]()
        identities = names(JOBS)
        await put(store, records(identities, EVERY_SECOND, now), now)
        engine, launcher, _ = rig_of(store)
        counts_from = time() + WARM_UP_S

        async def callback(launch: Launch) -> None:
            instant, moment = launch.run.fire_time / 1000, time()
            if instant > counts_from:
                late.append(moment - instant)

        launcher.callbacks.update(dict.fromkeys(identities, callback))
        await engine.acquire()
        engine.run()
        await asyncio.sleep(WARM_UP_S + seconds)
        await engine.stop()
        await store.close()
    return spread(late)


def _kron(place: str, seconds: str) -> dict[str, float]:
    return asyncio.run(kron(place, float(seconds)))


if __name__ == "__main__":
    answer({"kron": _kron})
