"""The boundary: the protocols of the clock, the stores, the launchers and the journal.

A store is three protocols; take the narrowest one that fits. The values they exchange are part of the core.
Instants are milliseconds since 1970, nominal times seconds. Those of DAGs are in `dag_ports`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple, Protocol, TypeAlias

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
from kron.core.plan.report import Launch, RunReport, Traits
from kron.core.plan.rewind import Recorded
from kron.core.plan.step import Change, JobState, LoadResult, Ownership, WriteResult
from kron.core.workflow import RecordedStart, StartRequest, WorkflowRecord, WorkflowVersion

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

    async def clock_records(self, namespace: str, *, limit: int = 20) -> list[ClockRecord]:
        """Return the excursions of the workers' clocks, newest first."""

    async def incidents(
        self, namespace: str, identity: str, *, since: int, until: int, limit: int = 200
    ) -> list[IncidentRecord]:
        """Return the newest incidents of a job and its namespace that overlap an interval, oldest first."""

    async def epochs(self, namespace: str, *identities: str) -> list[EpochRecord]:
        """Return the earlier definitions of some jobs, by name and the oldest of each first."""


class EngineStore(JobStore, Protocol):
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

    async def ahead(self, ownership: Ownership, *, since: int, after: str = "", limit: int) -> list[JobState]:
        """Return owned jobs last written later than `since`, in the order of their names, after a name."""

    async def recorded(self, namespace: str, after: Mapping[str, int]) -> dict[str, Recorded]:
        """Return the records of some jobs, each after a nominal time: runs, ranges, earlier definitions."""

    async def note_clock(self, ownership: Ownership, record: ClockRecord, *, high: int | None = None) -> None:
        """Write an excursion of this owner's clock; with `high`, set the namespace's latest instant to it."""

    async def note_incidents(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        """Write incidents of the namespace: take-overs and jumps of this owner's clock."""

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Count the open runs by state, reading at most `limit` of them."""

    async def open_by_user(self, namespace: str, users: Sequence[str]) -> dict[str, int]:
        """Count the open runs of each of some users."""

    async def prune(
        self,
        namespace: str,
        bounds: PruneBounds,
        *,
        cursor: PruneCursor = FROM_START,
        limit: int,
        dry_run: bool = False,
    ) -> PrunedBatch:
        """Remove about `limit` old records; the result has the cursor of the next batch.

        Open runs and the newest outcome of each job stay; a job deleted before the bound goes entirely.
        """

    async def pending_notices(self, namespace: str, *, limit: int) -> list[NoticeRecord]:
        """Return the notices still to be sent, the oldest `limit` of each target, oldest first."""

    async def note_notices(
        self, namespace: str, changed: Sequence[NoticeRecord], *, removed: Sequence[int] = ()
    ) -> None:
        """Write the progress of notices, and remove others by their numbers."""

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


class ReadStore(JobStore, Protocol):
    """Listings and history, read only."""

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs earlier than `before`, newest first; a period's run precedes manual ones."""

    async def run_counts(self, namespace: str, identity: str, *, bounds: Sequence[int]) -> list[RunCount]:
        """Count a job's runs by status between each two bounds of nominal times; part 0 is the first."""

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's aggregated periods, newest first; with `at`, those that cover a nominal time."""

    async def reopened(self, namespace: str, identity: str, *, at: int) -> list[ReopenedRecord]:
        """Return the withdrawn records of a period that was opened again, oldest first."""

    async def absence(self, namespace: str, shard: int, *, now: int | None = None) -> IncidentRecord | None:
        """Return the outage of a shard that no worker owns now; None while a worker owns it."""

    async def leases(self, namespace: str, *, now: int | None = None) -> list[WorkerLease]:
        """Return the workers of a namespace with the shards they lease, by owner; expired ones too."""

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a retried run, oldest first."""

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs with a name later than `after`, sorted by code point; search ignores ASCII case."""

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs match."""

    async def group_jobs(
        self, namespace: str, wanted: JobFilter, *, limit: int, singly: bool = False
    ) -> list[JobGroup]:
        """Return the largest groups of jobs; with `singly`, a group for each job, in the order of names."""

    async def count_made(self, namespace: str, wanted: JobFilter, span: RunSpan) -> dict[int, int]:
        """Count the runs of some jobs in each part of an interval, about where they stand."""

    async def tally_runs(
        self, namespace: str, wanted: JobFilter, span: RunSpan, *, not_ok: bool = False
    ) -> list[TagCount]:
        """Count the runs and the aggregated periods of some jobs in parts of an interval, by tag and status.

        With `not_ok`, only what ended without success. Runs recorded an hour before the interval are found.
        """

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

    async def notices(
        self, namespace: str, identity: str, *, first: int, last: int, limit: int = 100
    ) -> list[NoticeRecord]:
        """Return the notices of a job about nominal times from `first` to `last`, oldest first."""

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit entries with a number lower than `before`, latest first."""


class Store(EngineStore, RegistryStore, ReadStore, Protocol):
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


class WorkflowStore(Protocol):
    """Stores DAG JSON by workflow and version; a published version never changes (SPEC 3: 2)."""

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Store a version unless a published one exists; return the stored one. A draft is replaced."""

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None."""

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the workflows by name, from a name on; with `users`, those of these owners only."""

    async def close(self) -> None:
        """Close files and connections."""


class IdempotencyLog(Protocol):
    """Remembers the starts of workflows, so that none is made twice."""

    async def begin(self, start: StartRequest, *, old: int) -> RecordedStart | None:
        """Record a start before it is made, or return the earlier record; those older than `old` expire."""

    async def end(self, start: StartRequest, *, accepted: bool) -> None:
        """Mark a start as accepted, or remove its record so that it can be retried."""
