"""The boundary: the protocols of the clock, the stores, the launchers and the journal.

A store is three protocols; take the narrowest one that fits. Incidents, notices, counts and retention are in
`history_ports`, DAGs in `dag_ports`. Instants are milliseconds since 1970, nominal times seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

from kron.core.plan.query import (
    AuditCursor,
    Audited,
    AuditFilter,
    FoundJob,
    JobFilter,
    RunCursor,
    WorkerLease,
)
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    EpochRecord,
    JobRecord,
    RangeRecord,
    RunRecord,
    RunStatus,
)
from kron.core.plan.report import Launch, RunReport, Traits
from kron.core.plan.step import Change, JobState, LoadResult, Ownership, WriteResult
from kron.history_ports import ClockStore, EvidenceLog, HistoryPruner, NoticeOutbox, OpenRunCounts, TallyStore

# Receives the reports of a launcher; to be called in the event loop only.
ReportSink: TypeAlias = Callable[[RunReport], None]


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> datetime:
        """Return the wall clock's time, aware."""

    def monotonic(self) -> float:
        """Return seconds that no change of the wall clock affects."""

    async def sleep_until(self, instant: datetime) -> None:
        """Return at an instant of the wall clock, or earlier; the caller checks the time again."""

    def working(self) -> AbstractContextManager[None]:
        """Return a context the engine enters while it works; a simulated clock does not advance in it."""


class News(NamedTuple):
    """Which writes of others a watch noticed: to jobs, to leases, or that a worker is to drain."""

    jobs: bool = False
    leases: bool = False
    drains: bool = False


class Watch(Protocol):
    """Notices writes by other workers."""

    async def look(self) -> News:
        """Return what may have changed since the last call; false alarms are harmless."""

    async def close(self) -> None:
        """Stop watching."""


class JobStore(Protocol):
    """Lookups that the three store protocols share."""

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: the given ones, or all."""

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return runs by idempotency key, open or closed: at least those that were enqueued or manual."""

    async def epochs(self, namespace: str, *identities: str, newest: int | None = None) -> list[EpochRecord]:
        """Return the earlier definitions of jobs, at most `newest` of each: by name, the oldest first."""


class EngineStore(JobStore, ClockStore, OpenRunCounts, HistoryPruner, Protocol):
    """The loop's store: leases, due jobs, and fenced writes. It never reads a clock and never decides."""

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Lease the free shards, or raise OwnedError if there are none; with `balance`, a fair share.

        Leases expire by the database's clock; tests pass `now`.
        """

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Extend a lease; return the shards still owned and those newly acquired."""

    async def release(self, ownership: Ownership, *, now: int | None = None) -> None:
        """End a lease at once, so that another worker can take over; `now` is kept for its successor."""

    async def is_drained(self, namespace: str, owner: str, *, now: int) -> bool:
        """Say whether a person asked this worker to drain; if so, note that it was heard from."""

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the jobs due up to an instant, oldest first, and the `named` ones, but none of `without`."""

    async def due_besides(
        self, ownership: Ownership, tenants: Sequence[str], *, until: int, limit: int
    ) -> list[str]:
        """Return the names of jobs due up to an instant that are for none of these tenants, oldest first.

        A job without a user belongs to the tenant "".
        """

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Commit changes, or `now` alone, fenced by the lease's tokens and by each job's revision.

        A store that writes each job separately may refuse one that it cannot write; it is tried again later.
        """

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every run that may be executing."""

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch for writes of other workers; stores that get notifications invoke `call`."""


class RegistryStore(JobStore, Protocol):
    """Writes by people and programs: registrations, edits, manual runs."""

    async def read_clock(self) -> int | None:
        """Return the database's clock in milliseconds; None if it is the clock of this host."""

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
        """Remove, create and change jobs and write their audit in one transaction: all of it or nothing."""

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs with their whole history."""

    async def set_drain(self, namespace: str, owner: str, *, drain: bool, audit: AuditRecord) -> None:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""


class ReadStore(JobStore, EvidenceLog, TallyStore, Protocol):
    """Listings and history, read only."""

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs earlier than `before`, newest first; a period's run precedes manual ones."""

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's aggregated periods, newest first; with `at`, those that cover a nominal time."""

    async def leases(self, namespace: str, *, now: int | None = None) -> list[WorkerLease]:
        """Return the workers of a namespace with the shards they lease, by owner; expired ones too."""

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a retried run, oldest first."""

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs with a name later than `after`, sorted by code point; search ignores ASCII case."""

    async def latest_runs(
        self,
        namespace: str,
        *,
        status: RunStatus | None = None,
        users: Sequence[str] | None = None,
        before: RunCursor | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return the runs of all jobs, or of the jobs of some users, latest record first."""

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest `limit` runs of each given job, sorted as in `runs`, without unreadable ones."""

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit entries with a number lower than `before`, latest first."""


class Store(EngineStore, RegistryStore, ReadStore, NoticeOutbox, Protocol):
    """A complete store."""

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have jobs, sorted by code point."""

    async def version(self) -> str:
        """Return a text that changes with every write of any process; reading it costs next to nothing."""

    async def close(self) -> None:
        """Close files and connections."""


class Launcher(Protocol):
    """Starts executions and reports their progress. It decides nothing."""

    traits: Traits

    @property
    def busy(self) -> bool:
        """Return whether executions are in flight."""

    def start(self, launch: Launch, sink: ReportSink, /) -> None:
        """Start an execution without blocking; its outcome is reported to the sink."""

    def end(self, run: RunRecord, /) -> None:
        """Request that an execution stop; its end is reported."""

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink, /) -> frozenset[str]:
        """Resume tracking executions that outlived their owner; return the keys of those still alive."""

    async def close(self, *, wait: bool = True) -> None:
        """Wait for running executions, or abandon them."""


class Journal(Protocol):
    """Receives every commit and every notable event of the engine."""

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Record a commit: all of the changes except the refused ones."""

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record one event."""
