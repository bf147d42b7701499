"""The one place where an embedded front gets its store, its launcher and its engine."""

import asyncio
from datetime import timedelta
from uuid import uuid4

from kron.clocks.system import SystemClock
from kron.core.errors import InvalidOptionError, OwnedError
from kron.core.identity import identity_fault
from kron.core.plan.step import MILLISECOND
from kron.core.time.instant import EPOCH
from kron.fronts.embed.store_source import State
from kron.launchers.callback import CallbackLauncher
from kron.ports import Clock, Journal, Store
from kron.runtime.engine import Engine

# How long whoever waits for another owner waits before asking again.
ASK_AGAIN = timedelta(seconds=1)
# History older than this is removed, so many records at a time.
KEPT = timedelta(days=90)
PRUNED_AT_ONCE = 1_000


class Wiring:
    """A store, a launcher and an engine, put together for one namespace; after a stop they are made anew."""

    def __init__(self, state: State, clock: Clock | None, *, kind: str, name: str) -> None:
        if fault := identity_fault(name):
            raise InvalidOptionError(option="name", value=name, reason=fault)
        self.clock: Clock = SystemClock() if clock is None else clock
        self.namespace = f"{kind}:{name}"
        # Whoever starts something under another identifier and does not end it has left an orphan.
        self.identifier = uuid4().hex
        self._state = state
        self._assembled = self._is_up = False
        self.store: Store
        self.engine: Engine
        self.launcher = CallbackLauncher(self.clock)

    def assemble(self, journal: Journal, launcher: CallbackLauncher) -> None:
        """Make the parts; nothing is opened yet."""
        self.store = self._state.open()
        self.launcher = launcher
        self.engine = Engine(
            self.store,
            self.clock,
            {"callback": self.launcher},
            namespace=self.namespace,
            owner=self.identifier,
            journal=journal,
        )
        self._assembled = self._is_up = True

    def now(self) -> int:
        """Return the engine's time, which never goes back; the clock's where there was no engine yet."""
        return self.engine.now() if self._assembled else (self.clock.now() - EPOCH) // MILLISECOND

    async def take_over(self, *, wait: bool) -> None:
        """Become the owner, or raise OwnedError; with `wait`, after whoever is the owner now."""
        while True:
            try:
                with self.clock.working():
                    await self.engine.acquire()
            except OwnedError:
                if not wait:
                    raise
                await self.clock.sleep_until(self.clock.now() + ASK_AGAIN)
            else:
                return

    async def prune(self) -> None:
        """Remove old history, a little at a time."""
        before = self.engine.now() - KEPT // MILLISECOND
        removed = PRUNED_AT_ONCE
        while removed == PRUNED_AT_ONCE:
            with self.clock.working():
                removed = await self.store.prune(self.namespace, before=before, limit=PRUNED_AT_ONCE)

    async def give_up(self) -> None:
        """Let go of what was taken over and opened, if anything was, after an attempt that failed."""
        if self._is_up:
            self._is_up = False
            try:
                await self.engine.stop()
            finally:
                await self._state.close()

    async def close(self) -> None:
        """Wait for what runs, note how it ended, and let go of everything, whatever fails on the way."""
        self._is_up = False
        try:
            await self.engine.stop()
        except asyncio.CancelledError:
            self.crash()
            raise
        finally:
            with self.clock.working():
                await self._state.close()

    def crash(self) -> None:
        """Drop everything without writing, as the death of the process would."""
        self._assembled = self._is_up = False
        self.engine.kill()
        self.launcher.cancel()
        self._state.abandon()
