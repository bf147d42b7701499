"""Retention: every owner prunes the old history of its namespace, in batches that give way to starts."""

import asyncio
import logging
from datetime import timedelta
from typing import NamedTuple
from zlib import crc32

from kron.core.errors import InvalidOptionError, StoreError
from kron.ports import Clock, EngineStore, Journal
from kron.runtime.engine import Engine

_log = logging.getLogger("kron.worker")
MILLISECOND = timedelta(milliseconds=1)
# What one transaction removes at most: few enough that a concurrent write hardly waits.
BATCH = 1_000
# More batches than any store has records; a store that reports more removals is broken.
MAX_BATCHES = 1_000_000_000
# The first pruning comes this long after a start, plus a part of the spread that depends on the owner's name.
FIRST_AFTER, SPREAD = timedelta(seconds=30), timedelta(seconds=60)
EVERY, RETRY_AFTER = timedelta(days=1), timedelta(minutes=10)
# A batch waits until the engine is idle and nothing is due for this long, but not for ever: then a small
# one is pruned, so that the history of a namespace that is always busy is bounded too.
QUIET_MS, LOOK_AFTER, MAX_LOOKS, SMALL_BATCH = 100, timedelta(milliseconds=50), 200, 100


class RetentionPolicy(NamedTuple):
    """How long history is kept; None keeps it forever."""

    keep: timedelta | None = timedelta(days=90)


DEFAULT_POLICY = RetentionPolicy()


class Pruned(NamedTuple):
    """What was removed: how many records, in how many transactions."""

    records: int
    batches: int


async def prune_history(
    store: EngineStore, namespace: str, *, keep: timedelta, now: int, batch: int = BATCH
) -> Pruned:
    """Remove records that last changed longer ago than `keep`, yielding after each batch.

    Open runs, unhandled periods and the newest outcome of each job stay, however old they are. A definition
    goes with the last record that follows it. `now` is in milliseconds.
    """
    if keep < timedelta(0):
        raise InvalidOptionError(option="keep", value=keep, reason="must not be negative")
    if batch < 1:
        raise InvalidOptionError(option="batch", value=batch, reason="must be at least 1")
    before, records = now - keep // MILLISECOND, 0
    for batches in range(MAX_BATCHES):
        removed = await store.prune(namespace, before=before, limit=batch)
        if not removed:
            return Pruned(records, batches)
        records += removed
        await asyncio.sleep(0)
    raise AssertionError("a store is empty at some time")


class Retention:
    """Prunes the namespace of an engine soon after its start and once a day, as long as it is the owner."""

    def __init__(
        self,
        store: EngineStore,
        clock: Clock,
        engine: Engine,
        *,
        namespace: str,
        policy: RetentionPolicy,
        journal: Journal,
    ) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._namespace = namespace
        self._policy = policy
        self._journal = journal

    async def run(self) -> None:
        """Prune until cancelled; a failure of the store is retried."""
        if self._policy.keep is None:
            return
        wait = FIRST_AFTER + SPREAD * (crc32(self._engine.owner.encode()) / 2**32)
        while True:
            await self._sleep(wait)
            try:
                await self._prune(self._policy.keep)
                wait = EVERY
            except StoreError as error:
                _log.warning("pruning failed, next attempt in %s: %s", RETRY_AFTER, error)
                wait = RETRY_AFTER

    async def _prune(self, keep: timedelta) -> None:
        began, now, records = self._clock.monotonic(), self._engine.now(), 0
        for _ in range(MAX_BATCHES):
            limit = BATCH if await self._is_quiet() else SMALL_BATCH
            if not self._engine.owns_first_shard:
                break
            with self._clock.working():
                removed = await self._store.prune(
                    self._namespace, before=now - keep // MILLISECOND, limit=limit
                )
            if not removed:
                break
            records += removed
        if records:
            duration_ms = round(1000 * (self._clock.monotonic() - began))
            fields = {"namespace": self._namespace, "records": records, "duration_ms": duration_ms}
            self._journal.note("pruned", fields)

    async def _is_quiet(self) -> bool:
        """Wait until the engine is idle and nothing is due soon; say whether that came in time."""
        for _ in range(MAX_LOOKS):
            if self._engine.is_idle(QUIET_MS):
                return True
            await self._clock.sleep_until(self._clock.now() + LOOK_AFTER)
        return False

    async def _sleep(self, time: timedelta) -> None:
        until = self._clock.now() + time
        while self._clock.now() < until:
            await self._clock.sleep_until(until)
