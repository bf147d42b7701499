"""State machines of the scheduler and of its polling (SPEC 1), each a table of transitions."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Generic, TypeVar


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


State = TypeVar("State", bound=StrEnum)
Event = TypeVar("Event", bound=StrEnum)

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


class Machine(Generic[State, Event]):
    """A state and the transitions allowed from it."""

    def __init__(
        self, start: State, table: Iterable[tuple[State, Event, State]], emit: Callable[[str], None]
    ) -> None:
        self.state = start
        self._table = {(before, event): after for before, event, after in table}
        self._emit = emit

    def may(self, event: Event) -> bool:
        """Say whether an event is allowed in the present state."""
        return (self.state, event) in self._table

    def follow(self, event: Event) -> None:
        """Make the transition of an event and emit the event; one that is not allowed is a bug."""
        assert self.may(event), f"{event} does not happen in {self.state}"
        self.state = self._table[self.state, event]
        self._emit(event.value)
