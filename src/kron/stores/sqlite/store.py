"""The SQLite store: one file, one writer, one owner per namespace. In memory it works the same."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from itertools import chain, pairwise
from typing import Any, TypeVar

from kron.core.errors import OwnedError, StoreUnavailableError
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
from kron.core.plan.step import CLEAN, Change, JobState, LoadResult, Ownership, WriteResult
from kron.ports import News, Watch
from kron.stores.drain import KEEP_DRAIN_MS
from kron.stores.prune import NO_LIMIT, Pruning, Rows, count_batch, prune_batch
from kron.stores.row import (
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
from kron.stores.sqlite.file import (
    BUSY_MS,
    CACHE_KIB,
    MAX_STEPS,
    MEMORY,
    STEPS_PER_CHECK,
    StepBudget,
    connect,
)
from kron.stores.sqlite.lease import Lock, SqliteLease
from kron.stores.sqlite.write import (
    MANY_ROWS,
    PART_ROWS,
    Prepared,
    Transactions,
    Writing,
    audit_row,
    changed_notice_row,
    clock_row,
    encoded,
    execute,
    keep_epochs,
    key_number,
    new_job_row,
    prepare,
    prepared_incidents,
    prepared_parts,
    prepared_rows,
    refused,
    removal,
    take_turn,
    translated,
    write_or_refuse,
)
from kron.stores.statement import (
    FOR_EVER,
    LATEST_AUDIT,
    MAX_OTHERS,
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

T = TypeVar("T")


SQL, PRUNE_SQL = statements("sqlite"), statements("sqlite", "prune")
# From this number of rows on, a call in memory runs in the thread too, so that the event loop is not blocked.
MANY = 500
# Tries of a write that is refused for no reason that can be found afterwards.
MAX_TRIES = 10


class SqliteStore:
    """A store in one SQLite file, or in memory. Every call is one transaction in the store's own thread."""

    def __init__(self, path: str = MEMORY, *, busy_ms: int = BUSY_MS, cache_kib: int = CACHE_KIB) -> None:
        self._path = path
        self._busy_ms, self._cache_kib = busy_ms, cache_kib
        self._thread = ThreadPoolExecutor(1, "kron-store")
        # The last work submitted to the thread; until it is done, later calls queue behind it.
        self._latest: Future[Any] | None = None
        self._lock = Lock(path, in_memory=path == MEMORY)
        self._file_lease = SqliteLease(self._lock)
        self._numbers: dict[str, int] = {}
        self._connection: sqlite3.Connection | None = None
        self._transactions: Transactions | None = None
        self._is_closed, self._puts = False, 0
        # The same file opened a second time, for listings.
        self._replica: SqliteStore | None = None
        # Limits the work of one listing.
        self.budget: StepBudget | None = None
        self.max_steps = MAX_STEPS
        self.max_others = MAX_OTHERS

    # --- leases ----------------------------------------------------------------------------------

    async def acquire(
        self, namespace: str, owner: str, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Lease all shards of a namespace, or raise OwnedError; shards are not shared."""
        return await self._do(self._acquire, namespace, owner)

    def _acquire(self, namespace: str, owner: str) -> Ownership:
        return self._file_lease.acquire(self._open(), self._number_of(namespace), namespace, owner)

    async def renew(
        self, ownership: Ownership, *, now: int | None = None, balance: bool = False
    ) -> Ownership:
        """Return the lease unchanged: the operating system's lock lasts as long as the process."""
        return ownership

    async def release(self, ownership: Ownership, *, now: int | None = None) -> None:
        """End a lease at once, so that another worker can take over; `now` is kept for its successor."""
        await self._do(self._release, ownership, now)

    def _release(self, ownership: Ownership, now: int | None) -> None:
        self._file_lease.release(self._open(), self._number_of(ownership.namespace), ownership, now)

    async def is_drained(self, namespace: str, owner: str, *, now: int) -> bool:
        """Say whether a person asked this worker to drain; if so, note that it was heard from."""
        return await self._do(self._is_drained, namespace, owner, now)

    def _is_drained(self, namespace: str, owner: str, now: int) -> bool:
        return self._file_lease.is_drained(self._open(), self._number_of(namespace), owner, now)

    def abandon(self) -> None:
        """Close the file and release every lock at once, without writing, as a killed process would."""
        self._lock.close()
        self._is_closed = True
        if self._replica is not None:
            self._replica.abandon()
        if self._thread is None:
            self._close()
        else:
            self._thread.submit(self._close)
            self._thread.shutdown(wait=False)

    def drop_locks(self) -> None:
        """Release every lock without writing, as a killed process would."""
        self._lock.release_all()

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
        arguments = (ownership.namespace, until, limit, named, without)
        return await self._do(self._load, *arguments, many=limit >= MANY)

    def _load(
        self, namespace: str, until: int, limit: int, named: Sequence[str], without: Sequence[JobRecord]
    ) -> LoadResult:
        connection = self._open()
        number = self._number_of(namespace)
        planned = json.dumps([job.number for job in without])
        values = {"namespace": number, "until": until, "limit": limit, "without": planned}
        jobs = {job.number: job for job in map(job_of, self._json_rows("due_jobs", values))}
        others = {job for (job,) in connection.execute(SQL["due_runs"], values)}
        others |= {job for (job,) in connection.execute(SQL["damaged_jobs"], values)}
        others -= jobs.keys()
        if others:
            numbers = {"numbers": json.dumps(list(others))}
            rows = self._json_rows("numbered_jobs", numbers)
            jobs.update((job.number, job) for job in map(job_of, rows))
        if named:
            jobs.update((job.number, job) for job in self._jobs(namespace, named))
        next_at, high = connection.execute(SQL["next_at"], values).fetchone()
        cases = self._with_runs(list(jobs.values()))
        # Damaged rows may hold texts.
        next_at, high = (at if isinstance(at, int) else None for at in (next_at, high))
        return LoadResult(cases, next_at, high or 0)

    async def due_besides(
        self, ownership: Ownership, tenants: Sequence[str], *, until: int, limit: int
    ) -> list[str]:
        """Return the names of jobs due up to an instant that are for none of these tenants, oldest first."""
        return await self._do(self._due_besides, ownership.namespace, tenants, until, limit)

    def _due_besides(self, namespace: str, tenants: Sequence[str], until: int, limit: int) -> list[str]:
        values: dict[str, object] = {"namespace": self._number_of(namespace), "until": until, "limit": limit}
        values |= {"tenants": json.dumps(list(tenants)), "keeps_none": "" not in tenants}
        rows = self._open().execute(SQL["due_besides"], values)
        return [name for (name,) in rows]

    def _with_runs(self, jobs: list[JobRecord]) -> list[JobState]:
        """Return jobs with their open runs and the earlier definitions that these still follow."""
        numbers = json.dumps([job.number for job in jobs])
        runs, faults = runs_of(self._json_rows("open_runs", {"numbers": numbers}) if jobs else ())
        if not runs:
            return [JobState(job) for job in jobs]
        earlier = self._earlier([job for job in jobs if job.identity in runs], runs)
        return [
            JobState(
                job,
                runs.get(job.identity, ()),
                (),
                earlier.get(job.identity, {}),
                fault=faults.get(job.identity),
            )
            for job in jobs
        ]

    def _earlier(self, jobs: list[JobRecord], runs: dict[str, list[RunRecord]]) -> dict[str, dict[int, str]]:
        wanted = [(job.number, epoch) for job in jobs for epoch in earlier_epochs(job, runs[job.identity])]
        values: dict[str, object] = {"wanted": json.dumps(wanted)}
        return definitions_by_job(self._all(SQL["some_epochs"], values)) if wanted else {}

    def _epochs(self, numbers: list[int], newest: int | None = None) -> list[tuple[Any, ...]]:
        values: dict[str, object] = {"numbers": json.dumps(numbers)}
        if newest is None:
            return self._all(SQL["epochs"], values)
        return self._all(SQL["newest_epochs"], {**values, "newest": newest})

    async def settle(self, ownership: Ownership, changes: Sequence[Change], *, now: int) -> WriteResult:
        """Commit changes in one transaction, fenced by the lease's token and by each job's revision."""
        return await self._do(self._settle, ownership, changes, now, many=len(changes) >= MANY)

    def _settle(self, ownership: Ownership, changes: Sequence[Change], now: int) -> WriteResult:
        number = self._number_of(ownership.namespace)
        prepared = [
            encoded(each) if each.rows and len(each.rows) >= MANY_ROWS else each
            for each in prepare(number, changes, now)
        ]
        with self._writing() as connection:
            self._check_token(connection, number, ownership)
            if not changes:
                connection.execute(SQL["record_high"], (number, now))
                connection.execute(SQL["saw_owner"], (now, number))
                return CLEAN
            return write_or_refuse(connection, number, changes, prepared, now)

    def _check_token(self, connection: sqlite3.Connection, namespace: int, ownership: Ownership) -> None:
        (token,) = connection.execute(SQL["token"], {"namespace": namespace}).fetchone() or (0,)
        if token != ownership.token:
            raise OwnedError(namespace=ownership.namespace, owner="another owner")

    async def ahead(self, ownership: Ownership, *, since: int, after: str = "", limit: int) -> list[JobState]:
        """Return jobs last written later than `since`, in the order of their names, after a name."""
        return await self._do(self._ahead, ownership.namespace, since, after, limit)

    def _ahead(self, namespace: str, since: int, after: str, limit: int) -> list[JobState]:
        number = self._number_of(namespace)
        values = {"namespace": number, "since": since, "after": after, "limit": limit}
        return self._with_runs(list(map(job_of, self._json_rows("ahead_jobs", values))))

    async def recorded(self, namespace: str, after: Mapping[str, int]) -> dict[str, Recorded]:
        """Return the records of some jobs, each after a nominal time: runs, ranges, earlier definitions."""
        return await self._do(self._recorded, namespace, after)

    def _recorded(self, namespace: str, after: Mapping[str, int]) -> dict[str, Recorded]:
        jobs = self._jobs(namespace, list(after))
        wanted: dict[str, object] = {
            "wanted": json.dumps([(job.number, after[job.identity]) for job in jobs])
        }
        runs = readable(self._all(SQL["recorded_runs"], wanted), run_of)
        ranges = readable(self._all(SQL["recorded_ranges"], wanted), range_of)
        epochs = self._epochs([job.number for job in jobs]) if ranges else []
        return recorded_by_job(runs, ranges, epochs)

    async def note_clock(self, ownership: Ownership, record: ClockRecord, *, high: int | None = None) -> None:
        """Write an excursion of this owner's clock; with `high`, set the latest instant to it."""
        await self._do(self._note_clock, ownership, record, high)

    def _note_clock(self, ownership: Ownership, record: ClockRecord, high: int | None) -> None:
        number = self._number_of(ownership.namespace)
        with self._writing() as connection:
            self._check_token(connection, number, ownership)
            connection.execute(SQL["note_clock"], (number, *clock_row(record)))
            connection.execute(SQL["trim_clock"], {"namespace": number, "limit": MAX_EXCURSIONS})
            if high is not None:
                connection.execute(SQL["set_high"], {"namespace": number, "now": high})

    async def note_incidents(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        """Write incidents of the namespace: take-overs and jumps of this owner's clock."""
        await self._do(self._note_incidents, ownership, incidents)

    def _note_incidents(self, ownership: Ownership, incidents: Sequence[IncidentRecord]) -> None:
        number = self._number_of(ownership.namespace)
        with self._writing() as connection:
            self._check_token(connection, number, ownership)
            execute(connection, prepared_incidents(number, incidents))

    async def in_flight(self, ownership: Ownership) -> list[RunRecord]:
        """Return every run that may be executing."""
        return await self._do(self._in_flight, ownership.namespace)

    def _in_flight(self, namespace: str) -> list[RunRecord]:
        rows = self._open().execute(SQL["all_open_runs"], {"namespace": self._number_of(namespace)})
        runs, _ = runs_of(rows)
        return [run for theirs in runs.values() for run in theirs if run.in_flight]

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
        self._puts += 1
        many = len(created) + len(changed) + len(forgotten) >= MANY
        return await self._do(self._put, namespace, created, changed, forgotten, audit, now, many=many)

    def _put(
        self,
        namespace: str,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str],
        audit: Sequence[AuditRecord],
        now: int,
    ) -> WriteResult:
        number = self._number_of(namespace)
        gone = [job.number for job in self._jobs(namespace, forgotten)] if forgotten else []
        stopped = [job for job in created if job.paused or job.suspended]
        first = [Prepared(SQL["record_high"], (number, now)), *removal(gone), *keep_epochs(changed)]
        last = [
            *prepare(number, changed, now),
            *prepared_rows(SQL["insert_audit"], [(number, *audit_row(entry)) for entry in audit]),
            *prepared_incidents(number, incidents_of_new(stopped) if stopped else ()),
        ]
        first, last = [encoded(each) for each in first], [encoded(each) for each in last]
        names = {"namespace": number, "names": json.dumps([job.identity for job in created])}
        for _ in range(MAX_TRIES):
            jobs = prepared_parts(SQL["insert_job"], created, lambda job: (*new_job_row(job), number, now))
            if self._write_all(chain(first, jobs, last), at_once=len(created) <= PART_ROWS):
                return CLEAN
            # A job that was too new or in the way stays so, unless it is removed, so this needs no lock.
            rows = self._open().execute(SQL["existing_names"], names)
            settled = refused(self._open(), number, changed)
            result = WriteResult(settled.stale_jobs.union(*rows), settled.existing_runs)
            if result.stale_jobs or result.existing_runs:
                return result
        raise StoreUnavailableError("The store cannot be used: jobs appear and vanish while one is written")

    def _write_all(self, prepared: Iterable[Prepared], *, at_once: bool = True) -> bool:
        """Execute statements in one transaction, all or none; return whether each changed its rows.

        With `at_once` they are one statement, where possible; without, each is taken when it is executed.
        """
        if at_once:
            prepared = list(prepared)
            if all(each.rows is None for each in prepared):
                self._open()
                assert self._transactions is not None
                return self._transactions.execute(prepared)
        with self._writing() as connection:
            if execute(connection, prepared):
                return True
            connection.rollback()
        return False

    async def forget(self, namespace: str, identities: Sequence[str]) -> None:
        """Remove jobs with their whole history."""
        await self._do(self._forget, namespace, identities)

    def _forget(self, namespace: str, identities: Sequence[str]) -> None:
        gone = [job.number for job in self._jobs(namespace, identities)]
        if gone:
            self._write_all(removal(gone))

    async def set_drain(self, namespace: str, owner: str, *, drain: bool, audit: AuditRecord) -> None:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        await self._do(self._set_drain, namespace, owner, drain, audit)

    def _set_drain(self, namespace: str, owner: str, drain: bool, audit: AuditRecord) -> None:
        number = self._number_of(namespace)
        values = {"namespace": number, "owner": owner, "now": audit.at, "old": audit.at - KEEP_DRAIN_MS}
        with self._writing() as connection:
            connection.execute(SQL["drop_old_drains"], values)
            connection.execute(SQL["insert_drain" if drain else "delete_drain"], values)
            execute(connection, prepared_rows(SQL["insert_audit"], [(number, *audit_row(audit))]))

    # --- lookups ---------------------------------------------------------------------------------

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: the given ones, or all."""
        return await self._do(self._cases, namespace, identities, many=identities is None)

    def _cases(self, namespace: str, identities: Sequence[str] | None) -> list[JobState]:
        return self._with_runs(self._jobs(namespace, identities))

    def _jobs(self, namespace: str, identities: Sequence[str] | None) -> list[JobRecord]:
        names = None if identities is None else json.dumps(list(identities))
        values = {"namespace": self._number_of(namespace), "names": names}
        rows = (
            self._open().execute(SQL["all_jobs"], values)
            if identities is None
            else self._json_rows("named_jobs", values)
        )
        return list(map(job_of, rows))

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return runs by idempotency key, open or closed."""
        return await self._do(self._find_runs, namespace, keys)

    def _find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        pairs = json.dumps([(key_number(key), key) for key in dict.fromkeys(keys)])
        values = {"namespace": self._number_of(namespace), "keys": pairs}
        return readable(self._all(SQL["runs_by_key"], values), run_of)

    def _of_namespace(
        self, statement: str, namespace: str, values: dict[str, object]
    ) -> list[tuple[Any, ...]]:
        return self._all(statement, {**values, "namespace": self._number_of(namespace)})

    async def epochs(self, namespace: str, *identities: str, newest: int | None = None) -> list[EpochRecord]:
        """Return the earlier definitions of some jobs, by name and the oldest of each first.

        With `newest`, at most so many of each.
        """
        jobs = await self._do(self._jobs, namespace, list(identities))
        rows = await self._do(self._epochs, [job.number for job in jobs], newest)
        return list(map(EpochRecord._make, rows))

    async def reopened(self, namespace: str, identity: str, *, at: int) -> list[ReopenedRecord]:
        """Return the withdrawn records of a period that was opened again, oldest first."""
        store = self._reader()
        rows = await store._do(store._of_job, SQL["reopened"], namespace, identity, {"at": at})
        return readable(rows, reopened_of)

    async def incidents(
        self, namespace: str, identity: str, *, since: int, until: int, limit: int = 200
    ) -> list[IncidentRecord]:
        """Return the newest incidents of a job and its namespace that overlap an interval, oldest first."""
        store = self._reader()
        values: dict[str, object] = {"name": identity, "since": since, "until": until, "limit": limit}
        rows = await store._do(store._of_namespace, SQL["incidents"], namespace, values)
        return readable(rows, incident_of)[::-1]

    async def clock_records(self, namespace: str, *, limit: int = 20) -> list[ClockRecord]:
        """Return the excursions of the workers' clocks, newest first."""
        values: dict[str, object] = {"limit": limit}
        rows = await self._do(self._of_namespace, SQL["clock_records"], namespace, values)
        return readable(rows, clock_of)

    async def read_clock(self) -> int | None:
        """Return None: a file is on its host, whose clock every process reads."""
        return None

    async def absence(self, namespace: str, shard: int, *, now: int | None = None) -> IncidentRecord | None:
        """Return the outage of a namespace that no worker owns now; None while a worker owns it."""
        return await self._do(self._absence, namespace)

    def _absence(self, namespace: str) -> IncidentRecord | None:
        return self._file_lease.absence(self._open(), self._number_of(namespace), namespace)

    async def leases(self, namespace: str, *, now: int | None = None) -> list[WorkerLease]:
        """Return the worker of a namespace, which leases all shards; its lock shows whether it lives."""
        return await self._do(self._leases, namespace)

    def _leases(self, namespace: str) -> list[WorkerLease]:
        return self._file_lease.leases(self._open(), self._number_of(namespace), namespace)

    async def version(self) -> str:
        """Return a text that changes with every write: of other connections, and of this one."""
        return await self._do(self._version)

    def _version(self) -> str:
        ((version,),) = self._all("PRAGMA data_version", {})
        return f"{version}.{self._open().total_changes}"

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a retried run, oldest first."""
        values = {"namespace": await self._do(self._number_of, namespace), "key": key}
        rows = await self._do(self._all, SQL["attempts"], values)
        return readable(rows, attempt_of)

    def _of_job(
        self, statement: str, namespace: str, identity: str, values: Mapping[str, object]
    ) -> list[tuple[Any, ...]]:
        jobs = self._jobs(namespace, [identity])
        return self._all(statement, {**values, "job": jobs[0].number}) if jobs else []

    def _all(self, statement: str, values: dict[str, object]) -> list[tuple[Any, ...]]:
        if self.budget is not None:
            self.budget.reset()
        return self._open().execute(statement, values).fetchall()

    def _json_rows(self, name: str, values: dict[str, Any]) -> Iterable[Sequence[Any]]:
        return rows_as_json(self._open(), name, values)

    # --- listings --------------------------------------------------------------------------------

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs with a name later than `after`, sorted by name."""
        store = self._reader()
        values = {**_filter_values(wanted), "after": after, "limit": limit}
        rows = await store._do(store._of_namespace, jobs_statement(SQL, wanted), namespace, values)
        return [FoundJob(job_of(job), changed_at) for *job, changed_at in rows]

    async def namespaces(self) -> list[str]:
        """Return the namespaces that have jobs, sorted by code point."""
        store = self._reader()
        return [name for (name,) in await store._do(store._all, SQL["used_namespaces"], {})]

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs match."""
        store = self._reader()
        values = _filter_values(wanted)
        rows = await store._do(store._of_namespace, count_statement(SQL, wanted), namespace, values)
        return int(rows[0][0])

    async def open_runs(self, namespace: str, *, now: int, limit: int) -> OpenRuns:
        """Count the open runs by state, reading at most `limit` of them."""
        store = self._reader()
        values: dict[str, object] = {"now": now, "limit": limit}
        rows = await store._do(store._of_namespace, SQL["count_open_runs"], namespace, values)
        return OpenRuns(**dict(rows))

    async def group_jobs(
        self, namespace: str, wanted: JobFilter, *, limit: int, singly: bool = False
    ) -> list[JobGroup]:
        """Return groups of jobs, the largest first."""
        store, statement = self._reader(), groups_statement(SQL, wanted, singly=singly)
        values = {**_filter_values(wanted), "limit": limit, "longest": MAX_GROUPED}
        return groups_of(await store._do(store._of_namespace, statement, namespace, values))

    async def count_made(self, namespace: str, wanted: JobFilter, span: RunSpan) -> dict[int, int]:
        """Count the runs of some jobs in each part of an interval."""
        store, values = self._reader(), {**_filter_values(wanted), **span_values(span)}
        name = "count_own"
        if wanted != JobFilter():
            others = made_statement(SQL, wanted, name="has_others")
            ((has_others,),) = await store._do(
                store._of_namespace, others, namespace, {**values, "least": self.max_others}
            )
            name = "count_own" if has_others else "count_but_others"
        statement = made_statement(SQL, wanted, name=name)
        return dict(await store._do(store._of_namespace, statement, namespace, values))

    async def tally_runs(
        self, namespace: str, wanted: JobFilter, span: RunSpan, *, not_ok: bool = False
    ) -> list[TagCount]:
        """Count the runs and the aggregated periods of some jobs by tag and status."""
        store, values = self._reader(), {**_filter_values(wanted), **span_values(span)}
        by_job = wanted.users is not None and not not_ok and await self._is_rare(namespace, wanted, values)
        statement = tally_statement(SQL, wanted, not_ok=not_ok, by_job=by_job)
        return tallies_of(await store._do(store._of_namespace, statement, namespace, values))

    async def _is_rare(self, namespace: str, wanted: JobFilter, values: Mapping[str, object]) -> bool:
        """Say whether some jobs have few of the runs in a time, so that each one's history is looked up."""
        store, least = self._reader(), RUNS_PER_LOOKUP * await self.count_jobs(namespace, wanted)
        values = {**values, "least": least}
        ((is_rare,),) = await store._do(store._of_namespace, SQL["has_made"], namespace, values)
        return bool(is_rare)

    async def open_by_user(self, namespace: str, users: Sequence[str]) -> dict[str, int]:
        """Count the open runs of each of some users."""
        store = self._reader()
        values: dict[str, object] = {"users": json.dumps(list(users))}
        return dict(await store._do(store._of_namespace, SQL["open_by_user"], namespace, values))

    async def serves_others(self, namespace: str, tenant: str) -> bool:
        """Say whether there is a job for another tenant."""
        ((found,),) = await self._do(self._of_namespace, SQL["serves_others"], namespace, {"tenant": tenant})
        return bool(found)

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs with a nominal time earlier than `before`, newest first."""
        store = self._reader()
        values = {"before": FOR_EVER if before is None else before}
        return await readable_runs(
            lambda count: store._do(
                store._of_job, SQL["run_history"], namespace, identity, {**values, "limit": count}
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
        """Return the runs of all jobs, latest record first."""
        store = self._reader()
        values = {**cursor_values(before), "status": status, "users": json.dumps(users)}
        clauses = runs_clauses(SQL, status, users)
        return await readable_runs(
            lambda count: store._do(store._of_namespace, clauses, namespace, {**values, "limit": count}),
            limit,
        )

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest `limit` runs of each given job."""
        store = self._reader()
        values: dict[str, object] = {"names": json.dumps(list(dict.fromkeys(identities))), "limit": limit}
        return runs_of(await store._do(store._of_namespace, SQL["newest_runs"], namespace, values))[0]

    async def run_counts(self, namespace: str, identity: str, *, bounds: Sequence[int]) -> list[RunCount]:
        """Count a job's runs by status in parts of an interval."""
        store = self._reader()
        values: dict[str, object] = {"parts": json.dumps(list(pairwise(bounds)))}
        return counts_of(await store._do(store._of_job, SQL["run_counts"], namespace, identity, values))

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's aggregated periods, newest first; with `at`, those that cover a nominal time."""
        store = self._reader()
        at, since = (FOR_EVER, -FOR_EVER) if at is None else (at, at)
        rows = await store._do(store._of_job, SQL["ranges"], namespace, identity, {"at": at, "since": since})
        return readable(rows, range_of)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit entries, latest first."""
        store = self._reader()
        values = {**wanted._asdict(), "users": json.dumps(wanted.users), "limit": limit}
        values |= (before or LATEST_AUDIT)._asdict()
        rows = await store._do(store._of_namespace, audit_statement(SQL, wanted), namespace, values)
        return [Audited(number, AuditRecord(*row)) for number, *row in rows]

    # --- notifications ---------------------------------------------------------------------------

    async def pending_notices(
        self, namespace: str, *, limit: int, of_owner: int | None = None
    ) -> list[NoticeRecord]:
        """Return the notices still to be sent, `limit` of each target, of its owners in turn, oldest first.

        Those that were tried are among them. `of_owner` is the most of one owner, of each of its targets in
        turn. The owner is what the name of a job starts with, up to a slash.
        """
        store = self._reader()
        values: dict[str, object] = {"limit": limit, "of_owner": NO_LIMIT if of_owner is None else of_owner}
        rows = await store._do(store._of_namespace, SQL["pending_notices"], namespace, values)
        return readable(rows, notice_of)

    async def give_up_notices(self, namespace: str, *, most: int, error: str, now: int) -> int:
        """End the oldest notices still to be sent of owners that have more than `most`; return how many."""
        return await self._do(self._give_up_notices, namespace, most, error, now)

    def _give_up_notices(self, namespace: str, most: int, error: str, now: int) -> int:
        values = {"namespace": self._number_of(namespace), "most": most, "error": error, "now": now}
        with self._writing() as connection:
            return int(connection.execute(SQL["give_up_notices"], values).rowcount)

    async def note_notices(
        self, namespace: str, changed: Sequence[NoticeRecord], *, removed: Sequence[int] = ()
    ) -> None:
        """Write the progress of notices, and remove others by their numbers."""
        await self._do(self._note_notices, namespace, changed, removed)

    def _note_notices(self, namespace: str, changed: Sequence[NoticeRecord], removed: Sequence[int]) -> None:
        space = self._number_of(namespace)
        rows = [(*changed_notice_row(notice), space, notice.number) for notice in changed]
        with self._writing() as connection:
            connection.executemany(SQL["update_notice"], rows)
            connection.executemany(SQL["remove_notice"], [(space, number) for number in removed])
            connection.execute(SQL["trim_notices"], {"namespace": space, "limit": MAX_NOTICES})

    async def notices(
        self, namespace: str, identity: str, *, first: int, last: int, limit: int = 100
    ) -> list[NoticeRecord]:
        """Return the notices of a job about nominal times from `first` to `last`, oldest first."""
        store = self._reader()
        values = {"first": first, "last": last, "limit": limit}
        rows = await store._do(store._of_job, SQL["notices"], namespace, identity, values)
        return readable(rows, notice_of)

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
        pruning = batch(PRUNE_SQL, bounds, cursor, limit=limit, listed=_json_list)
        return await self._do(self._prune, namespace, pruning, dry_run)

    def _prune(self, namespace: str, pruning: Pruning, dry_run: bool) -> PrunedBatch:
        number = self._number_of(namespace)
        with nullcontext(self._open()) if dry_run else self._writing() as connection:
            # A job goes before its earlier definitions.
            connection.execute("PRAGMA defer_foreign_keys = ON")
            rows: Rows | None = None
            while True:
                try:
                    statement, values = pruning.send(rows)
                except StopIteration as end:
                    batch: PrunedBatch = end.value
                    return batch
                rows = connection.execute(statement, {**values, "namespace": number}).fetchall()

    # --- the connection --------------------------------------------------------------------------

    def watch(self, namespace: str, call: Callable[[], None]) -> Watch:
        """Watch for writes of other connections; SQLite has no notifications, so `call` is never invoked."""
        return SqliteWatch(lambda: self._do(lambda: (self._all("PRAGMA data_version", {}), self._puts)))

    async def close(self) -> None:
        """Close the file for good."""
        if self._replica is not None:
            await self._replica.close()
        if not self._is_closed:
            await self._do(self._close)
        self._is_closed = True
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        self.drop_locks()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._busy_ms, self._cache_kib)
            self._transactions = Transactions(self._connection)
            if self.budget is not None:
                self._connection.set_progress_handler(self.budget, STEPS_PER_CHECK)
        return self._connection

    def _number_of(self, namespace: str) -> int:
        """Return the number of a namespace; the first call assigns it."""
        if namespace not in self._numbers:
            connection, values = self._open(), {"name": namespace}
            row = connection.execute(SQL["namespace"], values).fetchone()
            (number,) = row or take_turn(connection, SQL["new_namespace"], values).fetchone()
            self._numbers[namespace] = number
        return self._numbers[namespace]

    def _writing(self) -> "Writing":
        return Writing(self._open())

    def _reader(self) -> "SqliteStore":
        """Return the store that listings read from, so that they do not wait for a write."""
        if self._path == MEMORY or self._is_closed:
            return self
        if self._replica is None:
            self._replica = SqliteStore(self._path, busy_ms=self._busy_ms, cache_kib=self._cache_kib)
            self._replica.budget = StepBudget(self.max_steps)
        return self._replica

    async def _do(self, work: Callable[..., T], *arguments: object, many: bool = False) -> T:
        """Run blocking work in the store's thread; in memory only `many` rows are worth a thread."""
        is_free = self._latest is None or self._latest.done()
        if self._path == MEMORY and is_free and not many:
            return translated(work, arguments)
        self._latest = submitted = self._thread.submit(translated, work, arguments)
        return await asyncio.wrap_future(submitted)


class SqliteWatch:
    """Notices writes of other connections by polling the file's data version."""

    def __init__(self, read_version: Callable[[], Awaitable[object]]) -> None:
        self._read_version = read_version
        self._version: object = None

    async def look(self) -> News:
        """Return whether anything may have changed since the last call; the first call says yes."""
        before, self._version = self._version, await self._read_version()
        has_changed = self._version != before
        return News(jobs=has_changed, drains=has_changed)

    async def close(self) -> None:
        """Stop watching."""


def _json_list(keys: Sequence[object]) -> str:
    """Return keys as the JSON list that a statement reads; a compound key is JSON already."""
    return f"[{','.join(map(str, keys))}]"


def rows_as_json(
    connection: sqlite3.Connection, name: str, values: Mapping[str, Any]
) -> Iterable[Sequence[Any]]:
    """Return the rows of a statement, which SQLite passes as one JSON text.

    Row by row, the store's thread would wait for the interpreter's lock at each of them in a busy program.
    """
    try:
        ((text,),) = connection.execute(_as_json(name), values)
        rows: list[list[Any]] = json.loads(text)
    except (sqlite3.OperationalError, ValueError):
        # A damaged row may hold bytes that are no JSON.
        return connection.execute(SQL[name], values).fetchall()
    return rows


@cache
def _as_json(name: str) -> str:
    """Return a statement that reads the rows of another as one JSON text."""
    columns = SQL[name].partition("FROM")[0].removeprefix("SELECT")
    return f"SELECT json_group_array(json_array({columns})) FROM ({SQL[name]})"  # noqa: S608 - a statement of this package


def _filter_values(wanted: JobFilter) -> dict[str, object]:
    """Return the parameters of a filter of jobs."""
    lists = {name: json.dumps(getattr(wanted, name)) for name in ("names", "users", "definitions")}
    return {**wanted._asdict(), **lists}
