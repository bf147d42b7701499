"""Calls of blocking functions in a bounded pool of threads.

No thread can be interrupted. A call that is cancelled before it has a thread never runs; one that runs is
requested to end, and it lasts until its function returns. `cancel_requested` is how a function learns of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from inspect import iscoroutine

from kron.core.errors import InvalidOptionError
from kron.ports import Clock

# As many as APScheduler's pool has; each waits for a database or a network most of the time.
MAX_THREADS = 10
EXITED = "the function exited: SystemExit({!r})"
_log = logging.getLogger("kron.launchers")


class CancelRequest:
    """Whether the end of a call is requested, and whether its function has asked."""

    def __init__(self, pool: "CallThreads") -> None:
        self.pool = pool
        self.is_made = False
        self.is_noticed = False

    def check(self) -> bool:
        """Return whether the end is requested, and note that the function knows."""
        self.is_noticed = self.is_noticed or self.is_made
        return self.is_made


# The request of the call in whose context code runs; None outside of a thread of the pool.
_REQUEST: "ContextVar[CancelRequest | None]" = ContextVar("kron cancel request", default=None)


def cancel_requested() -> bool:
    """Return whether the running blocking function is to end, because of its timeout or its policy.

    A long function may check it between two steps and return: its run is then recorded as cancelled. Outside
    of such a function it returns False.
    """
    request = _REQUEST.get()
    return request is not None and request.check()


class CallThreads:
    """A pool of threads; time that a simulated clock shows does not pass while one of them works."""

    def __init__(self, clock: Clock, max_threads: int = MAX_THREADS) -> None:
        if max_threads < 1:
            raise InvalidOptionError(option="max_threads", value=max_threads, reason="must be at least 1")
        self._clock = clock
        self.max_threads = max_threads
        self._pool: ThreadPoolExecutor | None = None

    def is_inside(self) -> bool:
        """Return whether the caller is one of the functions that this pool called."""
        request = _REQUEST.get()
        return request is not None and request.pool is self

    async def call(self, name: str, work: Callable[[], object]) -> None:
        """Call a function in a thread and return when it has ended, or raise its exception."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.max_threads, "kron-call")
        request = CancelRequest(self)
        context = copy_context()
        context.run(_REQUEST.set, request)
        with self._clock.working():
            submitted = self._pool.submit(context.run, partial(_called, work))
            await _ended(submitted, request, name)
        if request.is_noticed:
            raise asyncio.CancelledError
        submitted.result()

    def close(self) -> None:
        """Release the threads; calls that have none yet never run."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


async def _ended(submitted: "Future[None]", request: CancelRequest, name: str) -> None:
    """Wait for the end of a call, whatever is requested before it."""
    future = asyncio.wrap_future(submitted)
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            if submitted.cancel():
                raise
            request.is_made = True
            _log.warning("job %r is to end; its function runs in a thread, and ends when it returns", name)
    if not future.cancelled():
        # Marked as retrieved: the caller takes the exception from the future of the thread.
        future.exception()


async def without_exit(work: Awaitable[object]) -> None:
    """Await a function; an exit ends its run, not the thread of the event loop."""
    try:
        await work
    except SystemExit as cause:
        raise RuntimeError(EXITED.format(cause.code)) from cause


def _called(work: Callable[[], object]) -> None:
    """Call a function; an exit ends its run, not the program, and a coroutine is a mistake."""
    try:
        result = work()
    except SystemExit as cause:
        raise RuntimeError(EXITED.format(cause.code)) from cause
    if iscoroutine(result):
        result.close()
        raise TypeError("the function returned a coroutine that nothing awaits; define it with async def")
