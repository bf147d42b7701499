"""The API: routes, errors, limits and OpenAPI put together."""

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

from kron.core.errors import KronError
from kron.fronts.service import problem
from kron.fronts.service.desk import Ask, OwnDesk
from kron.fronts.service.edge import Edge
from kron.fronts.service.model import Health
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.run_launcher import RunLauncher
from kron.fronts.service.run_route import run_routes
from kron.fronts.service.schedule_route import schedule_routes
from kron.fronts.service.settings import Settings
from kron.fronts.service.view import Document
from kron.fronts.service.web.error import for_browsers
from kron.fronts.service.web.route import page_routes
from kron.fronts.service.workflow_route import workflow_routes


def api_of(
    registrar: Registrar,
    settings: Settings,
    *,
    ask_worker: Ask = lambda: (None, None),
    launcher: RunLauncher | None = None,
) -> FastAPI:
    """Return the API over a registrar, and over a run launcher if there is one."""
    summary = "Schedules that say why."
    app = FastAPI(title="Kron", summary=summary, redirect_slashes=False, docs_url=None, redoc_url=None)
    app.add_middleware(Edge, max_body=settings.max_body)
    for kind, answer in (
        (KronError, problem.of_error),
        (RequestValidationError, problem.of_validation),
        (HTTPException, problem.of_http),
        (Exception, problem.of_mistake),
    ):
        app.add_exception_handler(kind, for_browsers(app, answer))
    desk = OwnDesk(registrar, settings, ask_worker=ask_worker)
    app.include_router(schedule_routes(desk, settings.max_page))
    app.include_router(run_routes(desk, settings.max_page))
    app.include_router(workflow_routes(registrar, settings, launcher))
    app.include_router(_health_routes(desk))
    app.include_router(page_routes(registrar, app))
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    return app


def _health_routes(desk: OwnDesk) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get("/healthz", response_model=Health, response_model_exclude_none=True)
    async def healthz() -> Document:
        """Say that the process answers."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=Health, responses={503: {"model": Health}})
    async def readyz(response: Response) -> Document:
        """Say whether the store can be used and the worker works, or waits for its turn."""
        document = await desk.health()
        if document["status"] != "ok":
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return document

    return router


def _described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document: every error is a problem document, and none is a 422."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        content = {problem.MEDIA_TYPE: {"schema": {"type": "object"}, "example": problem.EXAMPLE}}
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "A problem", "content": content}
        app.openapi_schema = document
    return app.openapi_schema
