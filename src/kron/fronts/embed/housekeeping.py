"""Housekeeping: follows the host's time zone, and notices when the event loop is closed without a stop."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from kron.clocks.system import SystemClock
from kron.core.errors import KronError
from kron.fronts.embed.event import LOGGER
from kron.ports import Clock

# A laptop that travels shows another zone within a minute. In virtual time the host does not travel.
CHECK_EVERY, CHECK_EVERY_VIRTUAL = timedelta(minutes=1), timedelta(hours=12)


class Housekeeping:
    """A background task of the event loop; `check` is called from time to time."""

    def __init__(self, clock: Clock, *, check: Callable[[], Awaitable[object]] | None = None) -> None:
        self._clock = clock
        self._check = check
        self._task: asyncio.Task[None] | None = None

    def start(self, when_closed: Callable[[], None]) -> None:
        """Start; `when_closed` is called if the event loop is closed before `end`."""
        self._task = asyncio.create_task(self._work(when_closed), name="kron housekeeping")

    def end(self) -> None:
        """Cancel the task."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _work(self, when_closed: Callable[[], None]) -> None:
        virtual = self._check is None or not isinstance(self._clock, SystemClock)
        every = CHECK_EVERY_VIRTUAL if virtual else CHECK_EVERY
        try:
            while True:
                if self._check is not None:
                    await self._try(self._check)
                await self._clock.sleep_until(self._clock.now() + every)
        except asyncio.CancelledError:
            if self._task is not None:
                when_closed()
            raise

    async def _try(self, check: Callable[[], Awaitable[object]]) -> None:
        try:
            await check()
        except KronError as error:
            LOGGER.warning("housekeeping failed, next attempt later: %s", error)
