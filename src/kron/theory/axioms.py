"""The axioms, one function each, by their definitions: slow, literal, and the oracle of the monitors.

Each takes a world, which is one prefix of a trace in one reading, and returns the axiom's status there.
Where the literal reading of an axiom differs from Kron's, both are implemented. `evaluate` applies them to
the prefixes of a small trace; it shares with the monitors the parsing of the trace and the derived pulses,
and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from kron.theory.attribution import attributed, bare
from kron.theory.derive import derived
from kron.theory.event import INIT_ENDS, Event, Kind, Name, Position, Task
from kron.theory.liveness import (
    LivenessBounds,
    l1_obligation_fulfilment,
    l2_initialization_completes,
    l3_stop_completes,
    placed,
)
from kron.theory.ltl import (
    Formula,
    always,
    at_most_one,
    both,
    either,
    hold,
    implies,
    negate,
    previous,
    until,
    weak_until,
)
from kron.theory.trace import Trace
from kron.theory.verdict import NEVER_DECIDED, Status
from kron.theory.world import TraceWorld

Axiom: TypeAlias = Callable[[TraceWorld, LivenessBounds], Status]


def _safety(formulas: Iterable[Formula]) -> Status:
    """Return PASSED if all formulas hold at the first position."""
    return Status.PASSED if all(formula[0] for formula in formulas if formula) else Status.FAILED


def ea1_crash_is_frozen(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(Crash -> Frozen)."""
    if not world.header.computed:
        return Status.INCONCLUSIVE
    return _safety([always(implies(world.crash, negate(world.some(Kind.COMPUTE))))])


def ea2_actions_take_compute(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(A -> Unfrozen) for every action A."""
    if not world.header.computed:
        return Status.INCONCLUSIVE
    acts = [any(_action(event, world.kron) for event in position.events) for position in world.positions]
    return _safety([always(implies(acts, world.some(Kind.COMPUTE)))])


def ea3_one_action_at_a_time(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """No two different actions at one position."""
    actions = [
        {action for event in position.events if (action := _action(event, world.kron))}
        for position in world.positions
    ]
    return _safety([always([len(distinct) <= 1 for distinct in actions])])


def _action(event: Event, kron: bool) -> tuple[object, ...] | None:
    """Return the action of an event: RE_x, RS_x, IS, IE, SS or SE; calls differ in Kron's reading."""
    match event.kind:
        case Kind.RUN_SUCCESS | Kind.RUN_FAILURE:
            return "RE", event.task
        case Kind.RUN_START:
            return "RS", event.task
        case Kind.INIT_START:
            return "IS", event.call if kron else event.tasks
        case Kind.INIT_SUCCESS | Kind.INIT_FAILURE:
            return "IE", event.call if kron else None
        case Kind.STOP_START:
            return "SS", event.call if kron else None
        case Kind.STOP_END:
            return "SE", event.call if kron else None
        case _:
            return None


def ea4_infinitely_often_frozen(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G F Frozen, which no finite trace decides (reading 21)."""
    return Status.INCONCLUSIVE


def ea5_due_always_again_or_never(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(F Due_x) or G(not Due_x), which no finite trace decides (reading 21)."""
    return Status.INCONCLUSIVE


def ea6_no_end_after_a_crash(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(Crash -> (not RE_x W RS_x))."""
    return _safety(
        always(implies(world.crash, weak_until(negate(world.ends(x)), world.starts(x))))
        for x in world.subjects
    )


def ea7_ends_follow_starts(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(RE_x -> Y Running_x), and the same per call; in the literal reading for any call."""
    formulas = [always(implies(world.ends(x), previous(world.running(x)))) for x in world.subjects]
    for start, ends in ((Kind.INIT_START, tuple(INIT_ENDS)), (Kind.STOP_START, (Kind.STOP_END,))):
        if world.kron:
            never = [False] * len(world.positions)
            for call in world.calls(ends):
                opened = world.calls_open(start, *ends).get(call, never)
                formulas.append(always(implies(world.of_call(call, *ends), previous(opened))))
        else:
            opened = hold(world.some(start), either(world.some(*ends), world.crash))
            formulas.append(always(implies(world.some(*ends), previous(opened))))
    return _safety(formulas)


def s1_start_safety(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(RS_x -> Y Obligation_x)."""
    never = [False] * len(world.positions)
    formulas = []
    for x in world.subjects:
        owed = [
            world.obligation(tasks, task)
            for tasks in world.lists
            for task in tasks.tasks
            if (task.is_like(x) if world.kron else task == x)
        ]
        formulas.append(always(implies(world.starts(x), previous(either(never, *owed)))))
    return _safety(formulas)


def successful_starts(world: TraceWorld, x: Task) -> Formula:
    """RSucc_x := RS_x and (not (REf_x or Crash) U REs_x)."""
    spoiled = either(world.of_task(x, Kind.RUN_FAILURE), world.crash)
    return both(world.starts(x), until(negate(spoiled), world.of_task(x, Kind.RUN_SUCCESS)))


def s2_conservation_of_starts(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """AtMostOne(Due_x, RSucc_x) literally; else a due of a tuple registered at a start since counts."""
    if not world.kron:
        return _safety(at_most_one(world.due(x), successful_starts(world, x)) for x in world.subjects)
    apart = all(
        _separated(world, x.id, p, q) for x in world.subjects for p, q in _pairs(successful_starts(world, x))
    )
    return Status.PASSED if apart else Status.FAILED


def _pairs(formula: Formula) -> list[tuple[int, int]]:
    places = [i for i, value in enumerate(formula) if value]
    return list(pairwise(places))


def _separated(world: TraceWorld, name: str, p: int, q: int) -> bool:
    """Return whether a due or first coming after the first start allows the second (reading 12)."""
    starts = world.starts(bare(name))
    tuples: set[Task] = set()
    for s in range(p + 1, q + 1):
        if starts[s]:
            known = [tasks for tasks in world.lists if world.registered(tasks)[s]]
            tuples.update([task for tasks in known for task in tasks.by_id.get(name, ())] or [bare(name)])
    return any(
        world.first_coming(name)[k] or any(world.due(task)[k] for task in tuples) for k in range(p + 1, q + 1)
    )


def s3_stop_consistency(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(SE -> not Running_x)."""
    return _safety([always(implies(world.some(Kind.STOP_END), world.quiescent))])


def s4_registration_soundness(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """R not valid => G(not IEs_R)."""
    invalid = world.where(
        lambda event: event.kind is Kind.INIT_SUCCESS and event.tasks is not None and not event.tasks.valid
    )
    return _safety([always(negate(invalid))])


def s5_registration_completeness(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """R valid => G(IFail -> an excuse), per call; literally per list, with fewer excuses."""
    init = (Kind.INIT_START, *INIT_ENDS)
    busy = previous(
        either(*(world.initializing(tasks) for tasks in world.lists))
        if not world.kron and world.lists
        else world.any_open(*init)
    )
    if not world.kron:
        formulas = []
        for tasks in world.lists:
            refused = until(
                negate(world.of_list(tasks, Kind.INIT_SUCCESS)), world.of_list(tasks, Kind.INIT_FAILURE)
            )
            failing = both(world.of_list(tasks, Kind.INIT_START), refused)
            if tasks.valid:
                formulas.append(always(implies(failing, busy)))
        return _safety(formulas)
    refusals = [
        _excused(world, call, p, busy)
        for call in world.calls([Kind.INIT_START])
        for p, event in placed(world, Kind.INIT_START, call)
        if event.tasks is not None and event.tasks.valid
    ]
    return Status.PASSED if all(refusals) else Status.FAILED


def _excused(world: TraceWorld, call: Name, p: int, busy: Formula) -> bool:
    """Return whether the call that started at p was not refused, or with an excuse (reading 4)."""
    spoiled = either(world.of_call(call, Kind.INIT_SUCCESS), world.crash)
    ends = world.of_call(call, Kind.INIT_FAILURE)
    if not until(negate(spoiled), ends)[p]:
        return True
    q = ends.index(True, p)
    active = [world.active(tasks) for tasks in world.lists]
    others = world.any_open(Kind.INIT_START, *INIT_ENDS, but=[call])
    excuse = either(others, world.stopping, *active)
    return busy[p] or any(excuse[p : q + 1])


def s6_no_concurrent_initialization(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """AtMostOne(SE or Crash, IEs); literally the other way round."""
    ended = either(world.some(Kind.STOP_END), world.crash)
    success = world.some(Kind.INIT_SUCCESS)
    return _safety([at_most_one(ended, success) if world.kron else at_most_one(success, ended)])


AXIOM_FUNCTIONS: Mapping[str, Axiom] = {
    "EA1": ea1_crash_is_frozen,
    "EA2": ea2_actions_take_compute,
    "EA3": ea3_one_action_at_a_time,
    "EA4": ea4_infinitely_often_frozen,
    "EA5": ea5_due_always_again_or_never,
    "EA6": ea6_no_end_after_a_crash,
    "EA7": ea7_ends_follow_starts,
    "S1": s1_start_safety,
    "S2": s2_conservation_of_starts,
    "S3": s3_stop_consistency,
    "S4": s4_registration_soundness,
    "S5": s5_registration_completeness,
    "S6": s6_no_concurrent_initialization,
    "L1": l1_obligation_fulfilment,
    "L2": l2_initialization_completes,
    "L3": l3_stop_completes,
}


# --- evaluation ---


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
