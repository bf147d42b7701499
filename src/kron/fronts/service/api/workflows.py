"""Routes of workflows: deploy a version, read it, start it."""

import re
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Response
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator

from kron.app.dag.secret import shown_dag
from kron.core.errors import ConflictError, Problem
from kron.core.fields import parse_instant
from kron.core.plan.report import DataInterval
from kron.core.time.instant import instant_text
from kron.core.workflow import InvalidWorkflowError, WorkflowRecord
from kron.fronts.service.api.middleware import JsonRoute
from kron.fronts.service.api.models import WORKFLOW_EXAMPLE, DagInput, StartRequest, model_of
from kron.fronts.service.auth.principal import default_owner
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.responses import (
    DeploymentReceipt,
    StartReceipt,
    WorkflowVersions,
    WorkflowVersionView,
    WorkflowView,
)
from kron.fronts.service.run_launcher import RunLauncher, WorkflowStart
from kron.fronts.service.settings import Settings
from kron.fronts.service.url import name_of
from kron.launchers.workflow import UnknownWorkflowError, find_workflow

Dag = Annotated[DagInput, Body(openapi_examples={"report": {"value": WORKFLOW_EXAMPLE}})]
UserId = Annotated[str | None, Query(description="the owner, unless the DAG has a `user_id`")]
DryRun = Annotated[bool, Query(description="report what would be written, without writing")]
Key = Annotated[str | None, Header(description="the key of the start, if the body has none")]
DEPLOYED = model_of(DeploymentReceipt)
# Only digits: the framework would take 1.0 for 1.
DIGITS = re.compile("-?[0-9]{1,19}")
PATH = "/workflows/{workflow_id}/versions/{version}"


def _digits(text: object) -> str:
    """Return the version in a path, or refuse anything but digits."""
    if not isinstance(text, str) or not DIGITS.fullmatch(text):
        raise ValueError("must be a whole number, in digits")
    return text


Version = Annotated[int, BeforeValidator(_digits)]


def workflow_routes(registrar: Registrar, settings: Settings, launcher: RunLauncher | None) -> APIRouter:
    """Return the routes of workflows."""
    router = APIRouter(tags=["workflows"], route_class=JsonRoute)
    _add_deployment(router, registrar)
    _add_reads(router, registrar, settings.max_page)
    _add_start(router, launcher)
    return router


def _add_deployment(router: APIRouter, registrar: Registrar) -> None:
    @router.put(PATH, response_model=DEPLOYED, responses={201: {"model": DEPLOYED}})
    async def deploy(
        workflow_id: str,
        version: Version,
        dag: Dag,
        response: Response,
        user_id: UserId = None,
        dry_run: DryRun = False,
    ) -> DeploymentReceipt:
        """Store an immutable version of a workflow, and upsert the schedules of its triggers."""
        name = name_of(workflow_id)
        owner = _owner_of(name, dag, user_id) or default_owner()
        deployed = await registrar.deploy_workflow(name, version, dag, user_id=owner, dry_run=dry_run)
        if deployed["new"] and not dry_run:
            response.status_code = HTTPStatus.CREATED
        return deployed


def _owner_of(name: str, dag: dict[str, Any], user_id: str | None) -> object:
    owner: object = dag.get("user_id")
    if owner is not None and user_id not in (None, owner):
        problem = Problem("user_id", owner, "differs from the query parameter user_id")
        raise InvalidWorkflowError(workflow_id=name, problems=[problem])
    return user_id if owner is None else owner


def _add_reads(router: APIRouter, registrar: Registrar, most: int) -> None:
    @router.get(PATH, response_model=model_of(WorkflowView))
    async def get(workflow_id: str, version: Version) -> Response:
        """Get a version of a workflow with its DAG."""
        record = await find_workflow(registrar.workflows, name_of(workflow_id), version)
        return await registrar.compute_pool.run(_answer, record, registrar.rules.runs_dags)

    @router.get("/workflows/{workflow_id}", response_model=model_of(WorkflowVersions))
    async def versions(
        workflow_id: str, limit: Annotated[int, Query(ge=1, le=most)] = min(100, most)
    ) -> WorkflowVersions:
        """List the versions of a workflow, newest first."""
        name = name_of(workflow_id)
        stored = await registrar.workflow_versions(name, limit=limit)
        if not stored:
            raise UnknownWorkflowError(workflow_id=name)
        listed: list[WorkflowVersionView] = [
            {"version": each.version, "user_id": each.user_id, "created_at": instant_text(each.created_at)}
            for each in stored
        ]
        return {"workflow_id": name, "versions": listed}


def _answer(record: WorkflowRecord, runs_dags: bool) -> Response:
    """Return the response with a version, written here: the framework would do it on the event loop."""
    view: WorkflowView = {
        "workflow_id": record.workflow_id,
        "version": record.version,
        "user_id": record.user_id,
        "created_at": instant_text(record.created_at),
        # Of executors other than Kron's own, it is not known what is secret.
        "dag": shown_dag(record.dag) if runs_dags else record.document(),
    }
    return JSONResponse(view)


def _add_start(router: APIRouter, launcher: RunLauncher | None) -> None:
    @router.post(
        "/run-launcher/start", status_code=HTTPStatus.ACCEPTED, response_model=model_of(StartReceipt)
    )
    async def start(document: StartRequest, idempotency_key: Key = None) -> StartReceipt:
        """Hand a version's DAG to the executor, once for each key; only a 2xx response is a start."""
        if launcher is None:
            raise ConflictError("This service has no run launcher")
        wanted = WorkflowStart(
            document.workflow_id,
            document.version,
            document.user_id,
            parse_instant(document.scheduled_for),
            document.idempotency_key or idempotency_key or "",
            document.identity,
            document.attempt,
            document.fencing_token,
            _interval_of(document),
        )
        launched = await launcher.launch(wanted)
        return {"accepted": True, "run_id": launched.run_id, "repeated": launched.repeated}


def _interval_of(document: StartRequest) -> DataInterval | None:
    """Return the data interval that a worker sends; a start without one has an empty interval."""
    start, end = document.data_interval_start, document.data_interval_end
    return None if start is None or end is None else DataInterval(parse_instant(start), parse_instant(end))
