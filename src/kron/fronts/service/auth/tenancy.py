"""Tenancy: the part of the store that a caller can access, under every route and page.

Schedules and workflows of other tenants look as if they did not exist, so that no response reveals them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from uuid import uuid4
from weakref import WeakValueDictionary

from kron.core.errors import Problem
from kron.core.job.job import schedule_prefix
from kron.core.job.outcome import Reason
from kron.core.plan.query import (
    AuditCursor,
    Audited,
    AuditFilter,
    FoundJob,
    JobFilter,
    JobGroup,
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
from kron.core.plan.step import Change, JobState, WriteResult
from kron.core.value_types import MAX_VERSION
from kron.core.workflow import NAME, InvalidWorkflowError, WorkflowRecord, WorkflowVersion
from kron.dag_ports import WorkflowStore
from kron.fronts.service.auth.audit import audit_of
from kron.fronts.service.auth.principal import (
    Caller,
    LimitExceededError,
    current_caller,
    listed_keys,
    owner_of,
    workflow_prefix,
)
from kron.fronts.service.errors import InvalidScheduleError
from kron.launchers.fair_queue import FairTurns
from kron.launchers.workflow import WorkflowSettings
from kron.ports import Store

# The audit records of more characters of schedules than this are written beside the event loop.
LARGE_AUDIT = 1 << 18
# Lists that the store reads at once, of one tenant and of all; the next ones wait in turns of tenants.
LISTS_AT_ONCE, ALL_LISTS_AT_ONCE = 3, 5
# No schedule has this name.
NO_NAME = ""


class TenantStore:
    """A store restricted to the current caller's tenants. Outside of requests it is unrestricted."""

    def __init__(self, store: Store, *, max_jobs: int = 0, max_open: int = 0) -> None:
        self._store = store
        # The quotas of jobs and of open runs per user; 0 is unlimited.
        self.max_jobs = max_jobs
        self.max_open = max_open
        # Writes of one user wait for each other: each would count before the others are stored.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        # Lists take long, and a store has few connections.
        self._lists = FairTurns(most=ALL_LISTS_AT_ONCE, per_tenant=LISTS_AT_ONCE)

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: those named, or all."""
        caller = current_caller()
        if caller.users is None:
            return await self._store.cases(namespace, identities)
        if identities is not None:
            # Without the open runs of others: how long they take to read would reveal that there are some.
            wanted = JobFilter(names=identities, users=caller.users, deleted=True)
            found = (
                await self._store.find_jobs(namespace, wanted, limit=len(identities)) if identities else []
            )
            identities = [each.job.identity for each in found]
        states = await self._store.cases(namespace, identities) if identities != [] else []
        return [state for state in states if caller.sees(owner_of(state.job.launcher))]

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs in the order of their names."""
        # A look-up by name is as short as that of a run.
        async with self._listing() if wanted.names is None else nullcontext():
            return await self._store.find_jobs(namespace, _own(wanted), after=after, limit=limit)

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs there are."""
        async with self._listing():
            return await self._store.count_jobs(namespace, _own(wanted))

    async def group_jobs(
        self, namespace: str, wanted: JobFilter, *, limit: int, singly: bool = False
    ) -> list[JobGroup]:
        """Return groups of jobs, the largest first."""
        async with self._listing():
            return await self._store.group_jobs(namespace, _own(wanted), limit=limit, singly=singly)

    async def count_made(self, namespace: str, wanted: JobFilter, span: RunSpan) -> dict[int, int]:
        """Count the runs of some jobs in parts of an interval."""
        async with self._listing():
            return await self._store.count_made(namespace, _own(wanted), span)

    async def tally_runs(
        self, namespace: str, wanted: JobFilter, span: RunSpan, *, not_ok: bool = False
    ) -> list[TagCount]:
        """Count the runs of some jobs in parts of an interval, by tag and status."""
        async with self._listing():
            return await self._store.tally_runs(namespace, _own(wanted), span, not_ok=not_ok)

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs, newest first."""
        if not await self._is_known(namespace, identity):
            return []
        runs = await self._store.runs(namespace, identity, before=before, limit=limit)
        listed_keys().update(run.key for run in runs)
        return runs

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return the runs with these keys, open or ended."""
        runs = await self._store.find_runs(namespace, keys)
        if current_caller().users is None:
            return runs
        # One is looked for in any case: the time of a statement more would reveal the runs of others.
        names = sorted({run.identity for run in runs}) or [NO_NAME]
        visible = {state.job.identity for state in await self.cases(namespace, names)}
        return [run for run in runs if run.identity in visible]

    async def latest_runs(
        self,
        namespace: str,
        *,
        status: RunStatus | None = None,
        users: Sequence[str] | None = None,
        before: RunCursor | None = None,
        limit: int = 100,
    ) -> list[RunRecord]:
        """Return the runs of all jobs, the latest records first."""
        theirs = current_caller().users
        users = users if theirs is None else theirs
        async with self._listing():
            return await self._store.latest_runs(
                namespace, status=status, before=before, limit=limit, users=users
            )

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each job, newest first."""
        visible = identities
        if current_caller().users is not None:
            visible = [state.job.identity for state in await self.cases(namespace, identities)]
        return await self._store.newest_runs(namespace, visible, limit=limit)

    async def run_counts(self, namespace: str, identity: str, *, bounds: Sequence[int]) -> list[RunCount]:
        """Count a job's runs by status in parts of an interval."""
        if not await self._is_known(namespace, identity):
            return []
        async with self._listing():
            return await self._store.run_counts(namespace, identity, bounds=bounds)

    async def clock_records(self, namespace: str, *, limit: int = 20) -> list[ClockRecord]:
        """Return the excursions of the workers' clocks, newest first."""
        return await self._store.clock_records(namespace, limit=limit)

    async def absence(self, namespace: str, shard: int, *, now: int | None = None) -> IncidentRecord | None:
        """Return the outage of a shard that no worker owns now."""
        return await self._store.absence(namespace, shard, now=now)

    async def leases(self, namespace: str, *, now: int | None = None) -> list[WorkerLease]:
        """Return the workers with the shards they lease; they serve every tenant."""
        return await self._store.leases(namespace, now=now)

    async def set_drain(self, namespace: str, owner: str, *, drain: bool, audit: AuditRecord) -> None:
        """Ask a worker to drain, or to work again; only administrators may."""
        await self._store.set_drain(namespace, owner, drain=drain, audit=audit)

    async def note(self, namespace: str, entry: AuditRecord) -> None:
        """Write an audit record without a change of a schedule."""
        await self._store.put(namespace, created=[], changed=[], audit=[entry], now=entry.at)

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's records of dropped ranges, newest first."""
        if not await self._is_known(namespace, identity):
            return []
        return await self._store.ranges(namespace, identity, at=at)

    async def epochs(self, namespace: str, *identities: str, newest: int | None = None) -> list[EpochRecord]:
        """Return the earlier definitions of some jobs, by name and the oldest of each first.

        With `newest`, at most so many of each.
        """
        known = [identity for identity in identities if await self._is_known(namespace, identity)]
        return await self._store.epochs(namespace, *known, newest=newest) if known else []

    async def reopened(self, namespace: str, identity: str, *, at: int) -> list[ReopenedRecord]:
        """Return the withdrawn records of a period that was opened again, oldest first."""
        if not await self._is_known(namespace, identity):
            return []
        return await self._store.reopened(namespace, identity, at=at)

    async def incidents(
        self, namespace: str, identity: str, *, since: int, until: int, limit: int = 200
    ) -> list[IncidentRecord]:
        """Return the newest incidents of a job and its namespace that overlap an interval, oldest first."""
        if not await self._is_known(namespace, identity):
            return []
        return await self._store.incidents(namespace, identity, since=since, until=until, limit=limit)

    async def notices(
        self, namespace: str, identity: str, *, first: int, last: int, limit: int = 100
    ) -> list[NoticeRecord]:
        """Return the notices of a job about some nominal times, oldest first."""
        if not await self._is_known(namespace, identity):
            return []
        return await self._store.notices(namespace, identity, first=first, last=last, limit=limit)

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a run, oldest first, if the current request has listed the run.

        A caller could compute the key of another tenant's run, and no store finds every run by its key.
        """
        if current_caller().users is not None and key not in listed_keys():
            return []
        return await self._store.attempts(namespace, key)

    async def read_clock(self) -> int | None:
        """Return the store's clock, which all tenants share."""
        return await self._store.read_clock()

    async def put(
        self,
        namespace: str,
        *,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str] = (),
        now: int,
    ) -> WriteResult:
        """Write new and changed jobs and their audit records in one transaction."""
        assert not forgotten, "tenants delete jobs, and their history stays"
        async with self._turn(created, changed):
            known = await self._permitted(namespace, created, changed)
            write = partial(audit_of, created, changed, known, now=now)
            size = sum(len(job.definition) + len(job.launcher) for job in (*created, *known.values()))
            # Both states of a schedule are read and written as JSON.
            audit = await asyncio.to_thread(write) if size > LARGE_AUDIT else write()
            return await self._store.put(namespace, created=created, changed=changed, audit=audit, now=now)

    @asynccontextmanager
    async def _turn(self, created: Sequence[JobRecord], changed: Sequence[Change]) -> AsyncIterator[None]:
        """Hold the turns of the users who would own some jobs, if their quotas are checked."""
        jobs = (*created, *(change.job for change in changed))
        owners = {owner_of(job.launcher) for job in jobs} if current_caller().users is not None else set()
        async with AsyncExitStack() as stack:
            # In one order, so that no two writes wait for each other.
            for owner in sorted(owner for owner in owners if owner is not None):
                await stack.enter_async_context(self._turns.setdefault(owner, asyncio.Lock()))
            yield

    async def permit(self, namespace: str, created: Sequence[JobRecord], changed: Sequence[Change]) -> None:
        """Raise for jobs that the caller may not write, without writing them."""
        await self._permitted(namespace, created, changed)

    async def _permitted(
        self, namespace: str, created: Sequence[JobRecord], changed: Sequence[Change]
    ) -> Mapping[str, JobRecord]:
        """Return the known ones of jobs that the caller may write, by name, or raise."""
        caller = current_caller()
        for job in (*created, *(change.job for change in changed)):
            _check_owner(caller, job)
        for job in created:
            _check_name(caller, job)
        names = [change.job.identity for change in changed]
        states = await self.cases(namespace, names) if names else []
        known = {state.job.identity: state.job for state in states}
        await self._check_quota(namespace, [*created, *_newly_owned(changed, known)])
        await self._check_open(namespace, changed)
        return known

    async def _check_quota(self, namespace: str, added: Sequence[JobRecord]) -> None:
        """Raise if a user would own more schedules than the quota allows."""
        owners = Counter(owner_of(job.launcher) for job in added)
        for owner, more in owners.items():
            if not self.max_jobs or owner is None or current_caller().users is None:
                continue
            count = await self._store.count_jobs(namespace, JobFilter(users=[owner]))
            if count + more > self.max_jobs:
                message = (
                    f'Quota exceeded: "{owner}" has {count} schedules, and {more} more would exceed the '
                    f"quota of {self.max_jobs}"
                )
                raise LimitExceededError(message)

    async def _check_open(self, namespace: str, changed: Sequence[Change]) -> None:
        """Raise if a user would have more open runs than the quota allows, with those requested."""
        added: Counter[str] = Counter()
        for change in changed:
            requested = sum(run.reason is Reason.ASKED for run in change.inserts)
            owner = owner_of(change.job.launcher)
            if requested and owner is not None and self.max_open and current_caller().users is not None:
                added[owner] += requested
        counts = await self._store.open_by_user(namespace, list(added)) if added else {}
        for owner, count in counts.items():
            if count + added[owner] > self.max_open:
                message = (
                    f'Quota exceeded: "{owner}" has {count} open runs, and {added[owner]} more would exceed '
                    f"the quota of {self.max_open} (max_open_runs)"
                )
                raise LimitExceededError(message)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit records, the latest first."""
        users = current_caller().users
        if users is not None:
            wanted = wanted._replace(users=users)
        async with self._listing():
            return await self._store.audits(namespace, wanted, before=before, limit=limit)

    @asynccontextmanager
    async def _listing(self) -> AsyncIterator[None]:
        """Wait for one of the turns that lists have, so that what is short finds a connection."""
        users = current_caller().users
        if users is None:
            yield
            return
        async with self._lists.turn(repr(users)):
            yield

    async def _is_known(self, namespace: str, identity: str) -> bool:
        if current_caller().users is None:
            return True
        return bool(await self.cases(namespace, [identity]))


def _own(wanted: JobFilter) -> JobFilter:
    """Return a filter restricted to the current caller's tenants."""
    users = current_caller().users
    return wanted if users is None else wanted._replace(users=users)


def with_owner(document: object) -> object:
    """Return a schedule document with an owner: the current caller, unless it names one."""
    users = current_caller().users
    if not users or not isinstance(document, Mapping) or document.get("user_id") is not None:
        return document
    return {**document, "user_id": users[0]}


def unique_name() -> str:
    """Return a unique schedule name below the current caller's prefix."""
    users = current_caller().users
    return f"{schedule_prefix(users[0]) if users else ''}{uuid4()}"


def _check_owner(caller: Caller, job: JobRecord) -> None:
    """Raise if a schedule would belong to another tenant."""
    owner = owner_of(job.launcher)
    if not caller.sees(owner):
        problem = Problem("user_id", owner, f"must be one of {', '.join(caller.users or ())}")
        raise InvalidScheduleError(schedule_id=job.identity, problems=[problem])


def _check_name(caller: Caller, job: JobRecord) -> None:
    """Raise for a name without its owner's prefix: names of other tenants must not be revealed."""
    owner = owner_of(job.launcher)
    if caller.users is not None and owner is not None and not job.identity.startswith(schedule_prefix(owner)):
        problem = Problem("schedule_id", job.identity, f'must start with "{schedule_prefix(owner)}"')
        raise InvalidScheduleError(schedule_id=job.identity, problems=[problem])


def _newly_owned(changed: Sequence[Change], known: Mapping[str, JobRecord]) -> list[JobRecord]:
    """Return the jobs that count anew for their owner: restored after a deletion, or given a new owner."""
    jobs = []
    for change in changed:
        old = known.get(change.job.identity)
        had = old is not None and old.deleted_at is None and owner_of(old.launcher)
        if change.job.deleted_at is None and had != owner_of(change.job.launcher):
            jobs.append(change.job)
    return jobs


# --- workflows -----------------------------------------------------------------------------------


class TenantWorkflows:
    """A workflow store restricted to the current caller's tenants."""

    def __init__(self, workflows: WorkflowStore, *, max_versions: int = 0) -> None:
        self._workflows = workflows
        # The quota of versions per user; 0 is unlimited.
        self.max_versions = max_versions
        self.close = workflows.close

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Store a version unless it exists; return the stored one."""
        _check_workflow_owner(record.workflow_id, record.user_id)
        return await self._workflows.put(record)

    async def check_quota(self, record: WorkflowRecord) -> None:
        """Raise if a new version would exceed the quota of its user."""
        _check_workflow_owner(record.workflow_id, record.user_id)
        most, owner = self.max_versions, record.user_id
        if not most or current_caller().users is None:
            return
        # Their names start with their owner's.
        if await self.count_versions(workflow_prefix(owner), most=most) >= most:
            message = (
                f'Quota exceeded: "{owner}" has {most} versions of workflows, and another would exceed the '
                "quota (max_workflow_versions): change a draft instead, or have the operator raise "
                "the quota"
            )
            raise LimitExceededError(message)

    async def check_use(self, schedule_id: str, settings: WorkflowSettings) -> None:
        """Raise for a schedule of a workflow that its owner does not own, whether it exists or not."""
        workflow_id, owner = settings.workflow_id, settings.user_id
        if current_caller().users is None or workflow_id.startswith(workflow_prefix(owner)):
            return
        possible = NAME.fullmatch(workflow_id) and 0 <= settings.version <= MAX_VERSION
        record = await self._workflows.get(workflow_id, settings.version) if possible else None
        if record is None or record.user_id != owner:
            problem = Problem("workflow_id", workflow_id, f'must start with "{workflow_prefix(owner)}"')
            raise InvalidScheduleError(schedule_id=schedule_id, problems=[problem])

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None."""
        record = await self._workflows.get(workflow_id, version)
        return record if record is not None and current_caller().sees(record.user_id) else None

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""
        versions = await self._workflows.versions(workflow_id, limit=limit)
        caller = current_caller()
        return [version for version in versions if caller.sees(version.user_id)]

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the workflows of the caller's tenants by name, from a name on."""
        own = current_caller().users
        wanted = own if users is None else users if own is None else [user for user in users if user in own]
        return await self._workflows.names(users=wanted, after=after, limit=limit)

    async def count_versions(self, prefix: str, *, most: int) -> int:
        """Count the versions of workflows whose names start with a prefix, up to `most`, for a quota."""
        return await self._workflows.count_versions(prefix, most=most)


def _check_workflow_owner(workflow_id: str, owner: str) -> None:
    """Raise if a workflow would belong to another tenant, or its name lacks the owner's prefix."""
    users = current_caller().users
    if users is None:
        return
    if owner not in users:
        problem = Problem("user_id", owner, f"must be one of {', '.join(users)}")
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=[problem])
    if not workflow_id.startswith(workflow_prefix(owner)):
        problem = Problem("workflow_id", workflow_id, f'must start with "{workflow_prefix(owner)}"')
        raise InvalidWorkflowError(workflow_id=workflow_id, problems=[problem])
