"""Routes for operators: health, metrics, the log level, and workers."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict

from kron.fronts.service.api.models import DrainRequest, model_of
from kron.fronts.service.client import LocalClient
from kron.fronts.service.responses import Liveness, Readiness, WorkerList, WorkerView
from kron.telemetry.log_format import log_level as present_level
from kron.telemetry.metrics import Metrics

READINESS = model_of(Readiness)


class LogLevel(BaseModel):
    """The log level."""

    model_config = ConfigDict(extra="forbid")

    level: Literal["debug", "info", "warning", "error"]


def admin_routes(metrics: Metrics, set_level: Callable[[str], None]) -> APIRouter:
    """Return the routes of the metrics and of the log level, which `set_level` changes."""
    router = metrics_routes(metrics)

    @router.get("/admin/log-level", response_model=LogLevel)
    async def log_level() -> dict[str, str]:
        """Return the log level."""
        return {"level": present_level()}

    @router.put("/admin/log-level", response_model=LogLevel)
    async def change_log_level(document: LogLevel) -> dict[str, str]:
        """Change the log level until the process ends."""
        set_level(document.level)
        return {"level": present_level()}

    return router


def metrics_routes(source: Metrics) -> APIRouter:
    """Return the route of the metrics."""
    router = APIRouter(tags=["operation"])

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return the metrics in the Prometheus format."""
        return Response(await source.scrape(), media_type=CONTENT_TYPE_LATEST)

    return router


def health_routes(client: LocalClient) -> APIRouter:
    """Return the routes of the liveness and readiness probes."""
    router = APIRouter(tags=["health"])

    @router.get("/healthz", response_model=model_of(Liveness))
    async def healthz() -> Liveness:
        """Report that the process is alive."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=READINESS, responses={503: {"model": READINESS}})
    async def readyz(response: Response) -> Readiness:
        """Report whether the store is usable and the worker is running or on standby."""
        document = await client.health()
        if document["status"] != "ok":
            response.status_code = HTTPStatus.SERVICE_UNAVAILABLE
        return document

    return router


def worker_routes(client: LocalClient) -> APIRouter:
    """Return the routes of workers, which serve every tenant."""
    router = APIRouter(tags=["operation"])

    @router.get("/workers", response_model=model_of(WorkerList))
    async def workers() -> WorkerList:
        """List the workers with the shards they hold."""
        return await client.workers()

    @router.post("/workers/drain", response_model=model_of(WorkerView))
    async def drain(document: DrainRequest) -> WorkerView:
        """Ask a worker to start nothing more and to hand over its shards, or to work again."""
        return await client.drain(document.worker, document.drain)

    return router
