"""Tenancy: what a caller sees of the store, under every route and page.

What belongs to others is as if it did not exist, so no answer can tell the two apart.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import uuid4

from kron.core.errors import Problem
from kron.core.plan.query import Audited, AuditFilter, FoundJob, JobFilter, RunCursor
from kron.core.plan.record import (
    AttemptRecord,
    AuditRecord,
    EpochRecord,
    JobRecord,
    RangeRecord,
    RunRecord,
    RunStatus,
)
from kron.core.plan.step import Change, JobState
from kron.fronts.service.auth.audit import audit_of
from kron.fronts.service.auth.owner import owner_of
from kron.fronts.service.auth.principal import Caller, TooManyError, prefix_of, present_caller, shown_keys
from kron.fronts.service.errors import InvalidScheduleError
from kron.ports import Store, WriteResult


class TenantStore:
    """A store as the present caller sees it: only what is theirs. The program itself sees everything."""

    def __init__(self, store: Store, *, max_jobs: int = 0) -> None:
        self._store = store
        # How many jobs a user may have; 0 for any number.
        self.max_jobs = max_jobs

    async def cases(self, namespace: str, identities: Sequence[str] | None = None) -> list[JobState]:
        """Return jobs with their open runs: those named, or all."""
        caller = present_caller()
        cases = await self._store.cases(namespace, identities)
        return [case for case in cases if _is_theirs(caller, case.job)]

    async def find_jobs(
        self, namespace: str, wanted: JobFilter, *, after: str = "", limit: int = 100
    ) -> list[FoundJob]:
        """Return jobs in the order of their names."""
        users = present_caller().users
        if users is not None:
            wanted = wanted._replace(users=users)
        return await self._store.find_jobs(namespace, wanted, after=after, limit=limit)

    async def count_jobs(self, namespace: str, wanted: JobFilter) -> int:
        """Return how many jobs there are."""
        users = present_caller().users
        return await self._store.count_jobs(
            namespace, wanted if users is None else wanted._replace(users=users)
        )

    async def runs(
        self, namespace: str, identity: str, *, before: int | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs, newest first."""
        if not await self._is_known(namespace, identity):
            return []
        found = await self._store.runs(namespace, identity, before=before, limit=limit)
        shown_keys().update(run.key for run in found)
        return found

    async def find_runs(self, namespace: str, keys: Sequence[str]) -> list[RunRecord]:
        """Return the runs with these keys, open or over."""
        runs = await self._store.find_runs(namespace, keys)
        if present_caller().users is None:
            return runs
        cases = await self.cases(namespace, sorted({run.identity for run in runs}))
        known = {case.job.identity for case in cases}
        return [run for run in runs if run.identity in known]

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
        theirs = present_caller().users
        return await self._store.latest_runs(
            namespace, status=status, before=before, limit=limit, users=users if theirs is None else theirs
        )

    async def newest_runs(
        self, namespace: str, identities: Sequence[str], *, limit: int
    ) -> dict[str, list[RunRecord]]:
        """Return the newest runs of each of some jobs, newest first."""
        theirs = identities
        if present_caller().users is not None:
            theirs = [case.job.identity for case in await self.cases(namespace, identities)]
        return await self._store.newest_runs(namespace, theirs, limit=limit)

    async def note(self, namespace: str, entry: AuditRecord) -> None:
        """Write something for the audit that changes no schedule."""
        await self._store.put(namespace, created=[], changed=[], audit=[entry], now=entry.at)

    async def ranges(self, namespace: str, identity: str, *, at: int | None = None) -> list[RangeRecord]:
        """Return a job's counted records, newest first."""
        if not await self._is_known(namespace, identity):
            return []
        return await self._store.ranges(namespace, identity, at=at)

    async def epochs(self, namespace: str, identity: str) -> list[EpochRecord]:
        """Return the earlier definitions of a job, oldest first."""
        if not await self._is_known(namespace, identity):
            return []
        return await self._store.epochs(namespace, identity)

    async def attempts(self, namespace: str, key: str) -> list[AttemptRecord]:
        """Return the earlier attempts of a run, oldest first; of one that the caller was just shown.

        Others could compute the key, and no store finds every run by it.
        """
        if present_caller().users is not None and key not in shown_keys():
            return []
        return await self._store.attempts(namespace, key)

    async def put(
        self, namespace: str, *, created: Sequence[JobRecord], changed: Sequence[Change], now: int
    ) -> WriteResult:
        """Write new and changed jobs in one transaction, or do nothing of it; the audit has it too."""
        caller = present_caller()
        for job in (*created, *(change.job for change in changed)):
            _check_owner(caller, job)
        for job in created:
            _check_name(caller, job)
        names = [change.job.identity for change in changed]
        known = {case.job.identity: case.job for case in await self.cases(namespace, names)} if names else {}
        await self._check_room(namespace, [*created, *_come_to_count(changed, known)])
        audit = audit_of(created, changed, known, now=now)
        return await self._store.put(namespace, created=created, changed=changed, audit=audit, now=now)

    async def _check_room(self, namespace: str, further: Sequence[JobRecord]) -> None:
        """Refuse more schedules than a user may have."""
        owners = Counter(owner_of(job.launcher) for job in further)
        for owner, more in owners.items():
            if not self.max_jobs or owner is None or present_caller().users is None:
                continue
            has = await self._store.count_jobs(namespace, JobFilter(users=[owner]))
            if has + more > self.max_jobs:
                said = f'"{owner}" has {has} schedules; with {more} more there would be over {self.max_jobs}'
                raise TooManyError(said)

    async def audits(
        self, namespace: str, wanted: AuditFilter, *, before: int | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return changes that somebody made, the latest first."""
        users = present_caller().users
        if users is not None:
            wanted = wanted._replace(users=users)
        return await self._store.audits(namespace, wanted, before=before, limit=limit)

    async def _is_known(self, namespace: str, identity: str) -> bool:
        if present_caller().users is None:
            return True
        return bool(await self.cases(namespace, [identity]))


def signed(document: object) -> object:
    """Return a schedule that says whose it is: the caller's, where it says nothing."""
    users = present_caller().users
    if not users or not isinstance(document, Mapping) or document.get("user_id") is not None:
        return document
    return {**document, "user_id": users[0]}


def own_name() -> str:
    """Return a name that no other schedule has, among the caller's own."""
    users = present_caller().users
    return f"{prefix_of(users[0]) if users else ''}{uuid4()}"


def _check_owner(caller: Caller, job: JobRecord) -> None:
    """Refuse to make something somebody else's."""
    owner = owner_of(job.launcher)
    if not caller.sees(owner):
        problem = Problem("user_id", owner, f"must be one of yours: {', '.join(caller.users or ())}")
        raise InvalidScheduleError(schedule_id=job.identity, problems=[problem])


def _check_name(caller: Caller, job: JobRecord) -> None:
    """Refuse a name outside of its owner's own, so that nobody learns which names others have."""
    owner = owner_of(job.launcher)
    if caller.users is not None and owner is not None and not job.identity.startswith(prefix_of(owner)):
        problem = Problem("schedule_id", job.identity, f'must begin with "{prefix_of(owner)}"')
        raise InvalidScheduleError(schedule_id=job.identity, problems=[problem])


def _come_to_count(changed: Sequence[Change], known: Mapping[str, JobRecord]) -> list[JobRecord]:
    """Return what its owner has not had so far: what was deleted and comes back, or was somebody else's."""
    found = []
    for change in changed:
        old = known.get(change.job.identity)
        had = old is not None and old.deleted_at is None and owner_of(old.launcher)
        if change.job.deleted_at is None and had != owner_of(change.job.launcher):
            found.append(change.job)
    return found


def _is_theirs(caller: Caller, job: JobRecord) -> bool:
    return caller.users is None or caller.sees(owner_of(job.launcher))
