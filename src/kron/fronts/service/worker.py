"""The worker: an engine over the service's schedules that waits its turn, works, and hands over."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from uuid import uuid4

from kron.core.errors import KronError, OwnedError, StoreError
from kron.core.plan.step import MILLISECOND, Limits
from kron.core.time.instant import EPOCH
from kron.fronts.service.launchers import launchers_of
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.settings import SHARED, Settings
from kron.launchers.callback import CallbackLauncher
from kron.launchers.workflow import Function
from kron.ports import Clock, Journal, Launcher, News, Store, WorkflowStore
from kron.runtime.engine import Engine
from kron.runtime.health import Health
from kron.runtime.journal import LogJournal
from kron.runtime.wakeup import first_of

_log = logging.getLogger("kron.service")
# What puts a clock beside a launcher of a kind.
Timed = Callable[[str, Launcher], Launcher]
# States from which an engine does not come back by itself.
OVER = ("lost", "failed", "stopped", "killed")
# How long the leases may take to be handed back when nothing is waited for any more, in seconds.
HANDOVER_S = 5


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
        )
        self._launchers: Mapping[str, Launcher] = {
            kind: timed(kind, launcher) for kind, launcher in launchers.items()
        }
        self._engine = self._new_engine()
        self._is_leaving = False
        self._stands_by = False
        # Set when there is something to look at before the tick is over.
        self._called = asyncio.Event()
        self._watch = store.watch(NAMESPACE, self._called.set)

    def _new_engine(self) -> Engine:
        # Machines may have one name, and processes in containers one number.
        owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        engine = Engine(
            self._store,
            self._clock,
            self._launchers,
            namespace=NAMESPACE,
            owner=owner,
            journal=self._journal,
            balance=self._settings.workers == SHARED,
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
        self._is_leaving = True
        self._called.set()

    async def run(self) -> None:
        """Work until told to leave: take over when it is possible, and look for changes every tick."""
        try:
            while not self._is_leaving:
                if await self._took_over():
                    await self._work()
                else:
                    await self._wait_for_turn()
        finally:
            await self._watch.close()
            await self._stop()

    async def _took_over(self) -> bool:
        try:
            with self._clock.working():
                await self._engine.acquire()
        except OwnedError:
            self._engine.health.stand_by()
            if not self._stands_by:
                _log.info("standing by: another worker looks after the schedules")
            self._stands_by = True
            return False
        except StoreError as error:
            self._engine.health.degrade(error)
            _log.warning("cannot look after the schedules: %s", error)
            return False
        self._stands_by = False
        _log.info("looking after the schedules")
        return True

    async def _wait_for_turn(self) -> None:
        """Wait for a tick, or until somebody lets go of what it looked after."""
        until, is_over = self._tick_end(), False
        while not (self._is_leaving or (await self._look()).leases or is_over):
            is_over = await self._pass(until)

    async def _work(self) -> None:
        """Look after the schedules until told to leave, or until somebody else does."""
        self._engine.run()
        while not self._is_leaving:
            news = await self._look()
            if self._engine.health.state == "failed":
                raise WorkerFailedError(f"The engine failed: {self._engine.health.error}")
            if self._engine.health.state in OVER:
                _log.warning("no longer looking after the schedules: %s", self._engine.health.error)
                self._engine = self._new_engine()
                return
            if news.jobs:
                self._engine.call()
            if news.leases:
                self._engine.renew_soon()
            await self._pass(self._tick_end())

    async def _look(self) -> News:
        """Return what others changed; when nobody can tell, the engine has to look."""
        with self._clock.working():
            try:
                return await self._watch.look()
            except StoreError:
                return News(jobs=True)

    async def _pass(self, until: int) -> bool:
        """Wait until an instant, or until called; say whether the instant has come."""
        await first_of(self._clock, self._called, until)
        is_over = not self._called.is_set()
        self._called.clear()
        return is_over

    def _tick_end(self) -> int:
        return (self._clock.now() - EPOCH) // MILLISECOND + self._settings.tick_ms

    async def _stop(self) -> None:
        """Wait for what runs, but not for ever; what still runs then is left for the next owner to find."""
        if self._engine.health.state == "failed":
            self._engine.kill()
            await self._break_off()
            return
        if not await self._stopped_within(self._settings.drain_ms / 1000):
            _log.warning("handing over what is still under way")
            await self._break_off()
            if not await self._stopped_within(HANDOVER_S):
                _log.warning("the store cannot be used: others take over when the lease has ended")
                self._engine.kill()

    async def _stopped_within(self, seconds: float) -> bool:
        """Stop the engine, and say whether that was possible in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._engine.stop()
        except (TimeoutError, StoreError):
            return False
        return True

    async def _break_off(self) -> None:
        for launcher in self._launchers.values():
            await launcher.close(wait=False)
