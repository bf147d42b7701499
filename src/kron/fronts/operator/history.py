"""The history: a copy of the records of KronJobs in a database, for pages and commands.

The cluster stays the only truth. Nothing waits for the copy: what cannot be written is kept in memory up to a
bound, and written later. It is idempotent by the keys of runs, so a record may be copied any number of times.
"""

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

from kron.core.errors import InputError, KronError, StoreUnavailableError
from kron.core.plan.record import EpochRecord, JobRecord, RangeRecord, ReopenedRecord, RunRecord
from kron.core.plan.rewind import NOTHING, Recorded
from kron.core.plan.step import Change, Rewind
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.fronts.operator.state import Book
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.kubernetes.spec import settings_of
from kron.ports import Clock, Store

_log = logging.getLogger("kron.operator")
# Records that wait beyond what the books keep; further ones are dropped. KronJobs of one transaction.
MAX_WAITING, BATCH = 20_000, 100
# How long a stop waits for unwritten records, in seconds.
DRAIN_S = 5.0
BACKOFF = Backoff(
    max_attempts=1_000_000, first_delay=timedelta(milliseconds=200), max_delay=timedelta(seconds=30)
)


@dataclass(slots=True)
class _Copy:
    """The unwritten records of one KronJob: its book, and the records that the book may not keep."""

    book: Book
    runs: dict[str, RunRecord] = field(default_factory=dict)
    attempts: list[RunRecord] = field(default_factory=list)
    ranges: list[RangeRecord] = field(default_factory=list)
    # Runs and ranges that a correction of the clock withdrew, by key and first period, and their records.
    withdrawn_runs: set[str] = field(default_factory=set)
    withdrawn_ranges: set[int] = field(default_factory=set)
    reopened: list[ReopenedRecord] = field(default_factory=list)
    gone_at: int | None = None

    @property
    def size(self) -> int:
        return len(self.runs) + len(self.attempts) + len(self.ranges)

    def all_runs(self) -> dict[str, RunRecord]:
        """Return the runs with those of the book, which are the newest."""
        return self.runs | {run.key: run for run in (*self.book.runs, *self.book.closed)}

    def withdraw(self, rewind: Rewind) -> None:
        """Note what a correction of the clock withdrew; nothing of it is written any more."""
        self.withdrawn_runs |= {run.key for run in rewind.removed}
        self.withdrawn_ranges |= {each.first for each in rewind.cut}
        self.reopened += rewind.reopened
        for run in rewind.removed:
            self.runs.pop(run.key, None)
        self.ranges = [each for each in self.ranges if each not in rewind.cut]

    def add_later(self, later: "_Copy") -> None:
        """Add the records made after this copy."""
        for key in later.withdrawn_runs:
            self.runs.pop(key, None)
        self.ranges = [each for each in self.ranges if each.first not in later.withdrawn_ranges]
        self.book, self.gone_at = later.book, later.gone_at
        self.runs |= later.runs
        self.attempts += later.attempts
        self.ranges += later.ranges
        self.withdrawn_runs |= later.withdrawn_runs
        self.withdrawn_ranges |= later.withdrawn_ranges
        self.reopened += later.reopened


class HistoryWriter:
    """Writes the records of KronJobs to a store, in the background; it is never read by the operator.

    `dropped` counts records that did not fit into memory, `written` the copies made, `failures` the writes
    that failed and are repeated.
    """

    def __init__(self, store: Store, clock: Clock, *, namespace: str, max_waiting: int = MAX_WAITING) -> None:
        self._store = store
        self._clock = clock
        self._namespace = namespace
        self._max_waiting = max_waiting
        self._copies: dict[str, _Copy] = {}
        # The batch that is being written.
        self._batch: Mapping[str, _Copy] = {}
        # The KronJobs that exist since a take-over, and their namespace, until the others are marked.
        self._present: set[str] | None = None
        self._scope: str | None = None
        self._has_some = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.dropped = self.written = self.failures = 0

    @property
    def waiting(self) -> int:
        """Return how many KronJobs have records that are not written yet."""
        return len(self._copies.keys() | self._batch.keys())

    # --- what the store of the operator tells --------------------------------------------------------

    def wrote(self, book: Book, change: Change | None = None) -> None:
        """Copy a book, and the records of the change that led to it."""
        copy = self._copies.setdefault(book.job.identity, _Copy(book))
        copy.book, copy.gone_at = book, None
        if self._present is not None:
            self._present.add(book.job.identity)
        if change is not None:
            if change.rewind is not None:
                copy.withdraw(change.rewind)
            size = len(change.inserts) + len(change.updates) + len(change.attempts) + len(change.ranges)
            if size + sum(each.size for each in self._copies.values()) > self._max_waiting:
                self.dropped += size
            else:
                copy.runs |= {run.key: run for run in (*change.inserts, *change.updates)}
                copy.attempts += change.attempts
                copy.ranges += change.ranges
        self._notify()

    def removed(self, book: Book) -> None:
        """Mark the schedule of a KronJob that was deleted; its runs stay."""
        copy = self._copies.setdefault(book.job.identity, _Copy(book))
        copy.gone_at = (self._clock.now() - EPOCH) // MILLISECOND
        self._notify()

    def took_over(self, present: Iterable[str], scope: str | None) -> None:
        """Mark the schedules of KronJobs that do not exist any more; `scope` is the namespace of all."""
        self._present, self._scope = set(present), scope
        self._notify()

    def _notify(self) -> None:
        self._idle.clear()
        self._has_some.set()

    # --- life cycle --------------------------------------------------------------------------------

    def start(self) -> None:
        """Write until `close`."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name="kron history")

    async def close(self) -> None:
        """Write what waits, as far as that takes a few seconds, and close the store."""
        if self._task is not None and self.waiting:
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self._idle.wait()
        if self.waiting:
            _log.warning("the history misses records of %d KronJobs", self.waiting)
        self.kill()
        await self._store.close()

    def kill(self) -> None:
        """Stop at once."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _work(self) -> None:
        failures = 0
        while True:
            await self._has_some.wait()
            batch = self._batch = dict(islice(self._copies.items(), BATCH))
            if not batch and self._present is None:
                self._has_some.clear()
                self._idle.set()
                continue
            for identity in batch:
                del self._copies[identity]
            try:
                await self._write(batch)
                await self._mark_missing()
                failures = 0
                self._batch = {}
                self.written += len(batch)
            except (KronError, OSError) as error:
                failures += 1
                self.failures += 1
                _log.warning("the history is written later: %s", error)
                self._put_back(batch)
                await sleep_for(self._clock, BACKOFF.delay_after("history", failures) or 0)

    def _put_back(self, batch: Mapping[str, _Copy]) -> None:
        """Keep a batch that was not written, before the records made in the meantime."""
        for identity, copy in batch.items():
            if identity in self._copies:
                copy.add_later(self._copies.pop(identity))
        self._copies = {**batch, **self._copies}

    # --- the database ------------------------------------------------------------------------------

    async def _write(self, batch: Mapping[str, _Copy]) -> None:
        """Write the records of some KronJobs; those that exist already are changed."""
        if not batch:
            return
        known = await self._known(batch)
        new = [_first(copy.book) for identity, copy in batch.items() if identity not in known]
        if new:
            await self._put(created=new)
            known = await self._known(batch)
        earlier: dict[str, list[EpochRecord]] = {}
        for each in await self._store.epochs(self._namespace, *batch):
            earlier.setdefault(each.identity, []).append(each)
        since = {name: _since(copy) for name, copy in batch.items()}
        recorded = await self._store.recorded(self._namespace, since)
        changes = []
        for identity, copy in batch.items():
            *links, last = _changes(
                copy, known[identity], earlier.get(identity, ()), recorded.get(identity, NOTHING)
            )
            for link in links:
                await self._put(changed=[link])
            changes.append(last)
        await self._put(changed=changes)

    async def _mark_missing(self) -> None:
        """Mark the schedules of KronJobs that were deleted while no operator could see it."""
        if self._present is None:
            return
        jobs = [state.job for state in await self._store.cases(self._namespace)]
        missing = [job for job in jobs if job.identity not in self._present and self._is_shown(job)]
        now = (self._clock.now() - EPOCH) // MILLISECOND
        gone = [job._replace(deleted_at=now, revision=job.revision + 1) for job in missing]
        changes = [Change(job, job.revision - 1) for job in gone]
        for first in range(0, len(changes), BATCH):
            await self._put(changed=changes[first : first + BATCH])
        self._present = None

    def _is_shown(self, job: JobRecord) -> bool:
        """Say whether a job is of the namespace of this operator, and not marked as deleted."""
        return job.deleted_at is None and self._scope in (None, json.loads(job.launcher).get("namespace"))

    async def _known(self, names: Iterable[str]) -> dict[str, JobRecord]:
        states = await self._store.cases(self._namespace, list(names))
        return {state.job.identity: state.job for state in states}

    async def _put(self, *, created: Sequence[JobRecord] = (), changed: Sequence[Change] = ()) -> None:
        now = (self._clock.now() - EPOCH) // MILLISECOND
        result = await self._store.put(self._namespace, created=created, changed=changed, now=now)
        if result.stale_jobs or result.existing_runs:
            raise StoreUnavailableError("The store cannot be used: another operator writes to the history")


def _since(copy: _Copy) -> int:
    """Return the nominal time after which all records of a copy are."""
    times = [run.nominal_time for run in copy.all_runs().values()]
    times += [each.first for each in (*copy.ranges, *copy.book.ranges)]
    return min(times, default=copy.book.job.cursor) - 1


def _first(book: Book) -> JobRecord:
    """Return the record of a job that is new in the history: that of its earliest known definition."""
    epochs = [(each.epoch, each.edited_at, each.definition) for each in book.epochs]
    epoch, edited_at, definition = [
        *epochs,
        (book.job.epoch, book.job.edited_at, book.job.definition),
    ][0]
    return _shown(book.job)._replace(
        epoch=epoch, edited_at=edited_at, definition=definition, revision=1, number=0
    )


def _shown(job: JobRecord) -> JobRecord:
    """Return a job as others may read it: the variables of its containers have no values."""
    try:
        launcher = settings_of(job.launcher).redacted()
    except InputError:
        launcher = {"kind": job.launcher_kind}
    return job._replace(launcher=json.dumps(launcher, ensure_ascii=False))


def _changes(
    copy: _Copy, known: JobRecord, earlier: Sequence[EpochRecord], recorded: Recorded
) -> list[Change]:
    """Return the changes that lead from the records of a database to a copy: one for each definition.

    A KronJob that was deleted and created again counts its definitions anew; here they continue.
    """
    job, ended = copy.book.job, copy.gone_at
    base = _base(copy.book, known, earlier)
    chain = [(each.epoch + base, each.edited_at, each.definition) for each in copy.book.epochs]
    chain = [each for each in chain if each[0] > known.epoch]
    chain.append((job.epoch + base, job.edited_at, job.definition))
    changes = []
    for number, (epoch, edited_at, definition) in enumerate(chain, known.revision):
        link = _shown(job)._replace(
            epoch=epoch,
            edited_at=edited_at,
            definition=definition,
            revision=number + 1,
            number=known.number,
            deleted_at=ended,
        )
        changes.append(Change(link, number))
    _add_records(changes[-1], copy, recorded, base)
    return changes


def _base(book: Book, known: JobRecord, earlier: Sequence[EpochRecord]) -> int:
    """Return how many definitions the history has of earlier KronJobs with this identity."""
    if _owner(known) != _owner(book.job):
        return known.epoch
    there = {(each.edited_at, each.definition): each.epoch for each in earlier}
    there[known.edited_at, known.definition] = known.epoch
    job = book.job
    own = [(each.edited_at, each.definition, each.epoch) for each in book.epochs]
    for edited_at, definition, epoch in reversed([*own, (job.edited_at, job.definition, job.epoch)]):
        if (edited_at, definition) in there:
            return there[edited_at, definition] - epoch
    return max(0, known.epoch - job.epoch)


def _owner(job: JobRecord) -> object:
    """Return the identifier of the KronJob that a record belongs to."""
    return (json.loads(job.launcher).get("owner") or {}).get("uid")


def _add_records(change: Change, copy: _Copy, recorded: Recorded, base: int) -> None:
    """Add the runs and ranges that a database does not have, or has otherwise, to a change.

    Withdrawn records are removed; a run that was withdrawn and recorded again is inserted.
    """
    runs = {key: run._replace(epoch=run.epoch + base) for key, run in copy.all_runs().items()}
    every = (*copy.ranges, *copy.book.ranges)
    ranges = {each.first: each._replace(epoch=each.epoch + base) for each in every}
    removed = [run for run in recorded.runs if run.key in copy.withdrawn_runs and runs.get(run.key) != run]
    cut = [each for each in recorded.ranges if each.first in copy.withdrawn_ranges]
    cut = [each for each in cut if ranges.get(each.first) != each]
    present = {run.key: run for run in recorded.runs if run not in removed}
    change.inserts = [run for key, run in runs.items() if key not in present]
    change.updates = [run for key, run in runs.items() if present.get(key, run) != run]
    change.attempts = [run._replace(epoch=run.epoch + base) for run in copy.attempts]
    known = {each.first for each in recorded.ranges if each not in cut}
    change.ranges = [each for first, each in ranges.items() if first not in known]
    if removed or cut:
        change.rewind = Rewind(tuple(removed), tuple(cut), (), tuple(copy.reopened))
