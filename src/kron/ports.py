"""The whole boundary: what the engine needs of a clock, a store, a launcher and a journal.

What the run launcher needs beside them, workflows and a memory of starts, stands at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import NamedTuple, Protocol

from kron.core.plan.query import Audited, AuditFilter, FoundJob, JobFilter, OpenRuns, RunCursor
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    EpochRecord,
    JobRecord,
    RangeRecord,
    RunRecord,
    RunStatus,
)
from kron.core.plan.report import LeaseStatus, RunReport, Traits
from kron.core.plan.step import Change, JobState
from kron.core.workflow import WorkflowRecord


class Clock(Protocol):
    """The only source of time."""

    def now(self) -> datetime:
        """Return the wall clock's time, aware."""
        ...

    def monotonic(self) -> float:
        """Return seconds that no change of the wall clock moves."""
        ...

    async def sleep_until(self, instant: datetime) -> None:
        """Return at an instant of the wall clock, or earlier, for the caller to look again."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Return what is held while the engine works; a simulated clock stands still meanwhile."""
        ...


class Ownership(NamedTuple):
    """Who looks after which shards of a namespace, each with the token that fences every write to it.

    It ends after `ttl_ms` unless it is renewed; without one it lasts as long as its owner lives. What is
    under way in `busy` shards only this owner can look after, so they are not given to others. `high` is the
    latest instant anything of the namespace was written at: time does not go back behind it.
    """

    namespace: str
    owner: str
    shards: Mapping[int, int]
    ttl_ms: int | None = None
    busy: frozenset[int] = frozenset()
    high: int = 0

    @property
    def token(self) -> int:
        """Return the newest token: no later owner of any of these shards will have a lower one."""
        return max(self.shards.values(), default=0)


class LoadResult(NamedTuple):
    """The jobs that have something to do, and when the first of all others has."""

    cases: list[JobState]
    next_at: int | None


class WriteResult(NamedTuple):
    """What a store refused to write: jobs whose revision is stale, and runs that already exist."""

    stale_jobs: frozenset[str]
    existing_runs: frozenset[str]


class Archive(Protocol):
    """What is remembered of single jobs, to be read only."""

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: those named, or all."""
        ...

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`.

        A period comes before what was asked for with the same nominal time.
        """
        ...

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's counted records, newest first; with `at`, those that cover a nominal time."""
        ...

    async def epochs(self, namespace: str, identity: str) -> list[EpochRecord]:
        """Return the earlier definitions of a job and when each began to hold, oldest first."""
        ...

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a run that was started again, oldest first."""
        ...


class News(NamedTuple):
    """What others may have changed: jobs, or who looks after which shards."""

    jobs: bool = False
    leases: bool = False


class Watch(Protocol):
    """Looks out for what others write."""

    async def look(self) -> News:
        """Return what may have changed since the last look; what is said twice does no harm."""
        ...

    async def close(self) -> None:
        """Watch no more."""
        ...


class Store(Archive, Protocol):
    """What Kron remembers. A store never reads a clock and never decides."""

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Become the one who looks after what is free of a namespace, or raise OwnedError if nothing is.

        Leases last by the database's own clock, unless tests say what time it is. With `balance`,
        all who look after a namespace share it evenly.
        """
        ...

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Return what is still owned, and what has become free meanwhile, for a new while."""
        ...

    async def release(self, ownership: Ownership) -> None:
        """Let another owner take over at once."""
        ...

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the jobs with something to do up to an instant, oldest first, and those named.

        All but those `without`: whoever asks has them in hand, and is about to write what came of them.
        """
        ...

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Write changes in one transaction that is fenced by ownership and by each job's revision."""
        ...

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every execution that may be under way."""
        ...

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
        """Forget jobs, and write new and changed ones, in one transaction, or do nothing of it.

        What is for the audit is written with them, or not either.
        """
        ...

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs and everything remembered of them."""
        ...

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs in the order of their names, those with a later name than `after`.

        Names are compared sign by sign, and searched without regard to the case of ASCII letters.
        """
        ...

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs there are."""
        ...

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Return how many runs are open; no more than so many are looked at."""
        ...

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return the runs with these keys, open or over.

        A store finds at least those that were enqueued elsewhere, and those that somebody asked for.
        """
        ...

    async def latest_runs(
        self,
        namespace: str,
        *,
        status: RunStatus | None = None,
        users: Sequence[str] | None = None,
        before: RunCursor | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return the runs of all jobs, or of those that belong to some users.

        Those whose records were made last come first; `before` is a page's end.
        """
        ...

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each of some jobs, newest first as `runs` has them, so many of each.

        One that cannot be read is left out, so that it takes nothing from the others.
        """
        ...

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: int | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return changes that somebody made, the latest first, those with a lower number than `before`."""
        ...

    async def prune(self, namespace: str, *, before: int, limit: int) -> int:
        """Remove old history, at most so many records; return how many were removed."""
        ...

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch what others write; `call` is called when a look is worth while, where a store can tell."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


class Payload(NamedTuple):
    """What an execution is given beside its settings: the text of a JSON document, and facts by name."""

    document: str
    facts: Mapping[str, str]


class Launch(NamedTuple):
    """One execution to start: the job's launcher settings and the run with its key, attempt and token.

    Whoever begins it later than it is told to asks `hold` first; an owner without one never loses it.
    `request_id` is the request by which somebody asked for the run, where that is known.
    """

    job: JobRecord
    run: RunRecord
    given: Payload | None = None
    hold: Callable[[], LeaseStatus] | None = None
    request_id: str | None = None


class ReportSink(Protocol):
    """Where launchers report to; may be called from the event loop only."""

    def __call__(self, report: RunReport) -> None:
        """Take note of what happened to an execution."""
        ...


class Launcher(Protocol):
    """Starts executions and reports what becomes of them. It decides nothing."""

    traits: Traits

    @property
    def busy(self) -> bool:
        """Say whether executions are under way."""
        ...

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Begin to start an execution; what comes of it is reported, soon or late."""
        ...

    def end(self, run: RunRecord) -> None:
        """Ask an execution to end; that it has ended is reported."""
        ...

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Look after executions that outlived their owner again; return the keys of those found."""
        ...

    async def close(self, *, wait: bool = True) -> None:
        """Wait for what runs, or let it go."""
        ...


class Journal(Protocol):
    """Where the engine says what it did."""

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Take note of what was written: everything of these changes, except what was refused."""
        ...

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Write one line."""
        ...


class WorkflowVersion(NamedTuple):
    """Which version of a workflow there is, whose it is, and since when, in milliseconds."""

    version: int
    user_id: str
    created_at: int


class WorkflowStore(Protocol):
    """Where DAG JSON is kept, by workflow and version; a version that is there never changes (SPEC 3: 2)."""

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Keep a version unless there is one already; return what is kept."""
        ...

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None where there is none."""
        ...

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""
        ...

    async def close(self) -> None:
        """Let go of files and connections."""
        ...


class StartRequest(NamedTuple):
    """One start that somebody asked the run launcher for; `begun_at` is in milliseconds."""

    key: str
    attempt: int
    workflow_id: str
    version: int
    begun_at: int


class RecordedStart(NamedTuple):
    """What is on record of an earlier start: of what, and whether it was accepted."""

    workflow_id: str
    version: int
    accepted: bool


class IdempotencyLog(Protocol):
    """Remembers which starts were asked for, so that the same one is not made twice."""

    async def begin(self, start: StartRequest, *, old: int) -> RecordedStart | None:
        """Note a start before it is made, or return what is on record; what is older than `old` goes."""
        ...

    async def end(self, start: StartRequest, *, accepted: bool) -> None:
        """Note that a start was accepted; one that was not is forgotten, so that it can be tried again."""
        ...
