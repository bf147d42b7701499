"""The slow evaluator: every axiom by its definition, on prefixes of a trace; for small traces only.

It shares with the monitors the parsing of the trace and the derived pulses, and nothing else.
"""

from collections.abc import Iterable, Sequence

from kron.theory.attribution import attributed
from kron.theory.axioms import AXIOM_FUNCTIONS
from kron.theory.derive import derived
from kron.theory.event import Kind, Position
from kron.theory.liveness import LivenessBounds
from kron.theory.trace import Trace
from kron.theory.verdict import NEVER_DECIDED, Status
from kron.theory.world import TraceWorld


def evaluate(
    trace: Trace, bounds: LivenessBounds | None = None, *, reading: str = "kron", happy: Iterable[str] = ()
) -> dict[str, tuple[Status, int | None]]:
    """Return the status of every axiom and, if it failed, the end of the shortest prefix that shows it."""
    kron = reading == "kron"
    bounds = bounds or LivenessBounds()
    written = list(trace)
    lists = [event.tasks for position in written for event in position.events if event.tasks is not None]
    universe = dict.fromkeys(task for tasks in lists for task in tasks.tasks)
    positions = list(derived(trace.header, written, kron=kron, universe=universe))
    if not kron:
        positions = list(attributed(positions))
    scope = _scope(positions, frozenset(happy))
    judged = positions if scope is None else positions[:scope]
    results: dict[str, tuple[Status, int | None]] = {}
    for axiom in AXIOM_FUNCTIONS:
        status, index = _judge(axiom, TraceWorld(trace.header, judged, kron=kron), bounds)
        if status is not Status.FAILED and scope is not None and axiom not in NEVER_DECIDED:
            status, index = Status.OUT_OF_SCOPE, scope
        results[axiom] = (status, None if index is None else positions[index].i)
    return results


def _judge(axiom: str, world: TraceWorld, bounds: LivenessBounds) -> tuple[Status, int | None]:
    """Judge the whole trace, then bisect its prefixes: a violation stays visible in longer ones."""
    judge = AXIOM_FUNCTIONS[axiom]
    status = judge(world, bounds)
    if status is not Status.FAILED:
        return status, None
    low, high = 0, len(world.positions)
    while high - low > 1:
        middle = (low + high) // 2
        prefix = TraceWorld(world.header, world.positions[:middle], kron=world.kron)
        if judge(prefix, bounds) is Status.FAILED:
            high = middle
        else:
            low = middle
    return status, high - 1


def _scope(positions: Sequence[Position], happy: frozenset[str]) -> int | None:
    return next(
        (
            index
            for index, position in enumerate(positions)
            for event in position.events
            if event.kind is Kind.SUPERNATURAL and event.phenomenon not in happy
        ),
        None,
    )
