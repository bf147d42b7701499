"""Routes of DAG runs: start, catch up, list, inspect, cancel and retry; there where the service runs DAGs."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from kron.app.dag.orchestrator import run_receipt
from kron.app.dag.trigger import CatchupTriggerRequest, checked_slots
from kron.app.dag.view import attempt_view, run_view, state_view, summary_view
from kron.core.dag.contract import StartRunResult
from kron.core.dag.record import DagRunStatus
from kron.core.time.instant import instant_text
from kron.fronts.service.api.middleware import JsonRoute
from kron.fronts.service.api.models import RequestBody, model_of, up_to
from kron.fronts.service.dags import MAX_SLOTS, TenantDags
from kron.fronts.service.responses import (
    DagAttempts,
    DagCatchupReceipt,
    DagPauseReceipt,
    DagRunPage,
    DagRunReceipt,
    DagStateView,
    DagSummaryPage,
)

DEFAULT_PAGE = 100
Status = Annotated[DagRunStatus | None, Query(description="only runs with this status")]


class DagRunRequest(RequestBody):
    """A run to start; without a version it is of the latest published one."""

    logical_date: str = Field(examples=["2026-06-01T00:00:00Z"])
    version: int | None = None
    input: dict[str, Any] = Field(default_factory=dict)
    rerun_key: str | None = Field(default=None, description="starts another run of the same logical date")


class DagCatchupRequest(RequestBody):
    """A range of slots, both ends included; those that have a run keep it."""

    range_start_logical_date: str = Field(examples=["2026-06-01"])
    range_end_logical_date: str = Field(examples=["2026-06-01T23:00:00Z"])
    slot_interval_ms: int = Field(examples=[3_600_000])
    max_slots: int = Field(default=MAX_SLOTS, le=MAX_SLOTS)
    version: int | None = None
    input: dict[str, Any] = Field(default_factory=dict)
    dry_run: bool = Field(default=False, description="list the slots, and start nothing")


class DagRetryRequest(RequestBody):
    """The tasks to run again with all that depend on them; without any, those that failed."""

    tasks: list[str] = Field(default_factory=list)


class DagPauseRequest(RequestBody):
    """Whether no further task of a DAG starts."""

    paused: bool


def dag_routes(dags: TenantDags, most: int) -> APIRouter:
    """Return the routes of DAG runs; `most` is the longest page."""
    router = APIRouter(tags=["dags"], route_class=JsonRoute)
    _add_starts(router, dags)
    _add_reads(router, dags, most)
    _add_changes(router, dags)
    return router


def _add_starts(router: APIRouter, dags: TenantDags) -> None:
    @router.post("/dags/{dag_id}/runs", response_model=model_of(DagRunReceipt))
    async def start(dag_id: str, document: DagRunRequest) -> DagRunReceipt:
        """Start the run of a logical date; the run that has its key is returned instead."""
        started = await dags.start(
            dag_id,
            version=document.version,
            logical_date=document.logical_date,
            input=document.input,
            rerun_key=document.rerun_key,
        )
        return _receipt(started)

    @router.post("/dags/{dag_id}/catchup", response_model=model_of(DagCatchupReceipt))
    async def catch_up(dag_id: str, document: DagCatchupRequest) -> DagCatchupReceipt:
        """Start a run for each slot of a range that has none; it may be repeated after an error."""
        request = CatchupTriggerRequest(
            dag_id=dag_id,
            range_start_logical_date=document.range_start_logical_date,
            range_end_logical_date=document.range_end_logical_date,
            slot_interval_ms=document.slot_interval_ms,
            max_slots=document.max_slots,
            version=document.version,
            input=document.input,
        )
        await dags.orchestrator.definition(dag_id, document.version)
        slots = checked_slots(request)
        started = [] if document.dry_run else await dags.catch_up(request)
        existing = await dags.orchestrator.slot_runs(dag_id, slots) if document.dry_run else []
        return {
            "requested_slot_count": len(slots),
            "slots": list(map(instant_text, slots)),
            "started_runs": [_receipt(each) for each in started],
            "existing_runs": [_receipt(run_receipt(each, created=False)) for each in existing],
            "dry_run": document.dry_run,
        }


def _receipt(started: StartRunResult) -> DagRunReceipt:
    return {
        "run_id": started.run_id,
        "run_key": started.run_key,
        "dag_id": started.dag_id,
        "version": started.version,
        "logical_date": started.logical_date,
        "status": started.status,
        "created": started.created,
    }


def _add_reads(router: APIRouter, dags: TenantDags, most: int) -> None:
    @router.get("/dags", response_model=model_of(DagSummaryPage))
    async def dags_by_name(
        limit: Annotated[int, up_to(most), Query(ge=1, le=most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> Any:
        """List the DAGs by name, with the number of their runs in each state."""
        summaries = await dags.summaries(after=cursor or "", limit=limit)
        following = summaries[-1].dag_id if len(summaries) == limit else None
        return {"dags": [summary_view(each) for each in summaries], "cursor": following}

    @router.get("/dags/{dag_id}/runs", response_model=model_of(DagRunPage))
    async def runs(
        dag_id: str,
        status: Status = None,
        limit: Annotated[int, up_to(most), Query(ge=1, le=most)] = min(DEFAULT_PAGE, most),
        cursor: str | None = None,
    ) -> Any:
        """List the runs of a DAG, latest first."""
        page = await dags.page(dag_id, status, cursor, limit)
        following = page[-1].run_id if len(page) == limit else None
        return {"runs": [run_view(run) for run in page], "cursor": following}

    @router.get("/dag-runs/{run_id}", response_model=model_of(DagStateView))
    async def run(run_id: str) -> Any:
        """Get a run with its tasks."""
        await dags.run(run_id)
        return state_view(await dags.orchestrator.state(run_id))

    @router.get("/dag-runs/{run_id}/attempts", response_model=model_of(DagAttempts))
    async def attempts(run_id: str, task_id: str | None = None) -> Any:
        """List the attempts of a run, or of one of its tasks, with their output."""
        await dags.run(run_id)
        return {"attempts": [attempt_view(each) for each in await dags.store.attempts(run_id, task_id)]}


def _add_changes(router: APIRouter, dags: TenantDags) -> None:
    @router.post("/dag-runs/{run_id}/cancel", response_model=model_of(DagStateView))
    async def cancel(run_id: str) -> Any:
        """Cancel a run: workers end its executing tasks, and no further task starts."""
        await dags.cancel(run_id)
        return state_view(await dags.orchestrator.state(run_id))

    @router.post("/dag-runs/{run_id}/retry", response_model=model_of(DagStateView))
    async def retry(run_id: str, document: DagRetryRequest) -> Any:
        """Run tasks of a run again with all that depend on them."""
        await dags.retry(run_id, document.tasks)
        return state_view(await dags.orchestrator.state(run_id))

    @router.post("/dags/{dag_id}/pause", response_model=model_of(DagPauseReceipt))
    async def pause(dag_id: str, document: DagPauseRequest) -> DagPauseReceipt:
        """Pause a DAG, or resume it: no further task of a paused one starts."""
        await dags.pause(dag_id, paused=document.paused)
        return {"dag_id": dag_id, "paused": document.paused}
