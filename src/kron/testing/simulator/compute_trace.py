"""A story's trace with every step of the engine in it: the compute that the theory bounds liveness by.

The positions are those of the trace in milliseconds with its pulses, in the same order. Their times are
points of the meter: where a line was written, which is not before what it tells was durable, and where the
clock first showed the instant of a pulse. All pulses are written out, for points are no time of day.
"""

from collections.abc import Iterable, Iterator, Sequence

from kron.testing.simulator.step_counter import Meter
from kron.theory import Event, Header, Kind, Position, TaskList, Trace
from kron.theory.derive import derived
from kron.theory.event import ACTIONS

COMPUTE = Event(Kind.COMPUTE)
PULSES = frozenset({Kind.MINUTE_START, Kind.DUE, Kind.RETRY_DUE})
HEADER = Header(unit="step")


def computed(trace: Trace, points: Sequence[int], meter: Meter) -> Trace:
    """Return a trace in steps: `points` are those at which the written events of a trace were written."""
    universe = {
        task for position in trace for event in position.events if event.tasks for task in event.tasks.tasks
    }
    positions = derived(trace.header, trace, kron=True, universe=sorted(universe))
    placed = _placed(_with_expired(positions), iter(points), meter)
    return Trace(HEADER, tuple(_merged(placed, meter.granted())))


def _placed(positions: Iterable[Position], points: Iterator[int], meter: Meter) -> Iterator[Position]:
    """Yield the positions with their points; none goes back, and no two actions share one."""
    latest = -1
    for position in positions:
        events = tuple(event._replace(subjects=()) for event in position.events)
        if events[0].kind in PULSES:
            latest = max(latest, meter.point_of(position.t))
        else:
            latest = max(latest + 1, next(points))
        is_action = events[0].kind in ACTIONS
        yield Position(0, 0, latest, (COMPUTE, *events) if is_action else events)


def _with_expired(positions: Iterable[Position]) -> Iterator[Position]:
    """Write out the retries that a new list brings forward into the past (reading 10)."""
    failed: dict[str, int] = {}
    for position in positions:
        yield position
        for event in position.events:
            if event.kind is Kind.RUN_FAILURE and event.task is not None:
                failed[event.task] = position.t
            elif event.kind is Kind.RUN_START and event.task is not None:
                failed.pop(event.task, None)
            elif event.kind is Kind.INIT_SUCCESS and event.tasks is not None:
                yield from _expired(event.tasks, failed, position)


def _expired(tasks: TaskList, failed: dict[str, int], position: Position) -> Iterator[Position]:
    for task in tasks.tasks:
        if task.id in failed and failed[task.id] + task.retry_delay <= position.t:
            yield position._replace(events=(Event(Kind.RETRY_DUE, task=task.id),))


def _merged(placed: Iterable[Position], granted: Iterator[int]) -> Iterator[Position]:
    """Yield positions and compute in the order of their points."""
    place = 0
    point = next(granted, None)
    for position in placed:
        while point is not None and point < position.t:
            yield Position(place, place, point, (COMPUTE,))
            place += 1
            point = next(granted, None)
        yield position._replace(place=place, i=place)
        place += 1
    while point is not None:
        yield Position(place, place, point, (COMPUTE,))
        place += 1
        point = next(granted, None)
