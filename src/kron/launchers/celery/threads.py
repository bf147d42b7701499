"""Blocking calls in daemon threads that tenants share: each in turn, with limits per tenant and target."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from kron.launchers.fair_queue import FairQueue, Share


class _Call(NamedTuple):
    future: Future[None]
    function: Callable[[], None]
    share: Share
    # Set when a thread makes the call.
    begun: asyncio.Event


class FairThreads:
    """Makes blocking calls in threads, which never delay the exit of the process.

    A call that hangs takes a thread of its tenant and target until it returns, also after its caller gave it
    up; one that is given up before its turn is never made. Of every tenant one call has a thread whatever
    those of others do. Each thread calls `leave` when it ends.
    """

    def __init__(
        self,
        *,
        name: str,
        most: int,
        per_tenant: int,
        per_target: int,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._leave = leave
        self._queue: FairQueue[_Call] = FairQueue(
            most=most, per_tenant=per_tenant, per_target=per_target, reserved=1
        )
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = 0
        self._idle = 0

    async def call(
        self, function: Callable[[], None], share: Share, *, timeout_s: float | None = None
    ) -> None:
        """Make a call in its turn and wait for its end; its exceptions are raised here.

        The timeout begins with the turn: the calls of others before it are not its fault.
        """
        call = _Call(Future(), function, share, asyncio.Event())
        self._queue.put(call, share)
        self._admit()
        try:
            await call.begun.wait()
            async with asyncio.timeout(timeout_s):
                await asyncio.wrap_future(call.future)
        except asyncio.CancelledError:
            self._queue.discard(call, share)
            raise

    def _admit(self) -> None:
        """Give the calls whose turn it is to threads; new ones are started where none is idle."""
        while (taken := self._queue.take()) is not None:
            call, _ = taken
            call.begun.set()
            self._calls.put(call)
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                ended = partial(self._on_end, asyncio.get_running_loop(), self._calls)
                work = partial(self._work, self._calls, ended)
                threading.Thread(target=work, name=self._name, daemon=True).start()

    def _work(self, calls: "SimpleQueue[_Call | None]", ended: Callable[[Share], None]) -> None:
        while (call := calls.get()) is not None:
            future, function, share, _ = call
            if future.set_running_or_notify_cancel():
                try:
                    function()
                except BaseException as error:  # noqa: BLE001 - the caller gets it
                    future.set_exception(error)
                else:
                    future.set_result(None)
            # No reference to a call is kept while waiting for the next one.
            del call, future, function
            ended(share)
        self._leave()

    def _on_end(
        self, loop: asyncio.AbstractEventLoop, calls: "SimpleQueue[_Call | None]", share: Share
    ) -> None:
        # The loop may have ended before a call that was given up.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._free, calls, share)

    def _free(self, calls: "SimpleQueue[_Call | None]", share: Share) -> None:
        """Free the slot of a call that has returned; its thread is idle unless it was told to end."""
        self._queue.release(share)
        self._idle += calls is self._calls
        self._admit()

    def close(self) -> None:
        """End the threads after their present calls; later calls start new ones."""
        for _ in range(self._threads):
            self._calls.put(None)
        self._calls, self._threads, self._idle = SimpleQueue(), 0, 0
