"""What people look through in a SQLite store: jobs, runs, counted records and changes, a page at a time."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kron.core.plan.query import Audited, AuditFilter, FoundJob, JobFilter, OpenRuns, RunCursor
from kron.core.plan.record import AuditRecord, JobRecord, RangeRecord, RunRecord, RunStatus
from kron.stores.listing import (
    FOR_EVER,
    audit_statement,
    count_statement,
    jobs_statement,
    place_values,
    runs_clauses,
)
from kron.stores.row import range_of, readable, readable_runs, runs_of
from kron.stores.statement import statements

SQL = statements("sqlite")
T = TypeVar("T")


class SqliteListing(ABC):
    """The part of a store that lists."""

    @abstractmethod
    def _reader(self) -> "SqliteListing":
        """Return the store to read from."""

    @abstractmethod
    async def _do(self, work: Callable[..., T], *arguments: object, many: bool = False) -> T:
        """Do some work in the store's thread."""

    @abstractmethod
    def _of_namespace(
        self, statement: str, namespace: str, values: dict[str, object]
    ) -> list[tuple[Any, ...]]:
        """Return what a statement finds in a namespace."""

    @abstractmethod
    def _of_job(
        self, statement: str, namespace: str, identity: str, values: dict[str, int]
    ) -> list[tuple[Any, ...]]:
        """Return what a statement finds of a job."""

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs in the order of their names, those with a later name than `after`."""
        store = self._reader()
        lists = {"names": json.dumps(wanted.names), "users": json.dumps(wanted.users)}
        values = {**wanted._asdict(), **lists, "after": after, "limit": limit}
        rows = await store._do(store._of_namespace, jobs_statement(SQL, wanted), namespace, values)
        return [FoundJob(JobRecord._make(row[:-1]), row[-1]) for row in rows]

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs there are."""
        store = self._reader()
        values = {**wanted._asdict(), "names": json.dumps(wanted.names), "users": json.dumps(wanted.users)}
        rows = await store._do(store._of_namespace, count_statement(SQL, wanted), namespace, values)
        return int(rows[0][0])

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Return how many runs are open; no more than so many are looked at."""
        store = self._reader()
        values: dict[str, object] = {"now": now, "limit": limit}
        return OpenRuns(**dict(await store._do(store._of_namespace, SQL["counted_runs"], namespace, values)))

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`."""
        store = self._reader()
        values = {"before": FOR_EVER if before is None else before}
        return await readable_runs(
            lambda most: store._do(
                store._of_job, SQL["run_history"], namespace, identity, {**values, "limit": most}
            ),
            limit,
        )

    async def latest_runs(
        self,
        namespace: str,
        *,
        status: RunStatus | None = None,
        users: Sequence[str] | None = None,
        before: RunCursor | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return the runs of all jobs, those whose records were made last first."""
        store = self._reader()
        values = {**place_values(before), "status": status, "users": json.dumps(users)}
        clauses = runs_clauses(SQL, status, users)
        return await readable_runs(
            lambda most: store._do(store._of_namespace, clauses, namespace, {**values, "limit": most}), limit
        )

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each of some jobs."""
        store = self._reader()
        values: dict[str, object] = {"names": json.dumps(list(dict.fromkeys(identities))), "limit": limit}
        return runs_of(await store._do(store._of_namespace, SQL["newest_runs"], namespace, values))[0]

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's counted records, newest first; with `at`, those that cover a nominal time."""
        store = self._reader()
        at, since = (FOR_EVER, -FOR_EVER) if at is None else (at, at)
        rows = await store._do(store._of_job, SQL["ranges"], namespace, identity, {"at": at, "since": since})
        return readable(rows, range_of)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: int | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return changes that somebody made, the latest first."""
        store = self._reader()
        values = {**wanted._asdict(), "users": json.dumps(wanted.users), "limit": limit}
        values["before"] = FOR_EVER if before is None else before
        rows = await store._do(store._of_namespace, audit_statement(SQL, wanted), namespace, values)
        return [Audited(number, AuditRecord(*row)) for number, *row in rows]
