"""The HTTP application: the API and the pages behind their middleware."""

from collections.abc import Callable

from fastapi import APIRouter, Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from kron.core.errors import KronError
from kron.fronts.service.api import problem
from kron.fronts.service.api.admin import admin_routes, health_routes, worker_routes
from kron.fronts.service.api.audit import audit_routes
from kron.fronts.service.api.dags import dag_routes
from kron.fronts.service.api.definitions import definition_routes
from kron.fronts.service.api.description import ApiDescription
from kron.fronts.service.api.middleware import HttpMeter, RequestMiddleware, refuse_unknown
from kron.fronts.service.api.runs import run_routes
from kron.fronts.service.api.schedules import schedule_routes
from kron.fronts.service.api.workflows import workflow_routes
from kron.fronts.service.auth.middleware import (
    Authenticator,
    AuthMiddleware,
    RateLimit,
    SitePolicy,
    check_routes,
    methods_of,
)
from kron.fronts.service.auth.principal import current_request_id
from kron.fronts.service.client import LocalClient, WorkerStatus, no_worker
from kron.fronts.service.dags import TenantDags
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.run_launcher import RunLauncher
from kron.fronts.service.settings import Settings
from kron.fronts.service.web.live import LiveUpdates
from kron.fronts.service.web.login import login_routes
from kron.fronts.service.web.pages import page_routes
from kron.fronts.service.web.render import for_browsers
from kron.stores.url import store_kind_of
from kron.telemetry.log_format import set_log_level
from kron.telemetry.metrics import Metrics

# The answers to errors, by the nearest class of an error.
ANSWERS: tuple[tuple[type[Exception], Callable[[Request, Exception], JSONResponse]], ...] = (
    (KronError, problem.of_error),
    (RequestValidationError, problem.of_validation),
    (HTTPException, problem.of_http),
    (ClientDisconnect, problem.of_disconnect),
    (Exception, problem.of_mistake),
)
# Authentication is off.
NO_AUTHENTICATION = Authenticator(None, is_open=True)


def app_of(
    registrar: Registrar,
    settings: Settings,
    *,
    authenticator: Authenticator = NO_AUTHENTICATION,
    worker_status: WorkerStatus = no_worker,
    launcher: RunLauncher | None = None,
    metrics: Metrics | None = None,
    set_level: Callable[[str], None] = set_log_level,
) -> FastAPI:
    """Return the application over a registrar and, where there is one, a run launcher."""
    metrics = metrics or Metrics(
        registrar.whole,
        registrar.clock,
        namespace=NAMESPACE,
        kind=store_kind_of(settings.store_url),
        current_request=current_request_id,
    )
    app = FastAPI(
        title="Kron",
        summary="Schedules over HTTP, with an explanation of every outcome.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(refuse_unknown)],
    )
    _add_middleware(app, settings, authenticator, metrics, registrar)
    for kind, answer in ANSWERS:
        app.add_exception_handler(kind, for_browsers(app, answer))
    client = LocalClient(registrar, settings, worker_status=worker_status)
    description = ApiDescription(app)
    api = _api_of(client, settings, metrics, set_level, workflow_routes(registrar, settings, launcher))
    if registrar.dags is not None:
        api.append(dag_routes(TenantDags(registrar.dags, registrar), settings.max_page))
    app.state.live = LiveUpdates(registrar.whole.version)
    pages = [login_routes(authenticator), page_routes(registrar, client, app.state.live, description)]
    for router in (*api, *pages):
        app.include_router(router)
    app.state.api_paths = [path for router in api for _, path in methods_of(router.routes)]
    check_routes(app.routes)
    return app


def _api_of(
    client: LocalClient,
    settings: Settings,
    metrics: Metrics,
    set_level: Callable[[str], None],
    workflows: APIRouter,
) -> list[APIRouter]:
    """Return the routes of the API, without those of DAGs."""
    return [
        schedule_routes(client, settings.max_page),
        definition_routes(client, settings.max_page),
        run_routes(client, settings.max_page),
        workflows,
        health_routes(client),
        admin_routes(metrics, set_level),
        audit_routes(client, settings.max_page),
        worker_routes(client),
    ]


def _add_middleware(
    app: FastAPI, settings: Settings, authenticator: Authenticator, metrics: Metrics, registrar: Registrar
) -> None:
    """Add the middleware, the innermost first: authentication, meters, request limits."""
    # Where routes parse large bodies.
    app.state.compute_pool = registrar.compute_pool
    rate_limit = RateLimit(settings.requests_per_s, registrar.clock)
    refuse = for_browsers(app, problem.of_refusal)
    sites = SitePolicy(is_open=authenticator.is_open, host=settings.host, trusted=settings.trusted_hosts)
    app.add_middleware(
        AuthMiddleware, authenticator=authenticator, admit=rate_limit.admit, answer=refuse, sites=sites
    )
    app.add_middleware(HttpMeter, requests=metrics.requests, clock=metrics.clock)
    limits = {"max_body": settings.max_body, "patience_s": settings.patience_s}
    app.add_middleware(RequestMiddleware, **limits, clock=metrics.clock)
