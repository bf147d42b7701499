"""Many jobs due at one instant: `python -m bench.engine_due memory|sqlite|postgres|URL COUNT`.

Prints the times from the instant to the first and the last start, and to the record of the last end. The
jobs are written and the engine waits for the instant before anything is timed.
"""

import asyncio
import gc
import sys
from dataclasses import asdict, dataclass
from math import ceil
from time import perf_counter, time

from bench.child import answer
from bench.engine_job import daily_at, names, put, records, rig_of
from bench.place import url_of
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunStatus
from kron.core.plan.report import Launch
from kron.ports import Store
from kron.stores.url import open_store

# The time before the instant at which all must be ready, and the approximate time to write a job.
READY_S, WRITE_S = 0.3, 50e-6
MAX_TRIES = 4
# The timeout for the last start, far longer than needed.
MAX_SECONDS = 300.0


class TooLateError(Exception):
    """The instant came before everything was ready."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Seconds from the instant to the first start, the last start, and the last recorded end."""

    count: int
    first: float
    last: float
    ended: float

    @property
    def rate(self) -> float:
        """Return starts per second, counted from the instant."""
        return self.count / self.last

    def figures(self) -> dict[str, float]:
        """Return everything as plain data."""
        return asdict(self)


async def burst(place: str, count: int) -> Burst:
    """Measure one burst; if the machine was not ready in time, retry with more time."""
    with url_of(place) as url:
        for number in range(MAX_TRIES):
            ahead = READY_S + (0.3 + WRITE_S * count) * 2**number
            store = open_store(url)
            try:
                return await _burst(store, f"runner:bench-{number}", count, ceil(time() + ahead))
            except TooLateError:
                continue
            finally:
                await store.close()
    raise TooLateError(f"{count} jobs could not be written in time")


async def _burst(store: Store, namespace: str, count: int, second: int) -> Burst:
    now, identities = int(1000 * time()), names(count)
    await put(store, records(identities, daily_at(second), now), now, namespace=namespace)
    starts: list[float] = []
    done = asyncio.Event()

    async def callback(_: Launch) -> None:
        starts.append(perf_counter())
        if len(starts) == count:
            done.set()

    engine, launcher, journal = rig_of(store, namespace=namespace)
    launcher.callbacks.update(dict.fromkeys(identities, callback))
    gc.collect()
    await engine.acquire()
    engine.run()
    instant = perf_counter() + second - time()
    if instant - perf_counter() < READY_S:
        engine.kill()
        raise TooLateError
    await asyncio.wait_for(done.wait(), MAX_SECONDS)
    await engine.stop()
    ended = perf_counter()
    assert len(starts) == journal.counts[RunStatus.SUCCESS, Reason.DUE] == count, journal.counts
    return Burst(count, min(starts) - instant, max(starts) - instant, ended - instant)


def main() -> None:
    """Measure one burst and print it for people."""
    _, place, count = sys.argv
    result = asyncio.run(burst(place, int(count)))
    print(f"{result.count:,} due at one instant: first start {1000 * result.first:.1f} ms, ", end="")
    print(f"last {1000 * result.last:,.0f} ms, {result.rate:,.0f}/s; all ended {1000 * result.ended:,.0f} ms")


def _kron(place: str, count: str) -> dict[str, float]:
    return asyncio.run(burst(place, int(count))).figures()


if __name__ == "__main__":
    if sys.argv[1:2] == ["kron"]:
        answer({"kron": _kron})
    else:
        main()
