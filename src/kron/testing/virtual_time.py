"""Virtual time for the tests of a program: the jobs of its runner live through hours in milliseconds."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from kron.core.errors import ConflictError
from kron.fronts.embed.answer import Run
from kron.fronts.embed.runner import Done, Runner
from kron.stores.sqlite.store import SqliteStore
from kron.testing.clock import SimulatedClock

# A millisecond after midnight: no period of a schedule in whole seconds is due at the start.
START = datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
# More than a test lists.
MAX_RUNS = 10_000


class VirtualTime:
    """Runs the jobs of one runner on a simulated clock, with a state in memory of its own.

    Every method returns when its work is done in a test without an event loop; in an async test, await it.
    """

    def __init__(self) -> None:
        self.clock = SimulatedClock(START)
        self._runner: Runner | None = None
        self._rewired = ExitStack()
        # The event loop of a test that has none.
        self._private: asyncio.Runner | None = None

    @property
    def now(self) -> datetime:
        """Return the virtual time."""
        return self.clock.now()

    def start(self, runner: Runner, *, at: datetime | None = None) -> Awaitable[None]:
        """Start a runner at an instant of virtual time, by default just after midnight of 1 January 2026.

        The state of the runner is not touched. A period that is due at exactly `at` starts.
        """
        if self._runner is not None:
            raise ConflictError("A runner already runs in this virtual time; stop it first")
        self.clock = SimulatedClock(START if at is None else at)
        store = SqliteStore()
        self._rewired.callback(store.abandon)
        self._rewired.enter_context(runner._rewired(store, self.clock))
        self._runner = runner
        return self._do(self._start)

    async def _start(self) -> None:
        assert self._runner is not None
        try:
            await self._runner.start()
        except BaseException:
            self._runner = None
            self._rewired.close()
            raise

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> Awaitable[None]:
        """Let virtual time pass: each start happens at its time, and time waits for running threads."""
        passing = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self.advance_to(self.now + passing)

    def advance_to(self, instant: datetime) -> Awaitable[None]:
        """Let virtual time pass until an instant."""
        return self._do(lambda: self.clock.advance_to(instant))

    def runs(self, identity: str) -> list[Run]:
        """Return the runs of a job, newest first; an async test awaits `runner.runs(identity)` instead."""
        if self._runner is None:
            raise ConflictError("No runner runs in this virtual time; start one first")
        return self._runner.wait(self._runner.runs(identity, limit=MAX_RUNS))

    def stop(self) -> Awaitable[None]:
        """Stop the runner and give it its own state and clock back; the fixture does so after the test."""
        return self._do(self._stop)

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            try:
                await runner.stop()
            finally:
                self._rewired.close()

    def _do(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Awaitable[None]:
        """Return work for an event loop that runs, or do it now in a private one."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self._private is None:
                self._private = asyncio.Runner()
            self._private.run(work())
            return Done()
        return work()

    def close(self) -> None:
        """Stop, whichever event loop the test used."""
        if self._private is not None:
            try:
                self.stop()
            finally:
                self._private.close()
        elif self._runner is not None:
            # An async test that did not stop it; its event loop is closed, or ends its tasks when it is.
            with suppress(RuntimeError):
                self._runner._crash()
            self._rewired.close()
