"""What people look through in a PostgreSQL store, a page at a time: jobs, runs, records and changes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

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
from kron.stores.postgres.array import texts
from kron.stores.postgres.query import rows_of
from kron.stores.postgres.schema import Connection
from kron.stores.row import range_of, readable, readable_runs, run_of, runs_of
from kron.stores.statement import statements

SQL = statements("postgres")
# Where there is little, it is quicker to look at all of it than to follow an index.
BY_LOOKING = "SET LOCAL enable_seqscan = on"


class PostgresListing(ABC):
    """The part of a store that lists."""

    @abstractmethod
    def _reading(self) -> AbstractAsyncContextManager[Connection]:
        """Return a connection to read with."""

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs in the order of their names, those with a later name than `after`."""
        values = {**wanted._asdict(), "namespace": namespace, "after": after, "limit": limit}
        values |= {"names": texts(wanted.names or ()), "users": texts(wanted.users or ())}
        async with self._reading() as connection:
            rows = await rows_of(connection, jobs_statement(SQL, wanted), values)
        return [FoundJob(JobRecord(*row[:-1]), row[-1]) for row in rows]

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs there are."""
        values = {**wanted._asdict(), "namespace": namespace}
        values |= {"names": texts(wanted.names or ()), "users": texts(wanted.users or ())}
        async with self._reading() as connection:
            ((count,),) = await rows_of(connection, count_statement(SQL, wanted), values)
        return int(count)

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Return how many runs are open; no more than so many are looked at."""
        values = {"namespace": namespace, "now": now, "limit": limit}
        async with self._reading() as connection:
            return OpenRuns(**dict(await rows_of(connection, SQL["counted_runs"], values)))

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`."""
        before = FOR_EVER if before is None else before
        values = {"namespace": namespace, "name": identity, "before": before}
        return await self._history(SQL["run_history"], values, limit)

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return the runs with these keys, open or over."""
        values = {"namespace": namespace, "names": texts(list(keys))}
        async with self._reading() as connection:
            return readable(await rows_of(connection, f"{SQL['runs']} {SQL['with_keys']}", values), run_of)

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
        values = {**place_values(before), "namespace": namespace, "status": status}
        values["users"] = texts(users or ())
        return await self._history(runs_clauses(SQL, status, users), values, limit, first=BY_LOOKING)

    async def _history(
        self, clauses: str, values: dict[str, Any], limit: int, first: str = ""
    ) -> list[RunRecord]:
        async def ask(most: int) -> list[tuple[Any, ...]]:
            async with self._reading() as connection, connection.transaction():
                if first:
                    await connection.execute(first.encode())
                return await rows_of(connection, f"{SQL['runs']} {clauses}", {**values, "limit": most})

        return await readable_runs(ask, limit)

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each of some jobs."""
        values = {"namespace": namespace, "names": texts(list(dict.fromkeys(identities))), "limit": limit}
        async with self._reading() as connection:
            return runs_of(await rows_of(connection, SQL["newest_runs"], values))[0]

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's counted records, newest first; with `at`, those that cover a nominal time."""
        at, since = (FOR_EVER, -FOR_EVER) if at is None else (at, at)
        values = {"namespace": namespace, "name": identity, "at": at, "since": since}
        async with self._reading() as connection:
            return readable(await rows_of(connection, SQL["ranges"], values), range_of)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: int | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return changes that somebody made, the latest first."""
        values = {**wanted._asdict(), "namespace": namespace, "users": texts(wanted.users or ())}
        values |= {"before": FOR_EVER if before is None else before, "limit": limit}
        async with self._reading() as connection:
            rows = await rows_of(connection, audit_statement(SQL, wanted), values)
        return [Audited(number, AuditRecord(*row)) for number, *row in rows]
