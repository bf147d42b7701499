"""The registrar: schedules are created, changed, paused, resumed and deleted (SPEC 3: 4)."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from uuid import uuid4

from kron.app.budget import ANSWER_S, CpuBudget
from kron.app.catalog import MANY, Catalog, Defined, JobDefinition, NoWrite, Write
from kron.app.launchers import settings_of, traits_by_kind
from kron.app.preview import preview_resume
from kron.clocks.system import SystemClock
from kron.core.errors import ConflictError, InvalidOptionError, Problem, UnknownJobError
from kron.core.job.job import Job
from kron.core.job.notify import parse_notify
from kron.core.plan.compiled import compiled_job
from kron.core.plan.next_start import next_start, phase_of_job
from kron.core.plan.pause import BY_HAND
from kron.core.plan.query import FoundJob, JobFilter
from kron.core.plan.record import AuditRecord, JobRecord
from kron.core.plan.registration import create
from kron.core.plan.resume_preview import ResumePreview
from kron.core.plan.step import Change, JobState
from kron.core.time.instant import EPOCH, MILLISECOND, EpochSeconds, rfc3339
from kron.core.workflow import NAME, WorkflowRecord, WorkflowVersion
from kron.dag_ports import DagStore, WorkflowStore
from kron.fronts.service.auth.audit import deployment_entry
from kron.fronts.service.auth.principal import current_actor
from kron.fronts.service.auth.tenancy import TenantStore, TenantWorkflows, unique_name, with_owner
from kron.fronts.service.compute_pool import ComputePool
from kron.fronts.service.documents import Document, preview_of, schedule_view
from kron.fronts.service.errors import ChangedError, InvalidScheduleError, UnknownScheduleError
from kron.fronts.service.responses import (
    DeploymentReceipt,
    PauseReceipt,
    Receipt,
    ResumeEffect,
    ResumeForecast,
)
from kron.fronts.service.schedule_spec import Rules, ScheduleSpec, check_pause, parse_schedule_spec
from kron.fronts.service.workflow_deployment import (
    check_deployed,
    check_stored,
    document_of,
    obsolete,
    prefix_of,
    read_deployment,
)
from kron.launchers.fair_queue import FairTurns
from kron.launchers.secret import Vault
from kron.launchers.spec import launcher_kind_of, launcher_text_of
from kron.launchers.workflow import UnknownWorkflowError, WorkflowSettings, find_workflow
from kron.ports import Clock, Store

NAMESPACE = "service"
DEFAULT_RULES = Rules()
# Schedules read at once.
PAGE = 100
# Nominal times that a preview of a resume lists at most.
MAX_NAMED = 100
# Why a schedule that is not paused starts nothing all the same.
SUSPENDED = "its definition suspends it (policy.suspend): no period starts until an edit changes that"
ALSO_SUSPENDED = "its definition suspends it too (policy.suspend)"
# The value of If-None-Match and If-Match for "any".
ANY = "*"
# Batches of a thousand schedules that are read and stored at once: of more, each would take a turn of the
# event loop and a connection of the store before one short request goes on.
BATCHES_AT_ONCE = 2


def _no_wake(_: int | None = None) -> None:
    """Wake no worker: those in other processes notice the write in the store."""


class Registrar:
    """Translates SPEC 3's verbs to the catalog, for the tenant who calls; `wake` wakes a local worker.

    With another `namespace` it reads the jobs of another front, such as those of an embedded scheduler.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        rules: Rules = DEFAULT_RULES,
        wake: Callable[[int | None], None] = _no_wake,
        workflows: WorkflowStore | None = None,
        namespace: str = NAMESPACE,
    ) -> None:
        # The store of all tenants, for the operator's metrics.
        self.whole = store
        # The store as the caller's tenant sees it, under every route and page.
        self.store = TenantStore(store, max_jobs=rules.max_schedules, max_open=rules.max_open_runs)
        most = rules.max_workflow_versions
        self._workflows = None if workflows is None else TenantWorkflows(workflows, max_versions=most)
        # The runs of DAGs, where the service executes them.
        self.dags: DagStore | None = None
        self.rules = rules
        self._namespace, self._wake = namespace, wake
        self.clock = clock
        self.traits = traits_by_kind(rules.executor)
        self.catalog = Catalog(
            self.store,
            namespace,
            now=self.now,
            wake=wake,
            traits=self.traits,
            actor=current_actor,
            notify=rules.notify,
        )
        self.catalog.permit = self.store.permit
        # A simulated clock has no time in common with a database.
        self.catalog.lookahead_ms = rules.lookahead_ms if isinstance(clock, SystemClock) else None
        self.catalog.query.lookahead_ms = rules.lookahead_ms
        # Batches of many schedules that are read and stored at once: one of each caller, who take turns.
        self.bulk_turns = FairTurns(most=BATCHES_AT_ONCE, per_tenant=1)
        # Answers that take long to compute have a budget, and the callers have turns.
        self.compute_pool = ComputePool()
        self.catalog.query.compute, self.catalog.query.answer_s = self.compute_pool.run, ANSWER_S
        self.catalog.compute = self.compute_pool.run_always

    def now(self) -> int:
        """Return the present instant in milliseconds."""
        return (self.clock.now() - EPOCH) // MILLISECOND

    # --- schedules -------------------------------------------------------------------------------

    def read_spec(self, document: object) -> ScheduleSpec:
        """Return the schedule a document describes, or raise InvalidScheduleError with every problem.

        Its `user_id` is by default the caller's, its `schedule_id` a new one.
        """
        return parse_schedule_spec(with_owner(document), self.rules, schedule_id=_name_for(document))

    async def upsert_schedule(
        self, document: Mapping[str, object], *, if_match: str | None = None, dry_run: bool = False
    ) -> Receipt:
        """Create a schedule or change it; return its name and when it runs next.

        With `if_match` only a schedule in that state is changed; "" stands for one that does not exist. A dry
        run writes nothing, and returns the same.
        """
        specs = [self.read_spec(document)]
        ((job, effect),) = await self._define(specs, if_match=if_match, dry_run=dry_run)
        receipt = _receipt(job, await self._next_run_at(job, stored=not dry_run))
        if effect is not None:
            _add_effect(receipt, effect_view(effect))
        return receipt

    async def upsert_schedules(self, specs: Sequence[ScheduleSpec]) -> int:
        """Create or change schedules in one transaction, all or none; return how many."""
        return len(await self._upsert(specs))

    async def _upsert(self, specs: Sequence[ScheduleSpec], *, retired: Sequence[str] = ()) -> list[JobRecord]:
        return [each.job for each in await self._define(specs, retired=retired)]

    async def _define(
        self,
        specs: Sequence[ScheduleSpec],
        *,
        if_match: str | None = None,
        retired: Sequence[str] = (),
        dry_run: bool = False,
    ) -> list[Defined]:
        await self.check_use(specs)
        definitions = await self._definitions_of(specs)
        expect = partial(check_etag, specs[0].job.identity if specs else "", if_match)
        return await self.catalog.define(definitions, deleted=retired, expect=expect, dry_run=dry_run)

    async def _definitions_of(self, specs: Sequence[ScheduleSpec]) -> list[JobDefinition]:
        """Return the definitions that are stored; those of many are written beside the event loop."""

        def definitions() -> list[JobDefinition]:
            return [_definition_of(spec, self.rules) for spec in specs]

        return definitions() if len(specs) < MANY else await self.compute_pool.run_always(definitions)

    async def reencrypt(self, names: Sequence[str], *, dry_run: bool) -> int:
        """Seal all secrets with the first key; return how many schedules that changes."""
        vault = self.rules.vault
        if vault is None or not vault.keys:
            raise InvalidOptionError(option="secret_keys", value="", reason="is not set: there is no key")

        def decide(states: Sequence[JobState], _: int) -> Write[int] | NoWrite[int]:
            changed = []
            for job in (state.job for state in states):
                settings = settings_of(vault.unseal(job.launcher, job.identity))
                sealed = vault.seal(settings, job.identity)
                notify = None if job.notify is None else _sealed_notify(job.notify, vault)
                if (sealed, notify) != (job.launcher, job.notify):
                    new = job._replace(launcher=sealed, notify=notify, revision=job.revision + 1)
                    changed.append(Change(new, job.revision))
            count = len(changed)
            return NoWrite(count) if dry_run or not changed else Write(result=count, changed=changed)

        return await self.catalog.write(lambda: self.catalog.states(names), decide)

    async def pause_schedule(
        self,
        schedule_id: str,
        paused: bool,
        *,
        reason: str | None = None,
        until: EpochSeconds | None = None,
        if_match: str | None = None,
    ) -> PauseReceipt:
        """Pause a schedule, or resume it and return which periods of the pause start.

        With `until` the pause ends then. A schedule that its definition suspends stays stopped: `note` says
        so.
        """
        check_pause(paused, reason, until)
        expect = partial(check_etag, schedule_id, if_match)
        with unknown_as_schedule():
            if paused:
                ends_at = None if until is None else 1000 * until
                because = BY_HAND if reason is None else reason
                job = await self.catalog.pause(schedule_id, because=because, until=ends_at, expect=expect)
                return _pause_receipt(job, await self._next_run_at(job))
            job, preview = await self.catalog.resume(schedule_id, expect=expect)
        return _pause_receipt(job, await self._next_run_at(job), effect_view(preview))

    async def delete_schedule(self, schedule_id: str, *, if_match: str | None = None) -> None:
        """Delete a schedule; its history stays."""
        with unknown_as_schedule():
            await self.catalog.delete(schedule_id, expect=partial(check_etag, schedule_id, if_match))

    async def drain_worker(self, entry: AuditRecord, drain: bool) -> None:
        """Ask the worker that an audit entry names to drain, or to work again."""
        await self.store.set_drain(self._namespace, entry.identity, drain=drain, audit=entry)
        self._wake(None)

    # --- workflows -------------------------------------------------------------------------------

    @property
    def workflows(self) -> TenantWorkflows:
        """Return the workflow store, or raise ConflictError if the registrar has none."""
        if self._workflows is None:
            raise ConflictError("This registrar has no workflow store")
        return self._workflows

    async def deploy_workflow(
        self, workflow_id: str, version: int, dag: object, *, user_id: object, dry_run: bool = False
    ) -> DeploymentReceipt:
        """Store a version of a workflow and upsert the schedules of its triggers; it may be repeated.

        Schedules follow the newest version: an older one is only stored. A dry run writes nothing.
        """
        now = self.now()
        deployment = await self.compute_pool.run(
            read_deployment, workflow_id, version, dag, user_id=user_id, rules=self.rules, now=now
        )
        known = await self.workflows.get(workflow_id, version)
        # Documents of a megabyte are compared.
        compute = self.compute_pool.run_always
        await compute(check_deployed, deployment, known, self.rules)
        if known is None:
            await self.workflows.check_quota(deployment.record)
        if not dry_run:
            stored = await self.workflows.put(deployment.record)
            await compute(check_stored, deployment, stored, self.rules)
            if stored != known:
                entry = deployment_entry(deployment.record, is_draft=deployment.is_draft)
                await self.store.note(NAMESPACE, entry)
        newest = await self._newest(workflow_id, version)
        receipt: DeploymentReceipt = {
            "workflow_id": workflow_id,
            "version": version,
            "newest_version": newest,
            "new": known is None,
            "dry_run": dry_run,
            "upserted": [],
            "retired": [],
        }
        if newest > version or deployment.is_draft:
            return receipt
        owner = deployment.record.user_id
        retired = obsolete(await self._jobs_below(prefix_of(workflow_id, owner)), deployment)
        if dry_run:
            jobs = [_created(spec, self.rules, now) for spec in deployment.specs]
        else:
            jobs = await self._upsert(deployment.specs, retired=retired)
            await self._follow(workflow_id, version)
        following = await self._next_runs_at(jobs, stored=not dry_run)
        upserted = deployment.names
        receipt["upserted"] = [{"schedule_id": name, "next_run_at": following.get(name)} for name in upserted]
        receipt["retired"] = retired
        return receipt

    async def workflow_versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first; none for an invalid name."""
        if not NAME.fullmatch(workflow_id):
            return []
        return await self.workflows.versions(workflow_id, limit=limit)

    async def check_use(self, specs: Sequence[ScheduleSpec]) -> None:
        """Raise for a schedule of a workflow that its owner does not own, or that is not deployed."""
        deployed: set[tuple[str, int]] = set()
        for spec in specs:
            settings = spec.settings
            if self._workflows is None or not isinstance(settings, WorkflowSettings):
                continue
            await self._workflows.check_use(spec.job.identity, settings)
            version = (settings.workflow_id, settings.version)
            if version in deployed:
                continue
            try:
                await find_workflow(self._workflows, *version)
                deployed.add(version)
            except UnknownWorkflowError as cause:
                problem = Problem("version", settings.version, _not_deployed(settings))
                raise InvalidScheduleError(schedule_id=spec.job.identity, problems=[problem]) from cause

    async def _newest(self, workflow_id: str, version: int) -> int:
        """Return the newest version that is no draft, or this one."""
        for each in await self.workflows.versions(workflow_id):
            record = await self.workflows.get(workflow_id, each.version) if each.version > version else None
            if record is not None and not await self.compute_pool.run_always(_is_draft, record):
                return each.version
        return version

    async def _follow(self, workflow_id: str, version: int) -> None:
        """Deploy a newer version that another caller has stored since: the newest one wins."""
        newest = await self._newest(workflow_id, version)
        record = await self.workflows.get(workflow_id, newest) if newest > version else None
        if record is not None:
            dag = await self.compute_pool.run_always(document_of, record, self.rules)
            await self.deploy_workflow(workflow_id, newest, dag, user_id=record.user_id)

    async def _jobs_below(self, prefix: str) -> list[JobRecord]:
        """Return the schedules whose names start with a prefix; they are adjacent in the order of names."""
        jobs: list[JobRecord] = []
        after = prefix
        while True:  # each page starts later, and the names are finite
            page = await self.catalog.query.jobs(JobFilter(), after=after, limit=PAGE)
            matching = [found.job for found in page if found.job.identity.startswith(prefix)]
            jobs += matching
            if len(matching) < PAGE:
                return jobs
            after = matching[-1].identity

    # --- reads -----------------------------------------------------------------------------------

    async def get_schedule(self, schedule_id: str) -> Document:
        """Return a schedule with all its fields and its next five fire times."""
        with unknown_as_schedule():
            found = await self.catalog.query.find(schedule_id)
            state = await self.catalog.query.state(schedule_id)
        now = self.now()

        def document() -> Document:
            following = next_start(state, now, self.traits)
            view = schedule_view(found, following, phase_of_job(state, now, following))
            return {**view, "preview": preview_of(state, now), "etag": etag_of(found.job)}

        return await self.compute_pool.run(document)

    async def _next_run_at(self, job: JobRecord, *, stored: bool = True) -> str | None:
        """Return the next period of a job that was just written; one that starts in a window may be a row."""
        state = JobState(job)
        is_plain = compiled_job(job.definition, job.identity).plain and not job.paused
        if stored and not is_plain:
            state = (await self.catalog.query.states([job.identity])).get(job.identity, state)
        work = partial(next_start, state, self.now(), self.traits)
        following = (work() if is_plain else await self.compute_pool.run_always(work)).nominal_time
        return None if following is None else rfc3339(following)

    async def _next_runs_at(self, jobs: Sequence[JobRecord], *, stored: bool) -> dict[str, str | None]:
        """Return the next period of jobs by name, of as many as the processor time of an answer allows."""
        states = await self.catalog.query.states([job.identity for job in jobs]) if stored else {}
        now = self.now()

        def following() -> dict[str, str | None]:
            budget, times = CpuBudget(), dict[str, str | None]()
            for job in jobs:
                time = next_start(states.get(job.identity, JobState(job)), now, self.traits).nominal_time
                times[job.identity] = None if time is None else rfc3339(time)
                if budget.is_spent:
                    break
            return times

        return await self.compute_pool.run_always(following)

    async def list_schedules(self, wanted: JobFilter, *, after: str = "", limit: int = 100) -> list[Document]:
        """Return schedules in the order of their names, those later than `after`."""
        return (await self.schedule_page(wanted, after=after, limit=limit))[0]

    async def schedule_page(
        self, wanted: JobFilter, *, after: str, limit: int
    ) -> tuple[list[Document], bool]:
        """Return schedules by name, fewer if they are long, and whether there are more."""
        jobs, has_more = await self.catalog.query.job_page(wanted, after=after, limit=limit)
        states = await self.catalog.query.states([found.job.identity for found in jobs])
        following = await self.catalog.query.next_starts([found.job for found in jobs], self.traits, states)
        now = self.now()

        def document(found: FoundJob) -> Document:
            start = following[found.job.identity]
            state = states.get(found.job.identity, JobState(found.job))
            return schedule_view(found, start, phase_of_job(state, now, start))

        return await self.compute_pool.run(lambda: list(map(document, jobs))), has_more

    async def preview_resume(self, schedule_id: str) -> ResumeForecast:
        """Return which periods a resume would start now, without resuming."""
        query, now = self.catalog.query, self.now()
        with unknown_as_schedule():
            job = (await query.find(schedule_id)).job
            preview = await preview_resume(query, schedule_id, now=now, traits=self.traits)
        effect = effect_view(preview)
        forecast: ResumeForecast = {
            "schedule_id": schedule_id,
            "would_start": effect["would_start"],
            "would_wait": effect["would_wait"],
            "would_drop": effect["would_drop"],
            "starts": effect["starts"],
        }
        if job.suspended:
            forecast["note"] = SUSPENDED
        return forecast


@contextmanager
def unknown_as_schedule() -> Iterator[None]:
    """Raise UnknownScheduleError where the catalog knows no job of a name."""
    try:
        yield
    except UnknownJobError as error:
        raise UnknownScheduleError(schedule_id=str(error.details["identity"])) from error


def new_name() -> str:
    """Return a unique name."""
    return str(uuid4())


def _name_for(document: object) -> str:
    """Return a new name for a schedule without one, and nothing for one that has a name."""
    if isinstance(document, Mapping):
        for word in ("schedule_id", "identity"):
            if document.get(word) is not None:
                return ""
    return unique_name()


def etag_of(job: JobRecord) -> str:
    """Return the ETag of a schedule: its definition, launcher, suspend and pause, not its progress."""
    state: tuple[object, ...] = (
        job.epoch,
        job.definition,
        job.launcher,
        job.suspended,
        job.paused,
        job.deleted_at,
    )
    if job.profile is not None or job.applied_set is not None:
        state = (*state, job.profile, job.applied_set)
    if job.notify is not None:
        state = (*state, job.notify)
    return f'"{sha256(json.dumps(state).encode()).hexdigest()[:20]}"'


def _receipt(job: JobRecord, next_run_at: str | None) -> Receipt:
    return {"schedule_id": job.identity, "next_run_at": next_run_at, "etag": etag_of(job)}


def _pause_receipt(
    job: JobRecord, next_run_at: str | None, effect: ResumeEffect | None = None
) -> PauseReceipt:
    receipt: PauseReceipt = {
        "schedule_id": job.identity,
        "next_run_at": next_run_at,
        "etag": etag_of(job),
        "paused": bool(job.paused),
        "suspended": bool(job.suspended),
    }
    if job.suspended:
        receipt["note"] = f"paused; {ALSO_SUSPENDED}" if job.paused else f"resumed, but {SUSPENDED}"
    if effect is not None:
        _add_effect(receipt, effect)
    return receipt


def _add_effect(receipt: Receipt, effect: ResumeEffect) -> None:
    """Add to a receipt what starts by letting a stopped schedule run."""
    receipt["would_start"] = effect["would_start"]
    receipt["would_wait"] = effect["would_wait"]
    receipt["would_drop"] = effect["would_drop"]
    receipt["starts"] = effect["starts"]


def stopped_words(job: JobRecord) -> str:
    """Return what stops a schedule, for people; nothing if it is active."""
    flags = {"paused": job.paused, "suspended by its definition": job.suspended}
    return " and ".join(words for words, flag in flags.items() if flag)


def effect_view(preview: ResumePreview) -> ResumeEffect:
    """Return what a resume starts as JSON."""
    dropped = {reason.value: count for reason, count in preview.dropped.items()}
    return {
        "would_start": len(preview.starts),
        "would_wait": len(preview.waiting),
        "would_drop": dict(sorted(dropped.items())),
        "starts": [rfc3339(run.nominal_time) for run in preview.starts[:MAX_NAMED]],
    }


def _not_deployed(settings: WorkflowSettings) -> str:
    """Return why a version of a workflow cannot be launched, and the remedy."""
    name, version = settings.workflow_id, settings.version
    return (
        f'of the workflow "{name}" is not deployed here: deploy it first '
        f"(PUT /workflows/{name}/versions/{version}), or name a version that is"
    )


def stored_launcher(spec: ScheduleSpec, rules: Rules) -> str:
    """Return the launcher of a schedule as it is stored: with its secrets sealed, if there is a key."""
    if rules.vault is None:
        return launcher_text_of(spec.settings)
    return rules.vault.seal(spec.settings, spec.job.identity)


def _sealed_notify(text: str, vault: Vault) -> str:
    return json.dumps(vault.seal_notify(parse_notify(json.loads(text))).to_dict(), sort_keys=True)


def stored_job(spec: ScheduleSpec, rules: Rules) -> Job:
    """Return the job of a schedule as it is stored: with its URLs sealed, if there is a key."""
    job = spec.job
    if rules.vault is None or job.notify is None:
        return job
    return replace(job, notify=rules.vault.seal_notify(job.notify))


def _definition_of(spec: ScheduleSpec, rules: Rules) -> JobDefinition:
    kind = launcher_kind_of(spec.settings)
    return JobDefinition(stored_job(spec, rules), stored_launcher(spec, rules), kind, spec.paused)


def _is_draft(record: WorkflowRecord) -> bool:
    return record.is_draft


def _created(spec: ScheduleSpec, rules: Rules, now: int) -> JobRecord:
    job, launcher, kind, paused, _ = _definition_of(spec, rules)
    return create(job, now=now, launcher=launcher, kind=kind, paused=bool(paused))


def check_etag(schedule_id: str, if_match: str | None, job: JobRecord | None) -> None:
    """Refuse a schedule that is not in the caller's state; "" stands for one that does not exist."""
    if if_match is None:
        return
    etag = None if job is None else etag_of(job)
    expected = [text.strip() for text in if_match.split(",")]
    if not (if_match == "" if etag is None else etag in expected or if_match == ANY):
        raise ChangedError(schedule_id=schedule_id, etag=etag)
