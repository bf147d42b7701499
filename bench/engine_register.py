"""Registration: definitions validated, converted and written, as `python -m bench.engine_register`."""

import asyncio
from itertools import islice
from time import perf_counter, time

from bench.child import answer
from bench.engine_job import BATCH, NAMESPACE, definitions
from bench.place import url_of
from kron.core.job.job import Job
from kron.core.plan.registration import create
from kron.stores.url import open_store


async def register(place: str, count: int) -> float:
    """Return the seconds to register a number of jobs in batches, one transaction each."""
    with url_of(place) as url:
        store = open_store(url)
        try:
            # Opening creates the tables, which is not part of a registration.
            await store.cases(NAMESPACE, [])
            rest = definitions(count)
            begin = perf_counter()
            now = int(1000 * time())
            while batch := [create(Job.from_dict(one), now=now) for one in islice(rest, BATCH)]:
                settled = await store.put(NAMESPACE, created=batch, changed=[], now=now)
                assert not settled.stale_jobs
            seconds = perf_counter() - begin
            assert len(await store.cases(NAMESPACE, ["bench/0", f"bench/{count - 1}"])) == min(count, 2)
            return seconds
        finally:
            await store.close()


def _kron(place: str, count: str) -> dict[str, float]:
    return {"seconds": asyncio.run(register(place, int(count)))}


if __name__ == "__main__":
    answer({"kron": _kron})
