"""The PostgreSQL store: any number of workers, each the owner of its shards while its leases last."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from psycopg import Rollback
from psycopg.errors import DeadlockDetected, SerializationFailure

from kron.core.errors import OwnedError, StoreError, StoreUnavailableError
from kron.core.plan.incident import incidents_of_new
from kron.core.plan.query import (
    FROM_START,
    MAX_GROUPED,
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
from kron.core.plan.step import CLEAN, Change, JobState, LoadResult, Ownership, WriteResult, WriteScope
from kron.core.shard import SHARDS, shard_of
from kron.ports import Watch
from kron.stores.drain import KEEP_DRAIN_MS
from kron.stores.postgres.connection import PostgresPool, configuring, count_of, rows_of
from kron.stores.postgres.lease import MARGIN_MS, MARGIN_PART, TTL_MS, PostgresLease
from kron.stores.postgres.schema import Connection
from kron.stores.postgres.watch import DRAINS, JOBS, PostgresWatch, notify
from kron.stores.postgres.write import (
    accepted,
    arrays,
    chunks,
    insert_incidents,
    keep_epochs,
    numbers,
    refused,
    shards_of,
    texts,
    write_changes,
)
from kron.stores.prune import NO_LIMIT, Pruning, Rows, count_batch, prune_batch
from kron.stores.row import (
    COLUMNS,
    GROUPS,
    MAX_EXCURSIONS,
    MAX_NOTICES,
    attempt_of,
    clock_of,
    counts_of,
    definitions_by_job,
    earlier_epochs,
    groups_of,
    incident_of,
    job_of,
    notice_of,
    range_of,
    readable,
    readable_runs,
    recorded_by_job,
    reopened_of,
    run_of,
    runs_of,
    tallies_of,
)
from kron.stores.statement import (
    FOR_EVER,
    LATEST_AUDIT,
    RUNS_PER_LOOKUP,
    audit_statement,
    count_statement,
    cursor_values,
    groups_statement,
    jobs_statement,
    made_statement,
    runs_clauses,
    span_values,
    statements,
    tally_statement,
)

SQL, PRUNE_SQL = statements("postgres"), statements("postgres", "prune")
T = TypeVar("T")
MAX_CONNECTIONS = 8
# Attempts of a transaction that lost against another one.
MAX_TRIES = 5

# A small table is scanned faster than read through an index.
BY_SCAN = "SET LOCAL enable_seqscan = on"
# The schedules of many runs are read once, not looked up for each run.
BY_SCAN_OR_HASH = f"{BY_SCAN}; SET LOCAL enable_hashjoin = on"
BY_HASH = f"{BY_SCAN_OR_HASH}; SET LOCAL enable_nestloop = off"
# The pool warns of each failed attempt to connect; the engine logs the outage once.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
# The name of a due job, and when it is due.
Due = tuple[Any, ...]


class PostgresStore:
    """A store in a PostgreSQL database, 14 or later. Leases expire by its clock, unless tests pass `now`."""

    def __init__(self, url: str, *, ttl_ms: int = TTL_MS, margin_ms: int | None = None) -> None:
        self._pool = PostgresPool(url, min_size=1, max_size=MAX_CONNECTIONS, configure=configuring(ttl_ms))
        self._address = self._pool.address
        margin_ms = min(MARGIN_MS, ttl_ms // MARGIN_PART) if margin_ms is None else margin_ms
        self._lease = PostgresLease(self._address.name, ttl_ms=ttl_ms, margin_ms=margin_ms)

    # --- leases ----------------------------------------------------------------------------------

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Lease the free shards of a namespace, or raise OwnedError if there are none.

        With `balance`, this worker counts from now on: the others release its share at their next renewal.
        """
        wanted = Ownership(namespace, owner, {}, self._lease.ttl_ms)
        ownership = wanted
        if balance or await self._write(self._lease.has_free, wanted, now):
            ownership = await self._write(self._lease.renew, wanted, now, balance)
        if not ownership.shards:
            raise OwnedError(namespace=namespace, owner=self._address.name)
        async with self._reading() as connection:
            ((high,),) = await rows_of(connection, SQL["high"], {"namespace": namespace})
        return ownership._replace(high=high)

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Extend a lease; return the shards still owned and those newly acquired.

        `high` is the latest instant of the new ones: their last owner's clock may have been ahead.
        """
        renewed = await self._write(self._lease.renew, ownership, now, balance)
        new = renewed.shards.keys() - ownership.shards.keys()
        if not new:
            return renewed
        async with self._reading() as connection:
            values = {"namespace": ownership.namespace, "shards": numbers(new)}
            ((high,),) = await rows_of(connection, SQL["high_of_shards"], values)
        return renewed._replace(high=high)

    async def release(self, ownership: Ownership, *, now: int | None = None) -> None:
        """End a lease at once, so that another worker can take over; `now` is kept for its successor."""
        await self._write(self._lease.release, ownership, now)

    # --- the loop --------------------------------------------------------------------------------

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the jobs due up to an instant, oldest first, and the `named` ones."""
        namespace, shards = ownership.namespace, ownership.shards
        owned = "" if len(shards) == SHARDS else SQL["of_shards"]
        unplanned = f"{owned} {SQL['without']}" if without else owned
        values = {"namespace": namespace, "until": until, "shards": numbers(shards)}
        values["without"] = texts([job.identity for job in without])
        async with self._reading() as connection:
            jobs, runs = (
                await self._due(connection, {**values, "limit": limit + 1}, unplanned) if limit else ([], [])
            )
            names, next_at = oldest_of([(job.identity, job.plan_at) for job in jobs], runs, limit)
            high = None
            if next_at is None:
                statement = SQL["next_at_of_shards" if owned else "next_at"]
                ((next_at, high),) = await rows_of(connection, statement, values)
            names |= dict.fromkeys(name for name in named if shard_of(name) in shards)
            known = {job.identity: job for job in jobs if job.identity in names}
            cases = await self._cases(connection, namespace, list(names), known) if names else []
        return LoadResult(cases, next_at, high or 0)

    async def due_besides(
        self, ownership: Ownership, tenants: Sequence[str], *, until: int, limit: int
    ) -> list[str]:
        """Return the names of jobs due up to an instant that are for none of these tenants, oldest first."""
        values = {"namespace": ownership.namespace, "until": until, "limit": limit}
        values |= {"shards": numbers(ownership.shards), "tenants": texts(list(tenants))}
        async with self._reading() as connection:
            return [name for (name,) in await rows_of(connection, SQL["due_besides"], values)]

    async def _due(
        self, connection: Connection, values: dict[str, Any], clauses: str
    ) -> tuple[list[JobRecord], list[Due]]:
        """Return the jobs to plan, and the names of the jobs with due runs, oldest first."""
        jobs = await rows_of(connection, f"{SQL['jobs']} {clauses} {SQL['due_jobs']}", values)
        runs = await rows_of(connection, f"{SQL['runs_with_due_at']} {clauses} {SQL['due_runs']}", values)
        return list(map(job_of, jobs)), runs

    async def _cases(
        self, connection: Connection, namespace: str, names: list[str] | None, known: dict[str, JobRecord]
    ) -> list[JobState]:
        """Return jobs with their open runs and the earlier definitions that these still follow.

        The jobs are read first: an edit in between has a new revision, and the store refuses a stale change.
        """
        named = "" if names is None else SQL["named"]
        values = {"namespace": namespace, "names": texts([name for name in names or () if name not in known])}
        if names is None or len(known) < len(names):
            rows = await rows_of(connection, f"{SQL['jobs']} {named} {SQL['by_name']}", values)
            known |= {job.identity: job for job in map(job_of, rows)}
        values["names"] = texts(names or [])
        statement = f"{SQL['runs']} {SQL['open_runs']} {named} {SQL['by_time']}"
        runs, faults = runs_of(await rows_of(connection, statement, values))
        earlier = await self._earlier(connection, namespace, known, runs)
        order = known if names is None else [name for name in names if name in known]
        return [
            JobState(known[name], runs.get(name, ()), (), earlier.get(name, {}), fault=faults.get(name))
            for name in order
        ]

    async def _earlier(
        self,
        connection: Connection,
        namespace: str,
        jobs: dict[str, JobRecord],
        runs: dict[str, list[RunRecord]],
    ) -> dict[str, dict[int, str]]:
        wanted = [
            (name, epoch)
            for name, theirs in runs.items()
            if name in jobs
            for epoch in earlier_epochs(jobs[name], theirs)
        ]
        if not wanted:
            return {}
        names, epochs = zip(*wanted, strict=True)
        values = {"namespace": namespace, "names": texts(names), "epochs": numbers(epochs)}
        return definitions_by_job(await rows_of(connection, SQL["some_epochs"], values))

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every run that may be executing."""
        values = {"namespace": ownership.namespace, "shards": numbers(ownership.shards)}
        owned = "" if len(ownership.shards) == SHARDS else SQL["of_shards"]
        statement = f"{SQL['runs']} {SQL['open_runs']} {owned} {SQL['by_time']}"
        async with self._reading() as connection:
            rows = await rows_of(connection, statement, values)
        runs, _ = runs_of(rows)
        return [run for theirs in runs.values() for run in theirs if run.in_flight]

    async def ahead(self, ownership: Ownership, *, since: int, after: str = "", limit: int) -> list[JobState]:
        """Return owned jobs last written later than `since`, in the order of their names, after a name."""
        namespace, shards = ownership.namespace, numbers(ownership.shards)
        values = {"namespace": namespace, "since": since, "after": after, "limit": limit, "shards": shards}
        async with self._reading() as connection:
            rows = await rows_of(connection, f"{SQL['jobs']} {SQL['ahead_jobs']}", values)
            known = {job.identity: job for job in map(job_of, rows)}
            return await self._cases(connection, namespace, list(known), known) if known else []

    async def recorded(self, namespace: str, after: Mapping[str, int]) -> dict[str, Recorded]:
        """Return the records of some jobs, each after a nominal time: runs, ranges, earlier definitions."""
        names = texts(list(after))
        values = {"namespace": namespace, "names": names, "after": numbers(after.values()), "newest": None}
        async with self._reading() as connection:
            runs = readable(await rows_of(connection, SQL["recorded_runs"], values), run_of)
            ranges = readable(await rows_of(connection, SQL["recorded_ranges"], values), range_of)
            epochs = await rows_of(connection, SQL["epochs"], values) if ranges else []
        return recorded_by_job(runs, ranges, epochs)

    async def note_clock(self, ownership: Ownership, record: ClockRecord, *, high: int | None = None) -> None:
        """Write an excursion of this owner's clock; with `high`, set the latest instant to it."""
        await self._write(self._note_clock, ownership, record, high)

    async def _note_clock(
        self, connection: Connection, ownership: Ownership, record: ClockRecord, high: int | None
    ) -> bool:
        common = {"namespace": ownership.namespace, "limit": MAX_EXCURSIONS, "now": high}
        await connection.execute(SQL["note_clock"].encode(), {**common, **record._asdict()})
        await connection.execute(SQL["trim_clock"], common)
        if high is not None:
            await connection.execute(SQL["set_high"], common)
        return True

    async def note_incidents(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        """Write incidents of the namespace: take-overs and jumps of this owner's clock."""
        await self._write(insert_incidents, ownership.namespace, incidents)

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Commit changes in one transaction, fenced by the lease's tokens and by each job's revision."""
        if await self._write(self._settle_all, ownership, changes, now):
            return CLEAN
        for _ in range(MAX_TRIES):
            settled = await self._write(self._settle_rest, ownership, changes, now)
            if settled is not None:
                return settled
        raise StoreUnavailableError("The store cannot be used: other workers keep writing the same periods")

    async def _settle_all(
        self, connection: Connection, ownership: Ownership, changes: Sequence[Change], now: int
    ) -> bool | None:
        await self._lease.fence(connection, ownership, changes)
        if not changes:
            await connection.execute(SQL["record_high"], {"namespace": ownership.namespace, "now": now})
        return await self._write_settled(connection, ownership.namespace, changes, now) or None

    async def _settle_rest(
        self, connection: Connection, ownership: Ownership, changes: Sequence[Change], now: int
    ) -> WriteResult | None:
        """Write the changes that are not stale."""
        await self._lease.fence(connection, ownership, changes)
        settled = await refused(connection, ownership.namespace, changes)
        rest = accepted(changes, settled)
        written = not rest or await self._write_settled(connection, ownership.namespace, rest, now)
        return settled if written else None

    async def _write_settled(
        self, connection: Connection, namespace: str, changes: Sequence[Change], now: int
    ) -> bool:
        """Write changes; the worker that sends their notices may be another one."""
        if any(change.notices for change in changes):
            await notify(connection, namespace, JOBS)
        return await write_changes(connection, namespace, changes, now)

    # --- registration ----------------------------------------------------------------------------

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
        removed = frozenset(forgotten)
        for _ in range(MAX_TRIES):
            if await self._write(self._put, namespace, created, changed, forgotten, audit, now):
                return CLEAN
            names = [job.identity for job in created if job.identity not in removed]
            settled = await self._write(refused, namespace, changed, names)
            if settled.stale_jobs or settled.existing_runs:
                return settled
        raise StoreUnavailableError("The store cannot be used: other callers keep writing the same jobs")

    async def _put(
        self,
        connection: Connection,
        namespace: str,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str],
        audit: Sequence[AuditRecord],
        now: int,
    ) -> bool | None:
        common = {"namespace": namespace, "now": now}
        await self._forget(connection, namespace, forgotten)
        for edited in chunks(changed):
            await keep_epochs(connection, namespace, edited)
        # In one order, as changes are: callers that write the same jobs do not deadlock.
        for new in chunks(sorted(created, key=lambda job: job.identity)):
            values = {**common, **arrays(JobRecord._fields, new, GROUPS["new_job"]), "shard": shards_of(new)}
            if await count_of(connection, SQL["insert_jobs"], values) != len(new):
                return None
        for some in chunks(audit):
            values = {**common, **arrays(AuditRecord._fields, some, GROUPS["audit"])}
            await connection.execute(SQL["insert_audit"], values)
        if stopped := [job for job in created if job.paused or job.suspended]:
            await insert_incidents(connection, namespace, incidents_of_new(stopped))
        if created or any(change.scope is not WriteScope.END for change in changed):
            await notify(connection, namespace, JOBS)
        if not await write_changes(connection, namespace, changed, now):
            return None
        # Last: the namespace has one mark, and whoever writes it next waits for the end of this transaction.
        await connection.execute(SQL["record_high"], common)
        return True

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs with their whole history."""
        await self._write(self._forget, namespace, identities)

    async def _forget(self, connection: Connection, namespace: str, identities: Sequence[str]) -> bool:
        for names in chunks(sorted(identities)):
            values = {"namespace": namespace, "names": texts(names)}
            # Locking the jobs waits for a running write, and blocks later ones.
            await connection.execute(SQL["revisions"], values)
            for table in ("attempts", "runs", "ranges", "epochs", "jobs"):
                await connection.execute(SQL[f"forget_{table}"], values)
        return True

    # --- lookups ---------------------------------------------------------------------------------

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: the given ones, or all."""
        names = None if identities is None else list(dict.fromkeys(identities))
        async with self._reading() as connection:
            return await self._cases(connection, namespace, names, {})

    async def epochs(self, namespace: str, *identities: str, newest: int | None = None) -> list[EpochRecord]:
        """Return the earlier definitions of some jobs, by name and the oldest of each first.

        With `newest`, at most so many of each.
        """
        values = {"namespace": namespace, "names": texts(identities), "newest": newest}
        async with self._reading() as connection:
            rows = await rows_of(connection, SQL["epochs"], values)
        return [EpochRecord(*row) for row in rows]

    async def reopened(self, namespace: str, identity: str, *, at: int) -> list[ReopenedRecord]:
        """Return the withdrawn records of a period that was opened again, oldest first."""
        async with self._reading() as connection:
            values = {"namespace": namespace, "name": identity, "at": at}
            return readable(await rows_of(connection, SQL["reopened"], values), reopened_of)

    async def incidents(
        self, namespace: str, identity: str, *, since: int, until: int, limit: int = 200
    ) -> list[IncidentRecord]:
        """Return the newest incidents of a job and its namespace that overlap an interval, oldest first."""
        values = {"namespace": namespace, "name": identity, "since": since, "until": until, "limit": limit}
        async with self._reading() as connection:
            return readable(await rows_of(connection, SQL["incidents"], values), incident_of)[::-1]

    async def clock_records(self, namespace: str, *, limit: int = 20) -> list[ClockRecord]:
        """Return the excursions of the workers' clocks, newest first."""
        async with self._reading() as connection:
            values = {"namespace": namespace, "limit": limit}
            return readable(await rows_of(connection, SQL["clock_records"], values), clock_of)

    async def read_clock(self) -> int | None:
        """Return the database's clock in milliseconds."""
        async with self._reading() as connection:
            ((now,),) = await rows_of(connection, SQL["database_now"], {"now": None})
        return int(now)

    async def absence(self, namespace: str, shard: int, *, now: int | None = None) -> IncidentRecord | None:
        """Return the outage of a shard that no worker owns now; None while a worker owns it."""
        async with self._reading() as connection:
            return await self._lease.absence(connection, namespace, shard, now)

    async def is_drained(self, namespace: str, owner: str, *, now: int) -> bool:
        """Say whether a person asked this worker to drain; if so, note that it was heard from."""
        async with self._reading() as connection:
            return await self._lease.is_drained(connection, namespace, owner, now)

    async def set_drain(self, namespace: str, owner: str, *, drain: bool, audit: AuditRecord) -> None:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        await self._write(self._set_drain, namespace, owner, drain, audit)

    async def _set_drain(
        self, connection: Connection, namespace: str, owner: str, drain: bool, audit: AuditRecord
    ) -> bool:
        values: dict[str, object] = {"namespace": namespace, "owner": owner, "now": audit.at}
        await connection.execute(SQL["drop_old_drains"], {**values, "old": audit.at - KEEP_DRAIN_MS})
        await connection.execute(SQL["insert_drain" if drain else "delete_drain"], values)
        entry = arrays(AuditRecord._fields, [audit], GROUPS["audit"])
        await connection.execute(SQL["insert_audit"], {**values, **entry})
        await notify(connection, namespace, DRAINS)
        return True

    async def leases(self, namespace: str, *, now: int | None = None) -> list[WorkerLease]:
        """Return the workers of a namespace with the shards they lease, by owner; expired ones too."""
        async with self._reading() as connection:
            return await self._lease.leases(connection, namespace, now)

    async def version(self) -> str:
        """Return a text that changes when a transaction that wrote something ends."""
        async with self._reading() as connection:
            ((version,),) = await rows_of(connection, SQL["version"], {})
        return str(version)

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a retried run, oldest first."""
        async with self._reading() as connection:
            rows = await rows_of(connection, SQL["attempts"], {"namespace": namespace, "key": key})
        return readable(rows, attempt_of)

    # --- listings --------------------------------------------------------------------------------

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs with a name later than `after`, sorted by name."""
        values = {**_filter_values(wanted), "namespace": namespace, "after": after, "limit": limit}
        async with self._reading() as connection:
            rows = await rows_of(connection, jobs_statement(SQL, wanted), values)
        return [FoundJob(job_of(job), changed_at) for *job, changed_at in rows]

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have jobs, sorted by code point."""
        async with self._reading() as connection:
            return [name for (name,) in await rows_of(connection, SQL["used_namespaces"], {})]

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs match."""
        values = {**_filter_values(wanted), "namespace": namespace}
        async with self._reading() as connection:
            ((count,),) = await rows_of(connection, count_statement(SQL, wanted), values)
        return int(count)

    async def group_jobs(
        self, namespace: str, wanted: JobFilter, *, limit: int, singly: bool = False
    ) -> list[JobGroup]:
        """Return groups of jobs, the largest first."""
        values = {**_filter_values(wanted), "namespace": namespace, "limit": limit, "longest": MAX_GROUPED}
        async with self._reading() as connection:
            return groups_of(await rows_of(connection, groups_statement(SQL, wanted, singly=singly), values))

    async def count_made(self, namespace: str, wanted: JobFilter, span: RunSpan) -> dict[int, int]:
        """Count the runs of some jobs in each part of an interval."""
        values = {**_filter_values(wanted), **span_values(span), "namespace": namespace}
        async with self._reading() as connection:
            return dict(await rows_of(connection, made_statement(SQL, wanted), values))

    async def tally_runs(
        self, namespace: str, wanted: JobFilter, span: RunSpan, *, not_ok: bool = False
    ) -> list[TagCount]:
        """Count the runs and the aggregated periods of some jobs by tag and status."""
        values = {**_filter_values(wanted), **span_values(span), "namespace": namespace}
        async with self._reading() as connection, connection.transaction():
            by_job = wanted.users is not None and not not_ok and await _is_rare(connection, wanted, values)
            if not by_job and (not_ok or wanted.users is not None):
                await connection.execute(BY_HASH.encode())
            elif wanted == JobFilter():
                await connection.execute(BY_SCAN_OR_HASH.encode())
            statement = tally_statement(SQL, wanted, not_ok=not_ok, by_job=by_job)
            return tallies_of(await rows_of(connection, statement, values))

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Count the open runs by state, reading at most `limit` of them."""
        values = {"namespace": namespace, "now": now, "limit": limit}
        async with self._reading() as connection:
            return OpenRuns(**dict(await rows_of(connection, SQL["count_open_runs"], values)))

    async def open_by_user(self, namespace: str, users: Sequence[str]) -> dict[str, int]:
        """Count the open runs of each of some users."""
        values = {"namespace": namespace, "users": texts(list(users))}
        async with self._reading() as connection:
            counted = dict(await rows_of(connection, SQL["open_by_user"], values))
        return {user: counted.get(user, 0) for user in users}

    async def serves_others(self, namespace: str, tenant: str) -> bool:
        """Say whether there is a job for another tenant."""
        values = {"namespace": namespace, "tenant": tenant}
        async with self._reading() as connection:
            return bool(await rows_of(connection, SQL["serves_others"], values))

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs with a nominal time earlier than `before`, newest first."""
        before = FOR_EVER if before is None else before
        values = {"namespace": namespace, "name": identity, "before": before}
        return await self._history(SQL["run_history"], values, limit)

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return runs by idempotency key, open or closed."""
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
        """Return the runs of all jobs, latest record first."""
        values = {**cursor_values(before), "namespace": namespace, "status": status}
        values["users"] = texts(users or ())
        return await self._history(runs_clauses(SQL, status, users), values, limit, first=BY_SCAN)

    async def _history(
        self, clauses: str, values: dict[str, Any], limit: int, first: str = ""
    ) -> list[RunRecord]:
        async def query(count: int) -> list[tuple[Any, ...]]:
            async with self._reading() as connection, connection.transaction():
                if first:
                    await connection.execute(first.encode())
                return await rows_of(connection, f"{SQL['runs']} {clauses}", {**values, "limit": count})

        return await readable_runs(query, limit)

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest `limit` runs of each given job."""
        values = {"namespace": namespace, "names": texts(list(dict.fromkeys(identities))), "limit": limit}
        async with self._reading() as connection:
            return runs_of(await rows_of(connection, SQL["newest_runs"], values))[0]

    async def run_counts(self, namespace: str, identity: str, *, bounds: Sequence[int]) -> list[RunCount]:
        """Count a job's runs by status in parts of an interval."""
        values = {
            "namespace": namespace,
            "name": identity,
            "starts": list(bounds[:-1]),
            "ends": list(bounds[1:]),
        }
        async with self._reading() as connection:
            return counts_of(await rows_of(connection, SQL["run_counts"], values))

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's aggregated periods, newest first; with `at`, those that cover a nominal time."""
        at, since = (FOR_EVER, -FOR_EVER) if at is None else (at, at)
        values = {"namespace": namespace, "name": identity, "at": at, "since": since}
        async with self._reading() as connection:
            return readable(await rows_of(connection, SQL["ranges"], values), range_of)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit entries, latest first."""
        values = {**wanted._asdict(), "namespace": namespace, "users": texts(wanted.users or ())}
        values |= {"limit": limit, **(before or LATEST_AUDIT)._asdict()}
        async with self._reading() as connection:
            rows = await rows_of(connection, audit_statement(SQL, wanted), values)
        return [Audited(number, AuditRecord(*row)) for number, *row in rows]

    # --- notifications ---------------------------------------------------------------------------

    async def pending_notices(
        self, namespace: str, *, limit: int, of_owner: int | None = None
    ) -> list[NoticeRecord]:
        """Return the notices still to be sent, `limit` of each target, of its owners in turn, oldest first.

        Those that were tried are among them. `of_owner` is the most of one owner, of each of its targets in
        turn. The owner is what the name of a job starts with, up to a slash.
        """
        most = NO_LIMIT if of_owner is None else of_owner
        async with self._reading() as connection:
            values = {"namespace": namespace, "limit": limit, "of_owner": most}
            return readable(await rows_of(connection, SQL["pending_notices"], values), notice_of)

    async def give_up_notices(self, namespace: str, *, most: int, error: str, now: int) -> int:
        """End the oldest notices still to be sent of owners that have more than `most`; return how many."""
        values = {"namespace": namespace, "most": most, "error": error, "now": now}
        return await self._write(self._give_up_notices, values)

    async def _give_up_notices(self, connection: Connection, values: Mapping[str, object]) -> int:
        return (await connection.execute(SQL["give_up_notices"], values)).rowcount

    async def note_notices(
        self, namespace: str, changed: Sequence[NoticeRecord], *, removed: Sequence[int] = ()
    ) -> None:
        """Write the progress of notices, and remove others by their numbers."""
        await self._write(self._note_notices, namespace, changed, removed)

    async def _note_notices(
        self, connection: Connection, namespace: str, changed: Sequence[NoticeRecord], removed: Sequence[int]
    ) -> bool:
        columns = [COLUMNS["number"], *GROUPS["changed_notice"]]
        for some in chunks(changed):
            values = {"namespace": namespace, **arrays(NoticeRecord._fields, some, columns)}
            await connection.execute(SQL["update_notices"].encode(), values)
        common = {"namespace": namespace, "numbers": numbers(removed), "limit": MAX_NOTICES}
        if removed:
            await connection.execute(SQL["remove_notices"], common)
        await connection.execute(SQL["trim_notices"], common)
        return True

    async def notices(
        self, namespace: str, identity: str, *, first: int, last: int, limit: int = 100
    ) -> list[NoticeRecord]:
        """Return the notices of a job about nominal times from `first` to `last`, oldest first."""
        values = {"namespace": namespace, "name": identity, "first": first, "last": last, "limit": limit}
        async with self._reading() as connection:
            return readable(await rows_of(connection, SQL["notices"], values), notice_of)

    # --- retention -------------------------------------------------------------------------------

    async def prune(
        self,
        namespace: str,
        bounds: PruneBounds,
        *,
        cursor: PruneCursor = FROM_START,
        limit: int,
        dry_run: bool = False,
    ) -> PrunedBatch:
        """Remove old history of some jobs; the result says where to continue."""
        batch = count_batch if dry_run else prune_batch
        return await self._write(
            self._prune, namespace, lambda: batch(PRUNE_SQL, bounds, cursor, limit=limit, listed=texts)
        )

    async def _prune(
        self, connection: Connection, namespace: str, begin: Callable[[], Pruning]
    ) -> PrunedBatch:
        pruning = begin()
        rows: Rows | None = None
        while True:
            try:
                statement, values = pruning.send(rows)
            except StopIteration as end:
                batch: PrunedBatch = end.value
                return batch
            rows = await rows_of(connection, statement, {**values, "namespace": namespace})

    # --- connections -----------------------------------------------------------------------------

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch for writes of other workers; `call` is invoked at each notification."""
        return PostgresWatch(self._address, namespace, call, self._notify)

    async def _notify(self, namespace: str, message: str) -> None:
        async with self._reading() as connection:
            await notify(connection, namespace, message)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    def _reading(self) -> AbstractAsyncContextManager[Connection]:
        return self._pool.connection()

    async def _write(self, work: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run work in one transaction, rolled back if it returns None and retried after a deadlock."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                async with self._reading() as connection, connection.transaction() as transaction:
                    answer = await work(connection, *arguments)
                    if answer is None:
                        raise Rollback(transaction)
            except Rollback as cause:
                # Raised when the connection was cut in between; nothing is written then either.
                raise StoreUnavailableError("The store cannot be used: the connection was lost") from cause
            except StoreError as error:
                if not tries_left or not isinstance(error.__cause__, DeadlockDetected | SerializationFailure):
                    raise
            else:
                return answer
        raise AssertionError("the last attempt returns or raises")


async def _is_rare(connection: Connection, wanted: JobFilter, values: dict[str, Any]) -> bool:
    """Say whether some jobs have few of the runs in a time, so that each one's history is looked up."""
    ((jobs,),) = await rows_of(connection, count_statement(SQL, wanted), values)
    ((is_rare,),) = await rows_of(connection, SQL["has_made"], {**values, "least": RUNS_PER_LOOKUP * jobs})
    return bool(is_rare)


def _filter_values(wanted: JobFilter) -> dict[str, Any]:
    """Return the parameters of a filter of jobs."""
    lists = {name: texts(getattr(wanted, name) or ()) for name in ("names", "users", "definitions")}
    return {**wanted._asdict(), **lists}


def oldest_of(jobs: Sequence[Due], runs: Sequence[Due], limit: int) -> tuple[dict[str, None], int | None]:
    """Return the names of `limit` jobs, oldest first, and when the first of the others is due.

    Each list is sorted by time and may be truncated after its last entry.
    """
    names: dict[str, None] = {}
    for name, at in sorted([*jobs, *runs], key=lambda due: due[1]):
        if name not in names and len(names) == limit:
            return names, at
        names[name] = None
    cut = [due[-1][1] for due in (jobs, runs) if len(due) > limit]
    return names, min(cut, default=None)
