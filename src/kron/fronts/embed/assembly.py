"""The parts of an embedded front: a store, a catalog, a callback launcher and a worker, for one namespace."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from kron.app.catalog import Catalog
from kron.app.worker import NoticeSender, Worker, WorkerOptions
from kron.clocks.system import SystemClock
from kron.core.errors import InvalidOptionError, StoreError
from kron.core.fields import identity_fault
from kron.core.plan.step import DEFAULT_LIMITS, Limits
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.fronts.embed.store_source import State
from kron.launchers.callback import CallbackLauncher
from kron.ports import Clock, Journal, Store
from kron.runtime.engine import Engine

# How long a stop waits for the store after the last callback has ended, in seconds of the host's clock.
STORE_TIMEOUT_S = 30


class Wiring:
    """A store, a catalog, a launcher and a worker for one namespace; they are rebuilt after every stop."""

    def __init__(
        self, state: State, clock: Clock | None, *, kind: str, name: str, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        if fault := identity_fault(name):
            raise InvalidOptionError(option="name", value=name, reason=fault)
        self.clock: Clock = SystemClock() if clock is None else clock
        self.namespace = f"{kind}:{name}"
        # Made at the first initialization. It owns the lease whose tokens are stored with every start, so
        # a run in flight that has the token of another owner is an orphan.
        self.identifier: str | None = None
        self.store_timeout_s: float = STORE_TIMEOUT_S
        self._state = state
        self._limits = limits
        self._assembled = self._is_up = False
        self.store: Store
        self.worker: Worker
        self.catalog: Catalog
        self.launcher = CallbackLauncher(self.clock)

    @property
    def engine(self) -> Engine:
        """Return the worker's engine."""
        return self.worker.engine

    def assemble(
        self,
        journal: Journal,
        launcher: CallbackLauncher,
        *,
        sender: Callable[[Store, Journal], NoticeSender] | None = None,
    ) -> None:
        """Build the parts; no file or connection is opened yet. `sender` makes the one of notifications."""
        self.identifier = self.identifier or uuid4().hex
        self.store = self._state.open()
        self.launcher = launcher
        self.worker = Worker(
            self.store,
            self.clock,
            {"callback": self.launcher},
            namespace=self.namespace,
            options=WorkerOptions(owner=self.identifier, limits=self._limits),
            journal=journal,
            sender=None if sender is None else sender(self.store, journal),
        )
        engine = self.engine
        self.catalog = Catalog(self.store, self.namespace, now=engine.now, wake=engine.call)
        self._assembled = self._is_up = True

    def now(self) -> int:
        """Return the engine's time, which never decreases; before the first engine, the clock's."""
        return self.engine.now() if self._assembled else (self.clock.now() - EPOCH) // MILLISECOND

    @property
    def clock_behind(self) -> timedelta:
        """Return how far the clock is behind the latest recorded instant, zero within a minute."""
        behind_ms = self.engine.health.clock_behind_ms if self._assembled else 0
        return timedelta(milliseconds=behind_ms)

    async def give_up(self) -> None:
        """Release the lease and close the store after a failed start, if there is anything to release."""
        if self._is_up:
            self._is_up = False
            try:
                await self.worker.stop()
            finally:
                await self._state.close()

    async def close(self) -> None:
        """Stop the worker and close the store, whatever fails on the way."""
        self._is_up = False
        is_timed = isinstance(self.clock, SystemClock)
        try:
            await (self._stop_in_time() if is_timed else self.worker.stop())
        except asyncio.CancelledError:
            self.crash()
            raise
        finally:
            with self.clock.working():
                await asyncio.wait_for(self._state.close(), self.store_timeout_s if is_timed else None)

    async def _stop_in_time(self) -> None:
        """Stop the worker; when the calls have ended, the store has a limited time to record that."""
        stopping = asyncio.create_task(self.worker.stop(), name="kron stop worker")
        try:
            while not stopping.done():
                await self.launcher.close()
                await asyncio.wait([stopping], timeout=self.store_timeout_s)
                if not (stopping.done() or self.launcher.busy):
                    raise StoreError(
                        f"The store did not record the last ends within {self.store_timeout_s:g} s, so their "
                        f"tasks start again: {self.worker.error or 'it does not answer'}"
                    )
            stopping.result()
        finally:
            if not stopping.done():
                stopping.cancel()
                self.worker.kill()

    def crash(self) -> None:
        """Drop everything without writing, as the death of the process would."""
        self._assembled = self._is_up = False
        self.worker.kill()
        self.launcher.cancel()
        self._state.abandon()
