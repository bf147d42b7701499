"""Running: the worker alone, until a signal says it is enough."""

import asyncio
import logging
import signal
from collections.abc import Callable

from kron.clocks.system import SystemClock
from kron.fronts.service.launching import workflows_of
from kron.fronts.service.settings import Settings
from kron.fronts.service.worker import Worker
from kron.stores.url import open_store, open_workflows

_log = logging.getLogger("kron.service")


def run_worker(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT."""
    asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    store, clock = open_store(settings.store), SystemClock()
    database = open_workflows(settings.store)
    worker = Worker(store, clock, settings, workflows=workflows_of(settings, database))
    on_signals(worker.leave)
    try:
        await worker.run()
    finally:
        await database.close()
        await store.close()


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
