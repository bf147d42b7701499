"""Actions of the pages: run now, pause, resume and backfill, each with its effect shown before it is done.

A form is sent by POST and answered by a redirect, so that a reload does nothing twice. What a form does is
authorized, scoped to the caller's tenant and audited as the same verb of the API.
"""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from kron.app.backfill import Only, keys_of
from kron.core.errors import InputError
from kron.core.fields import parse_instant
from kron.core.job.outcome import Reason
from kron.core.plan.record import RunKind, RunRecord
from kron.core.time.instant import DAY, EpochSeconds, rfc3339
from kron.fronts.service.client import BackfillRange, LocalClient
from kron.fronts.service.errors import UnknownWorkerError
from kron.fronts.service.registrar import Registrar, new_name, stopped_words, unknown_as_schedule
from kron.fronts.service.web.edit import UNPLANNED, Edits
from kron.fronts.service.web.render import READ, form_fields, rendered, to, url_of
from kron.fronts.service.web.view_models import zone_of_job
from kron.fronts.service.web.workers import RECEIVING, WorkersPage, workers_page

Name = Annotated[str, Query(alias="id", description="the schedule")]
Epoch = Annotated[int, Query(ge=0, le=2**31, description="an earlier definition; 0 for none")]
# What the page of a schedule says after a form.
DONE = {
    "paused": "Paused. No run starts until the schedule is resumed.",
    "resumed": "Resumed.",
    "edited": "Saved.",
}
# The page that undoes an action; of an edit it has the definition before it.
UNDO = {"paused": "/ui/schedule/resume", "resumed": "/ui/schedule/pause", "edited": "/ui/schedule/edit"}
# How long a pause may last, in seconds, by the words of its form.
PAUSES = {"1 hour": 3600, "8 hours": 8 * 3600, "1 day": DAY, "1 week": 7 * DAY}
# Which periods a backfill runs, in the words of its form, and ranges that end now, in seconds.
CHOICES = {
    Only.MISSING: "missing: those that did not run",
    Only.FAILED: "failed: those whose last run failed",
    Only.ALL: "all",
}
RANGES = {"the last hour": 3600, "the last day": DAY, "the last week": 7 * DAY}
# Runs of a backfill whose progress is read, and those that a dry run lists.
MAX_RUNS, MAX_LISTED = 5_000, 100


class BackfillProgress(NamedTuple):
    """How far a backfill is: its runs, those that ended, and those that failed."""

    runs: int
    ended: int
    failed: int


def add_actions(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    """Add the routes of actions on schedules."""
    _add_run(router, registrar, client)
    _add_pause(router, registrar, client)
    _add_resume(router, registrar, client)
    _add_backfill(router, registrar, client)
    _add_edit(router, registrar, client)


def _add_run(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    @router.api_route("/ui/schedule/run", methods=READ)
    async def confirm_run(name: Name) -> Response:
        return await _shown(registrar, "run_now", name, request=new_name())

    @router.post("/ui/schedule/run")
    async def run(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        started = await client.run(name, fields.get("request"))
        return to(url_of("/ui/run", key=started["idempotency_key"]))


def _add_pause(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    @router.api_route("/ui/schedule/pause", methods=READ)
    async def confirm_pause(name: Name) -> Response:
        return await _shown(registrar, "pause", name, pauses=list(PAUSES), fields={})

    @router.post("/ui/schedule/pause")
    async def pause(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        until = fields.get("until", "").strip() or None
        length = PAUSES.get(fields.get("for", ""))
        if until is None and length is not None:
            until = rfc3339(registrar.now() // 1000 + length)
        try:
            await client.pause(name, True, reason=fields.get("reason", "").strip() or None, until=until)
        except InputError as error:
            shown = {"pauses": list(PAUSES), "fields": fields, "problem": str(error)}
            return await _shown(registrar, "pause", name, **shown)
        return to(url_of("/ui/schedule", id=name, done="paused"))


def _add_resume(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    @router.api_route("/ui/schedule/resume", methods=READ)
    async def confirm_resume(name: Name) -> Response:
        return await _shown(registrar, "resume", name, effect=await client.preview_resume(name))

    @router.post("/ui/schedule/resume")
    async def resume(name: Name) -> Response:
        await client.pause(name, False)
        return to(url_of("/ui/schedule", id=name, done="resumed"))


def _add_backfill(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    @router.api_route("/ui/schedule/backfill", methods=READ)
    async def plan_backfill(
        name: Name,
        start: Annotated[str, Query(alias="from")] = "",
        end: Annotated[str, Query(alias="to")] = "",
        only: Only = Only.MISSING,
        request: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        fields = {"from": start.strip(), "to": end.strip(), "only": only.value, "request": request}
        now = registrar.now() // 1000
        ranges = {words: (rfc3339(now - length), rfc3339(now)) for words, length in RANGES.items()}
        values: dict[str, object] = {
            "fields": fields,
            "choices": CHOICES,
            "ranges": ranges,
            "listed": MAX_LISTED,
        }
        if not fields["from"] or not fields["to"]:
            return await _shown(registrar, "backfill", name, **values)
        try:
            if request:
                interval = parse_instant(fields["from"]), parse_instant(fields["to"])
                values["progress"] = await _progress(registrar, name, request, interval)
            else:
                wanted = BackfillRange(fields["from"], fields["to"], only.value, dry_run=True)
                values |= {"effect": await client.backfill(name, wanted), "new_request": new_name()}
        except InputError as error:
            values["problem"] = str(error)
        return await _shown(registrar, "backfill", name, **values)

    @router.post("/ui/schedule/backfill")
    async def backfill(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        start, end, only = (fields.get(word, "") for word in ("from", "to", "only"))
        wanted = BackfillRange(start, end, only or Only.MISSING.value, request_id=fields.get("request"))
        receipt = await client.backfill(name, wanted)
        query = {"from": start, "to": end, "only": only, "request": receipt["request_id"]}
        return to(url_of("/ui/schedule/backfill", id=name, **query))


def _add_edit(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    edits = Edits(registrar, client)

    @router.api_route("/ui/schedule/edit", methods=READ)
    async def edit_form(
        name: Name, window: Annotated[str, Query(max_length=100)] = "", epoch: Epoch = 0
    ) -> Response:
        if epoch:
            page = await edits.earlier(name, epoch)
        else:
            page = await (edits.suggestion(name, window) if window else edits.page(name))
        return await _shown(registrar, "edit", name, it=page, problem=page.problem)

    @router.post("/ui/schedule/edit")
    async def edit(request: Request, name: Name) -> Response:
        fields = await form_fields(request)
        text, etag = fields.get("definition", ""), fields.get("etag", "")
        page, _ = await edits.plan(name, text, etag)
        is_saved = page.problem is None and fields.get("do") == "save"
        if is_saved and fields.get("planned") != page.planned:
            page = page._replace(notice=UNPLANNED)
        elif is_saved:
            earlier = await edits.save(name, text, etag)
            undo = None if earlier is None else str(earlier)
            return to(url_of("/ui/schedule", id=name, done="edited", undo=undo))
        return await _shown(registrar, "edit", name, it=page, problem=page.problem)


def add_workers(router: APIRouter, registrar: Registrar, client: LocalClient) -> None:
    """Add the routes of workers and their drains."""

    async def read() -> WorkersPage:
        return workers_page(await registrar.catalog.query.leases(), registrar.now())

    @router.api_route("/ui/workers", methods=READ)
    async def workers() -> Response:
        return await rendered("workers.html", registrar.now(), it=await read())

    @router.api_route("/ui/workers/drain", methods=READ)
    async def confirm_drain(owner: Annotated[str, Query(alias="id")]) -> Response:
        page = await read()
        row = next((each for each in page.rows if each.owner == owner), None)
        if row is None:
            raise UnknownWorkerError(worker=owner)
        others = sum(each.state in RECEIVING for each in page.rows if each.owner != owner)
        return await rendered("drain.html", registrar.now(), it=row, others=others)

    @router.post("/ui/workers/drain")
    async def drain(request: Request, owner: Annotated[str, Query(alias="id")]) -> Response:
        fields = await form_fields(request)
        await client.drain(owner, fields.get("drain") == "yes")
        return to("/ui/workers")


def undo_of(name: str, done: str, epoch: int) -> str | None:
    """Return the page that undoes an action, or None."""
    if done not in UNDO or (done == "edited" and not epoch):
        return None
    return url_of(UNDO[done], id=name, epoch=str(epoch) if done == "edited" else None)


async def _progress(
    registrar: Registrar, name: str, request: str, interval: tuple[EpochSeconds, EpochSeconds]
) -> BackfillProgress:
    """Return how far the runs of a request are, read from the newest runs before its end."""
    start, end = interval
    with unknown_as_schedule():
        runs = await registrar.catalog.query.runs(name, before=end, limit=MAX_RUNS)

    def is_of_request(run: RunRecord) -> bool:
        # The run of a period that had no record is the period's own.
        is_own = run.kind is RunKind.PERIOD and run.reason is Reason.ASKED
        return run.nominal_time >= start and (is_own or run.key in keys_of(name, request, [run.nominal_time]))

    own = [run for run in runs if is_of_request(run)]
    failed = sum(run.status.value == "FAILED" and not run.is_open for run in own)
    return BackfillProgress(len(own), sum(not run.is_open for run in own), failed)


async def _shown(registrar: Registrar, action: str, name: str, **values: object) -> Response:
    """Return the page of an action; a problem makes it an error."""
    with unknown_as_schedule():
        job = (await registrar.catalog.query.find(name)).job
    known: dict[str, object] = {
        "name": name,
        "stopped": stopped_words(job),
        "zone": zone_of_job(job),
        "timezone": zone_of_job(job).key,
        "applied_set": job.applied_set,
        "problem": None,
        "effect": None,
        "progress": None,
    }
    code = 400 if values.get("problem") else 200
    return await rendered(f"{action}.html", registrar.now(), code, **{**known, **values})
