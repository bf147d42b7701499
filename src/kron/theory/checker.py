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

# How many positions a picture shows before the first violation and after it.
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
    only has to be kept at some time. A trace without Compute events can be judged by `within`, a bound in
    the trace's own unit of time. `happy` are the kinds of Supernatural events that the scheduler must cope
    with; from any other on, verdicts are out of scope.
    """
    kron = _is_kron(reading)
    _check_within(within, trace)
    bound = Witnesses(*witnesses) if isinstance(witnesses, tuple) else witnesses
    settings = CheckOptions(kron=kron, witnesses=bound, within=within, happy=_kinds(happy))
    monitor = Monitor(trace.header, settings)
    window = RecentPositions()
    pauses = Pauses()
    positions = positions_of(trace, kron=kron)
    for position in positions:
        if not monitor.feed(position):
            break
        window.pass_to(position, bool(monitor.failures.found))
        pauses.pass_to(position)
    for _ in positions:
        pass  # what cannot be judged must still be readable
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

    `t_lag` is given, then `b`, then `a` is found (reading 19). Every list has some length, so a large
    enough `a` always does: the smallest `b` is 0 unless a larger one is wanted.
    """
    if not trace.header.computed:
        raise InvalidOptionError(option="trace", value="", reason="it has no Compute events to fit to")
    given = Witnesses(0, b, t_lag)
    costs = costs_of(trace, reading=reading, happy=happy)
    needed = max((-((given.allowed(cost.size) - cost.compute) // cost.size) for cost in costs), default=0)
    return Witnesses(max(needed, 0), b, t_lag)


class Cost(NamedTuple):
    """What one promise of an axiom cost, and the length of its arguments."""

    axiom: str
    compute: int
    size: int


def costs_of(trace: Trace, *, reading: str = "kron", happy: Iterable[str] = ()) -> list[Cost]:
    """Return what every promise cost in a trace with Compute events."""
    found: list[Cost] = []

    def observe(axiom: str, compute: int, size: int) -> None:
        found.append(Cost(axiom, compute, size))

    kron = _is_kron(reading)
    settings = CheckOptions(kron=kron, happy=_kinds(happy), observe=observe)
    monitor = Monitor(trace.header, settings)
    for position in positions_of(trace, kron=kron):
        if not monitor.feed(position):
            break
    monitor.finish()
    return found


def positions_of(trace: Trace, *, kron: bool) -> Iterator[Position]:
    """Yield the positions as they are judged: with the pulses the trace leaves out."""
    positions = derived(trace.header, trace, kron=kron)
    return positions if kron else attributed(positions)


class RecentPositions:
    """Keeps the last positions until the first violation, and a few after it."""

    __slots__ = ("_after", "_kept")

    def __init__(self) -> None:
        self._kept: deque[Position] = deque(maxlen=BEFORE + 1)
        self._after: list[Position] | None = None

    def pass_to(self, position: Position, failed: bool) -> None:
        """Take one position in."""
        if self._after is None:
            self._kept.append(position)
            self._after = [] if failed else None
        elif len(self._after) < AFTER:
            self._after.append(position)

    @property
    def positions(self) -> tuple[Position, ...]:
        """Return the positions about the first violation, none if there was none."""
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
        raise InvalidOptionError(option="within", value=within, reason="use a whole number from 0 on")
    if trace.header.computed:
        reason = "the trace has Compute events; bound them by witnesses"
        raise InvalidOptionError(option="within", value=within, reason=reason)
