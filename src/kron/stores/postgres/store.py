"""The PostgreSQL store: any number of workers, each the owner of its shards while its leases last."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from psycopg import Rollback
from psycopg.errors import DeadlockDetected, SerializationFailure

from kron.core.errors import OwnedError, StoreError
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
from kron.core.plan.step import Change, JobState, WriteScope
from kron.core.shard import SHARDS, shard_of
from kron.ports import LoadResult, Ownership, Watch, WriteResult
from kron.stores.column import COLUMNS, GROUPS
from kron.stores.postgres.connection import PostgresPool, configuring, count_of, rows_of
from kron.stores.postgres.lease import MARGIN_MS, MARGIN_PART, TTL_MS, PostgresLease
from kron.stores.postgres.schema import Connection
from kron.stores.postgres.watch import JOBS, PostgresWatch, tell
from kron.stores.postgres.write import (
    accepted,
    arrays,
    chunks,
    numbers,
    refused,
    shards_of,
    texts,
    write_changes,
)
from kron.stores.row import attempt_of, job_of, range_of, readable, readable_runs, run_of, runs_of
from kron.stores.statement import (
    FOR_EVER,
    audit_statement,
    count_statement,
    jobs_statement,
    place_values,
    runs_clauses,
    statements,
)

SQL = statements("postgres")
T = TypeVar("T")
MAX_CONNECTIONS = 8
# How often a transaction that lost against another one is begun again.
MAX_TRIES = 5
NOTHING: frozenset[str] = frozenset()
CLEAN = WriteResult(NOTHING, NOTHING)

# Where there is little, it is quicker to look at all of it than to follow an index.
BY_LOOKING = "SET LOCAL enable_seqscan = on"
# Only what is old is not found by key.
BY_AGE = "SET LOCAL enable_bitmapscan = on"
# The pool warns of each failed attempt to connect; the engine says so itself, once.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
# The name of a job that has something to do, and when; a row may say more.
Due = tuple[Any, ...]


class PostgresStore:
    """A store in a PostgreSQL database, 14 or later. Leases last by its clock, unless tests set one."""

    def __init__(self, url: str, *, ttl_ms: int = TTL_MS, margin_ms: int | None = None) -> None:
        self._pool = PostgresPool(url, least=1, most=MAX_CONNECTIONS, configure=configuring(ttl_ms))
        self._address = self._pool.address
        margin_ms = min(MARGIN_MS, ttl_ms // MARGIN_PART) if margin_ms is None else margin_ms
        self._lease = PostgresLease(self._address.name, ttl_ms=ttl_ms, margin_ms=margin_ms)

    # --- ownership -------------------------------------------------------------------------------

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Become the one who looks after what is free of a namespace, or raise OwnedError if nothing is.

        Who wants to share is counted from now on, so that the others make room at their next renewal.
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
        """Return what is still owned, and what has become free meanwhile, for a new while."""
        return await self._write(self._lease.renew, ownership, now, balance)

    async def release(self, ownership: Ownership) -> None:
        """Let another owner take over at once."""
        await self._write(self._lease.release, ownership)

    # --- a wake ----------------------------------------------------------------------------------

    async def load(
        self,
        ownership: Ownership,
        *,
        until: int,
        limit: int,
        named: Sequence[str] = (),
        without: Sequence[JobRecord] = (),
    ) -> LoadResult:
        """Return the jobs with something to do up to an instant, oldest first, and those named."""
        namespace, shards = ownership.namespace, ownership.shards
        some = "" if len(shards) == SHARDS else SQL["of_shards"]
        free = f"{some} {SQL['not_in_hand']}" if without else some
        values = {"namespace": namespace, "until": until, "shards": numbers(shards)}
        values["in_hand"] = texts([job.identity for job in without])
        async with self._reading() as connection:
            jobs, runs = (
                await self._due(connection, {**values, "limit": limit + 1}, free) if limit else ([], [])
            )
            names, next_at = first_of([(job.identity, job.plan_at) for job in jobs], runs, limit)
            if next_at is None:
                statement = SQL["next_at_of_shards" if some else "next_at"]
                ((next_at,),) = await rows_of(connection, statement, values)
            names |= dict.fromkeys(name for name in named if shard_of(name) in shards)
            known = {job.identity: job for job in jobs if job.identity in names}
            cases = await self._cases(connection, namespace, list(names), known) if names else []
        return LoadResult(cases, next_at)

    async def _due(
        self, connection: Connection, values: dict[str, Any], some: str
    ) -> tuple[list[JobRecord], list[Due]]:
        """Return the jobs to plan, and of the runs that are due their jobs' names, oldest first."""
        jobs = await rows_of(connection, f"{SQL['jobs']} {some} {SQL['due_jobs']}", values)
        runs = await rows_of(connection, f"{SQL['runs_with_due_at']} {some} {SQL['due_runs']}", values)
        return list(map(job_of, jobs)), runs

    async def _cases(
        self, connection: Connection, namespace: str, names: list[str] | None, known: dict[str, JobRecord]
    ) -> list[JobState]:
        """Return jobs with their open runs and the earlier definitions these still follow.

        The jobs are read first: an edit that comes in between has a new revision, and is noticed by it.
        """
        some = "" if names is None else SQL["named"]
        values = {"namespace": namespace, "names": texts([name for name in names or () if name not in known])}
        if names is None or len(known) < len(names):
            rows = await rows_of(connection, f"{SQL['jobs']} {some} {SQL['by_name']}", values)
            known |= {job.identity: job for job in map(job_of, rows)}
        values["names"] = texts(names or [])
        statement = f"{SQL['runs']} {SQL['open_runs']} {some} {SQL['by_time']}"
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
        names = [
            name
            for name, theirs in runs.items()
            if name in jobs and any(run.epoch < jobs[name].epoch for run in theirs)
        ]
        found: dict[str, dict[int, str]] = {}
        if names:
            values = {"namespace": namespace, "names": texts(names)}
            for name, epoch, _, definition in await rows_of(connection, SQL["epochs"], values):
                found.setdefault(name, {})[epoch] = definition
        return found

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every execution that may be under way."""
        values = {"namespace": ownership.namespace, "shards": numbers(ownership.shards)}
        some = "" if len(ownership.shards) == SHARDS else SQL["of_shards"]
        statement = f"{SQL['runs']} {SQL['open_runs']} {some} {SQL['by_time']}"
        async with self._reading() as connection:
            rows = await rows_of(connection, statement, values)
        runs, _ = runs_of(rows)
        return [run for theirs in runs.values() for run in theirs if run.in_flight]

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Write changes in one transaction that is fenced by ownership and by each job's revision."""
        if await self._write(self._settle_all, ownership, changes, now):
            return CLEAN
        for _ in range(MAX_TRIES):
            settled = await self._write(self._settle_rest, ownership, changes, now)
            if settled is not None:
                return settled
        raise StoreError("The store cannot be used: others keep writing the same periods")

    async def _settle_all(
        self, connection: Connection, ownership: Ownership, changes: Sequence[Change], now: int
    ) -> bool | None:
        await self._lease.fence(connection, ownership, changes)
        if not changes:
            await connection.execute(SQL["note_high"], {"namespace": ownership.namespace, "now": now})
        return await write_changes(connection, ownership.namespace, changes, now) or None

    async def _settle_rest(
        self, connection: Connection, ownership: Ownership, changes: Sequence[Change], now: int
    ) -> WriteResult | None:
        """Write what nobody else was quicker with."""
        await self._lease.fence(connection, ownership, changes)
        settled = await refused(connection, ownership.namespace, changes)
        rest = accepted(changes, settled)
        written = not rest or await write_changes(connection, ownership.namespace, rest, now)
        return settled if written else None

    # --- writing ---------------------------------------------------------------------------------

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
        """Forget jobs, and write new and changed ones, in one transaction, or do nothing of it."""
        gone = frozenset(forgotten)
        for _ in range(MAX_TRIES):
            if await self._write(self._put, namespace, created, changed, forgotten, audit, now):
                return CLEAN
            names = [job.identity for job in created if job.identity not in gone]
            settled = await self._write(refused, namespace, changed, names)
            if settled.stale_jobs or settled.existing_runs:
                return settled
        raise StoreError("The store cannot be used: others keep writing the same jobs")

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
        await connection.execute(SQL["note_high"], common)
        await self._forget(connection, namespace, forgotten)
        for edited in chunks(changed):
            jobs = [change.job for change in edited]
            values = {**common, **arrays(JobRecord._fields, jobs, (COLUMNS["identity"], COLUMNS["epoch"]))}
            values["namespaces"] = texts([namespace] * len(jobs))
            await connection.execute(SQL["keep_epochs"], values)
        for new in chunks(created):
            values = {**common, **arrays(JobRecord._fields, new, GROUPS["new_job"]), "shard": shards_of(new)}
            if await count_of(connection, SQL["insert_jobs"], values) != len(new):
                return None
        for some in chunks(audit):
            values = {**common, **arrays(AuditRecord._fields, some, GROUPS["audit"])}
            await connection.execute(SQL["insert_audit"], values)
        if created or any(change.scope is not WriteScope.END for change in changed):
            await tell(connection, namespace, JOBS)
        return await write_changes(connection, namespace, changed, now) or None

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs and everything remembered of them."""
        await self._write(self._forget, namespace, identities)

    async def _forget(self, connection: Connection, namespace: str, identities: Sequence[str]) -> bool:
        # The jobs first: whoever is just writing one is waited for, and nobody begins to.
        for names in chunks(sorted(identities)):
            values = {"namespace": namespace, "names": texts(names)}
            for what in ("jobs", "attempts", "runs", "ranges", "epochs"):
                await connection.execute(SQL[f"forget_{what}"], values)
        return True

    # --- reading ---------------------------------------------------------------------------------

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: those named, or all."""
        names = None if identities is None else list(dict.fromkeys(identities))
        async with self._reading() as connection:
            return await self._cases(connection, namespace, names, {})

    async def epochs(self, namespace: str, identity: str) -> list[EpochRecord]:
        """Return the earlier definitions of a job and when each began to hold, oldest first."""
        values = {"namespace": namespace, "names": texts([identity])}
        async with self._reading() as connection:
            rows = await rows_of(connection, SQL["epochs"], values)
        return [EpochRecord(*row) for row in rows]

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a run that was started again, oldest first."""
        async with self._reading() as connection:
            rows = await rows_of(connection, SQL["attempts"], {"namespace": namespace, "key": key})
        return readable(rows, attempt_of)

    # --- listings --------------------------------------------------------------------------------

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs in the order of their names, those with a later name than `after`."""
        values = {**wanted._asdict(), "namespace": namespace, "after": after, "limit": limit}
        values |= {"names": texts(wanted.names or ()), "users": texts(wanted.users or ())}
        async with self._reading() as connection:
            rows = await rows_of(connection, jobs_statement(SQL, wanted), values)
        return [FoundJob(job_of(job), changed_at) for *job, changed_at in rows]

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

    # --- retention -------------------------------------------------------------------------------

    async def prune(self, namespace: str, *, before: int, limit: int) -> int:
        """Remove old history, at most so many records; return how many were removed."""
        return await self._write(self._prune, namespace, before, limit)

    async def _prune(self, connection: Connection, namespace: str, before: int, limit: int) -> int:
        values = {"namespace": namespace, "before": before}
        await connection.execute(BY_AGE)
        removed = 0
        for what in ("prune_runs", "prune_ranges", "prune_epochs"):
            if removed < limit:
                ((more,),) = await rows_of(connection, SQL[what], {**values, "limit": limit - removed})
                removed += more
        return removed

    # --- connections -----------------------------------------------------------------------------

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch what others write; `call` is called when they do."""
        return PostgresWatch(self._address, namespace, call, self._tell)

    async def _tell(self, namespace: str, what: str) -> None:
        async with self._reading() as connection:
            await tell(connection, namespace, what)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._pool.close()

    def _reading(self) -> AbstractAsyncContextManager[Connection]:
        return self._pool.connection()

    async def _write(self, work: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Do work in one transaction, rolled back if it comes to None; after a deadlock begin again."""
        for tries_left in reversed(range(MAX_TRIES)):
            try:
                async with self._reading() as connection, connection.transaction() as transaction:
                    answer = await work(connection, *arguments)
                    if answer is None:
                        raise Rollback(transaction)
            except Rollback as cause:
                # It comes through when the connection was cut meanwhile; nothing is written then either.
                raise StoreError("The store cannot be used: the connection was lost") from cause
            except StoreError as error:
                if not tries_left or not isinstance(error.__cause__, DeadlockDetected | SerializationFailure):
                    raise
            else:
                return answer
        raise AssertionError("the last try returns or raises")


def first_of(jobs: Sequence[Due], runs: Sequence[Due], limit: int) -> tuple[dict[str, None], int | None]:
    """Return the names of so many jobs, oldest first, and when the first of those left over is due.

    Each list is the oldest of its kind and may have been cut behind its last entry.
    """
    names: dict[str, None] = {}
    for name, at in sorted([*jobs, *runs], key=lambda due: due[1]):
        if name not in names and len(names) == limit:
            return names, at
        names[name] = None
    cut = [due[-1][1] for due in (jobs, runs) if len(due) > limit]
    return names, min(cut, default=None)
