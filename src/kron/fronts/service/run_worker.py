"""Running: the worker alone, until a signal says it is enough."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from kron.app.signals import on_reload, on_stop
from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.fronts.service.auth.principal import present_request
from kron.fronts.service.launchers import workflows_of
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.settings import Settings
from kron.fronts.service.settings_view import secrets_of
from kron.fronts.service.telemetry.worker_endpoint import watched
from kron.fronts.service.worker import ServiceWorker
from kron.ports import Clock, Store
from kron.stores.url import open_store, open_workflows, store_kind_of
from kron.telemetry.log_format import set_log_level, start_logging
from kron.telemetry.metrics import Metrics

Reread = Callable[[], Settings]
_log = logging.getLogger("kron.service")


def run_worker(settings: Settings, *, reread: Reread | None = None) -> None:
    """Work until SIGTERM or SIGINT; SIGHUP reads the settings again."""
    asyncio.run(_work(settings, reread))


async def _work(settings: Settings, reread: Reread | None) -> None:
    clock = SystemClock()
    opened = open_store(settings.store_url, lease_ms=settings.lease_ms)
    panel = metrics_of(settings, opened, clock)
    database = open_workflows(settings.store_url)
    workflows = workflows_of(settings, database)
    worker = ServiceWorker(
        panel.store, clock, settings, workflows=workflows, journal=panel, wrap=panel.measured
    )
    panel.observe(worker)
    on_stop(worker.leave)
    reload_log_level(reread)
    try:
        async with watched(panel, worker, settings):
            await worker.run()
    finally:
        await database.close()
        await panel.store.close()


def begin_logging(settings: Settings) -> None:
    """Log to standard error, with the level and format of the settings, without their secrets."""
    start_logging(
        level=settings.log_level,
        log_format=settings.log_format,
        secrets=secrets_of(settings),
        current_request=present_request,
    )


def metrics_of(settings: Settings, store: Store, clock: Clock) -> Metrics:
    """Return the metrics of a process of the service."""
    kind = store_kind_of(settings.store_url)
    return Metrics(store, clock, namespace=NAMESPACE, kind=kind, current_request=present_request)


def reload_log_level(reread: Reread | None) -> None:
    """Read the settings again at SIGHUP; the log level is the one that can change while the process runs."""
    if reread is not None:
        on_reload(partial(_reload, reread))


def _reload(reread: Reread) -> None:
    try:
        set_log_level(reread().log_level)
    except InputError as error:
        _log.warning("settings not reloaded: %s", error)
