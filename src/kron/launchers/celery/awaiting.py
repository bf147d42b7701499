"""The celery launcher that awaits results, and the launcher kind `celery` with all its variants.

A task is published once for each attempt. Its end is read from the result backend; one that a Celery worker
had started, and that no worker has any more, is lost.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent, RunReport, Traits
from kron.launchers.backoff import sleep_for
from kron.launchers.celery.broker import (
    UNREADABLE,
    Broker,
    BrokerError,
    CeleryMonitor,
    CeleryState,
    WorkerReplies,
)
from kron.launchers.celery.launcher import INSTALL, NO_BROKER, CeleryLauncher
from kron.launchers.celery.spec import AWAITED, CeleryOptions, CelerySettings, check_start
from kron.launchers.celery.threads import FairThreads
from kron.launchers.delivery import DeliveryResult, delivery_traits
from kron.launchers.fair_queue import Share
from kron.launchers.launch import report_of, tenant_of
from kron.launchers.spec import LauncherContext, LauncherKind
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")
T = TypeVar("T")
# How often the result backend is read, and how long one read may take, in seconds.
POLL_S, READ_S = 0.2, 15.0
# How many tasks of one tenant are read or asked for together; the tenants take turns.
PORTION = 100
# The reads of all tenants' results take turns with the calls of each.
POLLING = Share("")
# How often workers are asked for tasks that do not end, at most, in seconds.
ASK_S = 10.0
# How many answers of its worker in a row do not have a task that is lost: the backend may lag behind.
MAX_MISSED = 2
# How long the end of a revoked task is awaited, and a result that may be half written, in seconds.
REVOKE_S, UNREADABLE_S = 5.0, 5.0
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
    asked_s: float = 0.0
    unreadable_s: float | None = None

    @property
    def share(self) -> Share:
        """Return whose task it is."""
        return Share(tenant_of(self.launch))

    def is_unreadable(self, state: CeleryState, now_s: float) -> bool:
        """Return whether the result could not be decoded for a while."""
        if state.status != UNREADABLE:
            self.unreadable_s = None
        elif self.unreadable_s is None:
            self.unreadable_s = now_s
        return self.unreadable_s is not None and now_s - self.unreadable_s >= UNREADABLE_S

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


class AwaitedTasks:
    """Tasks by id, and of each tenant in the order of their last read."""

    def __init__(self) -> None:
        self._tasks: dict[str, AwaitedTask] = {}
        self._of_tenants: dict[str, OrderedDict[str, AwaitedTask]] = {}

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def get(self, task_id: str) -> AwaitedTask | None:
        """Return a task, or None if it is not awaited."""
        return self._tasks.get(task_id)

    def add(self, task_id: str, task: AwaitedTask) -> None:
        """Await a task."""
        self._tasks[task_id] = task
        self._of_tenants.setdefault(task.share.tenant, OrderedDict())[task_id] = task

    def pop(self, task_id: str) -> AwaitedTask:
        """Return a task that is not awaited any more."""
        task = self._tasks.pop(task_id)
        own = self._of_tenants[task.share.tenant]
        del own[task_id]
        if not own:
            del self._of_tenants[task.share.tenant]
        return task

    def portions(self) -> Iterator[list[str]]:
        """Yield a portion of each tenant's tasks, those that were read longest ago."""
        for tenant in list(self._of_tenants):
            own = self._of_tenants.get(tenant, OrderedDict())
            portion = list(islice(own, PORTION))
            for task_id in portion:
                own.move_to_end(task_id)
            yield portion

    def to_ask(self, before_s: float) -> list[str]:
        """Return a portion of each tenant's tasks without a sign since an instant, the longest unasked."""
        task_ids: list[str] = []
        for own in self._of_tenants.values():
            silent = [task_id for task_id, each in own.items() if each.seen_s <= before_s]
            task_ids += sorted(silent, key=lambda task_id: own[task_id].asked_s)[:PORTION]
        return task_ids

    def clear(self) -> None:
        """Await nothing."""
        self._tasks.clear()
        self._of_tenants.clear()


class AwaitingLauncher(CeleryLauncher):
    """Publishes a task for each attempt and reports its end; tasks outlive this process."""

    def __init__(self, clock: Clock, options: CeleryOptions, *, secret: bytes | None = None) -> None:
        super().__init__(clock, options.broker, reports=True, secret=secret)
        self.traits = TRAITS
        self._options = options
        self._lost_after_s = options.lost_after.total_seconds()
        self._ask_s = min(ASK_S, self._lost_after_s / 3)
        self._asked_s = clock.monotonic()
        self._awaited = AwaitedTasks()
        # Tasks of an earlier owner that perhaps were published.
        self._unsure: dict[str, AwaitedTask] = {}
        self._tracker: CeleryMonitor | None = None
        # Results and control messages: the tenants take turns in one thread.
        self._reading = FairThreads(name="kron-celery-results", most=1, per_tenant=1, per_target=1)
        self._polling: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

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
            self._spawn_call(self._revoke(self.task_id_of(launch.run), Share(tenant_of(launch))))

    def _await(self, launch: Launch, sink: ReportSink) -> None:
        task = AwaitedTask(launch, sink, self._clock.monotonic())
        self._awaited.add(self.task_id_of(launch.run), task)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll(), name="kron celery results")

    def end(self, run: RunRecord) -> None:
        """Revoke a task; its end is reported when a worker confirms it, or after a few seconds."""
        task_id = self.task_id_of(run)
        if task_id in self._unsure:
            self._unsure[task_id].revoked_s = self._clock.monotonic()
            return
        awaited = self._awaited.get(task_id)
        if awaited is None:
            super().end(run)
        elif awaited.revoked_s is None:
            awaited.revoked_s = self._clock.monotonic()
            self._spawn_call(self._revoke(task_id, awaited.share))

    # --- owners --------------------------------------------------------------------------------------

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Await the published tasks again; whether the others were published is looked up at the same time.

        The take-over does not wait for it: a result backend that hangs would delay the starts of all tenants.
        """
        for launch in runs:
            run, task_id = launch.run, self.task_id_of(launch.run)
            if not await super().adopt([launch], partial(self._on_delivery, launch, sink)):
                self._unsure[task_id] = AwaitedTask(launch, sink, self._clock.monotonic())
                self._spawn_call(self._resolve(task_id))
            elif (run.key, run.attempt) not in self._deliveries:
                self._await(launch, sink)
        return frozenset(launch.run.key for launch in runs)

    async def _resolve(self, task_id: str) -> None:
        """Await a task that was published, or report it as an orphan; one that perhaps was is revoked."""
        task = self._unsure[task_id]
        is_known = await self._is_known(task_id, task.share)
        if self._unsure.pop(task_id, None) is None:
            return
        run, is_ended = task.launch.run, task.revoked_s is not None
        if is_known:
            task.sink(report_of(self._clock, run, RunEvent.ACCEPTED, run_id=task_id))
            self._await(task.launch, task.sink)
            if is_ended:
                self.end(run)
            return
        event, error = (RunEvent.CANCELLED, UNCONFIRMED) if is_ended else (RunEvent.ORPHANED, None)
        task.sink(report_of(self._clock, run, event, error))
        await self._revoke(task_id, task.share)

    async def _is_known(self, task_id: str, share: Share) -> bool:
        """Return whether the result backend has seen a task."""
        try:
            states = await self._tracked(lambda tracker: tracker.states([task_id]), share)
        except BrokerError as error:
            _log.warning("the state of the Celery task %s is unknown: %s", task_id, error)
            return False
        return states[task_id].status != "PENDING"

    def _spawn_call(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _revoke(self, task_id: str, share: Share) -> None:
        try:
            await self._tracked(lambda tracker: tracker.revoke(task_id), share)
        except BrokerError as error:
            _log.warning("the Celery task %s cannot be revoked: %s", task_id, error)

    # --- reading -------------------------------------------------------------------------------------

    async def _tracked(self, call: Callable[[CeleryMonitor], T], share: Share) -> T:
        """Return the result of a call in the thread of the tracker, or raise BrokerError."""
        results: list[T] = []

        def work() -> None:
            if self._tracker is None:
                self._tracker = _load_tracker(self._options)
            results.append(call(self._tracker))

        try:
            await self._reading.call(work, share, timeout_s=READ_S)
        except TimeoutError as cause:
            raise BrokerError(f"no answer within {READ_S:g} s", retry=True) from cause
        return results[0]

    async def _poll(self) -> None:
        while self._awaited:
            try:
                for portion in self._awaited.portions():
                    await self._check(portion)
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
        states = await self._tracked(lambda tracker: tracker.states(task_ids), POLLING)
        now_s = self._clock.monotonic()
        for task_id, state in states.items():
            awaited = self._awaited.get(task_id)
            if awaited is None:
                continue
            if state.status in ENDS:
                self._end_with(task_id, awaited, state)
            elif awaited.is_unreadable(state, now_s):
                self._report_end(task_id, RunEvent.FAILED, f"its result cannot be read: {state.result}")
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
        task_ids = self._awaited.to_ask(began_s - self._ask_s)
        if not task_ids:
            return
        replies = await self._tracked(lambda tracker: tracker.ask_workers(task_ids), POLLING)
        now_s, after_s = self._clock.monotonic(), self._lost_after_s
        lost = []
        for task_id in task_ids:
            each = self._awaited.get(task_id)
            if each is not None:
                each.asked_s = now_s
                lost += [task_id] if each.is_lost(task_id, replies, now_s, after_s) else []
        if lost:
            # Those that have ended since are not lost.
            await self._check(lost)
        for task_id in lost:
            awaited = self._awaited.get(task_id)
            if awaited is not None:
                self._spawn_call(self._revoke(task_id, awaited.share))
                self._report_end(task_id, RunEvent.ORPHANED, GONE)

    def _end_with(self, task_id: str, awaited: AwaitedTask, state: CeleryState) -> None:
        event, error, result = end_of(state)
        if event is RunEvent.CANCELLED and awaited.revoked_s is None:
            # Kron has not requested it.
            event = RunEvent.FAILED
        if self._options.on_end is not None:
            self._options.on_end(awaited.launch.run, result, state.traceback)
        self._report_end(task_id, event, error)

    def _report_end(self, task_id: str, event: RunEvent, error: str | None) -> None:
        awaited = self._awaited.pop(task_id)
        awaited.sink(report_of(self._clock, awaited.launch.run, event, error, task_id))

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the launches, or abandon them; published tasks are left to the next owner."""
        await super().close(wait=wait)
        if self._polling is not None:
            self._polling.cancel()
        self._unsure.clear()
        if self._calls:
            await asyncio.wait(set(self._calls))
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
