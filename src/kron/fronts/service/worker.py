"""The worker: an engine over the service's schedules that waits its turn, works, and hands over."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta

from kron.core.errors import KronError, OwnedError, StoreError
from kron.core.turn import Limits
from kron.fronts.service.launching import launchers_of
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.settings import Settings
from kron.fronts.service.sight.trail import request_of
from kron.launchers.callback import CallbackLauncher
from kron.launchers.workflow import Function
from kron.ports import Clock, Journal, Launcher, Store, WorkflowStore
from kron.runtime.engine import Engine
from kron.runtime.health import Health
from kron.runtime.journal import LogJournal

_log = logging.getLogger("kron.service")
# What puts a clock beside a launcher of a kind.
Timed = Callable[[str, Launcher], Launcher]
# States from which an engine does not come back by itself.
OVER = ("lost", "failed", "stopped", "killed")


class WorkerFailedError(KronError):
    """The engine came to an end by a mistake of Kron's own."""

    code = "worker_failed"


class Worker:
    """Looks after the schedules whenever nobody else does.

    `callbacks` are functions by schedule, `functions` those an executor of the kind `callback` names.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        workflows: WorkflowStore | None = None,
        journal: Journal | None = None,
        timed: Timed = lambda _, launcher: launcher,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._journal = journal or LogJournal()
        self._calls = CallbackLauncher(clock)
        self.callbacks = self._calls.callbacks
        self.functions: dict[str, Function] = {}
        launchers = launchers_of(
            clock,
            settings,
            calls=self._calls,
            workflows=workflows,
            functions=self.functions,
            request_of=request_of(store),
        )
        self._launchers: Mapping[str, Launcher] = {
            kind: timed(kind, launcher) for kind, launcher in launchers.items()
        }
        self._engine = self._new_engine()
        self._leaving = asyncio.Event()

    def _new_engine(self) -> Engine:
        owner = f"{socket.gethostname()}:{os.getpid()}"
        engine = Engine(
            self._store,
            self._clock,
            self._launchers,
            namespace=NAMESPACE,
            owner=owner,
            journal=self._journal,
        )
        engine.limits = Limits(self._settings.lookahead_ms, self._settings.max_catchup_per_tick)
        return engine

    @property
    def health(self) -> Health:
        """Return how the present engine is doing."""
        return self._engine.health

    @property
    def state(self) -> str:
        """Return how the worker is doing: `waiting` for its turn, or what its engine says."""
        state = self._engine.health.state
        return "waiting" if state in ("stopped", "lost", "killed") else state

    @property
    def error(self) -> str | None:
        """Return what is wrong, if anything is."""
        return self._engine.health.error

    def call(self) -> None:
        """Have the engine look again at once: something changed."""
        self._engine.call()

    def leave(self) -> None:
        """Have the worker stop; `run` returns when it has."""
        self._leaving.set()

    async def run(self) -> None:
        """Work until told to leave: take over when it is possible, and look for changes every tick."""
        try:
            while not self._leaving.is_set():
                if await self._took_over():
                    await self._work()
                else:
                    await self._tick()
        finally:
            await self._stop()

    async def _took_over(self) -> bool:
        try:
            await self._engine.own()
        except OwnedError:
            return False
        except StoreError as error:
            self._engine.health.degrade(error)
            _log.warning("the store cannot be used: %s", error)
            return False
        _log.info("looking after the schedules")
        return True

    async def _work(self) -> None:
        """Look after the schedules until told to leave, or until somebody else does."""
        self._engine.run()
        while not self._leaving.is_set():
            await self._tick()
            if self._engine.health.state == "failed":
                raise WorkerFailedError(f"The engine failed: {self._engine.health.error}")
            if self._engine.health.state in OVER:
                _log.warning("no longer looking after the schedules: %s", self._engine.health.error)
                self._engine = self._new_engine()
                return
            self._engine.call()

    async def _tick(self) -> None:
        """Wait for a tick, or until told to leave."""
        tick = asyncio.create_task(
            self._clock.sleep_until(self._clock.now() + timedelta(milliseconds=self._settings.tick_ms))
        )
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait([tick, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            tick.cancel()
            leaving.cancel()

    async def _stop(self) -> None:
        """Wait for what runs, but not for ever; what still runs then is left for the next owner to find."""
        if self._engine.health.state == "failed":
            self._engine.kill()
            await self._break_off()
            return
        try:
            async with asyncio.timeout(self._settings.drain_ms / 1000):
                await self._engine.stop()
        except TimeoutError:
            _log.warning("handing over what is still under way")
            await self._break_off()
            await self._engine.stop()

    async def _break_off(self) -> None:
        for launcher in self._launchers.values():
            await launcher.close(wait=False)
