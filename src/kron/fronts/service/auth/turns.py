"""Turns of callers: of requests that need much memory, each caller has a few at once, and some more wait."""

import asyncio
from collections import Counter

from fastapi import HTTPException

# The requests of one caller at once, and those that may wait.
AT_ONCE, MAX_WAITING = 2, 20


class CallerTurns:
    """Turns of each caller for one kind of request: `kind` completes "20 requests of this caller ..."."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._turns: dict[str, asyncio.Semaphore] = {}
        # The requests of each caller that have a turn or wait for one.
        self._counts: Counter[str] = Counter()

    async def take(self, caller: str) -> None:
        """Wait for a turn of a caller, or raise HTTPException if as many wait as may."""
        if self._counts[caller] >= AT_ONCE + MAX_WAITING:
            detail = f"{MAX_WAITING} requests of this caller {self._kind} wait"
            raise HTTPException(503, detail, headers={"Retry-After": "1"})
        self._counts[caller] += 1
        try:
            await self._turns.setdefault(caller, asyncio.Semaphore(AT_ONCE)).acquire()
        except BaseException:
            self._forget(caller)
            raise

    def give_back(self, caller: str) -> None:
        """End a turn."""
        self._turns[caller].release()
        self._forget(caller)

    def _forget(self, caller: str) -> None:
        self._counts[caller] -= 1
        if not self._counts[caller]:
            del self._counts[caller], self._turns[caller]
