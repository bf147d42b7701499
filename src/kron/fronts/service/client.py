"""The desk: every verb of the service with documents in and documents out, in this program or over HTTP."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple, Protocol

from kron.core.errors import InputError, InvalidOptionError, StoreError, check_choice
from kron.core.job.fields import parse_instant
from kron.core.plan.query import AuditFilter, JobFilter, RunCursor
from kron.core.plan.record import RunStatus
from kron.core.time.instant import EpochSeconds
from kron.fronts.service.auth.audit import audit_view
from kron.fronts.service.auth.principal import ANONYMOUS, present_caller
from kron.fronts.service.backfill import Only, Range, backfill_schedule
from kron.fronts.service.bulk import upsert_lines
from kron.fronts.service.documents import Document
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.resume_preview import coming_of
from kron.fronts.service.runs import (
    Feedback,
    latest_page,
    period_runs,
    run_now,
    runs_page,
    take_feedback,
    why,
)
from kron.fronts.service.schedule_spec import parse_schedule_spec
from kron.fronts.service.settings import Settings
from kron.fronts.service.url import cursor_of, place_of

# What the state of the worker and its mistake are asked of; without a worker there is neither.
Ask = Callable[[], tuple[str | None, str | None]]
READY = frozenset({None, "running", "ready", "waiting"})
# How many entries a page has where nobody says.
USUAL_PAGE = 100
# A schedule that is only looked at belongs to no workflow.
NO_WORKFLOW: Document = {"workflow_id": "preview", "version": 0, "user_id": "preview"}


class PageRequest(NamedTuple):
    """Which part of a listing is asked for: how much, if not as usual, and from where."""

    limit: int | None = None
    cursor: str | None = None


class BackfillRange(NamedTuple):
    """Which past periods a backfill is to run, as callers write it."""

    start: str
    end: str
    only: str = Only.MISSING.value
    dry_run: bool = False
    request_id: str | None = None


class ServiceClient(Protocol):
    """What people and programs ask of the service; each verb raises what the registrar raises."""

    async def upsert(self, document: Mapping[str, object], *, if_match: str | None = None) -> Document:
        """Create a schedule or change it; with `if_match` "" only create."""
        ...

    async def bulk(self, lines: bytes) -> Document:
        """Create or change a schedule for each JSON line, 1,000 at a time, whole batches only."""
        ...

    async def pause(self, schedule_id: str, paused: bool, *, if_match: str | None = None) -> Document:
        """Pause a schedule, or let it go on."""
        ...

    async def delete(self, schedule_id: str, *, if_match: str | None = None) -> None:
        """Delete a schedule."""
        ...

    async def schedule(self, schedule_id: str) -> Document:
        """Return a schedule with its next fire times."""
        ...

    async def schedules(self, wanted: JobFilter, sheet: PageRequest) -> Document:
        """Return schedules in the order of their names."""
        ...

    async def foresee(self, schedule_id: str) -> Document:
        """Return what would start if a schedule went on now."""
        ...

    async def preview(self, document: Mapping[str, object], count: int) -> Document:
        """Return when a schedule would run that is not stored."""
        ...

    async def run(self, schedule_id: str, request_id: str | None = None) -> Document:
        """Run a schedule now."""
        ...

    async def backfill(self, schedule_id: str, span: BackfillRange) -> Document:
        """Run past periods."""
        ...

    async def report(self, key: str, feedback: Feedback) -> Document:
        """Note what an executor says of a run."""
        ...

    async def runs(self, schedule_id: str, sheet: PageRequest) -> Document:
        """Return the runs of a schedule, newest first."""
        ...

    async def latest(self, status: str | None, sheet: PageRequest) -> Document:
        """Return the runs of all schedules, the latest first."""
        ...

    async def period(self, schedule_id: str, period_id: str) -> Document:
        """Return the runs of one period with their earlier attempts."""
        ...

    async def why(self, schedule_id: str, period_id: str) -> Document:
        """Return the chain of facts behind a period."""
        ...

    async def audit(self, wanted: AuditFilter, sheet: PageRequest) -> Document:
        """Return the changes that somebody made, the latest first."""
        ...

    async def health(self) -> Document:
        """Return whether the store can be used and, where there is one, how the worker is doing."""
        ...


class LocalClient:
    """The desk in this program: a registrar's, under the service's settings."""

    def __init__(
        self, registrar: Registrar, settings: Settings, *, ask_worker: Ask = lambda: (None, None)
    ) -> None:
        self._registrar = registrar
        self._settings = settings
        self._ask_worker = ask_worker
        self.pause = registrar.pause_schedule
        self.delete = registrar.delete_schedule
        self.schedule = registrar.get_schedule
        self.foresee = registrar.preview_resume

    async def upsert(self, document: Mapping[str, object], *, if_match: str | None = None) -> Document:
        """Create a schedule or change it; with `if_match` "" only create."""
        spec = self._registrar.read_spec(document)
        return await self._registrar.upsert_schedule(spec, if_match=if_match)

    async def bulk(self, lines: bytes) -> Document:
        """Create or change a schedule for each JSON line, 1,000 at a time, whole batches only."""

        async def whole() -> AsyncIterator[bytes]:
            yield lines

        return await self.stream(whole())

    async def stream(self, chunks: AsyncIterator[bytes]) -> Document:
        """Do the same with lines that come bit by bit."""
        stored, batches = await upsert_lines(self._registrar, chunks, max_line=self._settings.max_body)
        return {"upserted": stored, "batches": batches}

    async def schedules(self, wanted: JobFilter, sheet: PageRequest) -> Document:
        """Return schedules in the order of their names."""
        limit = self._limit(sheet)
        after = "" if sheet.cursor is None else str(place_of(sheet.cursor, str)[0])
        found = await self._registrar.list_schedules(wanted, after=after, limit=limit + 1)
        shown = found[:limit]
        place = [str(shown[-1]["schedule_id"])] if len(found) > limit else None
        return {"schedules": shown, "next_cursor": cursor_of(place)}

    async def preview(self, document: Mapping[str, object], count: int) -> Document:
        """Return when a schedule would run that is not stored."""
        self._check_limit("count", count)
        wish = parse_schedule_spec({**NO_WORKFLOW, **document}, self._registrar.rules, schedule_id="preview")
        return coming_of(wish, now=self._registrar.now(), count=count)

    async def run(self, schedule_id: str, request_id: str | None = None) -> Document:
        """Run a schedule now, beside its periods; the same request is run once."""
        return await run_now(self._registrar, schedule_id, request_id)

    async def backfill(self, schedule_id: str, span: BackfillRange) -> Document:
        """Run past periods: those that never ran, those that failed, or all."""
        check_choice("only", span.only, tuple(Only))
        start, end = _instant("from", span.start), _instant("to", span.end)
        wanted = Range(start=start, end=end, only=Only(span.only))
        return await backfill_schedule(
            self._registrar, schedule_id, wanted, request_id=span.request_id, dry_run=span.dry_run
        )

    async def report(self, key: str, feedback: Feedback) -> Document:
        """Note what an executor says of a run."""
        return await take_feedback(self._registrar, key, feedback)

    async def runs(self, schedule_id: str, sheet: PageRequest) -> Document:
        """Return the runs of a schedule, newest first, and what was dropped among them."""
        limit = self._limit(sheet)
        place = None
        if sheet.cursor is not None:
            time, shown = place_of(sheet.cursor, int, int)
            place = int(time), min(max(int(shown), 0), self._settings.max_page)
        page = await runs_page(self._registrar, schedule_id, limit=limit, place=place)
        return {"runs": page.runs, "dropped": page.dropped, "next_cursor": cursor_of(page.following)}

    async def latest(self, status: str | None, sheet: PageRequest) -> Document:
        """Return the runs of all schedules, the latest first."""
        limit = self._limit(sheet)
        before = None
        if sheet.cursor is not None:
            made_at, key = place_of(sheet.cursor, int, str)
            before = RunCursor(int(made_at), str(key))
        if status is not None:
            check_choice("status", status, tuple(RunStatus))
        wanted = None if status is None else RunStatus(status)
        found, following = await latest_page(self._registrar, limit=limit, status=wanted, before=before)
        return {"runs": found, "dropped": [], "next_cursor": cursor_of(following)}

    async def period(self, schedule_id: str, period_id: str) -> Document:
        """Return the runs of one period with their earlier attempts."""
        return await period_runs(self._registrar, schedule_id, _instant("period", period_id))

    async def why(self, schedule_id: str, period_id: str) -> Document:
        """Return the chain of facts behind a period."""
        return dict(await why(self._registrar, schedule_id, period_id))

    async def audit(self, wanted: AuditFilter, sheet: PageRequest) -> Document:
        """Return the changes that somebody made, the latest first."""
        limit = self._limit(sheet)
        if any("\0" in text for text in (wanted.identity, wanted.who) if text is not None):
            return {"entries": [], "next_cursor": None}
        before = None if sheet.cursor is None else int(place_of(sheet.cursor, int)[0])
        found = await self._registrar.store.audits(NAMESPACE, wanted, before=before, limit=limit + 1)
        shown = found[:limit]
        place = [shown[-1].number] if len(found) > limit else None
        return {"entries": [audit_view(one.record) for one in shown], "next_cursor": cursor_of(place)}

    async def health(self) -> Document:
        """Return whether the store can be used, and the worker works or waits for its turn."""
        state, error = self._ask_worker()
        try:
            await self._registrar.store.find_jobs(NAMESPACE, JobFilter(), limit=1)
        except StoreError as fault:
            state, error = "degraded", str(fault)
        status = "ok" if state in READY else "not ready"
        # What went wrong may name places that are nobody else's business.
        return {"status": status, "worker": state, "error": None if present_caller() is ANONYMOUS else error}

    def _limit(self, sheet: PageRequest) -> int:
        if sheet.limit is None:
            return min(USUAL_PAGE, self._settings.max_page)
        self._check_limit("limit", sheet.limit)
        return sheet.limit

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
