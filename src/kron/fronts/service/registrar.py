"""The registrar: schedules are created, changed, paused, deleted and looked at (SPEC 3: 4)."""

from collections.abc import Callable, Mapping, Sequence, Set
from datetime import timedelta
from uuid import uuid4

from kron.core.errors import ConflictError
from kron.core.identity import identity_fault
from kron.core.plan.query import FoundJob, JobFilter
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import create, delete, look_ahead
from kron.core.plan.step import Change, JobState
from kron.core.time.instant import EPOCH, rfc3339
from kron.core.workflow import NAME, WorkflowVersion
from kron.fronts.service.auth.audit import deployment_entry
from kron.fronts.service.auth.tenancy import TenantStore, TenantWorkflows, unique_name, with_owner
from kron.fronts.service.documents import Document, coming, etag_of, preview_of, schedule_view
from kron.fronts.service.edit import edited, paused_or_resumed
from kron.fronts.service.errors import (
    BusyError,
    ChangedError,
    UnknownScheduleError,
)
from kron.fronts.service.resume_preview import resumption_of, traits_for
from kron.fronts.service.schedule_spec import Rules, ScheduleSpec, parse_schedule_spec
from kron.fronts.service.workflow_deployment import check_kept, obsolete, prefix_of, read_deployment
from kron.launchers.spec import WorkflowSettings, launcher_kind_of, launcher_text_of
from kron.ports import Clock, Store, WorkflowStore, WriteResult

NAMESPACE = "service"
MILLISECOND = timedelta(milliseconds=1)
# How often a write is begun again when the engine or somebody else was quicker.
MAX_TRIES = 20
USUAL_RULES = Rules()
# How many schedules are read at once.
PAGE = 100
# What If-None-Match and If-Match say for "any".
ANY = "*"


def _nobody() -> None:
    """Call nobody: a worker elsewhere looks by itself."""


class Registrar:
    """Writes schedules into a store, and calls a worker in the same program when something changed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        rules: Rules = USUAL_RULES,
        call: Callable[[], None] = _nobody,
        workflows: WorkflowStore | None = None,
    ) -> None:
        # The store as it is, for whoever looks after the service.
        self.whole = store
        # Under every route and page: a caller has what is theirs.
        self.store = TenantStore(store, max_jobs=rules.max_schedules)
        self._workflows = None if workflows is None else TenantWorkflows(workflows)
        self.rules = rules
        self.traits = traits_for(rules.executor)
        self.call = call
        self.clock = clock

    def now(self) -> int:
        """Return the present instant in milliseconds."""
        return (self.clock.now() - EPOCH) // MILLISECOND

    # --- writing ---------------------------------------------------------------------------------

    def read_spec(self, document: object) -> ScheduleSpec:
        """Return the schedule a document describes, or raise InvalidScheduleError with every problem.

        Its `user_id` is by default the caller's, its `schedule_id` a new one.
        """
        return parse_schedule_spec(with_owner(document), self.rules, schedule_id=_name_for(document))

    async def upsert_schedule(self, spec: ScheduleSpec, *, if_match: str | None = None) -> Document:
        """Create a schedule or change it; return its name and when it runs next.

        With `if_match` only a schedule in that state is changed; "" stands for one that does not exist.
        """
        (job,) = await self._put([spec], if_match=if_match)
        return _receipt(job, self.now())

    async def upsert_schedules(self, specs: Sequence[ScheduleSpec]) -> int:
        """Create or change schedules in one transaction, all or none; return how many."""
        return len(await self._put(specs))

    async def pause_schedule(
        self, schedule_id: str, paused: bool, *, if_match: str | None = None
    ) -> Document:
        """Pause a schedule, or let it go on; then the answer says what starts of what passed meanwhile."""
        foreseen: Document = {}

        def decide(case: JobState, now: int) -> Change:
            foreseen.clear()
            if not paused:
                foreseen.update(resumption_of(case, now=now, traits=self.traits))
            return paused_or_resumed(case.job, list(case.runs), paused=paused, now=now)

        job = await self.change(schedule_id, decide, if_match=if_match)
        return {**_receipt(job, self.now()), "paused": bool(job.paused), **foreseen}

    async def delete_schedule(self, schedule_id: str, *, if_match: str | None = None) -> None:
        """Delete a schedule; what is on record of its runs stays."""
        await self.change(
            schedule_id, lambda case, now: delete(case.job, list(case.runs), now=now), if_match=if_match
        )

    async def change(
        self,
        schedule_id: str,
        decide: Callable[[JobState, int], Change],
        *,
        if_match: str | None = None,
    ) -> JobRecord:
        """Write what is decided of a schedule as it is now; decide again when somebody else was quicker."""
        for _ in range(MAX_TRIES):
            case = await self.case_of(schedule_id)
            _check_state(case.job, if_match)
            now = self.now()
            change = decide(case, now)
            settled = await self.store.put(NAMESPACE, created=[], changed=[change], now=now)
            if not settled.stale_jobs and not settled.existing_runs:
                self.call()
                return change.job
        raise BusyError(schedule_ids=[schedule_id])

    async def _put(
        self, wishes: Sequence[ScheduleSpec], *, if_match: str | None = None, retired: Sequence[str] = ()
    ) -> list[JobRecord]:
        """Write schedules and delete others, all or nothing, as they are when that is done."""
        names = [*(wish.job.identity for wish in wishes), *retired]
        await self._check_use(wishes)
        settled = WriteResult(frozenset(names), frozenset())
        taken: frozenset[str] = frozenset()
        for _ in range(MAX_TRIES):
            known = {case.job.identity: case for case in await self.store.cases(NAMESPACE, names)}
            _check_visible(taken, known)
            if if_match is not None:
                _check_upsert(names[0], known.get(names[0]), if_match)
            now = self.now()
            created = [_created(wish, now) for wish in wishes if wish.job.identity not in known]
            changed = [
                edited(known[wish.job.identity], wish, now=now)
                for wish in wishes
                if wish.job.identity in known
            ]
            gone = [known[name] for name in retired if name in known and known[name].job.deleted_at is None]
            changed += [delete(case.job, list(case.runs), now=now) for case in gone]
            settled = await self.store.put(NAMESPACE, created=created, changed=changed, now=now)
            if not settled.stale_jobs and not settled.existing_runs:
                self.call()
                return [*created, *(change.job for change in changed)]
            taken = settled.stale_jobs & {job.identity for job in created}
        raise BusyError(schedule_ids=sorted(settled.stale_jobs))

    # --- workflows -------------------------------------------------------------------------------

    @property
    def workflows(self) -> TenantWorkflows:
        """Return where workflows are kept, or raise ConflictError where none are."""
        if self._workflows is None:
            raise ConflictError("This registrar was not told where workflows are kept")
        return self._workflows

    async def deploy_workflow(
        self, workflow_id: str, version: int, dag: object, *, user_id: object, dry_run: bool = False
    ) -> Document:
        """Keep a version of a workflow and have its triggers' schedules follow it; repeating it finishes it.

        The newest version counts: an older one is kept and changes no schedule. A dry run writes nothing.
        """
        now = self.now()
        deployment = read_deployment(workflow_id, version, dag, user_id=user_id, rules=self.rules, now=now)
        known = await self.workflows.get(workflow_id, version)
        check_kept(deployment, known)
        if not dry_run:
            check_kept(deployment, await self.workflows.put(deployment.record))
        if known is None and not dry_run:
            await self.store.note(NAMESPACE, deployment_entry(deployment.record))
        newest = await self._newest(workflow_id, version)
        answer: Document = {"workflow_id": workflow_id, "version": version, "newest_version": newest}
        answer |= {"new": known is None, "dry_run": dry_run}
        if newest > version:
            return {**answer, "upserted": [], "retired": []}
        owner = deployment.record.user_id
        retired = obsolete(await self._jobs_below(prefix_of(workflow_id, owner)), deployment)
        if dry_run:
            jobs = [_created(wish, now) for wish in deployment.wishes]
        else:
            jobs = await self._put(deployment.wishes, retired=retired)
            await self._follow(workflow_id, version)
        receipts = {job.identity: _receipt(job, now) for job in jobs}
        return {**answer, "upserted": [receipts[name] for name in deployment.names], "retired": retired}

    async def workflow_versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first; none of one whose name no workflow can have."""
        if not NAME.fullmatch(workflow_id):
            return []
        return await self.workflows.versions(workflow_id, limit=limit)

    async def _check_use(self, wishes: Sequence[ScheduleSpec]) -> None:
        for wish in wishes:
            if self._workflows is not None and isinstance(wish.settings, WorkflowSettings):
                await self._workflows.check_use(wish.job.identity, wish.settings)

    async def _newest(self, workflow_id: str, version: int) -> int:
        return max([version, *(each.version for each in await self.workflows.versions(workflow_id, limit=1))])

    async def _follow(self, workflow_id: str, version: int) -> None:
        """Deploy what somebody else kept meanwhile: whoever comes last, the newest version counts."""
        newest = await self._newest(workflow_id, version)
        record = await self.workflows.get(workflow_id, newest) if newest > version else None
        if record is not None:
            await self.deploy_workflow(workflow_id, newest, record.document(), user_id=record.user_id)

    async def _jobs_below(self, prefix: str) -> list[JobRecord]:
        """Return the schedules whose names begin in a way, which stand together in the order of names."""
        found: list[JobRecord] = []
        after = prefix
        while True:  # each page begins later, and the names come to an end
            page = await self.store.find_jobs(NAMESPACE, JobFilter(), after=after, limit=PAGE)
            mine = [one.job for one in page if one.job.identity.startswith(prefix)]
            found += mine
            if len(mine) < PAGE:
                return found
            after = mine[-1].identity

    # --- reading ---------------------------------------------------------------------------------

    async def get_schedule(self, schedule_id: str) -> Document:
        """Return a schedule with all its fields and its next five fire times."""
        found = await self.find(schedule_id)
        now = self.now()
        return {
            **schedule_view(found, now=now),
            "preview": preview_of(found.job, now),
            "etag": etag_of(found.job),
        }

    async def list_schedules(self, wanted: JobFilter, *, after: str = "", limit: int = 100) -> list[Document]:
        """Return schedules in the order of their names, those later than `after`."""
        texts = (wanted.search, wanted.workflow_id, wanted.user_id)
        if any(text is not None and "\0" in text for text in texts):
            return []
        found = await self.store.find_jobs(NAMESPACE, wanted, after=after, limit=limit)
        now = self.now()
        return [schedule_view(one, now=now) for one in found]

    async def preview_resume(self, schedule_id: str) -> Document:
        """Return what would start if a schedule went on now; nothing is changed."""
        case = await self.case_of(schedule_id)
        return {"schedule_id": schedule_id, **resumption_of(case, now=self.now(), traits=self.traits)}

    async def find(self, schedule_id: str) -> FoundJob:
        """Return a schedule's record, or raise UnknownScheduleError."""
        check_name(schedule_id)
        found = await self.store.find_jobs(NAMESPACE, JobFilter(names=[schedule_id]), limit=1)
        if not found:
            raise UnknownScheduleError(schedule_id=schedule_id)
        return found[0]

    async def case_of(self, schedule_id: str) -> JobState:
        """Return a schedule's record with its open runs, or raise UnknownScheduleError."""
        check_name(schedule_id)
        cases = await self.store.cases(NAMESPACE, [schedule_id])
        if not cases or cases[0].job.deleted_at is not None:
            raise UnknownScheduleError(schedule_id=schedule_id)
        return cases[0]


def check_name(schedule_id: str) -> None:
    """Refuse a name that no schedule can have, before a database does in its own way."""
    if identity_fault(schedule_id) is not None:
        raise UnknownScheduleError(schedule_id=schedule_id)


def new_name() -> str:
    """Return a name that nothing else has."""
    return str(uuid4())


def _name_for(document: object) -> str:
    """Return a new name for a schedule without one; that is rare where there are many."""
    named = isinstance(document, Mapping) and document.get("schedule_id") is not None
    return "" if named else unique_name()


def _receipt(job: JobRecord, now: int) -> Document:
    # The record's own next time may be one that passed while it was paused, and that never runs.
    following = next(coming(job, now), None)
    next_run_at = None if following is None else rfc3339(following)
    return {"schedule_id": job.identity, "next_run_at": next_run_at, "etag": etag_of(job)}


def _created(wish: ScheduleSpec, now: int) -> JobRecord:
    launcher, kind = launcher_text_of(wish.settings), launcher_kind_of(wish.settings)
    record = create(wish.job, now=now, launcher=launcher, kind=kind)
    return look_ahead(record._replace(paused=int(wish.paused or False)))


def _check_visible(taken: Set[str], known: Mapping[str, JobState]) -> None:
    """Refuse names that exist and cannot be seen: somebody gave them away, so trying again is of no use."""
    hidden = sorted(taken - known.keys())
    if hidden:
        raise ConflictError(f'The name "{hidden[0]}" belongs to somebody else: use another', names=hidden)


def _check_upsert(schedule_id: str, case: JobState | None, if_match: str) -> None:
    if case is None or case.job.deleted_at is not None:
        if if_match:
            raise ChangedError(schedule_id=schedule_id, etag=None)
    elif not if_match:
        raise ChangedError(schedule_id=schedule_id, etag=etag_of(case.job))
    else:
        _check_state(case.job, if_match)


def _check_state(job: JobRecord, if_match: str | None) -> None:
    etag = etag_of(job)
    if if_match is not None and if_match != ANY and etag not in map(str.strip, if_match.split(",")):
        raise ChangedError(schedule_id=job.identity, etag=etag)
