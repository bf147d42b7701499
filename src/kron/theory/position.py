"""One position taken apart, as the monitors look at it."""

from collections.abc import Sequence

from kron.theory.event import ACTIONS, INIT_EVENTS, RUN_EVENTS, STOP_EVENTS, Event, Kind, Position, TaskList

_NONE: Sequence[Event] = ()
CALL_EVENTS = INIT_EVENTS | STOP_EVENTS
# The mark of what never happened, and that of what happened before the trace begins.
NEVER = -1
BEFORE_ALL = 0


class PositionKinds:
    """A position by kinds of events.

    `pos` counts in twos from 2: marks of what was found out late stand between two positions, or before
    the first. `previous` and `previous_t` are those of the position before.
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
        found: dict[Kind, list[Event]] = {}
        for event in self.events:
            if event.kind in found:
                found[event.kind].append(event)
            else:
                found[event.kind] = [event]
        self.by_kind = found
        self.crash = Kind.CRASH in found
        self.compute = Kind.COMPUTE in found
        # Whether a run begins or ends here, and whether a call does, be it by a crash.
        self.runs = not RUN_EVENTS.isdisjoint(found)
        self.calls = self.crash or not CALL_EVENTS.isdisjoint(found)
        self.minute = Kind.MINUTE_START in found or any(event.instant is None for event in self.of(Kind.DUE))

    def of(self, kind: Kind) -> Sequence[Event]:
        """Return the events of one kind."""
        return self.by_kind.get(kind, _NONE)

    def action(self) -> Event | None:
        """Return the first action, if there is one."""
        return next((event for event in self.events if event.kind in ACTIONS), None)

    def successes(self) -> tuple[TaskList, ...]:
        """Return the lists that were registered here."""
        found = self.by_kind.get(Kind.INIT_SUCCESS)
        return tuple(event.tasks for event in found if event.tasks is not None) if found else ()
