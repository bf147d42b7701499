"""`kron.Scheduler`: runs a list of tasks on their schedules until `stop` (SPEC 1)."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import TextIO

from kron.core.errors import KronError
from kron.core.plan.step import Limits
from kron.core.task.errors import (
    SchedulerAlreadyActiveError,
    SchedulerFailedError,
    SchedulerStopInCallbackError,
    TaskTryDeserializeError,
)
from kron.core.time.zone import zone_of
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.event import (
    LOGGER,
    POLLING_TRANSITIONS,
    SCHEDULER_TRANSITIONS,
    EventLog,
    Listener,
    Machine,
    PollingEvent,
    PollingState,
    SchedulerEvent,
    SchedulerState,
)
from kron.fronts.embed.housekeeping import Housekeeping
from kron.fronts.embed.registration import Callback
from kron.fronts.embed.store_source import State
from kron.fronts.embed.task_list import TaskReconciler
from kron.fronts.embed.task_status import TaskStatus, TaskTracker, statuses_of
from kron.fronts.embed.trace import CallJudge, CallTrace, NoTrace, SchedulerTrace
from kron.ports import Clock, Journal, Store
from kron.runtime.journal import LogJournal

# A task that was missed starts once, as soon as possible (SPEC 1): SPEC 3's pace does not apply.
LIMITS = Limits(catchup_per_tick=None)
# How often a stop that a callback's own task called checks whether that callback waits for it, in seconds.
CHECK_CALLER_S = 0.1
ACTIVE = (SchedulerState.INITIALIZING, SchedulerState.RUNNING, SchedulerState.STOPPING)


class Scheduler:
    """Runs the tasks of a list on their schedules: `initialize(registrations)` starts, `stop()` ends.

    `state` is a URL: `sqlite:///kron.db` (without one, `kron.db` beside the program), `memory://` (nothing
    survives) or `postgresql://...`. `timezone` defaults to the host's. `on_event` is called with each event.
    `name` separates the tasks of several schedulers in one state. With `wait` it waits for the lease of
    another process with the same name and state instead of raising. As a context manager (`async with`) it
    stops at the end.
    """

    def __init__(
        self,
        state: str | Store | None = None,
        *,
        clock: Clock | None = None,
        timezone: str | None = None,
        on_event: Listener | None = None,
        name: str = "main",
        wait: bool = False,
    ) -> None:
        self._events = EventLog(on_event)
        self._tracker = TaskTracker(self._events, LogJournal())
        zone = None if timezone is None else zone_of(timezone).key
        self._wiring = Wiring(State(state), clock, kind="embed", name=name, limits=LIMITS)
        self._reconciler = TaskReconciler(self._wiring, self._tracker, timezone=zone)
        self._wait = wait
        self._journal: Journal = self._tracker
        self._calls: CallTrace = NoTrace()
        self._machine = Machine(SchedulerState.UNINITIALIZED, SCHEDULER_TRANSITIONS, self._emit)
        self._polling = Machine(PollingState.INACTIVE, POLLING_TRANSITIONS, self._emit)
        self._stop_requested = False
        self._initialized: asyncio.Future[None] | None = None
        self._initializer: asyncio.Task[object] | None = None
        self._closing: asyncio.Task[None] | None = None
        check = None if zone is not None else self._reconciler.follow_zone
        self._housekeeping = Housekeeping(self._wiring.clock, check=check)

    # --- status ------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Return the scheduler's state: uninitialized, initializing, running, stopping or stopped."""
        return self._machine.state.value

    @property
    def polling(self) -> str:
        """Return whether the engine runs the tasks: inactive, active or stopping."""
        return self._polling.state.value

    @property
    def identifier(self) -> str | None:
        """Return the unique identifier of this instance, made at its first initialization; None before."""
        return self._wiring.identifier

    @property
    def timezone(self) -> str | None:
        """Return the zone in which expressions are read; None before the host's is known."""
        return self._reconciler.timezone

    @property
    def tasks(self) -> Mapping[str, TaskStatus]:
        """Return the status of each task, as committed, with its next start while the scheduler runs."""
        now = self._now() if self._machine.state is SchedulerState.RUNNING else None
        return MappingProxyType(statuses_of(self._tracker.entries, self.timezone, now))

    @property
    def standings(self) -> Mapping[str, str]:
        """Return how each task compared with the stored one: new, preserved, overridden or orphaned."""
        return MappingProxyType({name: entry.standing.value for name, entry in self._tracker.entries.items()})

    @property
    def quarantined(self) -> tuple[TaskTryDeserializeError, ...]:
        """Return the faults of unreadable stored tasks, which are treated as new."""
        return self._reconciler.quarantined

    @property
    def late_starts(self) -> int:
        """Return how many starts were more than a minute late."""
        return self._tracker.late_starts

    @property
    def clock_behind(self) -> timedelta:
        """Return how far the clock is behind the latest recorded instant, zero within a minute."""
        return self._wiring.clock_behind

    # --- the two methods ---------------------------------------------------------------------------

    async def initialize(self, registrations: Sequence[tuple[str, str, Callback, timedelta]]) -> None:
        """Run these tasks, and only these, from now on, or raise an error.

        Nothing starts before this has returned. An invalid list is refused before anything is written, and a
        failed write leaves the stored tasks unchanged.
        """
        call = self._calls.init_started(self._now(), registrations)
        if self._machine.state in ACTIVE:
            self._calls.init_failed(self._now(), call, None)
            # A stopping scheduler still runs.
            initializing = self._machine.state is SchedulerState.INITIALIZING
            raise SchedulerAlreadyActiveError(current_state="initializing" if initializing else "running")
        self._machine.follow(SchedulerEvent.INITIALIZATION_STARTED)
        self._initializer = asyncio.current_task()
        self._initialized = asyncio.get_running_loop().create_future()
        self._closing = None
        try:
            since = await self._reconciler.start(registrations, self._journal, wait=self._wait)
        except BaseException as error:
            await self._undo(call, error)
            if isinstance(error, KronError) or not isinstance(error, Exception):
                raise
            raise SchedulerFailedError(operation="initialize", cause=error) from error
        self._complete(since, call)

    async def stop(self) -> None:
        """Start nothing more, wait for the running callbacks, and close the store."""
        if self._wiring.launcher.is_inside():
            raise SchedulerStopInCallbackError
        state = self._machine.state
        self._calls.stop_started(self._now())
        if state is SchedulerState.INITIALIZING and self._initialized is not None:
            self._stop_requested = True
            await asyncio.shield(self._initialized)
        elif state is SchedulerState.RUNNING:
            self._start_stopping()
        elif state is not SchedulerState.STOPPING:
            self._calls.stops_ended(self._now())
        if self._closing is not None and self._machine.state is SchedulerState.STOPPING:
            await self._wait_for(self._closing)

    async def _wait_for(self, closing: "asyncio.Task[None]") -> None:
        """Wait for the end of a stop, unless a callback waits for this call of `stop`."""
        launcher = self._wiring.launcher
        while launcher.call_here() is not None and not closing.done():
            if launcher.is_inside():
                raise SchedulerStopInCallbackError
            # A callback that created this task may come to wait for it at any time.
            await asyncio.wait([closing], timeout=CHECK_CALLER_S)
        await asyncio.shield(closing)

    async def __aenter__(self) -> "Scheduler":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- starting ----------------------------------------------------------------------------------

    def _complete(self, since: int, call: int) -> None:
        """Start the engine; nothing is awaited from here to the caller's return."""
        self._calls.init_succeeded(since, call)
        if self._tracker.entries and not self._stop_requested:
            self._wiring.engine.on_rest = self._calls.rested
            self._wiring.worker.start()
            self._polling.follow(PollingEvent.STARTED)
        self._housekeeping.start(self._crash)
        self._machine.follow(SchedulerEvent.INITIALIZATION_COMPLETED)
        if self._stop_requested:
            self._start_stopping()
        self._end_initialization()

    async def _undo(self, call: int, error: BaseException) -> None:
        """Return to uninitialized after a failed initialization; a crash has done so already."""
        if self._machine.state is not SchedulerState.INITIALIZING:
            return
        try:
            await self._wiring.give_up()
        except (KronError, OSError, AssertionError):
            LOGGER.exception("a failed initialization could not be rolled back")
        finally:
            # A crash during the rollback has ended the call already.
            if self._machine.may(SchedulerEvent.INITIALIZATION_FAILED):
                self._calls.init_failed(self._now(), call, error)
                self._calls.stops_ended(self._now())
                self._machine.follow(SchedulerEvent.INITIALIZATION_FAILED)
                self._end_initialization()

    def _end_initialization(self) -> None:
        """Release the calls of `stop` that wait for the initialization to end."""
        self._stop_requested = False
        if self._initialized is not None and not self._initialized.done():
            self._initialized.set_result(None)
        self._initialized = None

    # --- stopping ----------------------------------------------------------------------------------

    def _start_stopping(self) -> None:
        """Stop deciding starts, and close in the background."""
        self._wiring.worker.drain()
        self._machine.follow(SchedulerEvent.STOP_REQUESTED)
        if self._polling.may(PollingEvent.STOP_REQUESTED):
            self._polling.follow(PollingEvent.STOP_REQUESTED)
        self._housekeeping.end()
        self._closing = asyncio.create_task(self._close(), name="kron stop")

    async def _close(self) -> None:
        try:
            await self._wiring.close()
        except KronError:
            raise
        except Exception as error:
            raise SchedulerFailedError(operation="stop", cause=error) from error
        finally:
            self._calls.stops_ended(self._now())
            if self._polling.may(PollingEvent.STOPPED):
                self._polling.follow(PollingEvent.STOPPED)
            if self._machine.may(SchedulerEvent.STOPPED):
                self._machine.follow(SchedulerEvent.STOPPED)

    def _crash(self) -> None:
        """Drop everything without writing, as the death of the process would."""
        self._calls.crashed(self._now())
        self._housekeeping.end()
        if self._closing is not None:
            self._closing.cancel()
        state, self._machine.state = self._machine.state, SchedulerState.UNINITIALIZED
        self._polling.state = PollingState.INACTIVE
        if state is SchedulerState.INITIALIZING and self._initializer is not None:
            self._initializer.cancel()
        if state in ACTIVE:
            self._wiring.crash()
        self._end_initialization()

    # --- tracing -----------------------------------------------------------------------------------

    def _trace_to(self, file: TextIO, judge: CallJudge | None = None) -> None:
        """Write a trace of calls and runs; used by `kron.testing`."""
        timezone = self.timezone
        assert timezone is not None, "a trace needs a scheduler with a fixed time zone"
        trace = SchedulerTrace(
            file, timezone=timezone, further=self._tracker, is_open=self._is_open, judge=judge
        )
        self._journal, self._calls = trace, trace

    def _is_open(self) -> bool:
        """Say whether a record with a past instant may still be committed."""
        state = self._machine.state
        return state is SchedulerState.INITIALIZING or (
            state in ACTIVE and not self._wiring.engine.is_written
        )

    def _now(self) -> int:
        return self._wiring.now()

    def _emit(self, event: str) -> None:
        self._events.emit(event, self._now())
