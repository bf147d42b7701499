"""The pace of a loop: it looks again at an instant, or when it is called; after a failure not before."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

from kron.core.time.instant import EPOCH
from kron.ports import Clock


class Wakeup:
    """When a loop looks again, and whether it is at work; a simulated clock stands still while it is."""

    def __init__(self, clock: Clock, rested: Callable[[], None]) -> None:
        self._clock = clock
        # Called whenever work ends.
        self._rested = rested
        self._called = asyncio.Event()
        self._hurried = asyncio.Event()
        self._is_pausing = False
        self._work: AbstractContextManager[None] | None = None

    @property
    def is_working(self) -> bool:
        """Say whether the loop is at work."""
        return self._work is not None

    @property
    def is_called(self) -> bool:
        """Say whether the loop will look again at once in any case."""
        return self._called.is_set()

    def call(self, *, is_running: bool) -> None:
        """Have the loop look again at once; one that pauses does so when its pause is over."""
        if is_running and not self._is_pausing:
            self.begin_work()
        self._called.set()

    def hurry(self, *, is_running: bool) -> None:
        """Have the loop look again at once, also when it pauses."""
        self._is_pausing = False
        self._hurried.set()
        self.call(is_running=is_running)

    def look(self) -> None:
        """Begin to look: whoever calls from now on is heard afterwards."""
        self.begin_work()
        self._called.clear()

    def look_again(self) -> None:
        """Have the next wait end at once."""
        self._called.set()

    async def wait(self, wake_at: int | None) -> None:
        """Sleep until an instant, in milliseconds, or until called."""
        if not self._called.is_set():
            self.end_work()
        await first_of(self._clock, self._called, wake_at)

    async def pause(self, until: int) -> None:
        """Sleep until an instant, whoever calls, unless there is a hurry."""
        self._is_pausing = not self._hurried.is_set()
        if self._is_pausing:
            self.end_work()
        await first_of(self._clock, self._hurried, until)
        self._is_pausing = False
        self._hurried.clear()

    def begin_work(self) -> None:
        """Hold the clock, if it can be held."""
        if self._work is None:
            self._work = self._clock.working()
            self._work.__enter__()

    def end_work(self) -> None:
        """Let the clock go on."""
        work, self._work = self._work, None
        if work is not None:
            work.__exit__(None, None, None)
            self._rested()


async def first_of(clock: Clock, event: asyncio.Event, instant: int | None) -> None:
    """Wait for an event or an instant, in milliseconds, whichever comes first."""
    waiting: set[asyncio.Task[object]] = {asyncio.create_task(event.wait())}
    if instant is not None:
        waiting.add(asyncio.create_task(clock.sleep_until(EPOCH + timedelta(milliseconds=instant))))
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
