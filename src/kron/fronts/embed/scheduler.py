"""`kron.Scheduler`: hand over a list of tasks; they run at their times until you say stop (SPEC 1)."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType, TracebackType
from typing import TextIO

from kron.core.errors import KronError
from kron.core.task.errors import (
    SchedulerAlreadyActiveError,
    SchedulerFailedError,
    SchedulerStopInCallbackError,
    TaskTryDeserializeError,
)
from kron.core.time.zone import zone_of
from kron.fronts.embed.assembly import Wiring
from kron.fronts.embed.event import LOGGER, Events, Listener
from kron.fronts.embed.housekeeping import Caretaker
from kron.fronts.embed.registration import Callback
from kron.fronts.embed.state_machine import (
    POLLING_TRANSITIONS,
    SCHEDULER_TRANSITIONS,
    Machine,
    PollingEvent,
    PollingState,
    SchedulerEvent,
    SchedulerState,
)
from kron.fronts.embed.store_source import State
from kron.fronts.embed.task_list import Session
from kron.fronts.embed.task_status import Book, TaskStatus
from kron.fronts.embed.trace import Calls, SchedulerTrace, Silence
from kron.ports import Clock, Journal, Store
from kron.runtime.journal import LogJournal

ACTIVE = (SchedulerState.INITIALIZING, SchedulerState.RUNNING, SchedulerState.STOPPING)


class Scheduler:
    """Runs the tasks of a list at their times: `initialize(registrations)` begins, `stop()` ends.

    `state` is a URL: `sqlite:///kron.db` (without one, `kron.db` beside the program), `memory://` (nothing
    survives) or `postgresql://...`. `timezone` is the host's unless it is given. `on_event` is told what
    happens. `name` keeps the tasks of several schedulers with one state apart. With `wait` it waits for
    another process that has the same name and state, where it would else be refused. As a context manager
    (`async with`) it stops at the end.
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
        self._events = Events(on_event)
        self._book = Book(self._events, LogJournal())
        zone = None if timezone is None else zone_of(timezone).key
        self._wiring = Wiring(State(state), clock, kind="embed", name=name)
        self._session = Session(self._wiring, self._book, timezone=zone)
        self._wait = wait
        self._journal: Journal = self._book
        self._calls: Calls = Silence()
        self._machine = Machine(SchedulerState.UNINITIALIZED, SCHEDULER_TRANSITIONS, self._say)
        self._polling = Machine(PollingState.INACTIVE, POLLING_TRANSITIONS, self._say)
        self._stop_wanted = False
        self._initialized: asyncio.Future[None] | None = None
        self._beginner: asyncio.Task[object] | None = None
        self._closing: asyncio.Task[None] | None = None
        look = None if zone is not None else self._session.follow_zone
        self._caretaker = Caretaker(self._wiring.clock, clean=self._wiring.prune, look=look)

    # --- what can be seen --------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Return where the scheduler is: uninitialized, initializing, running, stopping or stopped."""
        return self._machine.state.value

    @property
    def polling(self) -> str:
        """Return whether anything looks at the tasks: inactive, active or stopping."""
        return self._polling.state.value

    @property
    def identifier(self) -> str:
        """Return what tells this instance from every other."""
        return self._wiring.identifier

    @property
    def timezone(self) -> str | None:
        """Return the zone in which expressions are read; None before the host was asked."""
        return self._session.timezone

    @property
    def tasks(self) -> Mapping[str, TaskStatus]:
        """Return where each task is and its times, as they are on record."""
        return MappingProxyType({name: entry.status() for name, entry in self._book.entries.items()})

    @property
    def standings(self) -> Mapping[str, str]:
        """Return how each task stood to what was stored: new, preserved, overridden or orphaned."""
        return MappingProxyType({name: entry.standing.value for name, entry in self._book.entries.items()})

    @property
    def quarantined(self) -> tuple[TaskTryDeserializeError, ...]:
        """Return what could not be read of what was stored; these tasks were taken for new."""
        return self._session.quarantined

    @property
    def late_starts(self) -> int:
        """Return how many starts came more than a minute later than they could have."""
        return self._book.late_starts

    # --- the two methods ---------------------------------------------------------------------------

    async def initialize(self, registrations: Sequence[tuple[str, str, Callback, timedelta]]) -> None:
        """Have these tasks, and only these, run from now on, or raise an error that says what is wrong.

        Nothing starts before this has returned. What is wrong with the list is said before anything is
        written, and if writing fails, what was stored before is still there.
        """
        call = self._calls.init_started(self._now(), registrations)
        if self._machine.state in ACTIVE:
            self._calls.init_failed(self._now(), call, None)
            # One that is stopping still runs.
            initializing = self._machine.state is SchedulerState.INITIALIZING
            raise SchedulerAlreadyActiveError(current_state="initializing" if initializing else "running")
        self._machine.follow(SchedulerEvent.INITIALIZATION_STARTED)
        self._beginner = asyncio.current_task()
        self._initialized = asyncio.get_running_loop().create_future()
        self._closing = None
        try:
            since = await self._session.begin(registrations, self._journal, wait=self._wait)
        except BaseException as error:
            await self._undo(call, error)
            if isinstance(error, KronError) or not isinstance(error, Exception):
                raise
            raise SchedulerFailedError(operation="initialize", cause=error) from error
        self._complete(since, call)

    async def stop(self) -> None:
        """Start nothing more, wait for the callbacks that run, and let go of everything."""
        if self._wiring.launcher.is_inside():
            raise SchedulerStopInCallbackError
        state = self._machine.state
        self._calls.stop_started(self._now())
        if state is SchedulerState.INITIALIZING and self._initialized is not None:
            self._stop_wanted = True
            await asyncio.shield(self._initialized)
        elif state is SchedulerState.RUNNING:
            self._begin_to_stop()
        elif state is not SchedulerState.STOPPING:
            self._calls.stops_ended(self._now())
        if self._closing is not None and self._machine.state is SchedulerState.STOPPING:
            await asyncio.shield(self._closing)

    async def __aenter__(self) -> "Scheduler":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- beginning ---------------------------------------------------------------------------------

    def _complete(self, since: int, call: int) -> None:
        """Begin to look after the tasks; nothing is awaited from here to the caller's return."""
        self._calls.init_succeeded(since, call)
        if self._book.entries and not self._stop_wanted:
            self._wiring.engine.on_rest = self._calls.rested
            self._wiring.engine.run()
            self._polling.follow(PollingEvent.STARTED)
        self._caretaker.begin(self._crash)
        self._machine.follow(SchedulerEvent.INITIALIZATION_COMPLETED)
        if self._stop_wanted:
            self._begin_to_stop()
        self._answer()

    async def _undo(self, call: int, error: BaseException) -> None:
        """Return to where nothing was after an initialization that failed; a crash has done so already."""
        if self._machine.state is not SchedulerState.INITIALIZING:
            return
        try:
            await self._wiring.give_up()
        except (KronError, OSError, AssertionError):
            LOGGER.exception("what an initialization had begun could not be let go of")
        finally:
            # A crash while it was let go of has ended the call already.
            if self._machine.may(SchedulerEvent.INITIALIZATION_FAILED):
                self._calls.init_failed(self._now(), call, error)
                self._calls.stops_ended(self._now())
                self._machine.follow(SchedulerEvent.INITIALIZATION_FAILED)
                self._answer()

    def _answer(self) -> None:
        """Let whoever wants to stop go on: the initialization is over."""
        self._stop_wanted = False
        if self._initialized is not None and not self._initialized.done():
            self._initialized.set_result(None)
        self._initialized = None

    # --- ending ------------------------------------------------------------------------------------

    def _begin_to_stop(self) -> None:
        """Decide no start from this moment on."""
        self._wiring.engine.drain()
        self._machine.follow(SchedulerEvent.STOP_REQUESTED)
        if self._polling.may(PollingEvent.STOP_REQUESTED):
            self._polling.follow(PollingEvent.STOP_REQUESTED)
        self._caretaker.end()
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
        self._caretaker.end()
        if self._closing is not None:
            self._closing.cancel()
        state, self._machine.state = self._machine.state, SchedulerState.UNINITIALIZED
        self._polling.state = PollingState.INACTIVE
        if state is SchedulerState.INITIALIZING and self._beginner is not None:
            self._beginner.cancel()
        if state in ACTIVE:
            self._wiring.crash()
        self._answer()

    # --- further -----------------------------------------------------------------------------------

    def _trace_to(self, file: TextIO) -> None:
        """Write a trace of calls and runs; `kron.testing` asks for it."""
        timezone = self.timezone
        assert timezone is not None, "a trace needs a scheduler with a time zone of its own"
        trace = SchedulerTrace(file, timezone=timezone, further=self._book, is_open=self._is_open)
        self._journal, self._calls = trace, trace

    def _is_open(self) -> bool:
        """Say whether something may still come to be on record with an instant that is over."""
        state = self._machine.state
        return state is SchedulerState.INITIALIZING or (
            state in ACTIVE and not self._wiring.engine.is_written
        )

    def _now(self) -> int:
        return self._wiring.now()

    def _say(self, event: str) -> None:
        self._events.tell(event, self._now())
