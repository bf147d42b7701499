"""Working and resting: a simulated clock stands still while the engine works."""

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta

from kron.core.instant import EPOCH
from kron.ports import Clock


@dataclass(slots=True)
class Work:
    """What is held of a clock while the engine works."""

    clock: Clock
    _held: AbstractContextManager[None] | None = None

    @property
    def is_on(self) -> bool:
        """Say whether the engine works."""
        return self._held is not None

    def begin(self) -> None:
        """Begin, if nobody has."""
        if self._held is None:
            self._held = self.clock.working()
            self._held.__enter__()

    def end(self) -> bool:
        """End; say whether there was work to end."""
        held, self._held = self._held, None
        if held is None:
            return False
        held.__exit__(None, None, None)
        return True


async def rest(clock: Clock, called: asyncio.Event, wake_at: int | None) -> None:
    """Sleep until an instant, in milliseconds, or until called."""
    waiting: set[asyncio.Task[object]] = {asyncio.create_task(called.wait())}
    if wake_at is not None:
        instant = EPOCH + timedelta(milliseconds=wake_at)
        waiting.add(asyncio.create_task(clock.sleep_until(instant)))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
