"""The store of the operator: the API server keeps every record, a database in memory only finds due jobs.

Each KronJob's status holds its whole record. A write is a patch that names the version of the object it was
decided by; only when the API server has accepted it, the copy in memory follows and Jobs are created.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from kron.core.errors import OwnedError, StoreUnavailableError
from kron.core.plan.record import AuditRecord, ClockRecord, JobRecord, RunKind, RunRecord
from kron.core.plan.report import Traits
from kron.core.plan.step import (
    NO_PREDECESSORS,
    Change,
    JobState,
    LoadResult,
    Ownership,
    WriteResult,
)
from kron.core.shard import SHARDS
from kron.fronts.operator.history import HistoryWriter
from kron.fronts.operator.lease import LeaderLease, unavailable
from kron.fronts.operator.resource import LAUNCHER_KIND, PAUSED, RUN_NOW, KronJob, kronjob_of, launcher_of
from kron.fronts.operator.state import (
    Book,
    RecordRefusedError,
    UnreadableStateError,
    applied,
    book_of,
    text_of,
)
from kron.fronts.operator.status import ERROR, SpecProblem, problem_status, status_of
from kron.launchers.kubernetes.api import (
    KRONJOBS,
    ApiClient,
    ApiError,
    ApiUnavailableError,
    ResourceList,
)
from kron.stores.sqlite.store import SqliteStore

_log = logging.getLogger("kron.operator")
NAMESPACE = "operator"
# Status patches in flight at once, and tries of one that a change by others keeps in conflict.
MAX_PATCHES, MAX_TRIES = 32, 8
# Tries of a patch that fails although the server answers; the other records of its batch wait for them.
MAX_FAILURES = 2
# Jobs of one batch: each is a request, and the Lease is renewed between two batches only.
MAX_BATCH = 100


class Written(Enum):
    """What became of a write: made, decided by another record, not accepted by the server, or not known."""

    YES = auto()
    STALE = auto()
    REFUSED = auto()
    UNKNOWN = auto()


class KubernetesStore(SqliteStore):
    """Records of KronJobs in the API server, indexed in memory.

    `on_take_over` is called with all KronJobs before a lease is granted to the engine, so that edits made in
    the meantime are known before anything starts.
    """

    def __init__(
        self,
        api: ApiClient,
        lease: LeaderLease,
        *,
        traits: Mapping[str, Traits],
        namespace: str | None = None,
    ) -> None:
        super().__init__()
        self._api = api
        self._lease = lease
        self._traits = traits
        self._watched = namespace
        self.kronjobs: dict[str, KronJob] = {}
        self.books: dict[str, Book] = {}
        # The records of the books as the API server has them.
        self._texts: dict[str, str] = {}
        self.problems: dict[str, SpecProblem] = {}
        self.on_take_over: Callable[[ResourceList], Awaitable[None]] | None = None
        # Gets a copy of every record, if there is one.
        self.history: HistoryWriter | None = None
        self.high = 0
        self.is_owner = False
        self._owner = ""
        self._token = 0
        self._writes = 0
        self._rows: dict[str, int] = {}
        # Jobs with a write whose answer is lost: they are read again before anything else is decided.
        self._doubtful: set[str] = set()
        # Why the last record was not written, and each that the server does not accept.
        self._failure = ""
        self.refusals: dict[str, str] = {}
        # KronJobs whose specs were not carried out at the take-over: nothing of them starts until they are.
        self.held: dict[str, str] = {}
        self._committing = asyncio.Lock()
        self._patches = asyncio.Semaphore(MAX_PATCHES)

    # --- leases ------------------------------------------------------------------------------------

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Become the leader, read every KronJob, and carry out the edits made since."""
        self.is_owner = False
        grant = await self._lease.acquire(owner)
        self._owner = owner
        listed = await self.read()
        self.high = max([grant.high, *(book.high for book in self.books.values())])
        latest = max((book.token for book in self.books.values()), default=0)
        self._token = await self._lease.raise_token(owner, grant.token, above=latest, high=self.high)
        self.is_owner = True
        if self.on_take_over is not None:
            await self.on_take_over(listed)
        shards = dict.fromkeys(range(SHARDS), self._token)
        last = NO_PREDECESSORS if grant.predecessor is None else dict.fromkeys(shards, grant.predecessor)
        ttl_ms = round(self._lease.duration.total_seconds() * 1000)
        return Ownership(namespace, owner, shards, ttl_ms, high=self.high, predecessors=last)

    async def read(self) -> ResourceList:
        """Read the records of all KronJobs, and return these."""
        try:
            listed = await self._api.list(KRONJOBS, self._watched)
        except (ApiError, ApiUnavailableError) as error:
            raise unavailable(error) from error
        await self.forget(NAMESPACE, list(self.books))
        # Some may have been deleted since this operator was the leader, and others claim their identities.
        self.kronjobs.clear()
        self.problems.clear()
        self._doubtful.clear()
        self.refusals.clear()
        self.held.clear()
        for kronjob in map(kronjob_of, listed.items):
            if kronjob.state is not None and self.attach(kronjob):
                await self._restore(kronjob)
        if self.history is not None:
            self.history.took_over((kronjob_of(each).identity for each in listed.items), self._watched)
        return listed

    async def read_again(self, kronjob: KronJob) -> None:
        """Take the record of a KronJob as it is now."""
        self.kronjobs[kronjob.identity] = kronjob
        await self._restore(kronjob)

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Stay the leader, or raise OwnedError."""
        try:
            await self._lease.renew(ownership.owner, ownership.token, high=self.high)
        except OwnedError:
            self.is_owner = False
            raise
        return ownership

    async def release(self, ownership: Ownership, *, now: int | None = None) -> None:
        """Stop being the leader, so that another operator can take over."""
        self.is_owner = False
        try:
            await self._lease.release(ownership.owner, ownership.token, high=max(self.high, now or 0))
        except OwnedError:
            _log.info("the lease had already passed to another operator")

    def settled_for(self, run: RunRecord) -> float:
        """Return for how many seconds at least the operator that recorded a start cannot have sent it."""
        return self._lease.free_of(run.token) if run.token < self._token else 0.0

    def _check_token(self, connection: object, namespace: int, ownership: Ownership) -> None:
        self._check_owner(ownership)

    def _check_owner(self, ownership: Ownership | None = None) -> None:
        if not self.is_owner or (ownership is not None and ownership.token != self._token):
            raise OwnedError(namespace=NAMESPACE, owner="another operator")

    # --- KronJobs ----------------------------------------------------------------------------------

    def attach(self, kronjob: KronJob) -> bool:
        """Note a KronJob as it is now; return whether its identity is not that of another one."""
        known = self.kronjobs.get(kronjob.identity)
        if known is not None and known.place != kronjob.place:
            return False
        if known is None or known.uid != kronjob.uid:
            self.kronjobs[kronjob.identity] = kronjob
        self.attach_newer(kronjob)
        return True

    def attach_newer(self, kronjob: KronJob) -> None:
        """Note a newer version of a KronJob that is attached, so that the next patch meets no conflict.

        One with the record of another writer is not taken: the next patch must fail, and read it.
        """
        known, text = self.kronjobs.get(kronjob.identity), self._texts.get(kronjob.identity)
        if known is None or known.uid != kronjob.uid or text not in (None, kronjob.state):
            return
        if _is_newer(kronjob.version, known.version):
            self.kronjobs[kronjob.identity] = kronjob

    async def detach(self, identity: str) -> None:
        """Forget a KronJob that is gone."""
        book = self.books.get(identity)
        if book is not None and self.history is not None:
            self.history.removed(book)
        for known in (self.kronjobs, self.problems, self.refusals, self.held):
            known.pop(identity, None)
        await self.forget(NAMESPACE, [identity])

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs from memory."""
        for identity in identities:
            self.books.pop(identity, None)
            self._texts.pop(identity, None)
            self._rows.pop(identity, None)
        await super().forget(namespace, identities)

    async def _restore(self, kronjob: KronJob) -> None:
        """Read the record of a KronJob into memory; one that cannot be read starts nothing."""
        identity = kronjob.identity
        await self.forget(NAMESPACE, [identity])
        if kronjob.state is None:
            return
        try:
            book = book_of(kronjob.state, identity, launcher=launcher_of(kronjob), kind=LAUNCHER_KIND)
        except UnreadableStateError as error:
            self.problems[identity] = SpecProblem(ERROR, "UnusableRecord", str(error))
            return
        self.books[identity], self._texts[identity] = book, kronjob.state
        if self.history is not None:
            self.history.wrote(book)
        await self._index(book)

    async def _index(self, book: Book) -> None:
        """Write a book into the database in memory, one epoch after the other."""
        job, now = book.job._replace(number=0), book.high
        chain = [*((each.epoch, each.edited_at, each.definition) for each in book.epochs)]
        chain.append((job.epoch, job.edited_at, job.definition))
        revision = job.revision - len(chain)
        for number, (epoch, edited_at, definition) in enumerate([chain[0], *chain]):
            link = job._replace(
                epoch=epoch, edited_at=edited_at, definition=definition, revision=revision + number
            )
            if number == 0:
                await super().put(NAMESPACE, created=[link], changed=[], now=now)
                self._rows[job.identity] = (await super().cases(NAMESPACE, [job.identity]))[0].job.number
                continue
            link = link._replace(number=self._rows[job.identity])
            change = Change(link, link.revision - 1)
            if number == len(chain):
                change.inserts, change.ranges = [*book.runs, *book.closed], [*book.all_ranges()]
            await super().put(NAMESPACE, created=[], changed=[change], now=now)

    # --- writes ------------------------------------------------------------------------------------

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Patch the status of each changed KronJob, all at the same time; those refused are stale.

        A record that the server does not accept delays its own KronJob only.
        """
        self._check_owner(ownership)
        self.high = max(self.high, now)
        if not changes:
            await self._lease.renew(ownership.owner, ownership.token, high=self.high)
            return WriteResult(frozenset(), frozenset())
        async with self._committing:
            results = await _all(self._settle_change(change, now) for change in changes)
            pairs = [
                (change, self._present(change.job, each))
                for change, each in zip(changes, results, strict=True)
            ]
            made = [self._numbered(change) for change, result in pairs if result is Written.YES]
            if made:
                indexed = await super().settle(ownership, made, now=now)
                await self._index_again({*indexed.stale_jobs, *_names(made, indexed.existing_runs)})
        if Written.UNKNOWN in results:
            raise StoreUnavailableError(f"The store cannot be used: {self._failure}")
        stale = frozenset(change.job.identity for change, result in pairs if result is not Written.YES)
        names = [change.job.identity for change, result in pairs if result is Written.REFUSED]
        refused = {name: self.held.get(name) or self.refusals.get(name, "") for name in names}
        return WriteResult(stale, frozenset(), refused)

    async def put(
        self,
        namespace: str,
        *,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str] = (),
        audit: Sequence[AuditRecord] = (),
        now: int,
    ) -> WriteResult:
        """Create and change jobs, each in the status of its KronJob; one that is refused is stale."""
        self._check_owner()
        self.high = max(self.high, now)
        async with self._committing:
            new = [await self._commit_new(job, now) for job in created]
            results = [await self._commit_change(change, now) for change in changed]
            new = [self._present(job, each) for job, each in zip(created, new, strict=True)]
            results = [self._present(change.job, each) for change, each in zip(changed, results, strict=True)]
            jobs = [job for job, result in zip(created, new, strict=True) if result is Written.YES]
            made = [
                self._numbered(change)
                for change, result in zip(changed, results, strict=True)
                if result is Written.YES
            ]
            if jobs or made:
                refused = await super().put(namespace, created=jobs, changed=made, now=now)
                for state in await super().cases(namespace, [job.identity for job in jobs]):
                    self._rows[state.job.identity] = state.job.number
                await self._index_again(refused.stale_jobs)
        if Written.UNKNOWN in (*new, *results):
            raise StoreUnavailableError(f"The store cannot be used: {self._failure}")
        names = [*(job.identity for job in created), *(change.job.identity for change in changed)]
        pairs = list(zip(names, (*new, *results), strict=True))
        for name, result in pairs:
            if result is Written.REFUSED:
                raise RecordRefusedError(self.refusals.get(name, self._failure))
        return WriteResult(frozenset(name for name, result in pairs if result is Written.STALE), frozenset())

    async def touch(self, identity: str, *, now: int) -> None:
        """Write the status of an unchanged record again: its conditions, and the observed generation."""
        async with self._committing:
            book = self.books.get(identity)
            if book is not None:
                await self._commit(identity, replace(book, writer=self._next_writer()), now)

    async def report(self, kronjob: KronJob, problem: SpecProblem, *, now: int) -> None:
        """Write the problem of a KronJob that has no record."""
        status = problem_status(kronjob, problem, now)
        try:
            await self._api.patch_status(KRONJOBS, *kronjob.place, {"status": status})
        except (ApiError, ApiUnavailableError) as error:
            if isinstance(error, ApiError) and error.is_missing:
                return  # it was deleted in the meantime
            if isinstance(error, ApiError):
                raise RecordRefusedError(str(error), cause=error) from error
            raise unavailable(error) from error

    def _present(self, job: JobRecord, result: Written) -> Written:
        """Return the result of a write, STALE if the KronJob was deleted while others were written."""
        is_gone = result is Written.YES and job.identity not in self.books
        return Written.STALE if is_gone else result

    def _numbered(self, change: Change) -> Change:
        """Return a change with the present row of its job, which a restored record does not keep."""
        row = self._rows[change.job.identity]
        return change if change.job.number == row else replace(change, job=change.job._replace(number=row))

    async def _index_again(self, identities: set[str] | frozenset[str]) -> None:
        """Correct the database in memory where it differs from the records; they decide."""
        for identity in identities:
            book = self.books.get(identity)
            if book is not None:
                await super().forget(NAMESPACE, [identity])
                await self._index(book)

    async def _commit_new(self, job: JobRecord, now: int) -> Written:
        if job.identity in self.books:
            return Written.STALE
        book = Book(job, high=now, writer=self._next_writer())
        return self._copied(await self._commit(job.identity, book, now), book)

    async def _settle_change(self, change: Change, now: int) -> Written:
        if change.job.identity in self.held:
            return Written.REFUSED
        return await self._commit_change(change, now)

    async def _commit_change(self, change: Change, now: int) -> Written:
        identity = change.job.identity
        book, kronjob = self.books.get(identity), self.kronjobs.get(identity)
        if book is None or kronjob is None or book.job.revision != change.revision:
            return Written.STALE
        after = applied(book, change, now=now, writer=self._next_writer())
        if any(run.kind is RunKind.MANUAL for run in change.inserts):
            after = replace(after, request=kronjob.annotations.get(RUN_NOW))
        if change.job.paused != book.job.paused:
            after = replace(after, pause=kronjob.annotations.get(PAUSED))
        return self._copied(await self._commit(identity, after, now), after, change)

    def _copied(self, result: Written, book: Book, change: Change | None = None) -> Written:
        """Copy a record to the history if it was written."""
        if result is Written.YES and self.history is not None:
            self.history.wrote(book, change)
        return result

    def _next_writer(self) -> str:
        self._writes += 1
        return f"{self._owner}/{self._token}/{self._writes}"

    async def _commit(self, identity: str, after: Book, now: int) -> Written:
        """Patch a status until it is known whether the record is there; others may edit the spec."""
        text, failures = text_of(after), 0
        for _ in range(MAX_TRIES):
            kronjob = self.kronjobs.get(identity)
            if kronjob is None:
                return Written.STALE
            try:
                async with self._patches:
                    self._check_owner()
                    patched = await self._patch(kronjob, after, now)
                if self._is_gone(kronjob):
                    return Written.STALE
                self.kronjobs[identity] = patched
            except (ApiError, ApiUnavailableError) as error:
                answer = await self._resolve(identity, kronjob, text, error)
                if answer is None and isinstance(error, ApiError) and error.is_conflict:
                    continue
                failures += 1
                if answer is Written.REFUSED or (answer is None and failures == MAX_FAILURES):
                    await self._refuse(identity, error, now)
                    return Written.REFUSED
                if answer is None:
                    continue
                if answer is not Written.YES:
                    return answer
            self.books[identity], self._texts[identity] = after, text
            self.refusals.pop(identity, None)
            return Written.YES
        return Written.STALE

    async def _refuse(self, identity: str, error: ApiError | ApiUnavailableError, now: int) -> None:
        """Note that a record is not accepted; say so in the conditions of its KronJob, if those are."""
        is_new, kronjob = identity not in self.refusals, self.kronjobs[identity]
        self.refusals[identity] = message = f"the record of {kronjob.place} is not written: {error}"
        if not is_new:
            return
        _log.error("%s", message)
        problem = SpecProblem(ERROR, "RecordRefused", message)
        conditions = problem_status(kronjob, problem, now)["conditions"]
        with suppress(ApiError, ApiUnavailableError):
            await self._api.patch_status(KRONJOBS, *kronjob.place, {"status": {"conditions": conditions}})

    def _is_gone(self, kronjob: KronJob) -> bool:
        """Say whether a KronJob was deleted, or made again, while an answer about it was awaited."""
        known = self.kronjobs.get(kronjob.identity)
        return known is None or known.uid != kronjob.uid

    async def _patch(self, kronjob: KronJob, after: Book, now: int) -> KronJob:
        problem = self.problems.get(after.job.identity)
        status: dict[str, Any] = status_of(after, kronjob, now=now, traits=self._traits, problem=problem)
        change = {"metadata": {"resourceVersion": kronjob.version}, "status": status}
        return kronjob_of(await self._api.patch_status(KRONJOBS, *kronjob.place, change))

    async def _resolve(
        self, identity: str, kronjob: KronJob, text: str, error: ApiError | ApiUnavailableError
    ) -> Written | None:
        """Read a KronJob after a patch that failed: None if the same patch can be tried again."""
        self._failure = f"the record of {kronjob.place} is not written: {error}"
        try:
            live = await self._live(kronjob)
        except (ApiError, ApiUnavailableError):
            self._doubtful.add(identity)
            return Written.UNKNOWN
        if self._is_gone(kronjob):
            return Written.STALE
        if live is None:
            await self.detach(identity)
            return Written.STALE
        self.kronjobs[identity] = live
        if live.state == text:
            return Written.YES
        if live.state in (None, self._texts.get(identity)):
            # Only the spec or the metadata changed, or the record was removed: this one stands.
            is_refused = isinstance(error, ApiError) and not (error.is_conflict or error.is_temporary)
            return Written.REFUSED if is_refused else None
        await self._restore(live)
        self._check_writer(identity)
        return Written.STALE

    def _check_writer(self, identity: str) -> None:
        """Step down if a write of this owner arrived after it was given up: its starts must be recovered."""
        book = self.books.get(identity)
        if book is not None and book.writer.startswith(f"{self._owner}/{self._token}/"):
            self.is_owner = False
            raise OwnedError(namespace=NAMESPACE, owner="a delayed write of the same operator")

    async def _live(self, kronjob: KronJob) -> KronJob | None:
        """Return a KronJob as it is now, or None if it is gone."""
        try:
            live = kronjob_of(await self._api.get(KRONJOBS, *kronjob.place))
        except ApiError as error:
            if error.is_missing:
                return None
            raise
        return live if live.uid == kronjob.uid else None

    # --- reads -------------------------------------------------------------------------------------

    async def _settle_doubts(self) -> None:
        """Read the KronJobs with a write whose answer was lost; until then nothing is decided."""
        for identity in list(self._doubtful):
            kronjob = self.kronjobs.get(identity)
            try:
                live = None if kronjob is None else await self._live(kronjob)
            except (ApiError, ApiUnavailableError) as error:
                raise unavailable(error) from error
            if live is None:
                await self.detach(identity)
            else:
                self.kronjobs[identity] = live
                if live.state not in (None, self._texts.get(identity)):
                    await self._restore(live)
            self._doubtful.discard(identity)

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the jobs due up to an instant, in small batches; while there are more, the next is due."""
        await self._settle_doubts()
        # By name: a record that was restored has another row, and its old row may be that of another job.
        rows = [(job, self._rows.get(job.identity)) for job in without]
        without = [job._replace(number=row) for job, row in rows if row is not None]
        most = min(limit, MAX_BATCH)
        loaded = await super().load(ownership, until=until, limit=most, named=named, without=without)
        has_more = most < limit and len(loaded.cases) >= most
        return loaded._replace(next_at=until) if has_more else loaded

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs."""
        await self._settle_doubts()
        return await super().cases(namespace, identities)

    async def note_clock(self, ownership: Ownership, record: ClockRecord, *, high: int | None = None) -> None:
        """Write an excursion of the clock; the latest instant is kept in the Lease."""
        if high is not None:
            self.high = high
            await self._lease.renew(ownership.owner, ownership.token, high=high)
        await super().note_clock(ownership, record, high=high)


async def _all(writes: Iterable[Coroutine[None, None, Written]]) -> list[Written]:
    """Return the results of all writes once each of them is over; then raise the first error."""
    done = await asyncio.gather(*writes, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return [result for result in done if isinstance(result, Written)]


def _names(changes: Sequence[Change], keys: frozenset[str]) -> list[str]:
    """Return the jobs of runs that exist already."""
    runs: list[RunRecord] = [run for change in changes for run in change.inserts if run.key in keys]
    return [run.identity for run in runs]


def _is_newer(version: str, known: str) -> bool:
    """Say whether a resource version is later than another; one that is no number is taken as later."""
    if not (version.isdecimal() and known.isdecimal()):
        return version != known
    return int(version) > int(known)
