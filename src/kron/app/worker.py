"""The worker: one life cycle for every front. It stands by, takes over, runs, drains and hands over."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, partial
from typing import Protocol

from kron.app.retention import DEFAULT_POLICY, RetentionLoop, RetentionPolicy
from kron.clocks.system import SystemClock
from kron.core.errors import KronError, OwnedError, StoreError
from kron.core.job.notify import Notify
from kron.core.plan.step import DEFAULT_LIMITS, Limits
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.history_ports import HistoryPruner
from kron.ports import Clock, EngineStore, Journal, Launcher, News, Watch
from kron.runtime.clock_watch import sentence_of
from kron.runtime.engine import Engine
from kron.runtime.health import Health
from kron.runtime.journal import LogJournal
from kron.runtime.turns import TenantOf
from kron.runtime.wakeup import first_of

_log = logging.getLogger("kron.worker")
# States from which an engine does not recover.
OVER = ("lost", "failed", "stopped", "killed")
# How long a hand-over may take after the drain timeout, in seconds.
HANDOVER_S = 5


class WorkerFailedError(KronError):
    """The engine ended because of a bug of Kron."""

    code = "worker_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker behaves, whatever front runs it.

    `tick_ms` is how long a change by another process may stay unseen. With `balance` all workers of a
    namespace share its shards; without, one runs and the others stand by. `drain_ms` bounds how long a stop
    waits for running executions; None waits for all of them. `owner` is the name under which the lease is
    held; without one every engine makes a unique name. With `tenant_of` tenants take turns in a burst.
    """

    tick_ms: int = 1_000
    balance: bool = False
    drain_ms: int | None = None
    limits: Limits = DEFAULT_LIMITS
    retention: RetentionPolicy = DEFAULT_POLICY
    owner: str | None = None
    tenant_of: TenantOf | None = None


DEFAULT_OPTIONS = WorkerOptions()


class NoticeSender(Protocol):
    """Sends the notifications that an engine's decisions wrote; `default` holds for jobs that define none."""

    @property
    def default(self) -> Notify | None:
        """Return the notifications of jobs that define none."""

    def start(self, engine: Engine) -> None:
        """Send the notices of an engine's namespace until `stop`."""

    def call(self) -> None:
        """Look into the outbox now: a notice was written."""

    async def stop(self) -> None:
        """Send nothing more; unsent notices stay pending."""

    def kill(self) -> None:
        """Stop at once without writing anything, as a crash would."""


class Worker:
    """Runs the jobs of one namespace whenever it holds the lease.

    `run` is the whole life cycle, until `leave`. A front that runs its own steps uses `take_over`, `start`,
    `drain`, `stop` and `kill` instead.
    """

    def __init__(
        self,
        store: EngineStore,
        clock: Clock,
        launchers: Mapping[str, Launcher],
        *,
        namespace: str,
        options: WorkerOptions = DEFAULT_OPTIONS,
        journal: Journal | None = None,
        sender: NoticeSender | None = None,
    ) -> None:
        self.store = store
        # A second store with the records of the namespace, which is only pruned.
        self.copy: HistoryPruner | None = None
        self.clock = clock
        self.namespace = namespace
        self.options = options
        self._launchers = launchers
        self._journal = journal or LogJournal()
        self._sender = sender
        self._is_leaving = False
        self._stands_by = False
        # The error of the store that was logged last, while the lease cannot be acquired.
        self._refused: str | None = None
        self._is_drained = False
        # Whether something was changed through this process, which a watch does not notice.
        self._was_called = False
        # Set when there is news before the tick is over.
        self._called = asyncio.Event()
        self._retention: RetentionLoop | None = None
        self._pruning: asyncio.Task[None] | None = None
        self._copy_pruning: asyncio.Task[None] | None = None
        self.engine = self._new_engine()

    def _new_engine(self, owner: str | None = None) -> Engine:
        # Host names and process ids are not unique: containers share both.
        owner = owner or self.options.owner or f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"
        engine = Engine(
            self.store,
            self.clock,
            self._launchers,
            namespace=self.namespace,
            owner=owner,
            journal=self._journal,
            balance=self.options.balance,
        )
        engine.limits = self.options.limits._replace(tick_ms=self.options.tick_ms)
        engine.tenant_of = self.options.tenant_of
        # A simulated clock has no time in common with a database.
        engine.compares_clocks = isinstance(self.clock, SystemClock)
        if self._sender is not None:
            engine.notify, engine.on_notice = self._sender.default, self._sender.call
        return engine

    def use_sender(self, sender: NoticeSender) -> None:
        """Send the notifications of a running engine that had no sender."""
        assert self._sender is None, "one sender for all notifications"
        self._sender = sender
        self.engine.notify, self.engine.on_notice = sender.default, sender.call
        sender.start(self.engine)

    @property
    def has_sender(self) -> bool:
        """Say whether notifications are sent."""
        return self._sender is not None

    # --- health ------------------------------------------------------------------------------------

    @property
    def health(self) -> Health:
        """Return the health of the present engine."""
        return self.engine.health

    @property
    def state(self) -> str:
        """Return the state of the engine, or `drained` or `waiting` while the worker stands by."""
        state = self.engine.health.state
        if self._is_drained:
            return "draining" if state == "running" else "drained"
        return "waiting" if state in ("stopped", "lost", "killed") else state

    @property
    def error(self) -> str | None:
        """Return the present error, if there is one; a wrong clock is one."""
        health = self.engine.health
        return health.error or (sentence_of(health.clock_off_ms) if health.clock_off_ms else None)

    # --- steps -------------------------------------------------------------------------------------

    async def take_over(self, *, wait: bool = False) -> None:
        """Acquire the lease; while another worker holds it, raise OwnedError or, with `wait`, stand by."""
        while True:
            try:
                with self.clock.working():
                    await self.engine.acquire()
            except OwnedError:
                if not wait:
                    raise
                await self.clock.sleep_until(self.clock.now() + timedelta(milliseconds=self.options.tick_ms))
            else:
                return

    def start(self) -> None:
        """Run the engine, send its notifications, and prune its history from time to time."""
        self.engine.run()
        if self._sender is not None:
            self._sender.start(self.engine)
        loop = partial(
            RetentionLoop,
            self.store,
            self.clock,
            self.engine,
            namespace=self.namespace,
            policy=self.options.retention,
            journal=self._journal,
        )
        self._retention = loop()
        name = f"kron retention {self.namespace}"
        self._pruning = asyncio.create_task(self._retention.run(), name=name)
        if self.copy is not None:
            self._copy_pruning = asyncio.create_task(loop(copy=self.copy).run(), name=f"{name} copy")

    def drain(self) -> None:
        """Start no more executions; those running may end."""
        if self._retention is not None:
            self._retention.leave()
        self.engine.drain()

    async def stop(self) -> None:
        """Drain, wait for running executions within the drain timeout, and hand over the lease.

        Executions still running after that are left for the next owner to adopt.
        """
        await self._stop_pruning()
        try:
            await self._stop_engine()
        finally:
            # After the engine: the last ends are written, and the most urgent messages of them are sent.
            if self._sender is not None:
                await self._sender.stop()

    async def _stop_engine(self) -> None:
        if self.options.drain_ms is None:
            await self.engine.stop()
        elif self.engine.health.state == "failed":
            self.engine.kill()
            await self._abandon_runs()
        elif not await self._stopped_within(self.options.drain_ms / 1000):
            _log.warning("drain timeout: handing over the executions that are still running")
            await self._abandon_runs()
            if not await self._stopped_within(HANDOVER_S):
                _log.warning("the store cannot be used: another worker takes over when the lease expires")
                self.engine.kill()

    def kill(self) -> None:
        """Stop at once without writing anything, as a crash would."""
        for task in (self._pruning, self._copy_pruning):
            if task is not None:
                task.cancel()
        if self._sender is not None:
            self._sender.kill()
        self.engine.kill()

    def call(self, at: int | None = None) -> None:
        """Wake the engine: a job was changed, and nothing of it is due before `at`, None: now."""
        self._was_called = self._was_called or at is None
        self.engine.call(at)

    async def _stop_pruning(self) -> None:
        """Let the batch in progress end: it is short, and a cancelled one would cost its connection.

        No hand-over waits for the copy, whose store may hang while the worker's own answers.
        """
        if self._copy_pruning is not None:
            self._copy_pruning.cancel()
        if self._retention is not None and self._pruning is not None:
            self._retention.leave()
            await asyncio.wait([self._pruning])

    async def _stopped_within(self, seconds: float) -> bool:
        """Stop the engine, and say whether that succeeded in time."""
        try:
            async with asyncio.timeout(seconds):
                await self.engine.stop()
        except (TimeoutError, StoreError):
            return False
        return True

    async def _abandon_runs(self) -> None:
        await asyncio.gather(*(launcher.close(wait=False) for launcher in self._launchers.values()))

    # --- the whole life cycle ----------------------------------------------------------------------

    def leave(self) -> None:
        """Stop the worker; `run` returns once it has handed over."""
        self._is_leaving = True
        self._called.set()

    async def run(self) -> None:
        """Stand by, take over and run until `leave`; after a lost lease or a drain, stand by again."""
        try:
            while not self._is_leaving:
                if await self._is_asked_to_drain() or not await self._took_over():
                    await self._stand_by()
                elif not self._is_leaving:
                    await self._work()
        finally:
            await self._watch.close()
            await self.stop()

    @cached_property
    def _watch(self) -> Watch:
        return self.store.watch(self.namespace, self._called.set)

    async def _is_asked_to_drain(self) -> bool:
        """Say whether a person asked this worker to drain; while the store fails, the last answer holds."""
        self._was_called = False
        now = (self.clock.now() - EPOCH) // MILLISECOND
        with suppress(StoreError), self.clock.working():
            drained = await self.store.is_drained(self.namespace, self.engine.owner, now=now)
            if drained != self._is_drained:
                self._is_drained = drained
                _log.info(
                    "drained on request: nothing starts" if drained else "drain ended: running schedules"
                )
                self.on_drain(is_drained=drained)
        return self._is_drained

    def on_drain(self, *, is_drained: bool) -> None:
        """Stop other work of this worker too, or start it again; a front with such work overrides it."""

    async def _hand_over(self) -> None:
        """Hand over the lease as a person asked for, and keep the worker's name for the resume."""
        await self._stop_pruning()
        engine, drain_ms = self.engine, self.options.drain_ms
        most_s = None if drain_ms is None else drain_ms / 1000
        try:
            async with asyncio.timeout(None if most_s is None else most_s + HANDOVER_S):
                await engine.hand_over(most_s=most_s)
        except (TimeoutError, StoreError) as error:
            _log.warning("the lease expires instead of being handed over: %s", error)
            engine.kill()
        if self._sender is not None:
            await self._sender.stop()
        self.engine = self._new_engine(engine.owner)

    async def _took_over(self) -> bool:
        try:
            await self.take_over()
        except OwnedError:
            self.engine.health.stand_by()
            if not self._stands_by:
                _log.info("standing by: another worker holds the lease")
            self._stands_by = True
            return False
        except StoreError as error:
            self.engine.health.degrade(error)
            if self._refused != str(error):
                # Tried again every second: an outage of an hour is not thousands of lines.
                _log.warning("cannot acquire the lease: %s; trying again", error)
            self._refused = str(error)
            return False
        self._stands_by, self._refused = False, None
        _log.info("lease acquired: running schedules")
        return True

    async def _stand_by(self) -> None:
        """Wait for a tick, or until another worker releases its lease, or a drain is ended."""
        until, is_over, was_notified = self._tick_end(), False, False
        while not (self._is_leaving or is_over):
            news = await self._news()
            # A store without notifications has news after every write: then the tick is soon enough.
            if news.leases or (news.drains and was_notified):
                return
            # The clock may have been set back since.
            is_over = await self._wait(min(until, self._tick_end()))
            was_notified = not is_over

    async def _work(self) -> None:
        """Run the engine until `leave`, or until the lease is lost."""
        self.start()
        while not self._is_leaving:
            news = await self._news()
            if self.engine.health.state == "failed":
                raise WorkerFailedError(f"The engine failed: {self.engine.health.error}")
            if self.engine.health.state in OVER:
                _log.warning("lease lost: %s", self.engine.health.error)
                await self._stop_pruning()
                if self._sender is not None:
                    await self._sender.stop()
                self.engine = self._new_engine(self.engine.owner if self._is_drained else None)
                return
            if (news.drains or self._was_called) and await self._is_asked_to_drain():
                await self._hand_over()
                return
            if news.jobs:
                self.engine.call()
                if self._sender is not None:
                    self._sender.call()
            if news.leases:
                self.engine.renew_soon()
            await self._wait(self._tick_end())

    async def _news(self) -> News:
        """Return which changes other processes made; when the store fails, assume that jobs changed."""
        with self.clock.working():
            try:
                return await self._watch.look()
            except StoreError:
                return News(jobs=True)

    async def _wait(self, until: int) -> bool:
        """Wait until an instant or until called; say whether the instant has passed."""
        await first_of(self.clock, self._called, until)
        is_over = not self._called.is_set()
        self._called.clear()
        return is_over

    def _tick_end(self) -> int:
        return (self.clock.now() - EPOCH) // MILLISECOND + self.options.tick_ms
