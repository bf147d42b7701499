"""Watching a worker alone: its metrics and its health over HTTP, and nothing else."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from kron.app.worker import Worker
from kron.fronts.service.api.admin import health_routes, metrics_routes
from kron.fronts.service.client import LocalClient
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.settings import Settings
from kron.fronts.service.telemetry.server import address_of, listen, server_of
from kron.telemetry.metrics import Metrics

_log = logging.getLogger("kron.service")


@asynccontextmanager
async def watched(panel: Metrics, worker: Worker, settings: Settings) -> AsyncIterator[None]:
    """Show a worker while it works, if the settings say where."""
    if settings.metrics_port is None:
        yield
        return
    app = FastAPI(title="Kron worker", openapi_url=None, redirect_slashes=False)
    app.include_router(metrics_routes(panel))
    desk = LocalClient(
        Registrar(panel.store, panel.clock), settings, ask_worker=lambda: (worker.state, worker.error)
    )
    app.include_router(health_routes(desk))
    with listen(settings.metrics_host, settings.metrics_port) as listening:
        server = server_of(app)
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="kron metrics")
        _log.info("metrics on %s/metrics", address_of(settings.metrics_host, listening))
        try:
            yield
        finally:
            server.should_exit = True
            await serving
