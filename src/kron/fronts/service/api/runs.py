"""Routes of runs; each handler translates a request for the client."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query

from kron.core.plan.record import RunStatus
from kron.fronts.service.api.models import BackfillRequest, RunRequest, StatusRequest, model_of, up_to
from kron.fronts.service.client import DEFAULT_PAGE, BackfillRange, LocalClient, PageRequest
from kron.fronts.service.responses import (
    BackfillReceipt,
    PeriodRuns,
    RequestedRun,
    RunOutput,
    RunPage,
    RunView,
    WhyView,
)
from kron.fronts.service.runs import Feedback, OutputRequest
from kron.fronts.service.url import name_of

Changes = Annotated[
    Sequence[str],
    Query(
        alias="if", max_length=20, description="a changed field: `deadline=10m`, `overlap=allow`; repeatable"
    ),
]
IdempotencyKey = Annotated[str | None, Header(description="the request id, if the body has none")]


def run_routes(client: LocalClient, most: int) -> APIRouter:
    """Return the routes of runs; `most` is the longest page."""
    router = APIRouter(tags=["runs"])
    _add_writes(router, client)
    _add_reads(router, client, most)
    return router


def _add_writes(router: APIRouter, client: LocalClient) -> None:
    @router.post(
        "/schedules/{schedule_id}/run",
        status_code=HTTPStatus.ACCEPTED,
        response_model=model_of(RequestedRun),
    )
    async def run(
        schedule_id: str, document: RunRequest | None = None, idempotency_key: IdempotencyKey = None
    ) -> RequestedRun:
        """Run a schedule now, in addition to its periods; a repeated request runs once."""
        named = None if document is None else document.request_id
        request = idempotency_key if named is None else named
        return await client.run(name_of(schedule_id), request)

    @router.post(
        "/schedules/{schedule_id}/backfill",
        status_code=HTTPStatus.ACCEPTED,
        response_model=model_of(BackfillReceipt),
    )
    async def backfill(
        schedule_id: str, document: BackfillRequest, idempotency_key: IdempotencyKey = None
    ) -> BackfillReceipt:
        """Run past periods: those that never ran, those that failed, or all; a dry run only counts them."""
        request = idempotency_key if document.request_id is None else document.request_id
        periods = BackfillRange(document.start, document.end, document.only, document.dry_run, request)
        return await client.backfill(name_of(schedule_id), periods)

    @router.post("/runs/{idempotency_key}/status", response_model=model_of(RunView))
    async def status(idempotency_key: str, document: StatusRequest) -> RunView:
        """Record an executor's report; a late, repeated or contradictory one changes nothing."""
        feedback = Feedback(document.status, document.run_id, document.error, document.attempt)
        return await client.report(name_of(idempotency_key), feedback)


def _add_reads(router: APIRouter, client: LocalClient, most: int) -> None:
    @router.get("/schedules/{schedule_id}/runs", response_model=model_of(RunPage))
    async def runs(
        schedule_id: str,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> RunPage:
        """List the runs of a schedule, newest first."""
        return await client.runs(name_of(schedule_id), PageRequest(limit, cursor))

    @router.get("/runs", response_model=model_of(RunPage))
    async def all_runs(
        status: Annotated[str | None, Query(json_schema_extra={"enum": [*RunStatus, None]})] = None,
        limit: Annotated[int, up_to(most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> RunPage:
        """List the runs of all schedules, the latest first."""
        return await client.latest(status, PageRequest(limit, cursor))

    @router.get("/schedules/{schedule_id}/periods/{period_id}/runs", response_model=model_of(PeriodRuns))
    async def of_period(schedule_id: str, period_id: str) -> PeriodRuns:
        """List the runs of one period, its own and requested ones, with their earlier attempts."""
        return await client.period(name_of(schedule_id), name_of(period_id))

    @router.get("/schedules/{schedule_id}/output", response_model=model_of(RunOutput))
    async def output(
        schedule_id: str,
        period: Annotated[str | None, Query(description="the run of this period, not the latest")] = None,
        key: Annotated[str | None, Query(description="the run with this idempotency key")] = None,
        attempt: Annotated[int | None, Query(ge=1, description="this attempt, not the last")] = None,
        offset: Annotated[int, Query(ge=0, description="the bytes that the caller has")] = 0,
    ) -> RunOutput:
        """Return the output of a process, kept or as far as it is written: standard output and error."""
        return await client.logs(name_of(schedule_id), OutputRequest(period, key, attempt, offset))

    @router.get("/schedules/{schedule_id}/periods/{period_id}/why", response_model=model_of(WhyView))
    async def explain(schedule_id: str, period_id: str, changes: Changes = ()) -> WhyView:
        """Explain the outcome of a period, or its current state, and what another policy would have done."""
        return await client.why(name_of(schedule_id), name_of(period_id), changes)
