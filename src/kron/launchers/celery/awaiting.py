"""The celery launcher that awaits results, and the launcher kind `celery` with all its variants.

A task is published once for each attempt. Its end is read from the result backend; one that a Celery worker
had started, and that no worker has any more, is lost.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent, RunReport, Traits
from kron.launchers.backoff import sleep_for
from kron.launchers.celery.broker import Broker, BrokerError, CeleryMonitor, CeleryState, WorkerReplies
from kron.launchers.celery.launcher import INSTALL, NO_BROKER, CeleryLauncher, DaemonThreads
from kron.launchers.celery.spec import AWAITED, CeleryOptions, CelerySettings, check_start
from kron.launchers.delivery import DeliveryResult, delivery_traits
from kron.launchers.launch import report_of
from kron.launchers.spec import LauncherContext, LauncherKind
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")
T = TypeVar("T")
# How often the result backend is read, and how long one read may take, in seconds.
POLL_S, READ_S = 0.2, 15.0
# How often workers are asked for tasks that do not end, at most, in seconds.
ASK_S = 10.0
# How many answers of its worker in a row do not have a task that is lost: the backend may lag behind.
MAX_MISSED = 2
# How long the end of a revoked task is awaited, in seconds.
REVOKE_S = 5.0
NO_BACKEND = (
    "its result cannot be awaited without a result backend: set celery_backend, e.g. as KRON_CELERY_BACKEND, "
    "or await_result to false"
)
UNCONFIRMED = "it was revoked; no Celery worker has confirmed it"
GONE = "the Celery worker that executed it died"
# A second start would be a second task, so an attempt is published once at most.
TRAITS = Traits(reports=True, enqueues=True, remote=True)


@dataclass(slots=True)
class AwaitedTask:
    """A published task; `worker` has started it, and some worker had it at `seen_s`."""

    launch: Launch
    sink: ReportSink
    seen_s: float
    worker: str | None = None
    missed: int = 0
    revoked_s: float | None = None

    def note(self, state: CeleryState, now_s: float) -> bool:
        """Record the worker that executes the task; return whether it is a new one."""
        if state.status == "RETRY":
            self.worker = None
        if state.status != "STARTED" or not isinstance(state.result, dict):
            return False
        before, self.worker = self.worker, str(state.result.get("hostname"))
        if before != self.worker:
            self.seen_s, self.missed = now_s, 0
        return before != self.worker

    def is_lost(self, task_id: str, replies: WorkerReplies, now_s: float, lost_after_s: float) -> bool:
        """Return whether a started task is in no worker any more; one that waits in a queue never is."""
        if task_id in replies.tasks:
            worker, state = replies.tasks[task_id]
            self.worker = worker if state == "active" else self.worker
            self.seen_s, self.missed = now_s, 0
        elif self.worker in replies.workers:
            self.missed += 1
        return self.worker is not None and (self.missed >= MAX_MISSED or now_s - self.seen_s >= lost_after_s)


class AwaitingLauncher(CeleryLauncher):
    """Publishes a task for each attempt and reports its end; tasks outlive this process."""

    def __init__(self, clock: Clock, options: CeleryOptions, *, secret: bytes | None = None) -> None:
        super().__init__(clock, options.broker, reports=True, secret=secret)
        self.traits = TRAITS
        self._options = options
        self._lost_after_s = options.lost_after.total_seconds()
        self._ask_s = min(ASK_S, self._lost_after_s / 3)
        self._asked_s = clock.monotonic()
        self._awaited: dict[str, AwaitedTask] = {}
        self._tracker: CeleryMonitor | None = None
        self._reading = DaemonThreads(1, name="kron-celery-results")
        self._polling: asyncio.Task[None] | None = None
        self._revoking: set[asyncio.Task[None]] = set()

    def task_id_of(self, run: RunRecord) -> str:
        """Return the id of the task of an attempt, which has its own result."""
        return run.key if run.attempt == 1 else f"{run.key}-{run.attempt}"

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        return DeliveryResult(NO_BACKEND) if self._options.backend is None else await super()._deliver(launch)

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Publish a task and await its end."""
        super().start(launch, partial(self._on_delivery, launch, sink))

    def _on_delivery(self, launch: Launch, sink: ReportSink, report: RunReport) -> None:
        sink(report)
        if report.happened is RunEvent.ACCEPTED:
            self._await(launch, sink)
        elif report.happened is RunEvent.CANCELLED:
            self._spawn_revoke(self.task_id_of(launch.run))

    def _await(self, launch: Launch, sink: ReportSink) -> None:
        self._awaited[self.task_id_of(launch.run)] = AwaitedTask(launch, sink, self._clock.monotonic())
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="kron celery results")

    def end(self, run: RunRecord) -> None:
        """Revoke a task; its end is reported when a worker confirms it, or after a few seconds."""
        awaited = self._awaited.get(self.task_id_of(run))
        if awaited is None:
            super().end(run)
        elif awaited.revoked_s is None:
            awaited.revoked_s = self._clock.monotonic()
            self._spawn_revoke(self.task_id_of(run))

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Await the tasks again that were published; one that perhaps was is revoked."""
        adopted = set()
        for launch in runs:
            run = launch.run
            if not await super().adopt([launch], partial(self._on_delivery, launch, sink)):
                if not await self._is_known(self.task_id_of(run)):
                    self._spawn_revoke(self.task_id_of(run))
                    continue
                sink(report_of(self._clock, run, RunEvent.ACCEPTED, run_id=self.task_id_of(run)))
            if (run.key, run.attempt) not in self._deliveries:
                self._await(launch, sink)
            adopted.add(run.key)
        return frozenset(adopted)

    async def _is_known(self, task_id: str) -> bool:
        """Return whether the result backend has seen a task."""
        try:
            states = await self._tracked(lambda tracker: tracker.states([task_id]))
        except BrokerError as error:
            _log.warning("the state of the Celery task %s is unknown: %s", task_id, error)
            return False
        return states[task_id].status != "PENDING"

    def _spawn_revoke(self, task_id: str) -> None:
        task = asyncio.create_task(self._revoke(task_id))
        self._revoking.add(task)
        task.add_done_callback(self._revoking.discard)

    async def _revoke(self, task_id: str) -> None:
        try:
            await self._tracked(lambda tracker: tracker.revoke(task_id))
        except BrokerError as error:
            _log.warning("the Celery task %s cannot be revoked: %s", task_id, error)

    # --- reading -------------------------------------------------------------------------------------

    async def _tracked(self, call: Callable[[CeleryMonitor], T]) -> T:
        """Return the result of a call in the thread of the tracker, or raise BrokerError."""
        results: list[T] = []

        def work() -> None:
            if self._tracker is None:
                self._tracker = _load_tracker(self._options)
            results.append(call(self._tracker))

        try:
            async with asyncio.timeout(READ_S):
                await self._reading.call(work)
        except TimeoutError as cause:
            raise BrokerError(f"no answer within {READ_S:g} s", retry=True) from cause
        return results[0]

    async def _poll(self) -> None:
        while self._awaited:
            try:
                await self._check(list(self._awaited))
                await self._ask()
            except BrokerError as error:
                _log.warning("Celery tasks cannot be checked: %s", self._hide(str(error)))
            await sleep_for(self._clock, POLL_S)

    def _hide(self, text: str) -> str:
        for url in (self._options.backend, self._broker and self._broker.url):
            text = Broker(url=url).hide(text) if url else text
        return text

    async def _check(self, task_ids: Sequence[str]) -> None:
        """Report the ends of tasks that the result backend has."""
        states = await self._tracked(lambda tracker: tracker.states(task_ids))
        now_s = self._clock.monotonic()
        for task_id, state in states.items():
            awaited = self._awaited.get(task_id)
            if awaited is None:
                continue
            if state.status in ENDS:
                self._end_with(task_id, state)
            elif awaited.revoked_s is not None and now_s - awaited.revoked_s >= REVOKE_S:
                self._report_end(task_id, RunEvent.CANCELLED, UNCONFIRMED)
            elif awaited.note(state, now_s):
                awaited.sink(report_of(self._clock, awaited.launch.run, RunEvent.STARTED))

    async def _ask(self) -> None:
        """Ask workers for the tasks that do not end, and report those that are lost."""
        began_s = self._clock.monotonic()
        if not self._awaited or began_s - self._asked_s < self._ask_s:
            return
        self._asked_s = began_s
        task_ids = [name for name, each in self._awaited.items() if began_s - each.seen_s >= self._ask_s]
        if not task_ids:
            return
        replies = await self._tracked(lambda tracker: tracker.ask_workers(task_ids))
        now_s, after_s = self._clock.monotonic(), self._lost_after_s
        lost = [
            name
            for name in task_ids
            if (each := self._awaited.get(name)) and each.is_lost(name, replies, now_s, after_s)
        ]
        if lost:
            # Those that have ended since are not lost.
            await self._check(lost)
        for task_id in lost:
            if task_id in self._awaited:
                self._spawn_revoke(task_id)
                self._report_end(task_id, RunEvent.ORPHANED, GONE)

    def _end_with(self, task_id: str, state: CeleryState) -> None:
        event, error, result = end_of(state)
        if event is RunEvent.CANCELLED and self._awaited[task_id].revoked_s is None:
            # Kron has not requested it.
            event = RunEvent.FAILED
        if self._options.on_end is not None:
            self._options.on_end(self._awaited[task_id].launch.run, result, state.traceback)
        self._report_end(task_id, event, error)

    def _report_end(self, task_id: str, event: RunEvent, error: str | None) -> None:
        awaited = self._awaited.pop(task_id)
        awaited.sink(report_of(self._clock, awaited.launch.run, event, error, task_id))

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or abandon them; published tasks are left to the next owner."""
        await super().close(wait=wait)
        if self._polling is not None:
            self._polling.cancel()
        if self._revoking:
            await asyncio.wait(set(self._revoking))
        self._awaited.clear()
        self._reading.close()


# Celery's states of tasks that have ended.
ENDS = frozenset({"SUCCESS", "FAILURE", "REVOKED", "REJECTED"})
# The exception that Celery records when the process of a task died.
WORKER_LOST = "WorkerLostError"


def end_of(state: CeleryState) -> tuple[RunEvent, str | None, str | None]:
    """Return the event of an ended task, its error, and its result as JSON text."""
    if state.status == "SUCCESS":
        try:
            text = json.dumps(state.result, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            return RunEvent.FAILED, "its result is not JSON", None
        return RunEvent.SUCCESS, None, None if state.result is None else text
    if state.status == "REVOKED":
        return RunEvent.CANCELLED, "it was revoked", None
    name = type(state.result).__name__
    error = f"{name}: {state.result}".removesuffix(": ")
    return RunEvent.ORPHANED if name == WORKER_LOST else RunEvent.FAILED, error, None


def _load_tracker(options: CeleryOptions) -> CeleryMonitor:
    if options.broker is None or options.backend is None:
        raise BrokerError(NO_BROKER if options.broker is None else NO_BACKEND)
    try:
        from kron.launchers.celery.publish import CeleryTracker
    except ModuleNotFoundError as cause:
        raise BrokerError(f"cannot be used: {INSTALL}") from cause
    return CeleryTracker(options.broker, options.backend)


def _build(launcher_kind: str, context: LauncherContext) -> CeleryLauncher:
    options = context.config.get(CeleryOptions)
    launcher: CeleryLauncher
    if launcher_kind == AWAITED:
        launcher = AwaitingLauncher(context.clock, options, secret=context.secret)
    else:
        reports = CELERY.traits[launcher_kind].reports
        launcher = CeleryLauncher(context.clock, options.broker, reports=reports, secret=context.secret)
    launcher.check = partial(check_start, context.config)
    return launcher


CELERY = LauncherKind(
    name=CelerySettings.kind,
    read=CelerySettings.read,
    schema=CelerySettings.schema(),
    traits={
        "celery": delivery_traits(reports=False),
        "celery:reports": delivery_traits(reports=True),
        AWAITED: TRAITS,
    },
    build=_build,
)
