"""The catalog: every write of people and programs to the jobs of one namespace.

All verbs share one optimistic loop: read, decide, commit, and start over when another writer was faster.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from kron.app.backfill import (
    BackfillResult,
    PastPeriods,
    PeriodRange,
    change_of,
    check_size,
    keys_of,
    read_past,
    was_made,
)
from kron.app.budget import Compute, CpuBudget, inline
from kron.app.preview import effects_of
from kron.app.query import Query, check_identity
from kron.core.cron.walk import NEVER
from kron.core.errors import (
    BusyError,
    ClocksDifferError,
    ConflictError,
    InvalidOptionError,
    UnknownRunError,
)
from kron.core.job.job import Job, profile_text_of
from kron.core.job.notify import Notify
from kron.core.plan.compiled import definition_of
from kron.core.plan.incident import incidents_of_new, moment, sentence_of
from kron.core.plan.pause import BY_HAND, pause, resume
from kron.core.plan.plan import plan
from kron.core.plan.record import IncidentRecord, JobRecord, RunKind, RunRecord, request_key_of
from kron.core.plan.registration import create, delete, notify_text, request_run, revise
from kron.core.plan.report import RunEvent, RunReport, Traits
from kron.core.plan.resume_preview import ResumePreview, preview_resume
from kron.core.plan.step import (
    DEFAULT_TRAITS,
    MAX_OPEN_RUNS,
    Change,
    JobState,
    Snapshot,
    WriteResult,
    WriteScope,
)
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.time.steady import offset_of
from kron.ports import ReadStore

_log = logging.getLogger("kron.catalog")
# Tries of one write before the caller is told to retry: the engine commits many changes of a busy job.
MAX_TRIES = 20
# Log lines of one write between which others have their turn: thousands may be paused or edited at once.
LINES_PER_TURN = 100
# Definitions that are decided together beside an event loop, as long ones take 2 ms each; see `Compute`.
MANY = 8
IS_PAST = "must lie in the future"

T = TypeVar("T")
S = TypeVar("S")
# Raises what a front answers when a job is not in the state its caller expects; None: it does not exist.
Precondition = Callable[[JobRecord | None], None]


class TooManyRunsError(ConflictError):
    """A job has too many open runs for the requested ones."""

    code = "too_many_runs"

    def __init__(self, *, identity: str, count: int) -> None:
        message = (
            f'"{identity}" has {count} open runs; with those requested, at most {MAX_OPEN_RUNS} are allowed'
        )
        super().__init__(message, identity=identity, count=count)


def check_open_runs(state: JobState, *, adding: int) -> None:
    """Refuse a request for runs that would wait behind thousands of others of the same job."""
    if len(state.runs) + adding > MAX_OPEN_RUNS:
        raise TooManyRunsError(identity=state.job.identity, count=len(state.runs))


class CatalogStore(ReadStore, Protocol):
    """The store verbs the catalog needs: reads, its clock, and one transaction for all writes."""

    async def read_clock(self) -> int | None:
        """Return the database's clock in milliseconds; None if it is the clock of this host."""

    async def put(
        self,
        namespace: str,
        *,
        created: Sequence[JobRecord],
        changed: Sequence[Change],
        forgotten: Sequence[str] = (),
        now: int,
    ) -> WriteResult:
        """Remove, create and change jobs in one transaction: all of it or nothing."""


class JobDefinition(NamedTuple):
    """One job as a front defines it, with its launcher's settings as text; `paused` None leaves the pause.

    `applied_set` names the set it is applied with; None leaves that too.
    """

    job: Job
    launcher: str = "{}"
    kind: str = "callback"
    paused: bool | None = None
    applied_set: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Generic[T]):
    """A decision to commit: jobs to create, change and forget in one transaction, and the verb's result."""

    result: T
    created: Sequence[JobRecord] = ()
    changed: Sequence[Change] = ()
    forgotten: Sequence[str] = ()


def _first_due(decision: Write[T]) -> int | None:
    """Return when something of a commit is due first: that of new jobs is known, all others are due now."""
    if decision.changed or decision.forgotten:
        return None
    return min((job.plan_at for job in decision.created if job.plan_at is not None), default=NEVER)


@dataclass(frozen=True, slots=True)
class NoWrite(Generic[T]):
    """A decision that nothing has to be written, and the verb's result."""

    result: T


Decision = Write[T] | NoWrite[T]


class Defined(NamedTuple):
    """A job that was created or edited, and which periods start if the edit lets a stopped job run."""

    job: JobRecord
    effect: ResumePreview | None


class Resumed(NamedTuple):
    """A job that was resumed, and which periods start by that."""

    job: JobRecord
    preview: ResumePreview


class _Backfill(NamedTuple):
    """The records a backfill is decided by."""

    state: JobState
    past: PastPeriods
    selected: list[EpochSeconds]
    requested: frozenset[str]
    is_repeated: bool


class _Overtaken(NamedTuple):
    """Another writer was faster: the jobs it wrote, and those of them that were to be created."""

    busy: Set[str]
    refused: Set[str]


def _no_wake(_: int | None = None) -> None:
    """Wake no engine: the one that owns the jobs notices the write in its store."""


def _no_actor() -> None:
    """Return no name: the caller is not known by one."""


def _any_state(_: JobRecord | None) -> None:
    """Accept a job in any state."""


Permit = Callable[[str, Sequence[JobRecord], Sequence[Change]], Awaitable[None]]


async def _all_permitted(_: str, _created: Sequence[JobRecord], _changed: Sequence[Change]) -> None:
    """Permit every write."""


class Catalog:
    """Creates, edits, pauses, resumes, deletes and runs the jobs of one namespace.

    `now` returns the present instant in milliseconds. `wake` is called after each commit, for an engine in
    this process, with the first instant at which something of it is due, None: now. `traits` are those of
    each launcher kind; `notify` is the default of jobs that define none. `actor` returns the name of the
    present caller, which incidents keep; None if the caller has none.
    """

    def __init__(
        self,
        store: CatalogStore,
        namespace: str,
        *,
        now: Callable[[], int],
        wake: Callable[[int | None], None] = _no_wake,
        traits: Mapping[str, Traits] | None = None,
        actor: Callable[[], str | None] = _no_actor,
        notify: Notify | None = None,
    ) -> None:
        self.query = Query(store, namespace, now=now)
        self._store = store
        self._namespace = namespace
        self.now = now
        self._wake = wake
        self._traits: Mapping[str, Traits] = {} if traits is None else traits
        self._actor = actor
        self._notify = notify
        # Raises for jobs that the store would refuse to write.
        self.permit: Permit = _all_permitted
        # Runs what is long to decide, so that a front can do it beside its event loop.
        self.compute: Compute = inline
        # How far the clock may differ from the store's own; None: they are not compared.
        self.lookahead_ms: int | None = None
        # Writes that were overtaken, by the first of their jobs.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    # --- the loop --------------------------------------------------------------------------------

    async def write(
        self,
        read: Callable[[], Awaitable[S]],
        decide: Callable[[S, int], Decision[T] | Awaitable[Decision[T]]],
        *,
        starts: bool = True,
        dry_run: bool = False,
    ) -> T:
        """Read, decide and commit, again when another writer was faster, or raise BusyError.

        `decide` gets the records and the present instant, and is pure; a long one may be awaited, so that it
        can run in a thread. `starts` False says that it makes nothing start: it is written although the clock
        is wrong, with the store's instant. A dry run is refused as the write would be, and writes nothing.
        """
        attempt = partial(self._attempt, read, decide, starts=starts, dry_run=dry_run)
        answer = await attempt(frozenset())
        if not isinstance(answer, _Overtaken):
            return answer
        # Those overtaken wait for each other: reading again together, all but one would be so once more.
        async with self._turns.setdefault(min(answer.busy), asyncio.Lock()):
            for _ in range(MAX_TRIES - 1):
                answer = await attempt(answer.refused)
                if not isinstance(answer, _Overtaken):
                    return answer
        raise BusyError(identities=sorted(answer.busy))

    async def _attempt(
        self,
        read: Callable[[], Awaitable[S]],
        decide: Callable[[S, int], Decision[T] | Awaitable[Decision[T]]],
        refused: Set[str],
        *,
        starts: bool,
        dry_run: bool,
    ) -> "T | _Overtaken":
        """Read, decide and commit once; `refused` are names that the store refused to create before."""
        records = await read()
        now = await self._instant(starts=starts)
        decided = decide(records, now)
        decision = await decided if isinstance(decided, Awaitable) else decided
        if isinstance(decision, NoWrite):
            return decision.result
        _check_visible(decision.created, refused)
        if dry_run:
            await self.permit(self._namespace, decision.created, decision.changed)
            return decision.result
        actor = self._actor()
        changed = [_signed(change, actor) for change in decision.changed]
        result = await self._store.put(
            self._namespace,
            created=decision.created,
            changed=changed,
            forgotten=decision.forgotten,
            now=now,
        )
        if not result.stale_jobs and not result.existing_runs:
            stopped = [job for job in decision.created if job.paused or job.suspended]
            self._wake(_first_due(decision))
            await _log_incidents(incidents_of_new(stopped) if stopped else [], changed)
            return decision.result
        busy = {*result.stale_jobs} or {change.job.identity for change in decision.changed}
        return _Overtaken(frozenset(busy), {job.identity for job in decision.created} & result.stale_jobs)

    async def _instant(self, *, starts: bool) -> int:
        """Return the instant of a write; ClocksDifferError if the clock and the store's differ too much.

        A definition with an instant of the future would sleep until then, and one of the past would start
        periods that were over.
        """
        asked_at = self.now()
        reference = None if self.lookahead_ms is None else await self._store.read_clock()
        now = self.now()
        if reference is None or self.lookahead_ms is None:
            return now
        off = offset_of(asked_at, now, reference, lookahead_ms=self.lookahead_ms)
        if not off:
            return now
        _log.error(
            "the clock differs from the store's by %s ms: %s",
            off,
            "refused" if starts else "written with the store's",
        )
        if starts:
            raise ClocksDifferError(by_ms=off)
        return reference

    async def states(self, identities: Sequence[str]) -> Sequence[JobState]:
        """Return the named jobs with their open runs, those that exist."""
        return await self._store.cases(self._namespace, identities)

    async def _change(
        self,
        identity: str,
        decide: Callable[[JobState, int], Decision[T]],
        expect: Precondition,
        *,
        starts: bool = True,
    ) -> T:
        """Write a decision about one job in the state that the caller expects."""

        def checked(state: JobState, now: int) -> Decision[T]:
            expect(state.job)
            return decide(state, now)

        return await self.write(lambda: self.query.state(identity), checked, starts=starts)

    # --- definitions -----------------------------------------------------------------------------

    async def upsert(
        self,
        definitions: Sequence[JobDefinition],
        *,
        deleted: Sequence[str] = (),
        expect: Precondition = _any_state,
    ) -> list[JobRecord]:
        """Create or edit jobs, and delete others, all or none; return the records of the definitions.

        A job that does not change is not written. A deleted one is created again.
        """
        return [each.job for each in await self.define(definitions, deleted=deleted, expect=expect)]

    async def define(
        self,
        definitions: Sequence[JobDefinition],
        *,
        deleted: Sequence[str] = (),
        expect: Precondition = _any_state,
        dry_run: bool = False,
    ) -> list[Defined]:
        """Upsert jobs, and return with each record what starts if the job runs again; or only return that."""
        identities = [*(definition.job.identity for definition in definitions), *deleted]

        def decide(states: Sequence[JobState], now: int) -> Decision[list[Defined]]:
            known = {state.job.identity: state for state in states}
            for definition in definitions:
                expect(_live(known.get(definition.job.identity)))
            decision = upserted(definitions, known, deleted, now)
            effects = self.effects(decision, known, now)
            result = [Defined(job, effects.get(job.identity)) for job in decision.result]
            if isinstance(decision, NoWrite):
                return NoWrite(result)
            return Write(result=result, created=decision.created, changed=decision.changed)

        def decide_many(states: Sequence[JobState], now: int) -> Awaitable[Decision[list[Defined]]]:
            return self.compute(partial(decide, states, now))

        chosen = decide if len(identities) < MANY else decide_many
        return await self.write(lambda: self.states(identities), chosen, dry_run=dry_run)

    def effects(
        self, decision: Decision[list[JobRecord]], states: Mapping[str, JobState], now: int
    ) -> dict[str, ResumePreview]:
        """Return what a decision starts by letting stopped jobs run, by name."""
        if isinstance(decision, NoWrite) or not any(state.job.is_stopped for state in states.values()):
            return {}
        return effects_of(decision.changed, states, now=now, traits=self._traits)

    async def pause(
        self,
        identity: str,
        *,
        because: str = BY_HAND,
        until: int | None = None,
        expect: Precondition = _any_state,
    ) -> JobRecord:
        """Pause a job, until an instant in milliseconds if one is given; a paused one keeps its reason."""

        def decide(state: JobState, now: int) -> Decision[JobRecord]:
            if until is not None and until <= now:
                raise InvalidOptionError(option="until", value=rfc3339(until // 1000), reason=IS_PAST)
            if state.job.paused and until == state.job.paused_until:
                return NoWrite(state.job)
            reason = state.job.paused_because if state.job.paused else because
            change = pause(state.job, state.runs, because=reason or because, now=now, until=until)
            return Write(result=change.job, changed=[change])

        return await self._change(identity, decide, expect, starts=False)

    async def resume(self, identity: str, *, expect: Precondition = _any_state) -> Resumed:
        """Resume a job; return which periods start by that."""

        def decide(state: JobState, now: int) -> Decision[Resumed]:
            preview = preview_resume(state, now=now, traits=self._traits)
            if not state.job.paused:
                return NoWrite(Resumed(state.job, preview))
            change = resume(state.job, state.runs, now=now)
            return Write(result=Resumed(change.job, preview), changed=[change])

        return await self._change(identity, decide, expect)

    async def delete(self, identity: str, *, expect: Precondition = _any_state) -> JobRecord:
        """Delete a job: waiting runs are cancelled, running ones may end, and its history stays."""

        def decide(state: JobState, now: int) -> Decision[JobRecord]:
            change = delete(state.job, state.runs, now=now)
            return Write(result=change.job, changed=[change])

        return await self._change(identity, decide, expect, starts=False)

    # --- runs ------------------------------------------------------------------------------------

    async def run_now(self, identity: str, request: str, *, kind: RunKind = RunKind.MANUAL) -> RunRecord:
        """Add a run that starts at once; the same request adds one run.

        A manual run starts whatever stops the job, one of the kind `boot` when it is resumed.
        """
        check_identity(self._namespace, identity)
        key = request_key_of(identity, kind, request)

        async def read() -> RunRecord | JobState:
            runs = await self._store.find_runs(self._namespace, [key])
            return runs[0] if runs else await self.query.state(identity)

        def decide(record: RunRecord | JobState, now: int) -> Decision[RunRecord]:
            if isinstance(record, RunRecord):
                return NoWrite(record)
            check_open_runs(record, adding=1)
            change = request_run(record.job, request=request, now=now, kind=kind)
            return Write(result=change.inserts[0], changed=[change])

        return await self.write(read, decide)

    async def backfill(
        self, identity: str, wanted: PeriodRange, request: str, *, dry_run: bool = False
    ) -> BackfillResult:
        """Add runs of past periods; the same request adds each run once.

        They start at once, or when a job that is paused or suspended is resumed: no period is handled until
        then.
        """

        async def read() -> _Backfill:
            state = await self.query.state(identity)
            job = state.job
            check_size(job, wanted)
            past = await read_past(self._store, self._namespace, job, wanted)
            periods = past.periods(wanted, CpuBudget())
            selected = past.selected(periods, wanted.only)
            keys = keys_of(identity, request, periods)
            known = await self._store.find_runs(self._namespace, keys) if keys else []
            is_repeated = bool(known) or await was_made(self._store, self._namespace, past, request)
            return _Backfill(state, past, selected, frozenset(run.key for run in known), is_repeated)

        def decide(records: _Backfill, now: int) -> Decision[BackfillResult]:
            state, past, selected, requested, is_repeated = records
            decided = [time for time in selected if time <= past.job.cursor]
            runs = [past.run_of(time, request=request, now=now) for time in decided]
            done = past.requested()
            # A repeated request runs none of them again, not even one that got the period's own row.
            again = done if is_repeated else frozenset()
            added = [run for run in runs if run.key not in requested and run.nominal_time not in again]
            undecided = len(selected) - len(decided)
            result = BackfillResult(added, len(done), undecided, past.job.is_stopped)
            if dry_run or not added:
                return NoWrite(result)
            check_open_runs(state, adding=len(added))
            return Write(result=result, changed=[change_of(past.job, added, request, now)])

        return await self.write(read, decide)

    async def feedback(
        self,
        key: str,
        event: RunEvent,
        *,
        attempt: int | None = None,
        error: str | None = None,
        run_id: str | None = None,
    ) -> RunRecord:
        """Record an executor's report of a run; a late, repeated or contradictory one changes nothing.

        Without an `attempt` it concerns the latest one.
        """
        identity = (await self._reported_run(key)).identity

        async def read() -> tuple[JobState, RunRecord]:
            states = await self._store.cases(self._namespace, [identity])
            if not states or not self._traits.get(states[0].job.launcher_kind, DEFAULT_TRAITS).remote:
                raise ConflictError(
                    "The worker of this run records its end; it cannot be reported", idempotency_key=key
                )
            # The run is read after its job: a later change to it raises the revision that is compared.
            return states[0], await self._reported_run(key)

        def decide(records: tuple[JobState, RunRecord], now: int) -> Decision[RunRecord]:
            state, run = records
            number = run.attempt if attempt is None else attempt
            report = RunReport(run.identity, key, number, event, now, error, run_id)
            snapshot = Snapshot([], now, run.token, self._traits, draining=True, notify=self._notify)
            change = _reported(state, run, report, snapshot)
            return NoWrite(run) if change is None else Write(result=change.updates[0], changed=[change])

        return await self.write(read, decide, starts=False)

    async def _reported_run(self, key: str) -> RunRecord:
        runs = await self._store.find_runs(self._namespace, [key])
        if not runs:
            raise UnknownRunError(idempotency_key=key)
        return runs[0]


def _signed(change: Change, actor: str | None) -> Change:
    """Return a change whose incidents name the caller."""
    if not change.incidents and not change.closed:
        return change
    return replace(
        change,
        incidents=[incident._replace(actor=actor) for incident in change.incidents],
        closed=[incident._replace(ended_by=actor) for incident in change.closed],
    )


async def _log_incidents(incidents: Sequence[IncidentRecord], changed: Sequence[Change]) -> None:
    """Write one log line for each incident, with the sentence that explains periods later."""
    for number, line in enumerate(_incident_lines(incidents, changed), start=1):
        _log.info("%s", line)
        if number % LINES_PER_TURN == 0:
            await asyncio.sleep(0)


def _incident_lines(incidents: Sequence[IncidentRecord], changed: Sequence[Change]) -> Iterator[str]:
    started = [*incidents, *(incident for change in changed for incident in change.incidents)]
    for incident in started:
        yield f"{incident.kind} {incident.identity}: {sentence_of(incident)}"
    for incident in (incident for change in changed for incident in change.closed):
        by = "" if incident.ended_by is None else f" by {incident.ended_by}"
        yield f"no longer {incident.kind} {incident.identity}: since {moment(incident.from_at)}{by}"


def _check_visible(created: Sequence[JobRecord], refused: Set[str]) -> None:
    """Refuse names that the store refused and the caller does not see: no retry can create them."""
    names = sorted(job.identity for job in created if job.identity in refused) if refused else []
    if names:
        raise ConflictError(f'The name "{names[0]}" is taken: use another', names=names)


def _live(state: JobState | None) -> JobRecord | None:
    return None if state is None or state.job.deleted_at is not None else state.job


def upserted(
    definitions: Sequence[JobDefinition], states: Mapping[str, JobState], deleted: Sequence[str], now: int
) -> Decision[list[JobRecord]]:
    """Return the write that makes jobs equal their definitions and deletes others; a dry decision, pure."""
    records: list[JobRecord] = []
    created: list[JobRecord] = []
    changed: list[Change] = []
    for definition in definitions:
        job, launcher, kind, paused, applied_set = definition
        state = states.get(job.identity)
        if state is None:
            record = create(job, now=now, launcher=launcher, kind=kind, paused=bool(paused))
            records.append(record._replace(applied_set=applied_set))
            created.append(records[-1])
        elif is_changed(state.job, definition):
            change = revise(state, job, now=now, launcher=launcher, kind=kind, paused=paused)
            if applied_set is not None:
                change.job = change.job._replace(applied_set=applied_set)
            changed.append(change)
            records.append(change.job)
        else:
            records.append(state.job)
    present = (states[identity] for identity in deleted if identity in states)
    changed += [delete(job, runs, now=now) for job, runs, *_ in present if job.deleted_at is None]
    if not created and not changed:
        return NoWrite(records)
    return Write(result=records, created=created, changed=changed)


def is_changed(record: JobRecord, definition: JobDefinition) -> bool:
    """Say whether a definition differs from a record, so that it has to be written."""
    job = definition.job
    wanted = (definition_of(job), definition.launcher, definition.kind, notify_text(job))
    present = (record.definition, record.launcher, record.launcher_kind, record.notify)
    if record.deleted_at is not None or present != wanted:
        return True
    if job.policy.suspend != bool(record.suspended):
        return True
    if record.profile != profile_text_of(job):
        return True
    if definition.applied_set not in (None, record.applied_set):
        return True
    return definition.paused is not None and definition.paused != bool(record.paused)


def _reported(state: JobState, run: RunRecord, report: RunReport, snapshot: Snapshot) -> Change | None:
    """Return the change a report makes, or None; the engine starts the runs that waited for this end."""
    others = [other for other in state.runs if other.key != run.key]
    heard = state._replace(runs=[run, *others], reports=[report])
    ((change,), _) = plan(snapshot._replace(cases=[heard]), report.at)
    change.updates.sort(key=lambda update: update.key != run.key)
    if not any(update.key == run.key for update in change.updates):
        return None
    if change.job.is_stopped or change.job.deleted_at is not None or not others:
        return change
    job = change.job._replace(plan_at=report.at)
    return replace(change, job=job, scope=WriteScope.ANY, cohort=None)
