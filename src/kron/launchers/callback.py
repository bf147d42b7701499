"""The callback launcher: runs are calls of async functions in this process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import ClassVar, TypeAlias

from kron.core.errors import InvalidOptionError
from kron.core.fields import FieldTable, row
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent, Traits
from kron.core.value_types import NAME_TEXT, nullable
from kron.launchers.launch import may_start, report_of
from kron.launchers.spec import LauncherContext, LauncherKind, TableSettings, launcher_table
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")

CANCELLED = "CancelledError: the call was cancelled"
Callback: TypeAlias = Callable[[Launch], Awaitable[object]]
# The call in whose context code runs; the tasks that it creates inherit it.
_CALL: ContextVar[Launch | None] = ContextVar("kron call", default=None)
Pick: TypeAlias = Callable[[Launch], Callback | None]
# The lookup in an enum takes seven times as long as that of a name, and a burst needs many.
SUCCESS, FAILED = RunEvent.SUCCESS, RunEvent.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSettings(TableSettings):
    """The job calls a function of the program that runs the engine."""

    kind: ClassVar[str] = "callback"
    table: ClassVar[FieldTable]

    name: str | None = field(
        default=None,
        metadata=row(nullable(NAME_TEXT), "the function, in the setting `executor` only", sparse=True),
    )


CallbackSettings.table = launcher_table(CallbackSettings)


class CallbackLauncher:
    """Calls functions by the job's identity. They die with the process, so none can be adopted.

    With `max_calls` at most that many run at once; the others wait in order. `pick` replaces the choice of
    the function. `cancelled` is the event that a cancelled call reports.
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
        self._slots = None if max_calls is None else asyncio.Semaphore(max_calls)
        self._calls: dict[tuple[str, int], tuple[asyncio.Task[None], Launch, ReportSink]] = {}
        self.callbacks: dict[str, Callback] = {}
        self._pick = pick

    @property
    def busy(self) -> bool:
        """Return whether calls are in flight."""
        return bool(self._calls)

    def is_inside(self) -> bool:
        """Return whether one of the calls is the current task, or waits for it."""
        call, current = self.call_here(), asyncio.current_task()
        return call is not None and current is not None and waits_for(call, current)

    def call_here(self) -> "asyncio.Task[None] | None":
        """Return the running call that created the current task, or is it."""
        here = _CALL.get()
        call = None if here is None else self._calls.get((here.run.key, here.run.attempt))
        return call[0] if call is not None and call[1] is here else None

    def knows(self, launch: Launch) -> bool:
        """Return whether there is a function for a launch."""
        return self._callback_of(launch) is not None

    def _callback_of(self, launch: Launch) -> Callback | None:
        return self.callbacks.get(launch.run.identity) if self._pick is None else self._pick(launch)

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Call the job's function in a new task."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._call(launch, sink), name=f"kron {launch.job.identity}")
        self._calls[launch.run.key, launch.run.attempt] = task, launch, sink

    async def _call(self, launch: Launch, sink: ReportSink) -> None:
        """Call the function and report its end; in one piece, because a burst calls many."""
        _CALL.set(launch)
        # An exit with neither a result nor an Exception, such as SystemExit, is an end too.
        event, error = FAILED, "the call was aborted"
        has_slot = False
        try:
            if self._slots is not None:
                has_slot = await self._slots.acquire()
            if launch.lease_status is not None and not await may_start(self._clock, launch):
                # The worker that owns the run now calls its function and reports it.
                self._forget(launch)
                return
            callback = self._callback_of(launch)
            if callback is None:
                event, error = RunEvent.LAUNCH_FAILED, "no function is registered for the job"
            else:
                await callback(launch)
                event, error = SUCCESS, ""
        except asyncio.CancelledError:
            event, error = self._after_cancellation(launch)
        except Exception as cause:  # noqa: BLE001 - every exception of a callback is a failed run
            run = launch.run
            _log.exception("job %r failed (attempt %d of %s)", run.identity, run.attempt, run.key)
            error = f"{type(cause).__name__}: {cause}"
        finally:
            if has_slot and self._slots is not None:
                self._slots.release()
            self._report(launch, sink, event, error)

    def _after_cancellation(self, launch: Launch) -> tuple[RunEvent, str]:
        """Return the event of a CancelledError: the call was cancelled, or something it awaited."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return RunEvent.FAILED, "CancelledError: something the function waited for was cancelled"
        if self._cancelled is RunEvent.CANCELLED:
            return RunEvent.CANCELLED, ""
        _log.error("job %r failed: %s", launch.job.identity, CANCELLED)
        return self._cancelled, CANCELLED

    def _report(self, launch: Launch, sink: ReportSink, event: RunEvent, error: str) -> None:
        """Report an end, once."""
        if self._forget(launch):
            sink(report_of(self._clock, launch.run, event, error or None))

    def _forget(self, launch: Launch) -> bool:
        """Forget a call and return whether it was known; a later one may have the same key."""
        attempt = (launch.run.key, launch.run.attempt)
        call = self._calls.pop(attempt, None)
        if call is None or call[1] is launch:
            return call is not None
        self._calls[attempt] = call
        return False

    def end(self, run: RunRecord) -> None:
        """Cancel the call."""
        call = self._calls.get((run.key, run.attempt))
        if call is not None:
            self._cancel(*call)

    def _cancel(self, task: asyncio.Task[None], launch: Launch, sink: ReportSink) -> None:
        work = task.get_coro()
        task.cancel()
        if isinstance(work, Coroutine) and getcoroutinestate(work) == CORO_CREATED:
            # A task that is cancelled before its first step never runs, so it cannot report.
            self._report(launch, sink, RunEvent.CANCELLED, "")

    def cancel(self) -> None:
        """Cancel every call without waiting; none of them counts as failed."""
        self._cancelled = RunEvent.CANCELLED
        for call in list(self._calls.values()):
            self._cancel(*call)

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Return nothing: calls of another process are gone."""
        return frozenset()

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the calls, or cancel them."""
        while self._calls:
            calls = list(self._calls.values())
            if not wait:
                self.cancel()
            await asyncio.wait([task for task, _, _ in calls])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackOptions:
    """The worker's launcher for functions by schedule, or how another one chooses its function."""

    launcher: CallbackLauncher | None = None
    pick: Pick | None = None


def _build(_: str, context: LauncherContext) -> CallbackLauncher:
    options = context.config.get(CallbackOptions)
    return options.launcher or CallbackLauncher(context.clock, pick=options.pick)


CALLBACK = LauncherKind(
    name=CallbackSettings.kind,
    read=CallbackSettings.read,
    schema=CallbackSettings.schema(),
    traits={CallbackSettings.kind: CallbackLauncher.traits},
    build=_build,
)


def waits_for(task: "asyncio.Task[object]", future: "asyncio.Future[object]") -> bool:
    """Return whether a task is blocked until a future is done, as far as asyncio's callbacks show it."""
    seen: set[int] = set()
    todo: list[asyncio.Future[object]] = [future]
    while todo:
        awaited = todo.pop()
        if awaited is task:
            return True
        if id(awaited) not in seen:
            seen.add(id(awaited))
            todo += _waiting_for(awaited)
    return False


def _waiting_for(future: "asyncio.Future[object]") -> Iterator["asyncio.Future[object]"]:
    """Yield the tasks and futures that are woken when a future is done."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        for value in _values_of(callback):
            if isinstance(value, asyncio.TaskGroup):
                value = getattr(value, "_parent_task", None)
            if isinstance(value, asyncio.Future):
                yield value


def _values_of(callback: object) -> Iterator[object]:
    """Yield the values that a callback is bound to."""
    if isinstance(callback, partial):
        yield from callback.args
        callback = callback.func
    yield getattr(callback, "__self__", None)
    for cell in getattr(callback, "__closure__", None) or ():
        yield cell.cell_contents
