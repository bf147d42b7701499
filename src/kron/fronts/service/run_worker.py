"""Running: the worker alone, until a signal says it is enough."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from kron.app.signals import on_reload, on_stop
from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.fronts.service.launchers import workflows_of
from kron.fronts.service.settings import Settings
from kron.fronts.service.telemetry.log_format import set_level
from kron.fronts.service.telemetry.metrics import Metrics
from kron.fronts.service.telemetry.worker_endpoint import watched
from kron.fronts.service.worker import ServiceWorker
from kron.stores.url import open_store, open_workflows, store_kind_of

Reread = Callable[[], Settings]
_log = logging.getLogger("kron.service")


def run_worker(settings: Settings, *, reread: Reread | None = None) -> None:
    """Work until SIGTERM or SIGINT; SIGHUP reads the settings again."""
    asyncio.run(_work(settings, reread))


async def _work(settings: Settings, reread: Reread | None) -> None:
    clock = SystemClock()
    opened = open_store(settings.store_url, lease_ms=settings.lease_ms)
    panel = Metrics(opened, clock, kind=store_kind_of(settings.store_url))
    database = open_workflows(settings.store_url)
    workflows = workflows_of(settings, database)
    worker = ServiceWorker(panel.store, clock, settings, workflows=workflows, journal=panel, wrap=panel.timed)
    panel.look_at(worker)
    on_stop(worker.leave)
    reload_log_level(reread)
    try:
        async with watched(panel, worker, settings):
            await worker.run()
    finally:
        await database.close()
        await panel.store.close()


def reload_log_level(reread: Reread | None) -> None:
    """Read the settings again at SIGHUP; the log level is the one that can change while the process runs."""
    if reread is not None:
        on_reload(partial(_reload, reread))


def _reload(reread: Reread) -> None:
    try:
        set_level(reread().log_level)
    except InputError as error:
        _log.warning("settings not reloaded: %s", error)
