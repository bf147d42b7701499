"""The routes of the pages."""

from base64 import b64decode
from http import HTTPStatus
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Depends, Header, Query
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kron.core.errors import ConflictError, InputError, InvalidInstantError
from kron.core.fields import parse_instant
from kron.core.job.job import schedule_prefix
from kron.core.plan.query import AuditFilter, JobFilter, RunCursor
from kron.core.plan.record import RunStatus
from kron.core.time.zone import zone_of
from kron.fronts.service.api.description import ApiDescription
from kron.fronts.service.auth.principal import current_caller, default_owner
from kron.fronts.service.client import LocalClient, PageRequest
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import OutputRequest
from kron.fronts.service.url import cursor_of, place_of
from kron.fronts.service.web.actions import DONE, Epoch, Name, add_actions, add_workers, undo_of
from kron.fronts.service.web.api_reference import sections_of
from kron.fronts.service.web.dags import add_dags
from kron.fronts.service.web.fleet import MAX_SPREAD, WINDOW, Remedy
from kron.fronts.service.web.live import LiveUpdates
from kron.fronts.service.web.now import NowPages
from kron.fronts.service.web.playground import DISTRIBUTIONS, EXAMPLE, MODES, Typed, playground_of
from kron.fronts.service.web.render import HEADERS, READ, asset, form_fields, rendered, signed_in, to, url_of
from kron.fronts.service.web.schedule_pages import MAX_CHARTED, RUNS, Pages, SortKey, listed_schedules
from kron.fronts.service.web.spread import Spreads
from kron.fronts.service.web.timeline import Zoom
from kron.fronts.service.web.view_models import LOOKS, audit_entry
from kron.fronts.service.web.what_if import Changes, add_what_if

# The states of the overview's filter.
STATES = {
    "": JobFilter(),
    "active": JobFilter(paused=False, suspended=False),
    "paused": JobFilter(paused=True),
    "suspended": JobFilter(suspended=True),
    "failing": JobFilter(failing=True),
}
Text = Annotated[str, Query(max_length=1_000)]
Attempt = Annotated[int | None, Query(ge=1)]
ChangedAt = Annotated[int, Query(ge=0, le=2**53, description="when schedules were changed, in milliseconds")]
# What a list of a form sends; without a choice it sends an empty text.
CHOSEN = BeforeValidator(lambda value: value or None)
ChosenStatus = Annotated[RunStatus | None, CHOSEN]
ChosenSort = Annotated[SortKey | None, CHOSEN]
EVENT_STREAM = "text/event-stream"


def page_routes(
    registrar: Registrar, client: LocalClient, live: LiveUpdates, description: ApiDescription
) -> APIRouter:
    """Return the routes of pages, which are not part of the API."""
    router = APIRouter(include_in_schema=False)
    pages = Pages(registrar)
    present = NowPages(registrar, client)
    _add_now(router, pages, present)
    _add_live(router, live)
    _add_fleet(router, pages, present, Spreads(registrar, client))
    add_workers(router, registrar, client)
    _add_schedules(router, pages)
    _add_schedule(router, pages)
    add_what_if(router, registrar)
    _add_period(router, pages, client)
    add_actions(router, registrar, client)
    _add_runs(router, pages, client)
    add_dags(router, registrar)
    _add_audit(router, pages, client)
    _add_playground(router, pages, client)
    _add_reference(router, pages, description)
    return router


def _add_now(router: APIRouter, pages: Pages, present: NowPages) -> None:
    @router.api_route("/ui/now", methods=READ)
    async def now(zoom: Zoom = Zoom.DAY, at: str = "", tag: str = "") -> Response:
        middle = 1000 * parse_instant(at) if at else None
        shown = await present.page(zoom, middle, tag or None)
        return await rendered("now.html", pages.now(), it=shown, zooms=list(Zoom), at=at, tag=tag)


def _add_live(router: APIRouter, live: LiveUpdates) -> None:
    @router.get("/ui/live")
    async def live_events(
        accept: Annotated[str, Header()] = "",
        last_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
    ) -> Response:
        # A client that reads a whole response would wait for the end of the stream.
        if EVENT_STREAM not in accept:
            raise HTTPException(HTTPStatus.NOT_ACCEPTABLE, f"send the header accept: {EVENT_STREAM}")
        events = live.stream(current_caller(), last_id)
        return StreamingResponse(events, media_type=EVENT_STREAM, headers=HEADERS)


State = Literal["", "active", "paused", "suspended", "failing"]


class ListFilters(NamedTuple):
    """The filters of the list of schedules; an empty one matches every schedule."""

    search: str
    state: State
    tag: str
    owner: str
    zone: str
    launcher: str

    @property
    def wanted(self) -> JobFilter:
        """Return the filter of jobs."""
        return STATES[self.state]._replace(
            search=self.search or None,
            tag=self.tag or None,
            user_id=self.owner or None,
            timezone=self.zone or None,
            launcher_kind=self.launcher or None,
        )


def _filters_of(
    search: str = "", state: State = "", tag: str = "", owner: str = "", zone: str = "", launcher: str = ""
) -> ListFilters:
    return ListFilters(search, state, tag, owner, zone, launcher)


def _add_schedules(router: APIRouter, pages: Pages) -> None:
    @router.api_route("/", methods=READ)
    async def overview(
        request: Request,
        filters: Annotated[ListFilters, Depends(_filters_of)],
        sort: ChosenSort = None,
        cursor: str | None = None,
    ) -> Response:
        listed, refused = await listed_schedules(pages, filters.wanted, sort, cursor)
        following = cursor_of(None if listed.after is None else [listed.after])
        own = default_owner()
        return await rendered(
            "overview.html",
            pages.now(),
            rows=listed.rows,
            total=listed.total,
            filters=filters._asdict(),
            is_narrowed=any(filters),
            sort=str(sort or ""),
            too_many=pages.max_sorted if refused else None,
            note=listed.note,
            is_first=cursor is None,
            problem=await pages.clock_problem(),
            following=following,
            base=str(request.base_url).rstrip("/"),
            schedule_prefix="" if own is None else schedule_prefix(own),
        )


def _add_schedule(router: APIRouter, pages: Pages) -> None:
    @router.api_route("/ui/schedule", methods=READ)
    async def schedule(
        name: Name,
        cursor: str | None = None,
        before: str = "",
        status: ChosenStatus = None,
        done: Literal["", "paused", "resumed", "edited"] = "",
        undo: Epoch = 0,
    ) -> Response:
        problem = place = None
        if cursor is not None:
            time, shown = place_of(cursor, int, int)
            place = int(time), min(max(int(shown), 0), MAX_CHARTED)
        elif before.strip():
            try:
                place = (parse_instant(before.strip()) - 1, 0)
            except InputError as error:
                problem = str(error)
        detail = await pages.schedule(name, place, status)
        following = cursor_of(detail.following)
        return await rendered(
            "schedule.html",
            pages.now(),
            400 if problem else 200,
            it=detail,
            problem=problem,
            zone=zone_of(detail.row.timezone),
            is_first=place is None,
            before=before.strip(),
            status=str(status or ""),
            statuses={each.value: LOOKS[each][1] for each in RunStatus},
            following=following,
            done=DONE.get(done),
            undo=undo_of(name, done, undo),
            charts=await pages.charts(name),
        )


def _add_period(router: APIRouter, pages: Pages, client: LocalClient) -> None:
    @router.api_route("/ui/period", methods=READ)
    async def period(
        name: Name, at: str, changes: Changes = "", attempt: Attempt = None, find: Text = ""
    ) -> Response:
        problem = None
        try:
            shown = await pages.period(name, at.strip(), changes.split())
        except InvalidInstantError as error:
            values = {"problem": str(error), "at": at, "timezone": await pages.timezone(name)}
            return await rendered("no_time.html", pages.now(), 400, name=name, **values)
        except InputError as error:
            # Without the changes the page has no other mistake than one of its address.
            shown, problem = await pages.period(name, at.strip()), str(error)
        # What is no period has neither a window nor a decision.
        charts = await pages.period_charts(name, shown.period_id) if shown.is_period else None
        output = None
        if shown.run is not None:
            output = await pages.output(client, shown.run, attempt, find.strip())
        more: dict[str, Any] = {"changes": changes, "charts": charts, "output": output, "find": find.strip()}
        more |= {"problem": problem, "zone": zone_of(shown.timezone)}
        return await rendered("period.html", pages.now(), 400 if problem else 200, it=shown, **more)


def _add_runs(router: APIRouter, pages: Pages, client: LocalClient) -> None:
    @router.api_route("/ui/run", methods=READ)
    async def run(key: str, attempt: Attempt = None, find: Text = "") -> Response:
        shown, chart = await pages.run(key.strip())
        output = await pages.output(client, shown.run, attempt, find.strip())
        more: dict[str, Any] = {"chart": chart, "output": output, "find": find.strip()}
        return await rendered("run.html", pages.now(), it=shown, zone=zone_of(shown.timezone), **more)

    @router.api_route("/ui/run/output", methods=READ)
    async def download(name: Name, at: str, key: str, attempt: Attempt = None) -> Response:
        document = await client.logs(name, OutputRequest(at, key, attempt))
        file = f"{document['idempotency_key'][:16]}.{document['attempt']}.log"
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{file}"'}
        return Response(
            b64decode(document["output"]), media_type="text/plain; charset=utf-8", headers=headers
        )

    @router.api_route("/ui/runs", methods=READ)
    async def runs(status: ChosenStatus = None, cursor: str | None = None) -> Response:
        before = None
        if cursor is not None:
            made_at, key = place_of(cursor, int, str)
            before = RunCursor(int(made_at), str(key))
        entries, following = await pages.runs(status=status, before=before)
        return await rendered(
            "runs.html",
            pages.now(),
            entries=entries,
            statuses={each.value: LOOKS[each][1] for each in RunStatus},
            status=str(status or ""),
            is_first=before is None,
            following=cursor_of(following),
        )


def _add_audit(router: APIRouter, pages: Pages, client: LocalClient) -> None:
    @router.api_route("/ui/audit", methods=READ)
    async def audit(name: str = "", who: str = "", cursor: str | None = None) -> Response:
        wanted = AuditFilter(identity=name.strip() or None, who=who.strip() or None)
        listed = await client.audit(wanted, PageRequest(RUNS, cursor))
        entries = [audit_entry(entry, pages.now()) for entry in listed["entries"]]
        return await rendered(
            "audit.html",
            pages.now(),
            entries=entries,
            name=name,
            who=who,
            is_first=cursor is None,
            following=listed["next_cursor"],
        )


def _add_fleet(router: APIRouter, pages: Pages, present: NowPages, spreads: Spreads) -> None:
    @router.api_route("/ui/fleet", methods=READ)
    async def fleet(done: Annotated[int, Query(ge=0, le=MAX_SPREAD)] = 0, at: ChangedAt = 0) -> Response:
        shown = await present.fleet()
        return await rendered("fleet.html", pages.now(), it=shown, window=WINDOW, done=done, changed_at=at)

    async def plan(remedy: Remedy, problem: str | None = None) -> Response:
        suggestion = (await present.fleet()).suggestion
        shown = None
        if suggestion is not None and remedy in suggestion.after:
            shown = await spreads.plan(suggestion, remedy)
        code = 400 if problem else 200
        return await rendered("spread.html", pages.now(), code, it=shown, window=WINDOW, problem=problem)

    @router.api_route("/ui/fleet/apply", methods=READ)
    async def plan_spread(remedy: Remedy) -> Response:
        return await plan(remedy)

    @router.post("/ui/fleet/apply")
    async def apply_spread(request: Request, remedy: Remedy) -> Response:
        fields = await form_fields(request)
        try:
            changed, at = await spreads.apply(remedy, fields.get("states", ""))
        except (InputError, ConflictError) as error:
            return await plan(remedy, str(error))
        present.forget_fleet()
        return to(url_of("/ui/fleet", done=str(changed), at=str(at)))

    @router.post("/ui/fleet/undo")
    async def undo_spread(at: ChangedAt) -> Response:
        changed = await spreads.undo(at)
        present.forget_fleet()
        return to(url_of("/ui/fleet", done=str(changed)))


def _typed_of(
    cron: Text = "",
    zone: Text = "",
    window: Text = "",
    mode: Text = "",
    distribution: Text = "",
    parameters: Text = "",
    constraints: Text = "",
) -> Typed:
    fields = (cron, zone, window, mode, distribution, parameters, constraints)
    return Typed(*(field.strip() for field in fields))


def _add_playground(router: APIRouter, pages: Pages, client: LocalClient) -> None:
    @router.api_route("/ui/playground", methods=READ)
    async def playground(typed: Annotated[Typed, Depends(_typed_of)]) -> Response:
        now = pages.now()
        shown = await client.compute_pool.run(playground_of, typed, now) if typed.cron else None
        return await rendered(
            "playground.html",
            now,
            zone=None if shown is None or shown.problems else zone_of(typed.zone or "UTC"),
            typed=typed,
            it=shown,
            modes=MODES,
            distributions=DISTRIBUTIONS,
            example=EXAMPLE,
        )


def _add_reference(router: APIRouter, pages: Pages, description: ApiDescription) -> None:
    @router.api_route("/docs", methods=READ)
    async def docs(request: Request) -> Response:
        is_sent = signed_in() is not None and current_caller().has_token
        headers = ["Authorization: Bearer $KRON_TOKEN"] if is_sent else []
        base = str(request.base_url).rstrip("/")
        return await rendered(
            "reference.html", pages.now(), sections=sections_of(await description.document(), base, headers)
        )

    @router.api_route("/static/{name}", methods=READ)
    async def static(name: str) -> Response:
        file = asset(name)
        if file is None:
            raise HTTPException(404)
        return file

    @router.api_route("/favicon.ico", methods=READ)
    async def icon() -> Response:
        return asset("icon.svg") or Response(status_code=404)
