"""Routes for operators: the metrics, and how much is logged."""

from typing import Literal

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict

from kron.fronts.service.telemetry.log_format import present_level, set_level
from kron.fronts.service.telemetry.metrics import Metrics


class LogLevel(BaseModel):
    """How much is logged."""

    model_config = ConfigDict(extra="forbid")

    level: Literal["debug", "info", "warning", "error"]


def panel_routes(panel: Metrics) -> APIRouter:
    """Return the routes of a panel."""
    router = metrics_routes(panel)

    @router.get("/admin/log-level", response_model=LogLevel)
    async def log_level() -> dict[str, str]:
        """Say how much is logged."""
        return {"level": present_level()}

    @router.put("/admin/log-level", response_model=LogLevel)
    async def change_log_level(document: LogLevel) -> dict[str, str]:
        """Log more or less from now on, until the process ends."""
        set_level(document.level)
        return {"level": present_level()}

    return router


def metrics_routes(panel: Metrics) -> APIRouter:
    """Return the route of the metrics."""
    router = APIRouter(tags=["operation"])

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Show everything that is counted, as Prometheus reads it."""
        return Response(await panel.scrape(), media_type=CONTENT_TYPE_LATEST)

    return router
