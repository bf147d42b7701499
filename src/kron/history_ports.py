"""The boundary of the records beside jobs and runs: incidents, clocks, notices, counts, and retention.

Each protocol is what one subsystem needs of a store; the three of `ports` build on them.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from kron.core.plan.query import (
    FROM_START,
    JobFilter,
    JobGroup,
    OpenRuns,
    PruneBounds,
    PruneCursor,
    PrunedBatch,
    RunCount,
    RunSpan,
    TagCount,
)
from kron.core.plan.record import ClockRecord, IncidentRecord, NoticeRecord, ReopenedRecord
from kron.core.plan.rewind import Recorded
from kron.core.plan.step import JobState, Ownership


class IncidentLog(Protocol):
    """What happened to jobs and workers: read by the loop and by explanations."""

    async def clock_records(self, namespace: str, *, limit: int = 20) -> list[ClockRecord]:
        """Return the excursions of the workers' clocks, newest first."""

    async def incidents(
        self, namespace: str, identity: str, *, since: int, until: int, limit: int = 200
    ) -> list[IncidentRecord]:
        """Return the newest incidents of a job and its namespace that overlap an interval, oldest first."""


class ClockStore(IncidentLog, Protocol):
    """What the loop needs to note incidents, and to withdraw what a wrong clock decided."""

    async def ahead(self, ownership: Ownership, *, since: int, after: str = "", limit: int) -> list[JobState]:
        """Return owned jobs last written later than `since`, in the order of their names, after a name."""

    async def recorded(self, namespace: str, after: Mapping[str, int]) -> dict[str, Recorded]:
        """Return the records of some jobs, each after a nominal time: runs, ranges, earlier definitions."""

    async def note_clock(self, ownership: Ownership, record: ClockRecord, *, high: int | None = None) -> None:
        """Write an excursion of this owner's clock; with `high`, set the namespace's latest instant to it."""

    async def note_incidents(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        """Write incidents of the namespace: take-overs and jumps of this owner's clock."""


class EvidenceLog(IncidentLog, Protocol):
    """What explains the outcome of a period beside its run."""

    async def reopened(self, namespace: str, identity: str, *, at: int) -> list[ReopenedRecord]:
        """Return the withdrawn records of a period that was opened again, oldest first."""

    async def absence(self, namespace: str, shard: int, *, now: int | None = None) -> IncidentRecord | None:
        """Return the outage of a shard that no worker owns now; None while a worker owns it."""

    async def notices(
        self, namespace: str, identity: str, *, first: int, last: int, limit: int = 100
    ) -> list[NoticeRecord]:
        """Return the notices of a job about nominal times from `first` to `last`, oldest first."""


class NoticeOutbox(Protocol):
    """The outbox of notifications."""

    async def pending_notices(
        self, namespace: str, *, limit: int, of_owner: int | None = None
    ) -> list[NoticeRecord]:
        """Return the notices still to be sent, `limit` of each target, of its owners in turn, oldest first.

        Those that were tried are among them. `of_owner` is the most of one owner, of each of its targets in
        turn. The owner is what the name of a job starts with, up to a slash.
        """

    async def give_up_notices(self, namespace: str, *, most: int, error: str, now: int) -> int:
        """End the oldest notices still to be sent of owners that have more than `most`; return how many."""

    async def note_notices(
        self, namespace: str, changed: Sequence[NoticeRecord], *, removed: Sequence[int] = ()
    ) -> None:
        """Write the progress of notices, and remove others by their numbers."""


class TallyStore(Protocol):
    """Counts of jobs and runs: for the pages and for quotas."""

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

    async def run_counts(self, namespace: str, identity: str, *, bounds: Sequence[int]) -> list[RunCount]:
        """Count a job's runs by status between each two bounds of nominal times; part 0 is the first."""


class OpenRunCounts(Protocol):
    """Counts of open runs, and whether there are several users: for metrics, and for what users share."""

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Count the open runs by state, reading at most `limit` of them."""

    async def open_by_user(self, namespace: str, users: Sequence[str]) -> dict[str, int]:
        """Count the open runs of each of some users."""

    async def serves_others(self, namespace: str, tenant: str) -> bool:
        """Say whether there is a job for another tenant; one without a user belongs to the tenant ""."""


class HistoryPruner(Protocol):
    """Retention."""

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
