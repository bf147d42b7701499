"""Running: the worker alone, until a signal says it is enough."""

import asyncio
import logging
import signal
from collections.abc import Callable

from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.fronts.service.launchers import workflows_of
from kron.fronts.service.settings import Settings
from kron.fronts.service.telemetry.log_format import set_level
from kron.fronts.service.telemetry.metrics import Metrics
from kron.fronts.service.telemetry.worker_endpoint import watched
from kron.fronts.service.worker import Worker
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
    worker = Worker(panel.store, clock, settings, workflows=workflows, journal=panel, timed=panel.timed)
    panel.look_at(worker)
    on_signals(worker.leave)
    on_hang_up(reread)
    try:
        async with watched(panel, worker, settings):
            await worker.run()
    finally:
        await database.close()
        await panel.store.close()


def on_hang_up(reread: Reread | None) -> None:
    """Read the settings again at SIGHUP; of them the level of the log can change while the process runs."""
    if reread is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _look_again, reread)


def _look_again(reread: Reread) -> None:
    try:
        set_level(reread().log_level)
    except InputError as error:
        _log.warning("the settings are left as they were: %s", error)


def on_signals(call: Callable[[], None]) -> None:
    """Call when the process is asked to end; asked again, it ends at once."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _heed, number, call)


def _heed(number: signal.Signals, call: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    _log.info("%s: stopping", number.name)
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(each)
    call()
