"""Routes of schedules; each handler translates a request for the client."""

import json
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Header, Query, Request, Response

from kron.fronts.service.api.middleware import JsonRoute
from kron.fronts.service.api.models import (
    EXAMPLE,
    Filter,
    PauseRequest,
    ScheduleInput,
    SchedulePage,
    ScheduleWithPreview,
    model_of,
    up_to,
)
from kron.fronts.service.client import DEFAULT_PAGE, LocalClient, PageRequest
from kron.fronts.service.documents import Document
from kron.fronts.service.responses import BulkReceipt, PauseReceipt, Receipt, ResumeForecast, SchedulePreview
from kron.fronts.service.url import name_of

IfMatch = Annotated[str | None, Header(description="the ETag of the state to change")]
IfNoneMatch = Annotated[str | None, Header(description="`*`: only create")]
DryRun = Annotated[bool, Query(description="answer as after the write, without writing")]
UPSERT_BODY = Body(openapi_examples={"report": {"value": EXAMPLE}})
LINES = {
    "requestBody": {
        "required": False,
        "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": json.dumps(EXAMPLE)}},
    }
}


def schedule_routes(client: LocalClient, most: int) -> APIRouter:
    """Return the routes of schedules; `most` is the longest page."""
    router = APIRouter(tags=["schedules"], route_class=JsonRoute)
    _add_writes(router, client)
    _add_reads(router, client, most)
    return router


def _add_writes(router: APIRouter, client: LocalClient) -> None:
    @router.post("/schedules/upsert", response_model=model_of(Receipt), response_model_exclude_unset=True)
    async def upsert(
        document: Annotated[ScheduleInput, UPSERT_BODY],
        response: Response,
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
        dry_run: DryRun = False,
    ) -> Receipt:
        """Create a schedule, or change the one with this `schedule_id`; it keeps its pause and history.

        If that lets a stopped schedule run (it lifts `policy.suspend`, or says `paused: false`), the receipt
        says which periods start.
        """
        state = "" if if_none_match == "*" else if_match
        receipt = await client.upsert(document, if_match=state, dry_run=dry_run)
        response.headers["ETag"] = receipt["etag"]
        return receipt

    @router.post("/schedules/bulk", response_model=model_of(BulkReceipt), openapi_extra=LINES)
    async def bulk(request: Request) -> BulkReceipt:
        """Create or change a schedule for each JSON line, in batches of 1,000, each in one transaction."""
        return await client.stream(request.stream())

    @router.post("/schedules/pause", response_model=model_of(PauseReceipt), response_model_exclude_unset=True)
    async def pause(document: PauseRequest, if_match: IfMatch = None) -> PauseReceipt:
        """Pause a schedule, or resume it and report which periods of the pause start."""
        return await client.pause(
            document.schedule_id,
            document.paused,
            reason=document.reason,
            until=document.until,
            if_match=if_match,
        )

    @router.delete("/schedules/{schedule_id}", status_code=HTTPStatus.NO_CONTENT)
    async def delete(schedule_id: str, if_match: IfMatch = None) -> None:
        """Delete a schedule; its history stays."""
        await client.delete(name_of(schedule_id), if_match=if_match)


def _add_reads(router: APIRouter, client: LocalClient, most: int) -> None:
    @router.get("/schedules", response_model=SchedulePage)
    async def list_all(
        wanted: Filter,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> Document:
        """List schedules in the order of their names."""
        return await client.schedules(wanted, PageRequest(limit, cursor))

    @router.get("/schedules/{schedule_id}", response_model=ScheduleWithPreview)
    async def get(schedule_id: str, response: Response) -> Document:
        """Get a schedule with all its fields and its next five fire times."""
        document = await client.schedule(name_of(schedule_id))
        response.headers["ETag"] = str(document["etag"])
        return document

    @router.post(
        "/schedules/{schedule_id}/resume-preview",
        response_model=model_of(ResumeForecast),
        response_model_exclude_unset=True,
    )
    async def resume_preview(schedule_id: str) -> ResumeForecast:
        """Preview which periods a resume would start now, without resuming."""
        return await client.preview_resume(name_of(schedule_id))

    @router.post("/preview", response_model=model_of(SchedulePreview))
    async def preview(
        document: Annotated[ScheduleInput, UPSERT_BODY],
        count: Annotated[int, up_to(most)] = 5,
    ) -> SchedulePreview:
        """Preview when an unsaved schedule would run, with the clock changes of 400 days that affect it."""
        return await client.preview(document, count)
