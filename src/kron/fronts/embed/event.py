"""Events of a scheduler: the state machines that emit them (SPEC 1), the log and the caller's listener."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from inspect import iscoroutinefunction
from typing import Generic, TypeVar

from kron.core.errors import InvalidOptionError
from kron.core.time.instant import EPOCH

LOGGER = logging.getLogger("kron.scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: its name in the specification, its instant, and its task if it concerns one."""

    name: str
    at: datetime
    task: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


Listener = Callable[[Event], object]


class EventLog:
    """Writes events to the log and calls the listener; an error of the listener is logged and ignored."""

    def __init__(self, listener: Listener | None) -> None:
        if listener is not None and iscoroutinefunction(listener):
            reason = "must be a plain function that takes an event"
            raise InvalidOptionError(option="on_event", value=listener, reason=reason)
        self._listener = listener

    @property
    def enabled(self) -> bool:
        """Say whether events are logged or have a listener."""
        return self._listener is not None or LOGGER.isEnabledFor(logging.INFO)

    def emit(self, name: str, at_ms: int, task: str | None = None, **details: object) -> None:
        """Log one event and pass it to the listener."""
        if not self.enabled:
            return
        LOGGER.info("%s%s %s", name, "" if task is None else f" {on_one_line(task)}", details or "")
        if self._listener is None:
            return
        event = Event(name=name, at=EPOCH + timedelta(milliseconds=at_ms), task=task, details=details)
        try:
            self._listener(event)
        except Exception:
            LOGGER.exception("on_event raised at %s", name)


def on_one_line(name: str) -> str:
    """Return a task's name for a log line; one of blanks, or with control characters, is quoted."""
    return name if name.isprintable() and not name.isspace() else repr(name)


# --- state machines: each a table of transitions ----------------------------------------------------


class SchedulerState(StrEnum):
    """The state of a scheduler."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class SchedulerEvent(StrEnum):
    """An event of a scheduler."""

    INITIALIZATION_STARTED = "SchedulerInitializationStarted"
    INITIALIZATION_COMPLETED = "SchedulerInitializationCompleted"
    INITIALIZATION_FAILED = "SchedulerInitializationFailed"
    STOP_REQUESTED = "SchedulerStopRequested"
    STOPPED = "SchedulerStopped"


class PollingState(StrEnum):
    """Whether the engine runs the tasks."""

    INACTIVE = "inactive"
    ACTIVE = "active"
    STOPPING = "stopping"


class PollingEvent(StrEnum):
    """An event of polling."""

    STARTED = "PollingStarted"
    STOP_REQUESTED = "PollingStopRequested"
    STOPPED = "PollingStopped"


S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)

SCHEDULER_TRANSITIONS = (
    (SchedulerState.UNINITIALIZED, SchedulerEvent.INITIALIZATION_STARTED, SchedulerState.INITIALIZING),
    (SchedulerState.STOPPED, SchedulerEvent.INITIALIZATION_STARTED, SchedulerState.INITIALIZING),
    (SchedulerState.INITIALIZING, SchedulerEvent.INITIALIZATION_COMPLETED, SchedulerState.RUNNING),
    (SchedulerState.INITIALIZING, SchedulerEvent.INITIALIZATION_FAILED, SchedulerState.UNINITIALIZED),
    (SchedulerState.RUNNING, SchedulerEvent.STOP_REQUESTED, SchedulerState.STOPPING),
    (SchedulerState.STOPPING, SchedulerEvent.STOPPED, SchedulerState.STOPPED),
)
POLLING_TRANSITIONS = (
    (PollingState.INACTIVE, PollingEvent.STARTED, PollingState.ACTIVE),
    (PollingState.ACTIVE, PollingEvent.STOPPED, PollingState.INACTIVE),
    (PollingState.ACTIVE, PollingEvent.STOP_REQUESTED, PollingState.STOPPING),
    (PollingState.STOPPING, PollingEvent.STOPPED, PollingState.INACTIVE),
)


class Machine(Generic[S, E]):
    """A state and the transitions allowed from it."""

    def __init__(self, start: S, table: Iterable[tuple[S, E, S]], emit: Callable[[str], None]) -> None:
        self.state = start
        self._table = {(before, event): after for before, event, after in table}
        self._emit = emit

    def may(self, event: E) -> bool:
        """Say whether an event is allowed in the present state."""
        return (self.state, event) in self._table

    def follow(self, event: E) -> None:
        """Make the transition of an event and emit the event; one that is not allowed is a bug."""
        assert self.may(event), f"{event} does not happen in {self.state}"
        self.state = self._table[self.state, event]
        self._emit(event.value)
