"""The service's client: every verb with documents in and out, in this process or over HTTP."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import NamedTuple, Protocol

from kron.app.backfill import Only, PeriodRange
from kron.app.budget import CpuBudget
from kron.app.output import RunOutputs
from kron.core.cron.preview import A_YEAR_AHEAD, Line, changes_ahead
from kron.core.errors import InputError, InvalidOptionError, StoreError, check_choice
from kron.core.fields import parse_instant
from kron.core.plan.next_start import periods_ahead
from kron.core.plan.query import AuditCursor, AuditFilter, JobFilter, RunCursor
from kron.core.plan.record import RunStatus
from kron.core.plan.registration import create
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.fronts.service.auth.principal import ANONYMOUS, current_caller
from kron.fronts.service.auth.tenancy import NO_NAME
from kron.fronts.service.bulk import upsert_lines
from kron.fronts.service.definitions import ApplyRequest, apply_jobs, export_definitions
from kron.fronts.service.documents import Document, audit_view, time_text
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.responses import (
    ApplyReceipt,
    AuditPage,
    BackfillReceipt,
    BulkReceipt,
    ClockChangeView,
    DefinitionPage,
    PauseReceipt,
    PeriodRuns,
    Readiness,
    RequestedRun,
    RunOutput,
    RunPage,
    RunView,
    SchedulePreview,
    View,
    WhyView,
    WorkerList,
    WorkerView,
)
from kron.fronts.service.runs import (
    Feedback,
    OutputRequest,
    backfill_schedule,
    latest_page,
    period_runs,
    read_output,
    run_now,
    runs_page,
    take_feedback,
    why,
)
from kron.fronts.service.schedule_spec import ScheduleSpec, parse_schedule_spec
from kron.fronts.service.settings import Settings
from kron.fronts.service.url import cursor_of, invalid_cursor, place_of
from kron.fronts.service.workers import drain_worker, list_workers

# Returns the state of the worker and its error; both are None without a worker.
WorkerStatus = Callable[[], Awaitable[tuple[str | None, str | None]]]
READY = frozenset({None, "running", "ready", "waiting", "draining", "drained"})
# Entries of a page without a limit.
DEFAULT_PAGE = 100
# How far ahead a preview looks, in seconds: 100 years.
PREVIEWED_S = 100 * 366 * 86_400
# A schedule that is only previewed belongs to no workflow.
NO_WORKFLOW: Document = {"workflow_id": "preview", "version": 0, "user_id": "preview"}


class PageRequest(NamedTuple):
    """A page of a listing: its limit, or the default one, and the cursor it starts from."""

    limit: int | None = None
    cursor: str | None = None


class BackfillRange(NamedTuple):
    """The past periods of a backfill, as callers write them."""

    start: str
    end: str
    only: str = Only.MISSING.value
    dry_run: bool = False
    request_id: str | None = None


class ServiceClient(Protocol):
    """The verbs of the service; each raises the registrar's errors."""

    async def upsert(
        self, document: Mapping[str, object], *, if_match: str | None = None, dry_run: bool = False
    ) -> View:
        """Create a schedule or change it; with `if_match` "" only create. A dry run writes nothing."""
        ...

    async def bulk(self, lines: bytes) -> View:
        """Create or change a schedule for each JSON line, 1,000 at a time, whole batches only."""
        ...

    async def pause(
        self,
        schedule_id: str,
        paused: bool,
        *,
        reason: str | None = None,
        until: str | None = None,
        if_match: str | None = None,
    ) -> View:
        """Pause a schedule, with a reason and until an instant if they are given, or resume it."""
        ...

    async def delete(self, schedule_id: str, *, if_match: str | None = None) -> None:
        """Delete a schedule."""
        ...

    async def schedule(self, schedule_id: str) -> View:
        """Return a schedule with its next fire times."""
        ...

    async def schedules(self, wanted: JobFilter, page: PageRequest) -> View:
        """Return schedules in the order of their names."""
        ...

    async def definitions(self, wanted: JobFilter, page: PageRequest) -> View:
        """Return schedules as jobs in a job file's words."""
        ...

    async def apply(self, wanted: ApplyRequest) -> View:
        """Make the schedules of a set equal its jobs, all or none."""
        ...

    async def preview_resume(self, schedule_id: str) -> View:
        """Return what a resume of a schedule would start now."""
        ...

    async def preview(self, document: Mapping[str, object], count: int) -> View:
        """Return when an unsaved schedule would run."""
        ...

    async def run(self, schedule_id: str, request_id: str | None = None) -> View:
        """Run a schedule now."""
        ...

    async def backfill(self, schedule_id: str, periods: BackfillRange) -> View:
        """Run past periods."""
        ...

    async def report(self, key: str, feedback: Feedback) -> View:
        """Record an executor's report of a run."""
        ...

    async def runs(self, schedule_id: str, page: PageRequest) -> View:
        """Return the runs of a schedule, newest first."""
        ...

    async def latest(self, status: str | None, page: PageRequest) -> View:
        """Return the runs of all schedules, the latest first."""
        ...

    async def period(self, schedule_id: str, period_id: str) -> View:
        """Return the runs of one period with their earlier attempts."""
        ...

    async def why(self, schedule_id: str, period_id: str, changes: Sequence[str] = ()) -> View:
        """Return the chain of facts behind a period, and what `changes` would have done."""
        ...

    async def logs(self, schedule_id: str, wanted: OutputRequest) -> View:
        """Return a part of the output of a run."""
        ...

    async def audit(self, wanted: AuditFilter, page: PageRequest) -> View:
        """Return the audit log, latest entry first."""
        ...

    async def workers(self) -> View:
        """Return the workers with the shards they hold."""
        ...

    async def drain(self, worker: str, drain: bool) -> View:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        ...

    async def health(self) -> View:
        """Return whether the store is usable, and the worker's state if there is one."""
        ...


async def no_worker() -> tuple[str | None, str | None]:
    """Return that there is no worker."""
    return None, None


class LocalClient:
    """A client in this process: it calls a registrar, under the service's settings."""

    def __init__(
        self,
        registrar: Registrar,
        settings: Settings,
        *,
        worker_status: WorkerStatus = no_worker,
        outputs: RunOutputs | None = None,
    ) -> None:
        self._registrar = registrar
        self._outputs = outputs or settings.outputs()
        self._settings = settings
        self._worker_status = worker_status
        self.compute_pool = registrar.compute_pool
        self.upsert = registrar.upsert_schedule
        self.delete = registrar.delete_schedule
        self.schedule = registrar.get_schedule
        self.preview_resume = registrar.preview_resume

    async def pause(
        self,
        schedule_id: str,
        paused: bool,
        *,
        reason: str | None = None,
        until: str | None = None,
        if_match: str | None = None,
    ) -> PauseReceipt:
        """Pause a schedule, with a reason and until an instant if they are given, or resume it."""
        at = None if until is None else _instant("until", until)
        return await self._registrar.pause_schedule(
            schedule_id, paused, reason=reason, until=at, if_match=if_match
        )

    async def bulk(self, lines: bytes) -> BulkReceipt:
        """Create or change a schedule for each JSON line, 1,000 at a time, whole batches only."""

        async def chunks() -> AsyncIterator[bytes]:
            yield lines

        return await self.stream(chunks())

    async def stream(self, chunks: AsyncIterator[bytes]) -> BulkReceipt:
        """Create or change a schedule for each JSON line of a stream."""
        stored, batches = await upsert_lines(self._registrar, chunks, max_line=self._settings.max_body)
        return {"upserted": stored, "batches": batches}

    async def schedules(self, wanted: JobFilter, page: PageRequest) -> Document:
        """Return schedules in the order of their names."""
        limit = self._limit(page)
        after = "" if page.cursor is None else str(place_of(page.cursor, str)[0])
        shown, has_more = await self._registrar.schedule_page(wanted, after=after, limit=limit)
        place = [str(shown[-1]["schedule_id"])] if has_more else None
        return {"schedules": shown, "next_cursor": cursor_of(place)}

    async def definitions(self, wanted: JobFilter, page: PageRequest) -> DefinitionPage:
        """Return schedules as jobs in a job file's words, in the order of their names."""
        limit = self._limit(page)
        after = "" if page.cursor is None else str(place_of(page.cursor, str)[0])
        shown, has_more = await export_definitions(self._registrar, wanted, after=after, limit=limit)
        place = [str(shown[-1]["definition"]["identity"])] if has_more else None
        return {"jobs": shown, "next_cursor": cursor_of(place)}

    async def apply(self, wanted: ApplyRequest) -> ApplyReceipt:
        """Make the schedules of a set equal its jobs, all or none."""
        return await apply_jobs(self._registrar, wanted, compute=self.compute_pool.run)

    async def preview(self, document: Mapping[str, object], count: int) -> SchedulePreview:
        """Return when an unsaved schedule would run."""
        self._check_limit("count", count)
        return await self.compute_pool.run(self._preview, document, count)

    def _preview(self, document: Mapping[str, object], count: int) -> SchedulePreview:
        # The times of a schedule need no launcher, so one that cannot run here is previewed.
        rules = replace(self._registrar.rules, unavailable={})
        spec = parse_schedule_spec({**NO_WORKFLOW, **document}, rules, schedule_id="preview")
        return _upcoming_view(spec, now=self._registrar.now(), count=count, budget=CpuBudget())

    async def run(self, schedule_id: str, request_id: str | None = None) -> RequestedRun:
        """Run a schedule now, beside its periods; the same request runs once."""
        return await run_now(self._registrar, schedule_id, request_id)

    async def backfill(self, schedule_id: str, periods: BackfillRange) -> BackfillReceipt:
        """Run past periods: those that never ran, those that failed, or all."""
        check_choice("only", periods.only, tuple(Only))
        start, end = _instant("from", periods.start), _instant("to", periods.end)
        wanted = PeriodRange(start=start, end=end, only=Only(periods.only))
        return await backfill_schedule(
            self._registrar, schedule_id, wanted, request_id=periods.request_id, dry_run=periods.dry_run
        )

    async def report(self, key: str, feedback: Feedback) -> RunView:
        """Record an executor's report of a run."""
        return await take_feedback(self._registrar, key, feedback)

    async def runs(self, schedule_id: str, page: PageRequest) -> RunPage:
        """Return the runs of a schedule, newest first, and the periods dropped among them."""
        limit = self._limit(page)
        place = None
        if page.cursor is not None:
            time, shown = place_of(page.cursor, int, int)
            place = int(time), min(max(int(shown), 0), self._settings.max_page)
        runs, dropped, following = await runs_page(self._registrar, schedule_id, limit=limit, place=place)
        return {"runs": runs, "dropped": dropped, "next_cursor": cursor_of(following)}

    async def latest(self, status: str | None, page: PageRequest) -> RunPage:
        """Return the runs of all schedules, the latest first."""
        limit = self._limit(page)
        before = None
        if page.cursor is not None:
            made_at, key = place_of(page.cursor, int, str)
            before = RunCursor(int(made_at), str(key))
        if status is not None:
            check_choice("status", status, tuple(RunStatus))
        wanted = None if status is None else RunStatus(status)
        runs, following = await latest_page(self._registrar, limit=limit, status=wanted, before=before)
        return {"runs": runs, "dropped": [], "next_cursor": cursor_of(following)}

    async def period(self, schedule_id: str, period_id: str) -> PeriodRuns:
        """Return the runs of one period with their earlier attempts."""
        return await period_runs(self._registrar, schedule_id, _instant("period", period_id))

    async def why(self, schedule_id: str, period_id: str, changes: Sequence[str] = ()) -> WhyView:
        """Return the chain of facts behind a period, and what `changes` would have done."""
        return await why(self._registrar, schedule_id, period_id, changes)

    async def logs(self, schedule_id: str, wanted: OutputRequest) -> RunOutput:
        """Return a part of the output of a run."""
        return await read_output(self._registrar, self._outputs, schedule_id, wanted)

    async def audit(self, wanted: AuditFilter, page: PageRequest) -> AuditPage:
        """Return the audit log, latest entry first."""
        limit = self._limit(page)
        before = None
        if page.cursor is not None:
            before = AuditCursor(*map(int, place_of(page.cursor, int, int)))
            if before.listed < 0:
                raise invalid_cursor(page.cursor)
        shown, following = await self._registrar.catalog.query.audit_page(wanted, before=before, limit=limit)
        return {"entries": [audit_view(record) for record in shown], "next_cursor": cursor_of(following)}

    async def workers(self) -> WorkerList:
        """Return the workers with the shards they hold."""
        return await list_workers(self._registrar)

    async def drain(self, worker: str, drain: bool) -> WorkerView:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        return await drain_worker(self._registrar, worker, drain)

    async def health(self) -> Readiness:
        """Return whether the store is usable, and the worker works or waits for a lease."""
        state, error = await self._worker_status()
        try:
            # A look-up by name, which waits for no list of a tenant.
            await self._registrar.catalog.query.jobs(JobFilter(names=[NO_NAME]), limit=1)
            error = error or await self._registrar.catalog.query.clock_problem()
        except StoreError as fault:
            state, error = "degraded", str(fault)
        status = "ok" if state in READY else "not ready"
        # An error may name internal addresses: only authenticated callers see it.
        return {"status": status, "worker": state, "error": None if current_caller() is ANONYMOUS else error}

    def _limit(self, page: PageRequest) -> int:
        if page.limit is None:
            return min(DEFAULT_PAGE, self._settings.max_page)
        self._check_limit("limit", page.limit)
        return page.limit

    def _check_limit(self, option: str, value: int) -> None:
        most = self._settings.max_page
        if not 1 <= value <= most:
            raise InvalidOptionError(option=option, value=value, reason=f"use 1 to {most}")


def _instant(name: str, text: str) -> EpochSeconds:
    try:
        return parse_instant(text)
    except InputError as error:
        reason = str(error.details["reason"])
        raise InvalidOptionError(option=name, value=text, reason=reason) from error


def _upcoming_view(spec: ScheduleSpec, *, now: int, count: int, budget: CpuBudget) -> SchedulePreview:
    """Return the next times of an unsaved schedule, and the clock changes of a year that affect it."""
    job, schedule, policy = create(spec.job, now=now), spec.job.schedule, spec.job.policy
    first = max(now // 1000 + 1, policy.start_at or 0)
    ahead = takewhile(lambda period: period[0] < first + PREVIEWED_S, periods_ahead(job, now))
    periods = list(budget.each(islice(ahead, min(count, job.remaining or count))))
    is_last = job.remaining is not None and len(periods) == job.remaining
    last = max([0 if is_last else first + A_YEAR_AHEAD, *(time + 1 for time, _ in periods)])
    changes = changes_ahead(schedule, first, last if policy.end_at is None else min(last, policy.end_at + 1))
    return {
        "sentence": schedule.sentence,
        "timezone": schedule.timezone,
        "times": [{"run_at": rfc3339(time), "fire_at": time_text(fires)} for time, fires in periods],
        "clock_changes": [_clock_change_view(line) for line in changes if line.note is not None],
    }


def _clock_change_view(line: Line) -> ClockChangeView:
    return {
        "at": rfc3339(line.at),
        "wall_time": line.wall.isoformat(),
        "run_at": None if line.instant is None else rfc3339(line.instant),
        "mark": None if line.mark is None else line.mark.value,
        "note": line.note,
    }
