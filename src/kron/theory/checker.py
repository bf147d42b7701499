"""`check`: judge a trace by every axiom in one pass; `fit`: the smallest witnesses it allows."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kron.core.errors import InvalidOptionError
from kron.theory.attribution import attributed
from kron.theory.bound import Witnesses
from kron.theory.derive import derived
from kron.theory.environment import Pauses
from kron.theory.event import Position
from kron.theory.monitor import CheckOptions, Monitor
from kron.theory.report import Report
from kron.theory.trace import Trace
from kron.theory.verdict import READINGS

# The positions kept for display before the first violation and after it.
BEFORE, AFTER = 9, 3


def check(
    trace: Trace,
    witnesses: Witnesses | tuple[int, int, int] | None = None,
    *,
    reading: str = "kron",
    happy: Iterable[str] = (),
    within: int | None = None,
) -> Report:
    """Judge a trace by every axiom, in one pass.

    `witnesses`, or a tuple (a, b, t_lag), bound the liveness axioms by compute; without them a promise
    has no limit. A trace without Compute events can be judged by `within`, a bound in the unit of the
    trace. `happy` are the kinds of Supernatural events that the scheduler must handle; from any other
    kind on, verdicts are out of scope.
    """
    kron = _is_kron(reading)
    _check_within(within, trace)
    bound = Witnesses(*witnesses) if isinstance(witnesses, tuple) else witnesses
    options = CheckOptions(kron=kron, witnesses=bound, within=within, happy=_kinds(happy))
    monitor = Monitor(trace.header, options)
    window = RecentPositions()
    pauses = Pauses()
    positions = positions_of(trace, kron=kron)
    for position in positions:
        if not monitor.feed(position):
            break
        window.pass_to(position, bool(monitor.failures.found))
        pauses.pass_to(position)
    for _ in positions:
        pass  # the part that is not judged must still be readable
    return Report(
        reading=reading,
        findings=monitor.finish(),
        scope_ends=monitor.scope_ends,
        environment=pauses.environment() if trace.header.computed else None,
        around=window.positions,
    )


def fit(
    trace: Trace, *, t_lag: int = 0, b: int = 0, reading: str = "kron", happy: Iterable[str] = ()
) -> Witnesses:
    """Return the smallest witnesses with which no liveness axiom fails on a trace with Compute events.

    `t_lag` and `b` are given, and `a` is computed (reading 19). Every list has some length, so a large
    enough `a` always exists; `b` may be 0.
    """
    if not trace.header.computed:
        raise InvalidOptionError(option="trace", value="", reason="it has no Compute events to fit to")
    given = Witnesses(0, b, t_lag)
    costs = costs_of(trace, reading=reading, happy=happy)
    needed = max((-((given.allowed(cost.size) - cost.compute) // cost.size) for cost in costs), default=0)
    return Witnesses(max(needed, 0), b, t_lag)


class Cost(NamedTuple):
    """The compute that one promise of an axiom cost, and the length of its arguments."""

    axiom: str
    compute: int
    size: int


def costs_of(trace: Trace, *, reading: str = "kron", happy: Iterable[str] = ()) -> list[Cost]:
    """Return the cost of every promise in a trace with Compute events."""
    costs: list[Cost] = []

    def observe(axiom: str, compute: int, size: int) -> None:
        costs.append(Cost(axiom, compute, size))

    kron = _is_kron(reading)
    options = CheckOptions(kron=kron, happy=_kinds(happy), observe=observe)
    monitor = Monitor(trace.header, options)
    for position in positions_of(trace, kron=kron):
        if not monitor.feed(position):
            break
    monitor.finish()
    return costs


def positions_of(trace: Trace, *, kron: bool) -> Iterator[Position]:
    """Yield the positions as they are judged: with the derived pulses."""
    positions = derived(trace.header, trace, kron=kron)
    return positions if kron else attributed(positions)


class RecentPositions:
    """Keeps the last positions until the first violation, and a few after it."""

    __slots__ = ("_after", "_kept")

    def __init__(self) -> None:
        self._kept: deque[Position] = deque(maxlen=BEFORE + 1)
        self._after: list[Position] | None = None

    def pass_to(self, position: Position, failed: bool) -> None:
        """Process one position."""
        if self._after is None:
            self._kept.append(position)
            self._after = [] if failed else None
        elif len(self._after) < AFTER:
            self._after.append(position)

    @property
    def positions(self) -> tuple[Position, ...]:
        """Return the positions near the first violation, none if there was none."""
        return () if self._after is None else (*self._kept, *self._after)


def _is_kron(reading: str) -> bool:
    if reading not in READINGS:
        raise InvalidOptionError(option="reading", value=reading, reason=f"use one of {', '.join(READINGS)}")
    return reading == "kron"


def _kinds(happy: Iterable[str]) -> frozenset[str]:
    return frozenset([happy] if isinstance(happy, str) else happy)


def _check_within(within: int | None, trace: Trace) -> None:
    if within is None:
        return
    if type(within) is not int or within < 0:
        raise InvalidOptionError(option="within", value=within, reason="use a whole number from 0")
    if trace.header.computed:
        reason = "the trace has Compute events; bound them by witnesses"
        raise InvalidOptionError(option="within", value=within, reason=reason)
