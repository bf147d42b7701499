"""Calls that may hang, made beside the event loop by a few threads that keep nobody from leaving."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import TypeAlias

_Call: TypeAlias = tuple[Future[None], Callable[[], None]]


class DaemonThreads:
    """Makes calls in at most so many threads, begun when they are needed.

    A call that is given up before its turn is never made; one under way cannot be stopped. Each thread calls
    `leave` as it ends.
    """

    def __init__(self, most: int, *, name: str, leave: Callable[[], None] = lambda: None) -> None:
        self._most = most
        self._name = name
        self._leave = leave
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._threads: list[Thread] = []

    async def call(self, function: Callable[[], None]) -> None:
        """Make a call and wait for its end; what it raises is raised here."""
        future: Future[None] = Future()
        self._calls.put((future, function))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            # A program that ends does not wait for a thread of this kind.
            work = partial(self._work, self._calls, self._idle)
            thread = Thread(target=work, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        await asyncio.wrap_future(future)

    def _work(self, calls: "SimpleQueue[_Call | None]", idle: Semaphore) -> None:
        while (call := calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    function()
                except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
                    future.set_exception(error)
                else:
                    future.set_result(None)
            # Nothing of a call is kept while the next one is waited for.
            del call, future, function
            idle.release()
        self._leave()

    def close(self) -> None:
        """Have the threads end when they have done what they do; later calls begin others."""
        for _ in self._threads:
            self._calls.put(None)
        self._calls, self._idle, self._threads = SimpleQueue(), Semaphore(0), []
