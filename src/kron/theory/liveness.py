"""The liveness axioms by their definitions: each promise, and whether it was kept in time."""

from collections.abc import Iterable
from dataclasses import dataclass

from kron.theory.bound import Witnesses, compute_in, size_of
from kron.theory.event import INIT_ENDS, NO_LIST, Event, Kind, Name
from kron.theory.ltl import Formula, both, either, hold_plus, negate, previous, since
from kron.theory.verdict import Status
from kron.theory.world import TraceWorld


@dataclass(frozen=True, slots=True)
class LivenessBounds:
    """The bounds of liveness: witnesses, a span of wall time, or neither."""

    witnesses: Witnesses | None = None
    within: int | None = None


def placed(world: TraceWorld, kind: Kind, call: Name) -> list[tuple[int, Event]]:
    """Return where a call has events of one kind, and the events."""
    return [
        (i, event)
        for i, position in enumerate(world.positions)
        for event in position.events
        if event.kind is kind and event.call == call
    ]


def _fulfilled(world: TraceWorld, bounds: LivenessBounds, i: int, bits: int, promised: Formula) -> Status:
    """F_lin(R, tau(i)) (P) on a prefix: kept in time, broken, or still open."""
    if not world.header.computed and bounds.within is None:
        return Status.INCONCLUSIVE
    came = [j for j in range(i, len(promised)) if promised[j]]
    if bounds.within is not None:
        allowed, spent = bounds.within, [t - world.times[i] for t in world.times]
    elif bounds.witnesses is not None:
        points = [position.t for position in world.positions if Event(Kind.COMPUTE) in position.events]
        allowed = bounds.witnesses.allowed(size_of(bits, world.times[i]))
        spent = [compute_in(points, world.times[i], t) for t in world.times]
    else:
        return Status.PASSED if came else Status.INCONCLUSIVE
    if any(spent[j] <= allowed for j in came):
        return Status.PASSED
    return Status.FAILED if spent[-1] > allowed else Status.INCONCLUSIVE


def _worst(statuses: Iterable[Status], world: TraceWorld, bounds: LivenessBounds) -> Status:
    if not world.header.computed and bounds.within is None:
        return Status.INCONCLUSIVE
    seen = set(statuses)
    return next((status for status in (Status.FAILED, Status.INCONCLUSIVE) if status in seen), Status.PASSED)


def l1_obligation_fulfilment(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(Obligation_{R,x} -> F_lin(R, tau(i)) (RS_x or not Active_R))."""
    statuses = []
    for tasks in world.lists:
        for x in tasks.tasks:
            promised = either(world.starts(x), negate(world.active(tasks)))
            owed = world.obligation(tasks, x)
            statuses += [
                _fulfilled(world, bounds, i, tasks.bits, promised) for i, owes in enumerate(owed) if owes
            ]
    return _worst(statuses, world, bounds)


def l2_initialization_completes(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(IS_R -> F_lin(R, tau(i)) (IE_R or Crash)), per call; literally per list."""
    statuses = []
    for call in world.calls([Kind.INIT_START]):
        for i, event in placed(world, Kind.INIT_START, call):
            tasks = event.tasks
            assert tasks is not None
            ended = world.of_call(call, *INIT_ENDS) if world.kron else world.of_list(tasks, *INIT_ENDS)
            statuses.append(_fulfilled(world, bounds, i, tasks.bits, either(ended, world.crash)))
    return _worst(statuses, world, bounds)


def l3_stop_completes(world: TraceWorld, bounds: LivenessBounds) -> Status:
    """G(SS -> G(FirstQuiescentSince(SS) -> F_lin(R, tau(i)) (SE or Crash))), per call or literally per R."""
    statuses = _l3_by_call(world, bounds) if world.kron else _l3_by_list(world, bounds)
    return _worst(statuses, world, bounds)


def _l3_by_call(world: TraceWorld, bounds: LivenessBounds) -> list[Status]:
    quiet = both(world.quiescent, negate(world.any_open(Kind.INIT_START, *INIT_ENDS)))
    statuses = []
    for call in world.calls([Kind.STOP_START]):
        stop = world.of_call(call, Kind.STOP_START)
        waited = previous(since(negate(quiet), both(stop, negate(quiet))))
        first_quiet = both(quiet, either(stop, waited))
        promised = either(world.of_call(call, Kind.STOP_END), world.crash)
        for i, here in enumerate(first_quiet):
            if here:
                s = max(k for k in range(i + 1) if stop[k])
                statuses.append(_fulfilled(world, bounds, i, _longest(world, s, i), promised))
    return statuses


def _longest(world: TraceWorld, s: int, i: int) -> int:
    """Return the length of the longest list registered or being initialized from s to i (reading 3)."""
    lists = [tasks.bits for tasks in world.lists if any(world.registered(tasks)[s : i + 1])]
    for call in world.calls([Kind.INIT_START]):
        ended = either(world.of_call(call, *INIT_ENDS), world.crash)
        opened = hold_plus(world.of_call(call, Kind.INIT_START), ended)
        started = {k: event.tasks for k, event in placed(world, Kind.INIT_START, call)}
        for k in range(s, i + 1):
            tasks = started.get(max((place for place in started if place <= k), default=-1))
            if opened[k] and tasks is not None:
                lists.append(tasks.bits)
    return max(lists, default=NO_LIST.bits)


def _l3_by_list(world: TraceWorld, bounds: LivenessBounds) -> list[Status]:
    statuses = []
    for tasks in world.lists:
        stop = world.stop_of(tasks, Kind.STOP_START)
        first_quiet = both(world.quiescent, since(negate(world.quiescent), stop))
        promised = either(world.stop_of(tasks, Kind.STOP_END), world.crash)
        statuses += [
            _fulfilled(world, bounds, i, tasks.bits, promised) for i, here in enumerate(first_quiet) if here
        ]
    return statuses
