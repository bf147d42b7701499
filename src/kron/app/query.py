"""Queries: reads of jobs, runs and periods, and why a period has its outcome, the same for every front."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from math import inf
from typing import NamedTuple, TypeVar

from kron.app.budget import Compute, CpuBudget, inline
from kron.app.page import read_page
from kron.core.cron.schedule import seconds_between
from kron.core.errors import InvalidInstantError, UnknownJobError
from kron.core.fields import text_fault
from kron.core.job.policy import LOOKAHEAD_MS
from kron.core.plan import why as chain
from kron.core.plan.cause import clock_sentence
from kron.core.plan.compiled import compiled_job, last_of_definition
from kron.core.plan.counterfactual import (
    Counterfactual,
    OtherOutcomes,
    Records,
    WhatIf,
    counterfactual,
    other_outcomes,
)
from kron.core.plan.incident import block_of
from kron.core.plan.next_start import NextStart, next_start, periods_ahead
from kron.core.plan.period_history import PeriodHistory, definition_at, span_of
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
    EpochRecord,
    IncidentKind,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    RunKind,
    RunRecord,
    RunStatus,
    present_definition,
)
from kron.core.plan.report import MAX_EARLIER, DataInterval, Traits, data_interval
from kron.core.plan.step import JobState
from kron.core.plan.wall_time import resolve_wall_time
from kron.core.plan.why import Explanation, schedule_of
from kron.core.shard import shard_of
from kron.core.time.instant import EpochSeconds, seconds_of
from kron.ports import ReadStore

T = TypeVar("T")
# Runs of one period in an answer: its own, and the newest that were requested for it.
MAX_OF_PERIOD = 1_000
# Stands for the latest period of a job, and how many of its newest runs are searched for it.
LATEST, MAX_SEARCHED = "latest", 100
# Requested runs that an explanation reads, and blocking runs whose ends an explanation reads.
MAX_REQUESTED, MAX_BLOCKERS = 50, 5
# Runs, retried runs and incidents that a replay reads.
MAX_REPLAYED, MAX_RETRIED, MAX_INCIDENTS = 1_000, 200, 5_000
# Runs that one page searches for a status.
MAX_FILTERED = 1_000
# How long an excursion of a clock is shown after its end.
SHOWN_MS = 3_600_000


class PageStart(NamedTuple):
    """Where a page of a job's runs starts: a nominal time, and how many of its runs earlier pages had."""

    nominal_time: EpochSeconds
    shown: int


class HistoryPage(NamedTuple):
    """Runs of one job, newest first, the aggregated periods among them, and the start of the next page."""

    runs: list[RunRecord]
    dropped: list[RangeRecord]
    following: PageStart | None


class Query:
    """Reads one namespace of a store; `now` returns the present instant in milliseconds."""

    def __init__(self, store: ReadStore, namespace: str, *, now: Callable[[], int]) -> None:
        self._store = store
        self._namespace = namespace
        self._now = now
        # Where long computations run, and the processor time of one answer; a service limits both.
        self.compute: Compute = inline
        self.answer_s = inf
        # The lookahead of the workers.
        self.lookahead_ms = LOOKAHEAD_MS

    # --- jobs ------------------------------------------------------------------------------------

    async def find(self, identity: str, *, deleted: bool = False) -> FoundJob:
        """Return a job, with `deleted` also a deleted one, or raise UnknownJobError."""
        check_identity(self._namespace, identity)
        wanted = JobFilter(names=[identity], deleted=deleted)
        jobs = await self._store.find_jobs(self._namespace, wanted, limit=1)
        if not jobs:
            raise UnknownJobError(namespace=self._namespace, identity=identity)
        return jobs[0]

    async def jobs(self, wanted: JobFilter, *, after: str = "", limit: int = 100) -> list[FoundJob]:
        """Return jobs in the order of their names, those later than `after`."""
        if _is_impossible(wanted):
            return []
        return await self._store.find_jobs(self._namespace, wanted, after=after, limit=limit)

    async def job_page(self, wanted: JobFilter, *, after: str, limit: int) -> tuple[list[FoundJob], bool]:
        """Return jobs in the order of their names, fewer if they are long, and whether there are more."""

        async def read(shown: Sequence[FoundJob], most: int) -> Sequence[FoundJob]:
            place = shown[-1].job.identity if shown else after
            return await self.jobs(wanted, after=place, limit=most)

        return await read_page(read, limit=limit, length=lambda found: found.job.text_size)

    async def count(self, wanted: JobFilter) -> int:
        """Return how many jobs match."""
        if _is_impossible(wanted):
            return 0
        return await self._store.count_jobs(self._namespace, wanted)

    async def groups(self, wanted: JobFilter, *, limit: int, singly: bool = False) -> list[JobGroup]:
        """Return the largest groups of jobs; with `singly`, a group for each job, in the order of names."""
        if _is_impossible(wanted):
            return []
        return await self._store.group_jobs(self._namespace, wanted, limit=limit, singly=singly)

    async def count_made(self, wanted: JobFilter, span: RunSpan) -> dict[int, int]:
        """Count the runs of some jobs in each part of an interval, about where they stand."""
        return await self._store.count_made(self._namespace, wanted, span)

    async def tally(self, wanted: JobFilter, span: RunSpan, *, not_ok: bool = False) -> list[TagCount]:
        """Count the runs of some jobs in parts of an interval, by tag and status; all, or without success."""
        return await self._store.tally_runs(self._namespace, wanted, span, not_ok=not_ok)

    async def state(self, identity: str, *, deleted: bool = False) -> JobState:
        """Return a job with its open runs, with `deleted` also a deleted one, or raise UnknownJobError."""
        check_identity(self._namespace, identity)
        states = await self._store.cases(self._namespace, [identity])
        if not states or (states[0].job.deleted_at is not None and not deleted):
            raise UnknownJobError(namespace=self._namespace, identity=identity)
        return states[0]

    async def states(self, identities: Sequence[str]) -> dict[str, JobState]:
        """Return jobs, deleted ones too, with their open runs, by name."""
        states = await self._store.cases(self._namespace, identities)
        return {state.job.identity: state for state in states}

    async def next_starts(
        self,
        jobs: Sequence[JobRecord],
        traits: Mapping[str, Traits] | None = None,
        states: Mapping[str, JobState] | None = None,
    ) -> dict[str, NextStart]:
        """Return when each of some jobs starts next, by name; `states` are those that were read already."""
        known = await self.states([job.identity for job in jobs]) if states is None else states
        now = self._now()

        def starts() -> dict[str, NextStart]:
            budget = CpuBudget(self.answer_s)
            return {
                job.identity: next_start(known.get(job.identity, JobState(job)), now, traits)
                for job in budget.each(jobs)
            }

        return await self.compute(starts)

    async def audits(
        self, wanted: AuditFilter, *, before: AuditCursor | None = None, limit: int = 100
    ) -> list[Audited]:
        """Return audit entries after a cursor, latest first."""
        if _has_nul(wanted.identity, wanted.who):
            return []
        return await self._store.audits(self._namespace, wanted, before=before, limit=limit)

    async def audit_page(
        self, wanted: AuditFilter, *, before: AuditCursor | None, limit: int
    ) -> tuple[list[AuditRecord], AuditCursor | None]:
        """Return audit entries after a cursor, latest first, fewer if they are long, and the next cursor."""

        async def read(shown: Sequence[AuditRecord], most: int) -> Sequence[AuditRecord]:
            place = _place_after(shown, before) if shown else before
            return [each.record for each in await self.audits(wanted, before=place, limit=most)]

        shown, has_more = await read_page(
            read, limit=limit, length=lambda entry: len(entry.before or "") + len(entry.after or "")
        )
        return shown, _place_after(shown, before) if has_more else None

    # --- runs ------------------------------------------------------------------------------------

    async def runs(
        self, identity: str, *, before: EpochSeconds | None = None, limit: int = 100
    ) -> list[RunRecord]:
        """Return a job's runs, newest first, those with an earlier nominal time than `before`."""
        check_identity(self._namespace, identity)
        return await self._store.runs(self._namespace, identity, before=before, limit=limit)

    async def run(self, key: str) -> tuple[RunRecord, list[AttemptRecord]] | None:
        """Return a run by its idempotency key, with its earlier attempts; None if there is none."""
        runs = [] if _has_nul(key) else await self._store.find_runs(self._namespace, [key])
        return (runs[0], await self._attempts(runs[0])) if runs else None

    async def data_intervals(self, identity: str, runs: Sequence[RunRecord]) -> list[DataInterval]:
        """Return the data interval of each of some runs of one job, which may be deleted."""
        if not runs:
            return []
        job = (await self.state(identity, deleted=True)).job
        earlier: list[EpochRecord] = []
        if job.epoch > 1:
            earlier = await self._store.epochs(self._namespace, identity, newest=MAX_EARLIER)
        return [data_interval(job, run, earlier) for run in runs]

    async def earlier_definitions(self, *identities: str) -> list[EpochRecord]:
        """Return the definitions that some jobs had before their present ones, as far as they are kept."""
        return await self._store.epochs(self._namespace, *identities)

    async def run_page(
        self,
        identity: str,
        *,
        limit: int,
        start: PageStart | None = None,
        status: RunStatus | None = None,
    ) -> HistoryPage:
        """Return one page of a job's runs, or of those with a status; the job may be deleted."""
        if status is not None:
            return await self._page_of_status(identity, status, limit, start)
        before, shown = (None, 0) if start is None else (start.nominal_time + 1, start.shown)
        runs = await self.runs(identity, before=before, limit=shown + limit + 1)
        if not runs and start is None:
            await self.state(identity, deleted=True)
        has_more, page = len(runs) > shown + limit, runs[shown : shown + limit]
        following = None
        if has_more:
            oldest = page[-1].nominal_time
            following = PageStart(oldest, sum(run.nominal_time == oldest for run in runs[: shown + limit]))
        dropped = await self._dropped(identity, start, following)
        return HistoryPage(page, dropped, following)

    async def _page_of_status(
        self, identity: str, status: RunStatus, limit: int, start: PageStart | None
    ) -> HistoryPage:
        """Return the runs with a status among the next MAX_FILTERED; the cursor continues after them."""
        page = await self.run_page(identity, limit=MAX_FILTERED, start=start)
        matching = [run for run in page.runs if run.status is status]
        runs, following = matching[:limit], page.following
        if len(matching) > limit:
            last = runs[-1]
            passed = page.runs[: page.runs.index(last) + 1]
            shown = sum(run.nominal_time == last.nominal_time for run in passed)
            if start is not None and start.nominal_time == last.nominal_time:
                shown += start.shown
            following = PageStart(last.nominal_time, shown)
        dropped = await self._dropped(identity, start, following)
        same = [each for each in dropped if str(each.outcome).upper() == status.upper()]
        return HistoryPage(runs, same, following)

    async def newest_runs(self, identities: Sequence[str], *, limit: int) -> dict[str, list[RunRecord]]:
        """Return the newest `limit` runs of each given job, sorted as in `runs`."""
        return await self._store.newest_runs(self._namespace, identities, limit=limit)

    async def run_counts(self, identity: str, *, bounds: Sequence[EpochSeconds]) -> list[RunCount]:
        """Count a job's runs by status between each two bounds of nominal times."""
        check_identity(self._namespace, identity)
        return await self._store.run_counts(self._namespace, identity, bounds=bounds)

    async def ranges(self, identity: str) -> list[RangeRecord]:
        """Return a job's aggregated periods, newest first."""
        return await self._store.ranges(self._namespace, identity)

    async def _dropped(
        self, identity: str, start: PageStart | None, following: PageStart | None
    ) -> list[RangeRecord]:
        """Return the aggregated periods that belong among the runs of a page."""
        return [
            dropped
            for dropped in await self.ranges(identity)
            if (start is None or dropped.last < start.nominal_time)
            and (following is None or dropped.last >= following.nominal_time)
        ]

    async def period(
        self, identity: str, nominal_time: EpochSeconds
    ) -> list[tuple[RunRecord, list[AttemptRecord]]]:
        """Return the runs of one period, each with its earlier attempts; the job may be deleted."""
        runs = await self.runs(identity, before=nominal_time + 1, limit=MAX_OF_PERIOD)
        if not runs:
            await self.state(identity, deleted=True)
        return [(run, await self._attempts(run)) for run in runs if run.nominal_time == nominal_time]

    async def latest(
        self, *, limit: int, status: RunStatus | None = None, before: RunCursor | None = None
    ) -> tuple[list[RunRecord], RunCursor | None]:
        """Return the runs of all jobs, latest record first, and the cursor of the next page."""
        runs = await self._store.latest_runs(self._namespace, status=status, before=before, limit=limit + 1)
        last = runs[limit - 1] if len(runs) > limit else None
        return runs[:limit], None if last is None else RunCursor(last.created_at, last.key)

    # --- why -------------------------------------------------------------------------------------

    async def why(self, identity: str, when: str | datetime) -> Explanation:
        """Return the chain of facts behind one period of a job, which may be deleted.

        `when` is its period id, or another text or datetime of the same instant, or LATEST. Without an offset
        it is a wall time in the job's zone, which may be one that a change of the clocks skips.
        """
        if when == LATEST:
            history = await self._job_history(identity)
            if compiled_job(history.job.definition, identity).job.schedule.is_boot:
                return await self._explain_boot(history)
            return await self._explain(history, await self._latest_period(history.job))
        moment = _moment_of(when)
        history = await self._job_history(identity)
        if moment.tzinfo is not None:
            return await self._explain(history, seconds_of(moment))
        definition = _definition_on(history, moment)
        compiled = compiled_job(definition.definition, identity)
        resolved = resolve_wall_time(compiled, moment, now=self._now())
        if resolved.instant is None:
            facts = [schedule_of(history, definition), *resolved.facts]
            return Explanation(identity, None, None, facts, f"no period: {facts[-1].sentence}")
        return await self._explain(history, resolved.instant)

    async def what_if(
        self, explanation: Explanation, changed: WhatIf, traits: Mapping[str, Traits] | None = None
    ) -> Counterfactual:
        """Return what would have become of an explained period under a changed definition.

        The recorded inputs are planned again; `traits` are those of each launcher kind.
        """
        identity, time = explanation.identity, explanation.nominal_time
        if time is None:
            raise InvalidInstantError(value=explanation.headline, reason="it is not a period")
        history, now = await self._job_history(identity), self._now()
        end = await self._computed(partial(self._end_of_replay, history.job, time, changed))
        records = await self._recorded(history, end, traits or {})
        until = now if end is None else min(now, 1000 * end)

        def work() -> Counterfactual:
            check = CpuBudget(self.answer_s).check
            return counterfactual(records, explanation, time, changed, now=until, check=check)

        return await self._computed(work)

    async def what_if_all(
        self, identity: str, changed: WhatIf, traits: Mapping[str, Traits] | None = None
    ) -> OtherOutcomes:
        """Return which of a job's newest periods would have ended otherwise under a changed definition."""
        history = await self._job_history(identity)
        changed.applied(compiled_job(history.job.definition, identity).for_job(identity))
        records = await self._recorded(history, None, traits or {})

        def work() -> OtherOutcomes:
            return other_outcomes(records, changed, now=self._now(), check=CpuBudget(self.answer_s).check)

        return await self._computed(work)

    async def _recorded(
        self, history: PeriodHistory, end: EpochSeconds | None, traits: Mapping[str, Traits]
    ) -> Records:
        """Return the records that a replay needs: the newest runs before an end, and all that met them."""
        identity, now = history.job.identity, self._now()
        runs = await self.runs(identity, before=end, limit=MAX_REPLAYED)
        retried = [run for run in runs if run.attempt > 1][:MAX_RETRIED]
        return Records(
            history.job,
            history.epochs,
            runs,
            [attempt for run in retried for attempt in await self._attempts(run)],
            await self._store.incidents(self._namespace, identity, since=0, until=now, limit=MAX_INCIDENTS),
            await self._store.clock_records(self._namespace),
            traits,
            is_whole=len(runs) < MAX_REPLAYED,
        )

    async def _computed(self, work: Callable[[], T]) -> T:
        """Compute what may take long, outside the event loop even if nothing is shared with other callers."""
        return await (asyncio.to_thread(work) if self.compute is inline else self.compute(work))

    def _end_of_replay(self, job: JobRecord, time: EpochSeconds, changed: WhatIf) -> EpochSeconds | None:
        """Return the last period that a replay includes, or raise InvalidOptionError for a wrong change."""
        compiled = compiled_job(job.definition, job.identity)
        changed.applied(compiled.for_job(job.identity))
        times = CpuBudget(self.answer_s).each(seconds_between(compiled.plan, time + 1, None))
        return next(islice(times, MAX_REPLAYED // 2, None), None)

    async def period_history(self, identity: str, nominal_time: EpochSeconds) -> PeriodHistory:
        """Return a job with the records of one period: its run with attempts, or the range that covers it."""
        return await self._with_period(await self._job_history(identity), nominal_time)

    async def _latest_period(self, job: JobRecord) -> EpochSeconds:
        """Return the latest period that is due, or the first one of a job that had none."""
        now, plan = self._now(), compiled_job(job.definition, job.identity).plan
        runs = await self.runs(job.identity, limit=MAX_SEARCHED)
        due = [run.nominal_time for run in runs if run.kind is RunKind.PERIOD and run.fire_time <= now]
        due += [dropped.last for dropped in (await self.ranges(job.identity))[:1]]
        present = last_of_definition(job, now)
        if present is not None:
            due.append(present)
        first = next((time for time, _ in periods_ahead(job, now)), None)
        latest = max(due, default=first)
        if latest is None:
            latest = plan.prev_at_or_before(now // 1000)
        if latest is None:
            raise InvalidInstantError(
                value=LATEST, reason="the schedule has had no period, and will have none"
            )
        return latest

    async def _job_history(self, identity: str) -> PeriodHistory:
        state = await self.state(identity, deleted=True)
        return PeriodHistory(state.job, await self._store.epochs(self._namespace, identity))

    async def _with_period(self, history: PeriodHistory, nominal_time: EpochSeconds) -> PeriodHistory:
        identity = history.job.identity
        following = compiled_job(history.job.definition, identity).plan.next_after(nominal_time)
        before = nominal_time + 1 if following is None else following
        runs = await self.runs(identity, before=before, limit=MAX_REQUESTED)
        of_period = [run for run in runs if run.nominal_time == nominal_time]
        manual = [run for run in runs if run.kind is RunKind.MANUAL and run.nominal_time >= nominal_time]
        backfills = [run for run in of_period if run.kind is RunKind.BACKFILL]
        history = history._replace(requested=[*backfills, *manual])
        # A period's own run precedes all requested runs with its nominal time.
        if of_period and of_period[0].kind is RunKind.PERIOD:
            return history._replace(run=of_period[0], attempts=await self._attempts(of_period[0]))
        ranges = await self._store.ranges(self._namespace, history.job.identity, at=nominal_time)
        return history._replace(dropped=ranges[0] if ranges else None)

    async def _explain(self, history: PeriodHistory, nominal_time: EpochSeconds) -> Explanation:
        history = await self._with_period(history, nominal_time)
        identity, now = history.job.identity, self._now()
        history = history._replace(
            reopened=await self._store.reopened(self._namespace, identity, at=nominal_time),
            excursions=await self._store.clock_records(self._namespace),
            incidents=await self._incidents(history, nominal_time, now),
            notices=await self._notices(history, nominal_time),
        )
        history = history._replace(
            blockers=await self._blockers(history),
            absence=await self._absence(history),
            owner=await self._owner(history),
            lookahead_ms=self.lookahead_ms,
        )
        return await self.compute(partial(chain.why, history, nominal_time, now=now))

    async def _explain_boot(self, history: PeriodHistory) -> Explanation:
        runs = await self.runs(history.job.identity, limit=MAX_SEARCHED)
        run = next((run for run in runs if run.kind is RunKind.BOOT), None)
        if run is not None:
            history = history._replace(run=run, attempts=await self._attempts(run))
        return chain.why_boot(history)

    async def _incidents(
        self, history: PeriodHistory, nominal_time: EpochSeconds, now: int
    ) -> list[IncidentRecord]:
        """Read the incidents from a period's record, or the edit before it, to its end."""
        since, until = span_of(history, nominal_time, now)
        identity = history.job.identity
        incidents = await self._store.incidents(self._namespace, identity, since=since, until=until)
        for run in history.requested:
            asked = run.created_at
            more = await self._store.incidents(self._namespace, identity, since=asked, until=asked)
            incidents += [incident for incident in more if incident not in incidents]
        return incidents

    async def _absence(self, history: PeriodHistory) -> IncidentRecord | None:
        """Read the outage that lasts, if the period is still to be decided or is running."""
        is_over = history.dropped is not None or (history.run is not None and not history.run.is_open)
        if is_over or history.job.deleted_at is not None:
            return None
        return await self._store.absence(self._namespace, shard_of(history.job.identity))

    async def _owner(self, history: PeriodHistory) -> str | None:
        """Read which worker owns a job now; None if none does."""
        shard = shard_of(history.job.identity)
        leases = await self._store.leases(self._namespace)
        return next((lease.owner for lease in leases if lease.is_alive and shard in lease.shards), None)

    async def _notices(self, history: PeriodHistory, nominal_time: EpochSeconds) -> list[NoticeRecord]:
        """Read the notifications about a period, or about all periods that were dropped with it."""
        dropped = history.dropped
        first, last = (nominal_time, nominal_time) if dropped is None else (dropped.first, dropped.last)
        return await self._store.notices(self._namespace, history.job.identity, first=first, last=last)

    async def _blockers(self, history: PeriodHistory) -> dict[str, RunRecord]:
        """Read the present records of the runs that blocked a period."""
        blockers: dict[str, RunRecord] = {}
        blocks = [each for each in history.incidents if each.kind is IncidentKind.BLOCKED]
        times = {each.subject: block_of(each).blocker for each in blocks}
        for key, time in list(times.items())[:MAX_BLOCKERS]:
            runs = await self.runs(history.job.identity, before=time + 1, limit=MAX_OF_PERIOD)
            blockers |= {run.key: run for run in runs if run.key == key}
        return blockers

    async def clock_problem(self) -> str | None:
        """Return the problem of a worker's clock, now or within the last hour; None if nothing is."""
        records = await self._store.clock_records(self._namespace)
        present = next((record for record in records if record.ended_at is None), None)
        if present is None and records and records[0].ended_at is not None:
            present = records[0] if 0 <= self._now() - records[0].ended_at < SHOWN_MS else None
        return None if present is None else clock_sentence(present)

    async def leases(self) -> list[WorkerLease]:
        """Return the workers with the shards they lease, by owner; expired ones too."""
        return await self._store.leases(self._namespace)

    async def _attempts(self, run: RunRecord) -> list[AttemptRecord]:
        return await self._store.attempts(self._namespace, run.key) if run.attempt > 1 else []


def check_identity(namespace: str, identity: str) -> None:
    """Raise UnknownJobError for a name that no job can have, before a database rejects it in its own way."""
    if not identity or text_fault(identity) is not None:
        raise UnknownJobError(namespace=namespace, identity=identity)


def _is_impossible(wanted: JobFilter) -> bool:
    """Say whether no job can match, because a text of the filter cannot be stored."""
    texts = (wanted.search, wanted.workflow_id, wanted.user_id, wanted.tag)
    return _has_nul(*texts, wanted.timezone, wanted.launcher_kind)


def _has_nul(*texts: str | None) -> bool:
    """Say whether a text cannot be stored, and so matches nothing."""
    return any(text is not None and "\0" in text for text in texts)


def _moment_of(when: str | datetime) -> datetime:
    try:
        moment = when if isinstance(when, datetime) else datetime.fromisoformat(when)
    except ValueError as cause:
        raise InvalidInstantError(value=when, reason="write 2026-03-29T01:00:00Z, or a wall time") from cause
    if moment.microsecond:
        raise InvalidInstantError(value=when, reason="a nominal time is a whole second")
    return moment


def _definition_on(history: PeriodHistory, wall: datetime) -> EpochRecord:
    """Return the definition in force at a wall time, read in the present definition's zone."""
    present = present_definition(history.job)
    zone = compiled_job(present.definition, present.identity).plan.zone
    return definition_at(history, seconds_of(wall.replace(tzinfo=zone.tzinfo))) or present


def _place_after(records: Sequence[AuditRecord], before: AuditCursor | None) -> AuditCursor:
    """Return the cursor after a page of audit records."""
    at = records[-1].at
    earlier = before.listed if before is not None and before.at == at else 0
    return AuditCursor(at, earlier + sum(record.at == at for record in records))
