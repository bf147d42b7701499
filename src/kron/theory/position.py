"""One position, with its events grouped by kind for the monitors."""

from collections.abc import Sequence

from kron.theory.event import ACTIONS, INIT_EVENTS, RUN_EVENTS, STOP_EVENTS, Event, Kind, Position, TaskList

_NONE: Sequence[Event] = ()
CALL_EVENTS = INIT_EVENTS | STOP_EVENTS
# The mark of an event that never happened, and of one before the start of the trace.
NEVER = -1
BEFORE_ALL = 0


class PositionKinds:
    """A position with its events by kind.

    `pos` counts in twos from 2: the mark of an event derived late lies between two positions, or before
    the first. `previous` and `previous_t` belong to the preceding position.
    """

    __slots__ = (
        "by_kind", "calls", "compute", "crash", "events", "i", "minute", "pos",
        "previous", "previous_t", "runs", "t",
    )  # fmt: skip

    def __init__(self, position: Position, previous: "PositionKinds | None") -> None:
        place, self.i, self.t, self.events = position
        self.pos = 2 * place + 2
        self.previous = BEFORE_ALL if previous is None else previous.pos
        self.previous_t = self.t if previous is None else previous.t
        by_kind: dict[Kind, list[Event]] = {}
        for event in self.events:
            if event.kind in by_kind:
                by_kind[event.kind].append(event)
            else:
                by_kind[event.kind] = [event]
        self.by_kind = by_kind
        self.crash = Kind.CRASH in by_kind
        self.compute = Kind.COMPUTE in by_kind
        # Whether a run starts or ends here, and whether a call does; a crash ends calls.
        self.runs = not RUN_EVENTS.isdisjoint(by_kind)
        self.calls = self.crash or not CALL_EVENTS.isdisjoint(by_kind)
        self.minute = Kind.MINUTE_START in by_kind or any(
            event.instant is None for event in self.of(Kind.DUE)
        )

    def of(self, kind: Kind) -> Sequence[Event]:
        """Return the events of one kind."""
        return self.by_kind.get(kind, _NONE)

    def action(self) -> Event | None:
        """Return the first action, if there is one."""
        return next((event for event in self.events if event.kind in ACTIONS), None)

    def successes(self) -> tuple[TaskList, ...]:
        """Return the lists registered here."""
        events = self.by_kind.get(Kind.INIT_SUCCESS)
        return tuple(event.tasks for event in events if event.tasks is not None) if events else ()
