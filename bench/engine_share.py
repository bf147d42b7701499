"""Workers that share the jobs of one PostgreSQL, each a process: `python -m bench.engine_share`.

A worker reports when it has its shards, receives the instant for which jobs are then written, starts those
of its shards, and prints their number and the time of the last start.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from time import time

from bench.child import MAX_SECONDS, PROJECT, ChildError, answer
from bench.engine_due import MAX_TRIES, WRITE_S
from bench.engine_job import NAMESPACE, daily_at, names, put, records, rig_of
from kron.core.errors import OwnedError
from kron.core.plan.report import Launch
from kron.core.plan.step import Ownership
from kron.core.shard import SHARDS
from kron.stores.postgres.store import PostgresStore

# Leases are renewed every third of this; only then a new worker gets shards, and new jobs are found.
TTL_MS = 6_000
RENEWED_S = TTL_MS / 3000
# A worker is done when nothing has started for this long.
QUIET_S = 1.5
TRY_AGAIN_S = 0.1


class CountingStore(PostgresStore):
    """A store that counts the shards of its owner."""

    shards = 0

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Acquire shards, and count them."""
        return self._counted(await super().acquire(namespace, owner, now=now, balance=balance))

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Renew leases, and count the shards owned."""
        return self._counted(await super().renew(ownership, now=now, balance=balance))

    def _counted(self, ownership: Ownership) -> Ownership:
        self.shards = len(ownership.shards)
        return ownership


async def worker(url: str, owner: str, workers: int, count: int) -> dict[str, float]:
    """Run as a worker until nothing starts any more."""
    store = CountingStore(url, ttl_ms=TTL_MS)
    engine, launcher, _ = rig_of(store, owner=owner, balance=True)
    starts: list[float] = []

    async def callback(_: Launch) -> None:
        starts.append(time())

    launcher.callbacks.update(dict.fromkeys(names(count), callback))
    while store.shards == 0:
        try:
            await engine.acquire()
        except OwnedError:
            await asyncio.sleep(TRY_AGAIN_S)
    engine.run()
    while store.shards != SHARDS // workers:  # noqa: ASYNC110 (the store has no event for it)
        await asyncio.sleep(TRY_AGAIN_S)
    print("ready", flush=True)
    second = int(await asyncio.to_thread(sys.stdin.readline))
    # A worker of the service would be notified by the database.
    engine.call()
    while (quiet := time() - max([second, *starts[-1:]])) < QUIET_S:  # noqa: ASYNC110 (there is no event for the end)
        await asyncio.sleep(QUIET_S - quiet)
    await engine.stop()
    await store.close()
    return {"count": len(starts), "last": max(starts, default=second) - second}


async def shared(url: str, workers: int, count: int) -> float:
    """Return the seconds from the instant to the last start, for a number of workers."""
    with _processes(url, workers, count) as processes:
        for process in processes:
            await asyncio.to_thread(_line_of, process)
        ahead = 1 + RENEWED_S + WRITE_S * count
        for _ in range(MAX_TRIES):
            second = ceil(time() + ahead)
            await _write(url, second, count)
            if time() < second - RENEWED_S:
                break
            ahead *= 2
        else:
            raise ChildError(f"{count} jobs could not be written in time")
        for process in processes:
            _tell(process, second)
        found = [json.loads(await asyncio.to_thread(_line_of, process)) for process in processes]
    return _last_of(found, count)


async def _write(url: str, second: int, count: int) -> None:
    """Write the jobs; those of an instant that came too early are replaced."""
    now, store = int(1000 * time()), PostgresStore(url)
    await store.forget(NAMESPACE, names(count))
    await put(store, records(names(count), daily_at(second), now), now)
    await store.close()


@contextmanager
def _processes(url: str, workers: int, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    words = ["-m", "bench.engine_share", "worker", url]
    pipe, found = subprocess.PIPE, list[subprocess.Popen[str]]()
    try:
        for number in range(workers):
            command = [sys.executable, *words, f"worker-{number}", str(workers), str(count)]
            found.append(subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True))
        yield found
        for process in found:
            process.wait(MAX_SECONDS)
    finally:
        for process in found:
            process.kill()
            process.communicate()


def _line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise ChildError("a worker ended too soon")
    return line


def _tell(process: subprocess.Popen[str], second: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{second}\n")
    process.stdin.flush()


def _last_of(found: Sequence[dict[str, float]], count: int) -> float:
    """Return the time of the last start; each job must start once, and each worker must have some."""
    counts = [int(one["count"]) for one in found]
    if sum(counts) != count or min(counts) < count // len(found) // 2:
        raise ChildError(f"{counts} were started, of {count}")
    return max(one["last"] for one in found)


def _worker(url: str, owner: str, workers: str, count: str) -> dict[str, float]:
    return asyncio.run(worker(url, owner, int(workers), int(count)))


if __name__ == "__main__":
    answer({"worker": _worker})
