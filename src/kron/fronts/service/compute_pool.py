"""The compute pool: a few threads beside the event loop compute answers, one per tenant at a time."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from kron.core.errors import KronError
from kron.fronts.service.auth.principal import current_caller

# Threads that compute at once; more would only share one interpreter.
THREADS = 2
# Answers of one tenant that may wait.
MAX_WAITING = 20
# How long a thread that computes keeps the interpreter while the event loop or a store thread waits for it.
# A request changes between these a dozen times: with the default of 5 ms it would take a tenth of a second.
SWITCH_S = 0.0001

P = ParamSpec("P")
T = TypeVar("T")


class OverloadedError(KronError):
    """The service has too much to do for a caller; a retry after `wait_s` seconds can succeed."""

    code = "overloaded"

    def __init__(self, message: str, *, wait_s: int = 1) -> None:
        super().__init__(message, wait_s=wait_s)
        self.wait_s = wait_s


def yield_quickly() -> None:
    """Let threads that compute answers give way to the event loop quickly, in the whole process."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))


class ComputePool:
    """Computes answers in threads. A tenant has one turn at a time, so others wait for one of its answers."""

    def __init__(self, *, threads: int = THREADS, max_waiting: int = MAX_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, "kron-answer")
        self._free = asyncio.Semaphore(threads)
        self._max_waiting = max_waiting
        self._waiting: Counter[str] = Counter()
        self._turns: dict[str, asyncio.Lock] = {}

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work`, or raise OverloadedError if the caller's queue is full."""
        if self._waiting[current_caller().name] >= self._max_waiting:
            raise OverloadedError(f"{self._max_waiting} requests of this caller are being computed already")
        return await self.run_always(work, *args, **kwargs)

    async def run_always(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of `work`, for a request that has written something already."""
        tenant = current_caller().name
        self._waiting[tenant] += 1
        try:
            async with self._turns.setdefault(tenant, asyncio.Lock()), self._free:
                context = copy_context()
                answer = partial(work, *args, **kwargs)
                return await asyncio.wrap_future(self._pool.submit(context.run, answer))
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant], self._turns[tenant]
