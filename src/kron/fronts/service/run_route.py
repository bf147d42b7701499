"""What the API does with runs; each handler translates, and the registrar's functions do the work."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query

from kron.core.errors import InputError, InvalidOptionError
from kron.core.instant import EpochSeconds
from kron.core.reading import parse_instant
from kron.core.record import Status
from kron.fronts.service.backfill import Only, Range, backfill_schedule
from kron.fronts.service.edge import name_of
from kron.fronts.service.history import Feedback, latest_page, run_now, runs_page, take_feedback, why
from kron.fronts.service.model import (
    AskedRun,
    Backfilled,
    BackfillRequest,
    Run,
    RunPage,
    RunRequest,
    StatusRequest,
    Why,
)
from kron.fronts.service.page import cursor_of, place_of
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.settings import Settings
from kron.fronts.service.view import Document
from kron.ports import Place

IdempotencyKey = Annotated[
    str | None, Header(description="names the request, if the body does not", min_length=1, max_length=500)
]


def run_routes(registrar: Registrar, settings: Settings) -> APIRouter:
    """Return the routes of runs."""
    router = APIRouter(tags=["runs"])
    _add_writes(router, registrar)
    _add_reads(router, registrar, settings.max_page)
    return router


def _add_writes(router: APIRouter, registrar: Registrar) -> None:
    @router.post("/schedules/{schedule_id}/run", status_code=HTTPStatus.ACCEPTED, response_model=AskedRun)
    async def run(
        schedule_id: str, document: RunRequest | None = None, idempotency_key: IdempotencyKey = None
    ) -> Document:
        """Run a schedule now, beside its periods; the same request is run once, however often it comes."""
        request = document.request_id if document and document.request_id else idempotency_key
        return await run_now(registrar, name_of(schedule_id), request)

    @router.post(
        "/schedules/{schedule_id}/backfill", status_code=HTTPStatus.ACCEPTED, response_model=Backfilled
    )
    async def backfill(
        schedule_id: str, document: BackfillRequest, idempotency_key: IdempotencyKey = None
    ) -> Document:
        """Run past periods: those that never ran, those that failed, or all; a dry run only counts them."""
        wanted = Range(
            start=_instant("from", document.start),
            end=_instant("to", document.end),
            only=Only(document.only),
        )
        return await backfill_schedule(
            registrar,
            name_of(schedule_id),
            wanted,
            request_id=document.request_id or idempotency_key,
            dry_run=document.dry_run,
        )

    @router.post("/runs/{idempotency_key}/status", response_model=Run)
    async def status(idempotency_key: str, document: StatusRequest) -> Document:
        """Note what the executor says of a run; what is late, repeated or contradictory changes nothing."""
        feedback = Feedback(document.status, document.run_id, document.error, document.attempt)
        return await take_feedback(registrar, name_of(idempotency_key), feedback)


def _add_reads(router: APIRouter, registrar: Registrar, most: int) -> None:
    @router.get("/schedules/{schedule_id}/runs", response_model=RunPage)
    async def runs(
        schedule_id: str,
        limit: Annotated[int, Query(ge=1, le=most)] = min(100, most),
        cursor: str | None = None,
    ) -> Document:
        """List the runs of a schedule, newest first."""
        place = None
        if cursor is not None:
            time, shown = place_of(cursor, int, int)
            place = int(time), min(max(int(shown), 0), most)
        page = await runs_page(registrar, name_of(schedule_id), limit=limit, place=place)
        return {"runs": page.runs, "dropped": page.dropped, "next_cursor": cursor_of(page.following)}

    @router.get("/runs", response_model=RunPage)
    async def all_runs(
        status: Status | None = None,
        limit: Annotated[int, Query(ge=1, le=most)] = min(100, most),
        cursor: str | None = None,
    ) -> Document:
        """List the runs of all schedules, the latest first."""
        before = None
        if cursor is not None:
            made_at, key = place_of(cursor, int, str)
            before = Place(int(made_at), str(key))
        found, following = await latest_page(registrar, limit=limit, status=status, before=before)
        return {"runs": found, "next_cursor": cursor_of(following)}

    @router.get("/schedules/{schedule_id}/periods/{period_id}/why", response_model=Why)
    async def explain(schedule_id: str, period_id: str) -> Mapping[str, object]:
        """Say why a period ended as it did, or where it stands."""
        return await why(registrar, name_of(schedule_id), name_of(period_id))


def _instant(name: str, text: str) -> EpochSeconds:
    try:
        return parse_instant(text)
    except InputError as error:
        reason = str(error.details["reason"])
        raise InvalidOptionError(option=name, value=text, reason=reason) from error
