"""The caretaker: what has to be done now and then while tasks run, and when the event loop is closed."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

from kron.clocks.system import SystemClock
from kron.core.errors import KronError
from kron.fronts.embed.event import LOGGER
from kron.ports import Clock

# A laptop that travels shows another wall clock within a minute. In virtual time nobody travels that often.
LOOK_EVERY, LOOK_EVERY_VIRTUAL = timedelta(minutes=1), timedelta(hours=12)
CLEAN_EVERY = timedelta(days=1)


class Caretaker:
    """A task of the event loop that looks after the surroundings; without a loop nothing is looked after."""

    def __init__(
        self,
        clock: Clock,
        *,
        clean: Callable[[], Awaitable[object]],
        look: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._clock = clock
        self._look = look
        self._clean = clean
        self._task: asyncio.Task[None] | None = None

    def begin(self, when_closed: Callable[[], None]) -> None:
        """Begin; `when_closed` is called if the event loop is closed before anybody says stop."""
        self._task = asyncio.create_task(self._work(when_closed), name="kron caretaker")

    def end(self) -> None:
        """End."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    async def _work(self, when_closed: Callable[[], None]) -> None:
        virtual = self._look is None or not isinstance(self._clock, SystemClock)
        every = LOOK_EVERY_VIRTUAL if virtual else LOOK_EVERY
        clean_at = self._clock.now()
        try:
            while True:
                if self._clock.now() >= clean_at:
                    clean_at = self._clock.now() + CLEAN_EVERY
                    await self._try(self._clean)
                if self._look is not None:
                    await self._try(self._look)
                await self._clock.sleep_until(self._clock.now() + every)
        except asyncio.CancelledError:
            if self._task is not None:
                when_closed()
            raise

    async def _try(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except KronError as error:
            LOGGER.warning("housekeeping failed and is tried again: %s", error)
