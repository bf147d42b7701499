"""Where pages are: each handler asks the viewer, and hands a template what it said."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from kron.core.plan.query import RunCursor
from kron.core.plan.record import RunStatus
from kron.core.time.instant import rfc3339
from kron.fronts.service.auth.principal import (
    ANONYMOUS,
    UNRESTRICTED,
    default_owner,
    present_caller,
    schedule_prefix,
    workflow_prefix,
)
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.url import cursor_of, place_of
from kron.fronts.service.web.api_reference import sections_of
from kron.fronts.service.web.pages import RUNS, Pages
from kron.fronts.service.web.render import asset, page, render

Name = Annotated[str, Query(alias="id", description="the schedule")]
READ = ["GET", "HEAD"]


def page_routes(registrar: Registrar, app: FastAPI) -> APIRouter:
    """Return the routes of pages; they are no part of the API."""
    router = APIRouter(include_in_schema=False)
    viewer = Pages(registrar)
    _add_schedules(router, viewer)
    _add_runs(router, viewer)
    _add_reference(router, viewer, app)
    return router


def _add_schedules(router: APIRouter, viewer: Pages) -> None:
    @router.api_route("/", methods=READ)
    async def overview(
        request: Request,
        search: str = "",
        state: Literal["", "active", "paused", "failing"] = "",
        cursor: str | None = None,
    ) -> Response:
        after = "" if cursor is None else str(place_of(cursor, str)[0])
        found = await viewer.overview(search=search, state=state, after=after)
        following = cursor_of(None if found.after is None else [found.after])
        return await _shown(
            "overview.html",
            viewer,
            rows=found.rows,
            search=search,
            state=state,
            is_first=cursor is None,
            following=following,
            base=str(request.base_url).rstrip("/"),
            prefix=schedule_prefix(own) if (own := default_owner()) else "",
            slug=workflow_prefix(own) if own else "",
        )

    @router.api_route("/ui/schedule", methods=READ)
    async def schedule(name: Name, cursor: str | None = None) -> Response:
        place = None
        if cursor is not None:
            time, shown = place_of(cursor, int, int)
            place = int(time), min(max(int(shown), 0), RUNS)
        found = await viewer.schedule(name, place)
        return await _shown(
            "schedule.html", viewer, it=found, is_first=place is None, following=cursor_of(found.following)
        )

    @router.api_route("/ui/period", methods=READ)
    async def period(name: Name, at: str) -> Response:
        return await _shown("period.html", viewer, it=await viewer.period(name, at.strip()))


def _add_runs(router: APIRouter, viewer: Pages) -> None:
    @router.api_route("/ui/runs", methods=READ)
    async def runs(status: Literal[""] | RunStatus = "", cursor: str | None = None) -> Response:
        before = None
        if cursor is not None:
            made_at, key = place_of(cursor, int, str)
            before = RunCursor(int(made_at), str(key))
        entries, following = await viewer.runs(status=RunStatus(status) if status else None, before=before)
        return await _shown(
            "runs.html",
            viewer,
            entries=entries,
            statuses=[each.value for each in RunStatus],
            status=str(status),
            is_first=before is None,
            following=cursor_of(following),
        )


def _add_reference(router: APIRouter, viewer: Pages, app: FastAPI) -> None:
    @router.api_route("/docs", methods=READ)
    async def docs() -> Response:
        return await _shown("reference.html", viewer, sections=sections_of(app.openapi()))

    @router.api_route("/static/{name}", methods=READ)
    async def static(name: str) -> Response:
        found = asset(name)
        if found is None:
            raise HTTPException(404)
        return found

    @router.api_route("/favicon.ico", methods=READ)
    async def icon() -> Response:
        return asset("icon.svg") or Response(status_code=404)


async def _shown(template: str, viewer: Pages, **values: Any) -> Response:
    """Render beside the event loop: a page may take a few milliseconds, and the worker has none to spare."""
    now = rfc3339(viewer.now() // 1000)
    return page(await asyncio.to_thread(render, template, now=now, user=_signed_in(), **values))


def _signed_in() -> str | None:
    """Return the name of who looks, where they had to say it."""
    caller = present_caller()
    return None if caller in (UNRESTRICTED, ANONYMOUS) else caller.name
