"""Fault injection for stores: a call fails before or after its commit, loses its reply, or is late."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from kron.core.errors import InvalidOptionError, StoreError
from kron.core.job.seed import seed_hash, splitmix64, state_of, unit_of
from kron.core.plan.query import (
    FROM_START,
    AuditCursor,
    Audited,
    AuditFilter,
    FoundJob,
    JobFilter,
    JobGroup,
    OpenRuns,
    PruneBounds,
    PruneCursor,
    PrunedBatch,
    RunCount,
    RunCursor,
    RunSpan,
    TagCount,
    WorkerLease,
)
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    ClockRecord,
    EpochRecord,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    RunRecord,
    RunStatus,
)
from kron.core.plan.rewind import Recorded
from kron.core.plan.step import Change, JobState, LoadResult, Ownership, WriteResult
from kron.ports import Clock, Store, Watch
from kron.testing.clock import SimulatedClock

Arguments = ParamSpec("Arguments")
T = TypeVar("T")

# The calls that random faults hit by default: those of a running engine.
ENGINE_CALLS = ("load", "settle", "cases", "find_runs", "in_flight", "renew")
# The delay of a late reply, and how often a yielding call lets other tasks run first.
DEFAULT_DELAY, YIELDS = timedelta(seconds=1), 5


class Fault(StrEnum):
    """The fault of one call.

    BEFORE: it fails without a commit. AFTER: it commits, and fails. LOSE: it commits, times out and fails.
    DELAY: its reply is late by the clock. YIELD: other tasks of the event loop run first.
    """

    BEFORE = "before"
    AFTER = "after"
    LOSE = "lose"
    DELAY = "delay"
    YIELD = "yield"


class Injected(NamedTuple):
    """One injected fault: the call, its number among the calls of that name, and the fault."""

    call: str
    number: int
    fault: Fault


class InjectedError(StoreError):
    """The error of an injected fault."""

    def __init__(self, injected: Injected) -> None:
        call, number, fault = injected
        super().__init__(f"injected fault: {call} {number}, {fault}", **injected._asdict())


def was_injected(error: BaseException | None) -> bool:
    """Return whether an error, or its cause, is that of an injected fault."""
    return error is not None and (isinstance(error, InjectedError) or was_injected(error.__cause__))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """Random faults: whether a call fails depends on the seed, its name and its number only."""

    seed: int | str
    odds: float = 0.05
    faults: Sequence[Fault] = tuple(Fault)
    calls: Sequence[str] = ENGINE_CALLS

    def __post_init__(self) -> None:
        """Check the odds and the names."""
        if not 0 <= self.odds <= 1:
            raise InvalidOptionError(option="odds", value=self.odds, reason="must lie between 0 and 1")
        if not self.faults:
            raise InvalidOptionError(option="faults", value=(), reason="must not be empty")
        _check_calls(self.calls)

    def drawn(self, call: str, number: int) -> Fault | None:
        """Return the fault of a call, or None."""
        if call not in self.calls:
            return None
        state, first = splitmix64(state_of(seed_hash(str(self.seed), call, str(number))))
        _, second = splitmix64(state)
        return self.faults[second % len(self.faults)] if unit_of(first) < self.odds else None


class FaultyStore:
    """A store with injected faults: scripted ones, queued ones, and random ones.

    `injected` lists the faults so far. As the `script` of another store it repeats them, so that a failure
    found by a seed is replayed and shrunk without the seed. With a simulated clock, virtual time passes while
    a reply is late, also for the engine that waits for it.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        script: Iterable[Injected] = (),
        chance: Chance | None = None,
        delay: timedelta = DEFAULT_DELAY,
    ) -> None:
        self.inner = store
        self.calls: Counter[str] = Counter()
        self.injected: list[Injected] = []
        self._clock = clock
        self._script = {(call, number): Fault(fault) for call, number, fault in script}
        _check_calls([call for call, _ in self._script])
        self._next: deque[tuple[str, Fault]] = deque()
        self._chance = chance
        self._delay = delay

    @property
    def waiting(self) -> int:
        """Return how many queued faults have not been injected yet."""
        return len(self._next)

    def then(self, call: str, *faults: Fault) -> None:
        """Queue faults for the next calls of a name, one each, behind those queued before."""
        _check_calls([call])
        self._next.extend((call, Fault(fault)) for fault in faults)

    def heal(self) -> None:
        """Drop all scripted, queued and random faults."""
        self._script.clear()
        self._next.clear()
        self._chance = None

    # --- one call --------------------------------------------------------------------------------

    async def _call(
        self,
        name: str,
        call: Callable[Arguments, Awaitable[T]],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> T:
        self.calls[name] += 1
        fault = self._fault_of(name, self.calls[name])
        if fault is None:
            return await call(*arguments, **named)
        injected = Injected(name, self.calls[name], fault)
        self.injected.append(injected)
        if fault is Fault.BEFORE:
            raise InjectedError(injected)
        if fault is Fault.DELAY:
            await self._wait()
        for _ in range(YIELDS if fault is Fault.YIELD else 0):
            await asyncio.sleep(0)
        result = await call(*arguments, **named)
        if fault is Fault.LOSE:
            await self._wait()
        if fault in (Fault.AFTER, Fault.LOSE):
            raise InjectedError(injected)
        return result

    def _fault_of(self, call: str, number: int) -> Fault | None:
        scripted = self._script.pop((call, number), None)
        if scripted is not None:
            return scripted
        if self._next and self._next[0][0] == call:
            return self._next.popleft()[1]
        return None if self._chance is None else self._chance.drawn(call, number)

    async def _wait(self) -> None:
        """Wait for the delay, even if the wall clock is set in between."""
        clock, ends = self._clock, self._clock.monotonic() + self._delay.total_seconds()
        standing_by = clock.standing_by() if isinstance(clock, SimulatedClock) else nullcontext()
        with standing_by:
            while (rest := ends - clock.monotonic()) > 0:
                await clock.sleep_until(clock.now() + max(timedelta(seconds=rest), timedelta.resolution))

    # --- the store -------------------------------------------------------------------------------

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Acquire a lease."""
        return await self._call("acquire", self.inner.acquire, namespace, owner, now=now, balance=balance)

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Extend a lease."""
        return await self._call("renew", self.inner.renew, ownership, now=now, balance=balance)

    async def release(self, ownership: Ownership, *, now: int | None = None) -> None:
        """End a lease."""
        await self._call("release", self.inner.release, ownership, now=now)

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the due jobs."""
        return await self._call(
            "load", self.inner.load, ownership, until=until, limit=limit, named=named, without=without
        )

    async def due_besides(
        self, ownership: Ownership, tenants: Sequence[str], *, until: int, limit: int
    ) -> list[str]:
        """Return the due jobs of other tenants."""
        return await self._call("load", self.inner.due_besides, ownership, tenants, until=until, limit=limit)

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Commit changes."""
        return await self._call("settle", self.inner.settle, ownership, changes, now=now)

    async def ahead(self, ownership: Ownership, *, since: int, after: str = "", limit: int) -> list[JobState]:
        """Return the jobs last written later than an instant."""
        return await self._call("ahead", self.inner.ahead, ownership, since=since, after=after, limit=limit)

    async def recorded(self, namespace: str, after: Mapping[str, int]) -> dict[str, Recorded]:
        """Return the records of some jobs."""
        return await self._call("recorded", self.inner.recorded, namespace, after)

    async def note_clock(self, ownership: Ownership, record: ClockRecord, *, high: int | None = None) -> None:
        """Write an excursion of the clock."""
        await self._call("note_clock", self.inner.note_clock, ownership, record, high=high)

    async def clock_records(self, namespace: str, *, limit: int = 20) -> list[ClockRecord]:
        """Return the excursions of the clock."""
        return await self._call("clock_records", self.inner.clock_records, namespace, limit=limit)

    async def absence(self, namespace: str, shard: int, *, now: int | None = None) -> IncidentRecord | None:
        """Return the present outage."""
        return await self._call("absence", self.inner.absence, namespace, shard, now=now)

    async def leases(self, namespace: str, *, now: int | None = None) -> list[WorkerLease]:
        """Return the workers with the shards they lease."""
        return await self._call("leases", self.inner.leases, namespace, now=now)

    async def is_drained(self, namespace: str, owner: str, *, now: int) -> bool:
        """Say whether a worker was asked to drain."""
        return await self._call("is_drained", self.inner.is_drained, namespace, owner, now=now)

    async def set_drain(self, namespace: str, owner: str, *, drain: bool, audit: AuditRecord) -> None:
        """Ask a worker to drain, or to work again."""
        await self._call("set_drain", self.inner.set_drain, namespace, owner, drain=drain, audit=audit)

    async def version(self) -> str:
        """Return a text that changes with every write."""
        return await self._call("version", self.inner.version)

    async def note_incidents(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        """Write incidents of the namespace."""
        await self._call("note_incidents", self.inner.note_incidents, ownership, incidents)

    async def incidents(
        self, namespace: str, identity: str, *, since: int, until: int, limit: int = 200
    ) -> list[IncidentRecord]:
        """Return the incidents of a job and of its namespace."""
        read = partial(self.inner.incidents, since=since, until=until, limit=limit)
        return await self._call("incidents", read, namespace, identity)

    async def reopened(self, namespace: str, identity: str, *, at: int) -> list[ReopenedRecord]:
        """Return the withdrawn records of a period."""
        return await self._call("reopened", self.inner.reopened, namespace, identity, at=at)

    async def pending_notices(
        self, namespace: str, *, limit: int, of_owner: int | None = None
    ) -> list[NoticeRecord]:
        """Return the notices still to be sent."""
        read = partial(self.inner.pending_notices, limit=limit, of_owner=of_owner)
        return await self._call("pending_notices", read, namespace)

    async def give_up_notices(self, namespace: str, *, most: int, error: str, now: int) -> int:
        """End the oldest notices of owners with too many."""
        write = partial(self.inner.give_up_notices, most=most, error=error, now=now)
        return await self._call("give_up_notices", write, namespace)

    async def note_notices(
        self, namespace: str, changed: Sequence[NoticeRecord], *, removed: Sequence[int] = ()
    ) -> None:
        """Write the progress of notices."""
        await self._call("note_notices", self.inner.note_notices, namespace, changed, removed=removed)

    async def notices(
        self, namespace: str, identity: str, *, first: int, last: int, limit: int = 100
    ) -> list[NoticeRecord]:
        """Return the notices of a job about some nominal times."""
        return await self._call(
            "notices", self.inner.notices, namespace, identity, first=first, last=last, limit=limit
        )

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every run that may be executing."""
        return await self._call("in_flight", self.inner.in_flight, ownership)

    async def read_clock(self) -> int | None:
        """Return the store's clock."""
        return await self._call("read_clock", self.inner.read_clock)

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
        """Remove, create and change jobs."""
        put = partial(self.inner.put, created=created, changed=changed, forgotten=forgotten, audit=audit)
        return await self._call("put", put, namespace, now=now)

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs."""
        await self._call("forget", self.inner.forget, namespace, identities)

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs."""
        return await self._call("cases", self.inner.cases, namespace, identities)

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return the matching jobs."""
        return await self._call(
            "find_jobs", self.inner.find_jobs, namespace, wanted, after=after, limit=limit
        )

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs."""
        return await self._call("runs", self.inner.runs, namespace, identity, before=before, limit=limit)

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return runs by key."""
        return await self._call("find_runs", self.inner.find_runs, namespace, keys)

    async def latest_runs(
        self,
        namespace: str,
        *,
        status: RunStatus | None = None,
        users: Sequence[str] | None = None,
        before: RunCursor | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return the runs of all jobs."""
        latest = self.inner.latest_runs
        return await self._call(
            "latest_runs", latest, namespace, status=status, users=users, before=before, limit=limit
        )

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have jobs."""
        return await self._call("namespaces", self.inner.namespaces)

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs match."""
        return await self._call("count_jobs", self.inner.count_jobs, namespace, wanted)

    async def group_jobs(
        self, namespace: str, wanted: JobFilter, *, limit: int, singly: bool = False
    ) -> list[JobGroup]:
        """Return groups of jobs."""
        group = self.inner.group_jobs
        return await self._call("group_jobs", group, namespace, wanted, limit=limit, singly=singly)

    async def count_made(self, namespace: str, wanted: JobFilter, span: RunSpan) -> dict[int, int]:
        """Count the runs of some jobs in parts of an interval."""
        return await self._call("count_made", self.inner.count_made, namespace, wanted, span)

    async def tally_runs(
        self, namespace: str, wanted: JobFilter, span: RunSpan, *, not_ok: bool = False
    ) -> list[TagCount]:
        """Count the runs of some jobs in parts of an interval, by tag and status."""
        return await self._call("tally_runs", self.inner.tally_runs, namespace, wanted, span, not_ok=not_ok)

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Count the open runs."""
        return await self._call("open_runs", self.inner.open_runs, namespace, now=now, limit=limit)

    async def open_by_user(self, namespace: str, users: Sequence[str]) -> dict[str, int]:
        """Count the open runs of each of some users."""
        return await self._call("open_runs", self.inner.open_by_user, namespace, users)

    async def serves_others(self, namespace: str, tenant: str) -> bool:
        """Say whether there is a job for another tenant."""
        return await self._call("load", self.inner.serves_others, namespace, tenant)

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each given job."""
        return await self._call("newest_runs", self.inner.newest_runs, namespace, identities, limit=limit)

    async def run_counts(self, namespace: str, identity: str, *, bounds: Sequence[int]) -> list[RunCount]:
        """Count a job's runs by status in parts of an interval."""
        counts = self.inner.run_counts
        return await self._call("run_counts", counts, namespace, identity, bounds=bounds)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit entries."""
        return await self._call("audits", self.inner.audits, namespace, wanted, before=before, limit=limit)

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's aggregated periods."""
        return await self._call("ranges", self.inner.ranges, namespace, identity, at=at)

    async def epochs(self, namespace: str, *identities: str, newest: int | None = None) -> list[EpochRecord]:
        """Return the earlier definitions of some jobs."""
        return await self._call("epochs", partial(self.inner.epochs, newest=newest), namespace, *identities)

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a run."""
        return await self._call("attempts", self.inner.attempts, namespace, key)

    async def prune(
        self,
        namespace: str,
        bounds: PruneBounds,
        *,
        cursor: PruneCursor = FROM_START,
        limit: int,
        dry_run: bool = False,
    ) -> PrunedBatch:
        """Remove old history."""
        return await self._call(
            "prune", self.inner.prune, namespace, bounds, cursor=cursor, limit=limit, dry_run=dry_run
        )

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch for writes of other workers; this call does not fail."""
        self.calls["watch"] += 1
        return self.inner.watch(namespace, call)

    async def close(self) -> None:
        """Close files and connections."""
        await self._call("close", self.inner.close)


CALLS = frozenset(name for part in Store.__mro__ for name in vars(part) if not name.startswith("_")) - {
    "watch"
}


def _check_calls(calls: Iterable[str]) -> None:
    for call in calls:
        if call not in CALLS:
            reason = f"a store has the calls {', '.join(sorted(CALLS))}"
            raise InvalidOptionError(option="call", value=call, reason=reason)
