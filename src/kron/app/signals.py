"""Signals of a process that runs a worker: SIGTERM and SIGINT stop it, SIGHUP reloads its settings."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Shells report a process that a signal ended with this added to the signal's number.
SIGNALLED = 128
_log = logging.getLogger("kron.worker")


def on_stop(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, _stop, number, stop)


def _stop(number: signal.Signals, stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    _log.info("%s: stopping", number.name)
    for each in STOP_SIGNALS:
        loop.remove_signal_handler(each)
    stop()


def on_reload(reload: Callable[[], None]) -> None:
    """Call `reload` at every SIGHUP."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


@contextmanager
def exiting_at_once() -> Iterator[None]:
    """End the process at the first SIGTERM or SIGINT, without any cleanup."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, os._exit, SIGNALLED + number)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)
