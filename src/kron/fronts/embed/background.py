"""An event loop in a background thread, for programs that have none."""

import asyncio
import atexit
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import thread as pools
from contextlib import suppress
from functools import lru_cache
from weakref import WeakSet

_log = logging.getLogger("kron.runner")


class BackgroundThread:
    """Runs `start` in a thread with an event loop, keeps the loop running, and ends with `stop`.

    The thread ends with the program: at its end the program waits for `stop`, as it does for other threads.
    """

    def __init__(
        self, start: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]], *, name: str
    ) -> None:
        self._start = start
        self._stop = stop
        self._started: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Event | None = None
        self._is_ending = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; return when `start` has, or has called `stand_by`, or raise its exception."""
        _stop_all_at_exit()
        _LIVE.add(self)
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            # The caller has the exception; a later stop does not raise it again.
            self.request_stop()
            self._thread.join()
            self._error = None
            raise

    def stand_by(self) -> None:
        """Let the caller of `start` continue, although the start takes longer."""
        self._started.set_result(None)

    def stop(self) -> None:
        """Stop, wait for the end of the thread, and raise the exception that it ended with."""
        self.request_stop()
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def request_stop(self) -> None:
        """Let the thread end."""
        self._is_ending = True
        if self._loop is not None and self._ending is not None:
            with suppress(RuntimeError):  # The loop is closed already.
                self._loop.call_soon_threadsafe(self._ending.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - the thread that calls start() or stop() raises it
            self._error = error
            if self._started.done():
                _log.error("the runner's thread ended: %s: %s", type(error).__name__, error)
            else:
                self._started.set_exception(error)
        finally:
            _LIVE.discard(self)
            if not self._started.done():
                self._started.set_result(None)

    async def _live(self) -> None:
        self._loop, self._ending = asyncio.get_running_loop(), asyncio.Event()
        if self._is_ending:
            return
        starting = asyncio.ensure_future(self._start())
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            # It stands by for another process; there is nothing to stop yet.
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting
            return
        try:
            starting.result()
        except BaseException:
            ending.cancel()
            raise
        if not self._started.done():
            self._started.set_result(None)
        await ending
        await self._stop()


_LIVE: "WeakSet[BackgroundThread]" = WeakSet()


@lru_cache(maxsize=1)
def _stop_all_at_exit() -> None:
    """Register the stop of every runner at the end of the program, once.

    `atexit` is too late for it: a stop writes to the store, and by then no pool of threads accepts work. The
    functions of this registry run in reverse order, so before that of the pools.
    """
    assert pools is not None
    register: Callable[[Callable[[], None]], object]
    register = getattr(threading, "_register_atexit", atexit.register)
    register(_stop_all)


def _stop_all() -> None:
    for thread in list(_LIVE):
        try:
            thread.stop()
        except Exception:  # noqa: BLE001 - the others must stop too
            _log.exception("a runner could not be stopped at the end of the program")
