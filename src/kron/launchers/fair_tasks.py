"""Tasks that tenants share: requests beside the starts, each tenant's in turn and within limits."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeAlias

from kron.launchers.fair_queue import FairQueue, Share

Work: TypeAlias = Callable[[], Coroutine[None, None, None]]


class FairTasks:
    """Runs each piece of work in a task once it has a slot of its tenant and its target."""

    def __init__(self, *, most: int, per_tenant: int, per_target: int, reserved: int) -> None:
        self._queue: FairQueue[Work] = FairQueue(
            most=most, per_tenant=per_tenant, per_target=per_target, reserved=reserved
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Work, share: Share) -> None:
        """Run a piece of work in its turn."""
        self._queue.put(work, share)
        self._admit()

    def _admit(self) -> None:
        while (taken := self._queue.take()) is not None:
            work, share = taken
            task = asyncio.create_task(work())
            self._tasks.add(task)
            task.add_done_callback(partial(self._free, share))

    def _free(self, share: Share, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._queue.release(share)
        self._admit()

    def cancel(self) -> None:
        """Cancel what runs, and drop what waits."""
        self._queue.clear()
        for task in self._tasks:
            task.cancel()
