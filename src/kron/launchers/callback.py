"""Executions that are calls of an async function in this program."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from inspect import CORO_CREATED, getcoroutinestate
from typing import TypeAlias

from kron.core.errors import InvalidOptionError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunEvent, Traits
from kron.launchers.lease import may_begin
from kron.launchers.report import report_of
from kron.ports import Clock, Launch, ReportSink

_log = logging.getLogger("kron.launchers")

CANCELLED = "CancelledError: the call was cancelled"
Callback: TypeAlias = Callable[[Launch], Awaitable[object]]
Pick: TypeAlias = Callable[[Launch], Callback | None]


class CallbackLauncher:
    """Calls functions by the job's identity. They die with the program, so none can be adopted.

    With `max_calls` at most so many run at once; the others wait in order. With `pick` it says itself which
    function is called. `cancelled` is what a call that is cancelled came to.
    """

    traits = Traits(reports=True, idempotent=False)

    def __init__(
        self,
        clock: Clock,
        *,
        max_calls: int | None = None,
        pick: Pick | None = None,
        cancelled: RunEvent = RunEvent.CANCELLED,
    ) -> None:
        if max_calls is not None and max_calls < 1:
            raise InvalidOptionError(option="max_calls", value=max_calls, reason="must be at least 1")
        self._clock = clock
        self._cancelled = cancelled
        self._room = None if max_calls is None else asyncio.Semaphore(max_calls)
        self._calls: dict[tuple[str, int], tuple[asyncio.Task[None], Launch, ReportSink]] = {}
        self.callbacks: dict[str, Callback] = {}
        self._pick = pick or (lambda launch: self.callbacks.get(launch.job.identity))

    @property
    def busy(self) -> bool:
        """Say whether calls are under way."""
        return bool(self._calls)

    def is_inside(self) -> bool:
        """Say whether whoever asks is one of the calls under way."""
        asking = asyncio.current_task()
        return any(task is asking for task, _, _ in self._calls.values())

    def knows(self, launch: Launch) -> bool:
        """Say whether there is a function for a launch."""
        return self._pick(launch) is not None

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Call the job's function in a task of its own."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._call(launch, hear), name=f"kron {launch.job.identity}")
        self._calls[launch.run.key, launch.run.attempt] = task, launch, hear

    async def _call(self, launch: Launch, hear: ReportSink) -> None:
        """Call the function and report how that ended; all in one piece, for a burst calls many."""
        # What leaves neither a result nor an error, such as SystemExit, has ended all the same.
        happened, error = RunEvent.FAILED, "the call was broken off"
        has_room = False
        try:
            if self._room is not None:
                has_room = await self._room.acquire()
            if launch.lease_status is not None and not await may_begin(self._clock, launch):
                # Whoever looks after it now calls its function, and hears how that ends.
                self._forgets(launch)
                return
            callback = self._pick(launch)
            if callback is None:
                happened, error = RunEvent.LAUNCH_FAILED, "no function is registered for the job"
            else:
                await callback(launch)
                happened, error = RunEvent.SUCCESS, ""
        except asyncio.CancelledError:
            happened, error = self._broken_off(launch)
        except Exception as cause:  # noqa: BLE001 - whatever a callback raises is a failed execution
            run = launch.run
            _log.exception("job %r failed (attempt %d of %s)", run.identity, run.attempt, run.key)
            error = f"{type(cause).__name__}: {cause}"
        finally:
            if has_room and self._room is not None:
                self._room.release()
            self._tell(launch, hear, happened, error)

    def _broken_off(self, launch: Launch) -> tuple[RunEvent, str]:
        """Return what a cancellation comes to: of the call itself, or of something it waited for."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return RunEvent.FAILED, "CancelledError: something the function waited for was cancelled"
        if self._cancelled is RunEvent.CANCELLED:
            return RunEvent.CANCELLED, ""
        _log.error("job %r failed: %s", launch.job.identity, CANCELLED)
        return self._cancelled, CANCELLED

    def _tell(self, launch: Launch, hear: ReportSink, happened: RunEvent, error: str) -> None:
        """Report an end, once."""
        if self._forgets(launch):
            hear(report_of(self._clock, launch.run, happened, error or None))

    def _forgets(self, launch: Launch) -> bool:
        """Forget a call, and say whether it was known; another of the same key may have come since."""
        attempt = (launch.run.key, launch.run.attempt)
        found = self._calls.get(attempt)
        if found is None or found[1] is not launch:
            return False
        del self._calls[attempt]
        return True

    def end(self, run: RunRecord) -> None:
        """Cancel the call."""
        found = self._calls.get((run.key, run.attempt))
        if found is not None:
            self._cancel(*found)

    def _cancel(self, task: asyncio.Task[None], launch: Launch, hear: ReportSink) -> None:
        work = task.get_coro()
        task.cancel()
        if isinstance(work, Coroutine) and getcoroutinestate(work) == CORO_CREATED:
            # A task that is cancelled before its first step never takes one, so it cannot report.
            self._tell(launch, hear, RunEvent.CANCELLED, "")

    def cancel(self) -> None:
        """Cancel every call without waiting for any; none of them has failed by that."""
        self._cancelled = RunEvent.CANCELLED
        for call in list(self._calls.values()):
            self._cancel(*call)

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Find nothing: what was called in another program is gone."""
        return frozenset()

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the calls under way, or cancel them."""
        while self._calls:
            calls = list(self._calls.values())
            if not wait:
                self.cancel()
            await asyncio.wait([task for task, _, _ in calls])
