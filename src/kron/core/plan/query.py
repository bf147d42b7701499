"""Queries over the records of a store, and their results."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from kron.core.job.profile import Retention
from kron.core.plan.record import AuditRecord, JobRecord, RunStatus
from kron.core.time.instant import MILLISECOND


class JobFilter(NamedTuple):
    """A filter of jobs; None means any.

    `search` is a substring of the name; `users` are the owners. A job is `failing` while its last
    execution failed. An `irregular` one has a limited number of starts, a pause with an end, or periods
    that another definition or another clock has handled. `due_by` is an instant in milliseconds by which the
    next period of a job may start.
    """

    names: Sequence[str] | None = None
    search: str | None = None
    paused: bool | None = None
    suspended: bool | None = None
    failing: bool | None = None
    workflow_id: str | None = None
    user_id: str | None = None
    users: Sequence[str] | None = None
    tag: str | None = None
    applied_set: str | None = None
    timezone: str | None = None
    launcher_kind: str | None = None
    definitions: Sequence[str] | None = None
    irregular: bool | None = None
    due_by: int | None = None
    deleted: bool = False


class FoundJob(NamedTuple):
    """A job, and the last change of its record, in milliseconds."""

    job: JobRecord
    changed_at: int


# The longest definition that a group has, in characters.
MAX_GROUPED = 16_384


class JobGroup(NamedTuple):
    """Jobs with one definition, one first tag and one state: how many they are, and the first name.

    The definition is empty where those of the jobs are longer than MAX_GROUPED.
    """

    definition: str
    tag: str | None
    is_stopped: bool
    is_irregular: bool
    jobs: int
    name: str


class RunSpan(NamedTuple):
    """An interval `[start, end)` in parts of `width`, seen at `now`, all in milliseconds.

    A run stands at its start, or where it was to start.
    """

    start: int
    end: int
    width: int
    now: int


class TagCount(NamedTuple):
    """How many runs of the jobs with one first tag stand in a part of an interval, by status.

    With `is_dropped` they are periods of aggregated records, in the part where each ends. `started` of them
    have started, and `name` is the last name of a job with one. A failed run whose next attempt is to come
    counts as PENDING.
    """

    part: int
    tag: str | None
    status: RunStatus
    is_dropped: bool
    runs: int
    started: int
    name: str


class RunCursor(NamedTuple):
    """The cursor of a page of runs: the creation time and the key of its last run."""

    created_at: int
    key: str


class RunCount(NamedTuple):
    """How many runs of a job have a status, in one part of an interval.

    A failed run whose next attempt is to come counts as PENDING.
    """

    part: int
    status: RunStatus
    runs: int


class OpenRuns(NamedTuple):
    """The number of open runs by state.

    Before their fire time (`planned`), ready to start (`due`), blocked by another run or a pause (`held`),
    executing (`under_way`), or waiting for their next attempt (`retrying`).
    """

    planned: int = 0
    due: int = 0
    held: int = 0
    under_way: int = 0
    retrying: int = 0


class WorkerLease(NamedTuple):
    """A worker and the shards it leases; one without shards waits for them.

    `renewed_at` and `expires_at` are None where a lock shows that the worker lives. `taken_at` is when it
    last took shards over, and `version` its version of Kron; both are None once that record is pruned.
    `drained_at` is when a person asked it to start nothing more; without shards it has done so, and
    `renewed_at` is when it was last heard from.
    """

    owner: str
    shards: tuple[int, ...]
    is_alive: bool
    renewed_at: int | None = None
    expires_at: int | None = None
    taken_at: int | None = None
    version: str | None = None
    drained_at: int | None = None


class AuditFilter(NamedTuple):
    """A filter of audit records; None means any."""

    identity: str | None = None
    who: str | None = None
    users: Sequence[str] | None = None


class AuditCursor(NamedTuple):
    """The cursor of a page of audit records: the instant of its last one, and how many of it were listed.

    It counts only records that the filter matches, so it reveals nothing of others.
    """

    at: int
    listed: int


class Audited(NamedTuple):
    """An audit record with its sequence number."""

    number: int
    record: AuditRecord


class PruneBounds(NamedTuple):
    """Which history may be removed; None removes nothing of it.

    Records of runs that last changed before `before`, except the newest `keep_runs` of each job; audit
    records written before `audit_before`. Instants are in milliseconds. With `now`, a job whose definition
    has a retention has its own bounds.
    """

    before: int | None
    keep_runs: int = 0
    audit_before: int | None = None
    now: int | None = None

    def for_job(self, retention: Retention | None) -> "PruneBounds":
        """Return the bounds of a job with this retention."""
        if retention is None or self.now is None:
            return self
        before, keep = self.before, retention.keep
        if keep is not None:
            before = None if keep == timedelta.max else self.now - keep // MILLISECOND
        return self._replace(
            before=before,
            keep_runs=self.keep_runs if retention.keep_runs is None else retention.keep_runs,
        )


class PruneCursor(NamedTuple):
    """Where pruning continues: after a job, or, once all jobs were visited, after an audit record."""

    after: str | None = ""
    audit: int = 0


FROM_START = PruneCursor()


class PrunedBatch(NamedTuple):
    """How many records one batch removed, by kind, and where the next one continues; None at the end."""

    runs: int = 0
    attempts: int = 0
    ranges: int = 0
    definitions: int = 0
    schedules: int = 0
    audit: int = 0
    cursor: PruneCursor | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of records of each kind."""
        return {kind: getattr(self, kind) for kind in PRUNED_KINDS}

    @property
    def records(self) -> int:
        """Return the number of all records."""
        return sum(self.counts.values())

    def plus(self, other: "PrunedBatch") -> "PrunedBatch":
        """Return the sum with another batch, without a cursor."""
        return PrunedBatch(
            self.runs + other.runs,
            self.attempts + other.attempts,
            self.ranges + other.ranges,
            self.definitions + other.definitions,
            self.schedules + other.schedules,
            self.audit + other.audit,
        )


PRUNED_KINDS = tuple(name for name in PrunedBatch._fields if name != "cursor")
