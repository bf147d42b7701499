"""Retention: every owner prunes the old history of its namespace, in batches that give way to starts."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from zlib import crc32

from kron.core.errors import InvalidOptionError, StoreError
from kron.core.plan.query import FROM_START, PruneBounds, PrunedBatch
from kron.core.plan.record import ClockEvent, IncidentKind, IncidentRecord
from kron.core.time.instant import MILLISECOND, milliseconds_of
from kron.core.time.steady import DAY_MS
from kron.history_ports import HistoryPruner
from kron.ports import Clock, EngineStore, Journal
from kron.runtime.engine import Engine
from kron.runtime.wakeup import first_of

_log = logging.getLogger("kron.worker")
DAY = timedelta(days=1)
# Records that one transaction removes at most, so that a start hardly waits for it.
BATCH = 1_000
# More batches than any store needs; one that reports more is broken.
MAX_BATCHES = 1_000_000_000
# The first pruning comes this long after a start, plus a part of the spread that depends on the owner's name:
# workers that were started together do not prune together.
FIRST_AFTER, SPREAD = timedelta(seconds=30), timedelta(seconds=60)
EVERY, RETRY_AFTER = DAY, timedelta(minutes=10)
# A batch waits until the engine is idle and no job is due for a while. If that does not happen for about ten
# seconds, a small batch is pruned in spite of it: the history of an engine that is never idle is bounded too.
QUIET_MS, LOOK_AGAIN, MAX_LOOKS, SMALL_BATCH = 100, timedelta(milliseconds=50), 200, 50
# A batch that took longer is followed by a smaller one, so that a start waits no longer than this.
MAX_BATCH_S = 0.05
# Incidents of the last day that are searched for a long absence.
MAX_INCIDENTS = 1_000
# The field `store` of the event `pruned`, if a copy of the records was pruned.
COPY = "copy"


class RetentionPolicy(NamedTuple):
    """How long history is kept; None is forever.

    A run that last changed longer ago than `keep` goes, unless it is among the last `keep_runs` of its
    schedule. Audit records older than `audit_keep` go. A schedule's `retention` overrides both for its runs.
    """

    keep: timedelta | None = timedelta(days=90)
    keep_runs: int = 100
    audit_keep: timedelta | None = timedelta(days=365)

    def bounds(self, now: int) -> PruneBounds:
        """Return the bounds at an instant, in milliseconds."""
        before = None if self.keep is None else now - self.keep // MILLISECOND
        audit_before = None if self.audit_keep is None else now - self.audit_keep // MILLISECOND
        return PruneBounds(before, self.keep_runs, audit_before, now)


DEFAULT_POLICY = RetentionPolicy()
# Waits for a good moment for a batch of this size; returns the size to use, and 0 to stop.
Ready = Callable[[int], Awaitable[int]]


class Pruned(NamedTuple):
    """The records that were removed, in how many transactions."""

    removed: PrunedBatch = PrunedBatch()
    batches: int = 0

    def plus(self, batch: PrunedBatch) -> "Pruned":
        """Return the sum with one batch more."""
        return Pruned(self.removed.plus(batch), self.batches + 1)


class BatchSize:
    """The size of the next batch, so that none takes long on the store at hand."""

    def __init__(self, limit: int = BATCH) -> None:
        self._most = limit
        self.limit = limit

    def took(self, seconds: float) -> None:
        """Adjust the size after a batch."""
        if seconds > MAX_BATCH_S:
            self.limit = max(1, self.limit // 2)
        elif seconds < MAX_BATCH_S / 4:
            self.limit = min(self._most, 2 * self.limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruner:
    """Prunes one namespace of a store.

    Open runs and the newest outcome of each schedule stay, however old they are. A definition goes with the
    last record that follows it, a deleted schedule with all its records.
    """

    store: HistoryPruner
    clock: Clock
    namespace: str
    policy: RetentionPolicy
    max_batch: int = BATCH

    def __post_init__(self) -> None:
        policy = self.policy
        for option, keep in (("keep", policy.keep), ("audit_keep", policy.audit_keep)):
            if keep is not None and keep < timedelta(0):
                raise InvalidOptionError(option=option, value=keep, reason="must not be negative")
        if policy.keep_runs < 0:
            raise InvalidOptionError(
                option="keep_runs", value=policy.keep_runs, reason="must not be negative"
            )
        if self.max_batch < 1:
            raise InvalidOptionError(option="max_batch", value=self.max_batch, reason="must be at least 1")

    async def batches(
        self, now: int, *, dry_run: bool = False, ready: Ready | None = None
    ) -> AsyncIterator[Pruned]:
        """Prune batch by batch, and yield the sum so far after each; a dry run only counts.

        `ready` is awaited before each batch with its size; it returns the size to use, and 0 to stop.
        """
        bounds, pruned, size = self.policy.bounds(now), Pruned(), BatchSize(self.max_batch)
        cursor = FROM_START
        for _ in range(MAX_BATCHES):
            limit = size.limit if ready is None else await ready(size.limit)
            if not limit:
                return
            began = self.clock.monotonic()
            with self.clock.working():
                batch = await self.store.prune(
                    self.namespace, bounds, cursor=cursor, limit=limit, dry_run=dry_run
                )
            size.took(self.clock.monotonic() - began)
            pruned = pruned.plus(batch)
            yield pruned
            if batch.cursor is None:
                return
            cursor = batch.cursor
        raise AssertionError("a store has an end")

    async def prune(self, now: int, *, dry_run: bool = False) -> Pruned:
        """Prune at once, and return how many records were removed."""
        pruned = Pruned()
        async for so_far in self.batches(now, dry_run=dry_run):
            pruned = so_far
            await asyncio.sleep(0)
        return pruned


def first_wait(namespace: str) -> timedelta:
    """Return how long after the start of its owner a namespace is pruned for the first time.

    It is the same for every owner: some have random names, and a simulation must repeat to the step.
    """
    return FIRST_AFTER + crc32(namespace.encode()) % (SPREAD // MILLISECOND) * MILLISECOND


def _is_long_absence(incident: IncidentRecord) -> bool:
    """Say whether no worker ran for more than a day before a take-over."""
    is_first = incident.actor is None
    lasted = (incident.until_at or incident.from_at) - incident.from_at
    return incident.kind is IncidentKind.TAKE_OVER and not is_first and lasted > DAY_MS


class RetentionLoop:
    """Prunes the namespace of an engine soon after its start and once a day, as long as it is the owner.

    With `copy`, a second store with the records of the namespace, it prunes that one instead.
    """

    def __init__(
        self,
        store: EngineStore,
        clock: Clock,
        engine: Engine,
        *,
        namespace: str,
        policy: RetentionPolicy,
        journal: Journal,
        copy: HistoryPruner | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._journal = journal
        self._leaving = asyncio.Event()
        pruned = store if copy is None else copy
        self._pruner = Pruner(store=pruned, clock=clock, namespace=namespace, policy=policy)
        self._fields = {"namespace": namespace} if copy is None else {"namespace": namespace, "store": COPY}

    async def run(self) -> None:
        """Prune until `leave`; a failure of the store is retried."""
        wait = first_wait(self._pruner.namespace)
        while await self._slept(wait):
            try:
                if await self._clock_is_doubtful():
                    _log.warning(
                        "nothing is pruned while the clock is in doubt, next attempt in %s", RETRY_AFTER
                    )
                    wait = RETRY_AFTER
                    continue
                await self._prune()
                wait = EVERY
            except StoreError as error:
                _log.warning("pruning failed, next attempt in %s: %s", RETRY_AFTER, error)
                wait = RETRY_AFTER

    def leave(self) -> None:
        """Stop after the batch in progress."""
        self._leaving.set()

    async def _clock_is_doubtful(self) -> bool:
        """Return whether the clock is wrong, or was set forward by more than a day less than a day ago.

        History that a wrong clock makes look old could not be restored. The records answer, because the
        worker may have been restarted since.
        """
        health = self._engine.health
        if health.clock_behind_ms or health.clock_off_ms:
            return True
        now = self._engine.now()
        with self._clock.working():
            records = await self._store.clock_records(self._pruner.namespace)
        last = next(iter(records), None)
        return last is not None and last.event is ClockEvent.FORWARD and now - last.found_at < DAY_MS

    async def _prune(self) -> None:
        """Prune everything that is old, unless another worker owns the first shard."""
        if not self._engine.owns_first_shard:
            return
        began, pruned = self._clock.monotonic(), Pruned()
        try:
            async for so_far in self._pruner.batches(await self._prune_at(), ready=self._ready):
                pruned = so_far
        finally:
            duration_ms = round(1000 * (self._clock.monotonic() - began))
            counts = {kind: count for kind, count in pruned.removed.counts.items() if count}
            self._journal.note("pruned", {**self._fields, "duration_ms": duration_ms, **counts})

    async def _prune_at(self) -> int:
        """Return the instant records age from; for a day after a long absence, that of the last record.

        After a restart a clock that was set forward looks the same as an absence. Both are recorded, so that
        further restarts change nothing.
        """
        now = self._engine.now()
        with self._clock.working():
            incidents = await self._store.incidents(
                self._pruner.namespace, "", since=now - DAY_MS, until=now, limit=MAX_INCIDENTS
            )
        return min([now, *(each.from_at for each in incidents if _is_long_absence(each))])

    async def _ready(self, limit: int) -> int:
        """Wait until the engine is idle and no job is due soon; return the size of the next batch."""
        for _ in range(MAX_LOOKS):
            if self._leaving.is_set() or self._engine.is_idle(QUIET_MS):
                break
            await self._clock.sleep_until(self._clock.now() + LOOK_AGAIN)
        else:
            limit = min(limit, SMALL_BATCH)
        return limit if self._engine.owns_first_shard and not self._leaving.is_set() else 0

    async def _slept(self, time: timedelta) -> bool:
        """Sleep, and say whether the time has passed; `leave` ends it early."""
        until = milliseconds_of(self._clock.now() + time)
        while milliseconds_of(self._clock.now()) < until and not self._leaving.is_set():
            await first_of(self._clock, self._leaving, until)
        return not self._leaving.is_set()
