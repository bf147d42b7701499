"""The step counter: counts the steps of Kron's code, and can pause the environment between any two.

A step is one executed line of the code that decides and dispatches (core, runtime, app, fronts, launchers).
Stores, clocks and the time zone database are I/O, callbacks and the event loop are not Kron's code, and the
trace is written only for the theory: none of these are steps (SPEC 2: compute).

Steps and the milliseconds that pass between them share one axis of points. A step takes a point with
compute; a millisecond takes a point, and has compute only where the environment grants idle compute.

The trace of a history can be converted to this axis (`computed`). Its positions are those of the trace in
milliseconds with its pulses, in the same order. Their times are points: where a line was written, which is
not before its event was durable, and where the clock first showed the instant of a pulse. All pulses are
written out, because points have no relation to the time of day.
"""

import io
import json
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import CodeType, FrameType

from kron.core.time.instant import EPOCH, MILLISECOND
from kron.testing.clock import SimulatedClock
from kron.testing.simulator.compute import ComputeModel
from kron.theory import Event, Header, Kind, Position, TaskList, Trace
from kron.theory.derive import derived
from kron.theory.event import ACTIONS

ROOT = Path(__file__).resolve().parents[2]
COUNTED = tuple(str(ROOT / part) for part in ("core", "runtime", "app", "fronts", "launchers"))
# One reads the time zone database, which is I/O; the other writes traces, which only tests do.
APART = tuple(str(ROOT / part) for part in ("core/time/zone.py", "fronts/embed/trace.py"))
WRITING = "TraceJournal."
# Functions are optimized code; the bodies of modules and classes, which run once, are not.
IS_FUNCTION = 0x1
# Long work of the scheduler runs in threads of this name; other threads belong to a store.
ASIDE = "kron-aside"
POINT = "point"
FIRST_POINT = 60_000
# A conforming history has a few thousand wake-ups; an endless one is aborted.
MAX_WAKES = 20_000
# Events without an actor, which take no compute.
FROZEN = ("UnexpectedShutdown", "Supernatural")
COMPUTE = Event(Kind.COMPUTE)
PULSES = frozenset({Kind.MINUTE_START, Kind.DUE, Kind.RETRY_DUE})
HEADER = Header(unit="step")


class StepCounter:
    """The points so far, those with compute, and the clock's instants at them."""

    def __init__(self, compute: ComputeModel) -> None:
        # The minute in which a history starts has started before it.
        self.point = FIRST_POINT
        self.is_counting = True
        self._compute = compute
        self._clock: CountedClock | None = None
        self._is_counted: dict[CodeType, bool] = {}
        self._steps = 0
        self._pause_at, self._pause_ms = compute.next_pause()
        # Ranges of points with compute, the last one still open, and where the clock was moved.
        self._granted = [range(point, point + 1) for point in compute.unused(FIRST_POINT)]
        self._since = FIRST_POINT
        self._shown: list[int] = []
        self._moves: list[tuple[int, int]] = []

    # --- counting --------------------------------------------------------------------------------

    @contextmanager
    def counting(self, clock: "CountedClock") -> Iterator[None]:
        """Count within this context; caches are cleared first, so that counts are reproducible."""
        self._clock = clock
        clock.counter = self
        clock.start()
        _clear_caches()
        before = sys.gettrace()
        threading.settrace(self._enter_thread)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)
            clock.counter = None

    def _enter(self, frame: FrameType, event: str, _: object) -> "StepCounter | None":
        code = frame.f_code
        counted = self._is_counted.get(code)
        if counted is None:
            counted = self._is_counted[code] = _is_counted(code)
        return self if counted else None

    def _enter_thread(self, frame: FrameType, event: str, given: object) -> "StepCounter | None":
        if threading.current_thread().name.startswith(ASIDE):
            return self._enter(frame, event, given)
        sys.settrace(None)
        return None

    def __call__(self, frame: FrameType, event: str, _: object) -> "StepCounter":
        """Count the next line of a function of Kron's."""
        if event == "line" and self.is_counting:
            self.point += 1
            self._steps += 1
            if self._steps >= self._pause_at:
                self._pause()
        return self

    def _pause(self) -> None:
        assert self._clock is not None
        pause_ms = self._pause_ms
        after, self._pause_ms = self._compute.next_pause()
        self._pause_at = self._steps + after
        self._clock.freeze(pause_ms)

    def step(self) -> int:
        """Take one step; return its point."""
        self.point += 1
        return self.point - 1

    def skip(self) -> int:
        """Pass one point without compute; return it."""
        self._close()
        self.point += 1
        self._since = self.point
        return self.point - 1

    # --- time ------------------------------------------------------------------------------------

    def passes(self, before: int, after: int, *, frozen: bool) -> None:
        """Record that time passes, in milliseconds; unless frozen, some of it has idle compute."""
        self._close()
        self._show(before, self.point)
        if not frozen:
            for offset in self._compute.unused(after - before):
                self._granted.append(range(self.point + offset, self.point + offset + 1))
        self.point = self._since = self.point + after - before
        self._show(after, self.point)

    def jumps(self, after: int) -> None:
        """Record that the clock was set, which takes no time."""
        self._close()
        self._show(after, self.point)

    def _close(self) -> None:
        if self.point > self._since:
            self._granted.append(range(self._since, self.point))
        self._since = self.point

    def _show(self, shown: int, point: int) -> None:
        if not self._shown or shown > self._shown[-1]:
            self._shown.append(shown)
            self._moves.append((shown, point))

    # --- results ---------------------------------------------------------------------------------

    def point_of(self, instant: int) -> int:
        """Return the point at which the clock first showed an instant, or a later one."""
        number = bisect_left(self._shown, instant)
        if number == len(self._moves):
            return self.point
        shown, point = self._moves[number]
        # A clock that was set shows all skipped instants at once.
        earlier = self._moves[number - 1][1] if number else 0
        return max(earlier, point - (shown - instant))

    def granted(self) -> Iterator[int]:
        """Yield the points with compute, in order."""
        self._close()
        for points in self._granted:
            yield from points


class CountedClock(SimulatedClock):
    """A simulated clock that reports to a step counter how time passes, and that can be frozen.

    `wakes` counts the wake-ups; an endless history is aborted.
    """

    counter: StepCounter | None = None
    wakes = 0

    def _pass_to(self, instant: datetime) -> None:
        self.wakes += 1
        if self.wakes > MAX_WAKES:
            raise TimeoutError(f"more than {MAX_WAKES} wake-ups without an end")
        before = self._milliseconds()
        super()._pass_to(instant)
        self._report(before, frozen=False)

    def jump_to(self, instant: datetime) -> None:
        """Set the wall clock."""
        super().jump_to(instant)
        if self.counter is not None:
            self.counter.jumps(self._milliseconds())

    def start(self) -> None:
        """Report the start of the history to the counter."""
        if self.counter is not None:
            self.counter.jumps(self._milliseconds())

    def freeze(self, milliseconds: int) -> None:
        """Let time pass without any wake-up."""
        before = self._milliseconds()
        super()._pass_to(self.now() + timedelta(milliseconds=milliseconds))
        self._report(before, frozen=True)

    def _report(self, before: int, *, frozen: bool) -> None:
        after = self._milliseconds()
        if self.counter is not None and after > before:
            self.counter.passes(before, after, frozen=frozen)

    def _milliseconds(self) -> int:
        return (self.now() - EPOCH) // MILLISECOND


class StampedTrace(io.StringIO):
    """The lines of a trace, each with the point at which it was written; writing one is a step."""

    def __init__(self, counter: StepCounter) -> None:
        super().__init__()
        self._counter = counter

    def write(self, text: str) -> int:
        """Write lines; those without a point get the current one."""
        stamped = [self._stamped(json.loads(line)) for line in text.splitlines()]
        return super().write("".join(json.dumps(line) + "\n" for line in stamped))

    def _stamped(self, line: dict[str, object]) -> dict[str, object]:
        if POINT in line or "event" not in line:
            return line
        is_action = line["event"] not in FROZEN
        return line | {POINT: self._counter.step() if is_action else self._counter.skip()}


def _is_counted(code: CodeType) -> bool:
    path = code.co_filename
    if not code.co_flags & IS_FUNCTION or not path.startswith(COUNTED) or path.startswith(APART):
        return False
    return not code.co_qualname.startswith(WRITING)


def _clear_caches() -> None:
    """Clear every cache of Kron's, so that a history costs the same in every process."""
    for name, module in list(sys.modules.items()):
        if name.startswith("kron."):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if clear is not None and not isinstance(value, type):
                    clear()


# --- the trace in steps ------------------------------------------------------------------------------


def computed(trace: Trace, points: Sequence[int], counter: StepCounter) -> Trace:
    """Return a trace in steps; `points` are the points at which the events of a trace were written."""
    universe = {
        task for position in trace for event in position.events if event.tasks for task in event.tasks.tasks
    }
    positions = derived(trace.header, trace, kron=True, universe=sorted(universe))
    placed = _placed(_with_expired(positions), iter(points), counter)
    return Trace(HEADER, tuple(_merged(placed, counter.granted())))


def _placed(positions: Iterable[Position], points: Iterator[int], counter: StepCounter) -> Iterator[Position]:
    """Yield the positions with their points, in order; no two actions share one."""
    latest = -1
    for position in positions:
        events = tuple(event._replace(subjects=()) for event in position.events)
        if events[0].kind in PULSES:
            latest = max(latest, counter.point_of(position.t))
        else:
            latest = max(latest + 1, next(points))
        is_action = events[0].kind in ACTIONS
        yield Position(0, 0, latest, (COMPUTE, *events) if is_action else events)


def _with_expired(positions: Iterable[Position]) -> Iterator[Position]:
    """Yield the positions and the retries that a new list moves into the past (reading 10)."""
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
