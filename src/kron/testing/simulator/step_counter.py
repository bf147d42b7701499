"""The meter: counts the steps of Kron's own code, and lets the world stand still between any two of them.

A step is one line of the code that decides and carries out (core, runtime, fronts, launchers), each turn of a
loop anew. Stores, clocks and the time zone database are input and output, callbacks and the event loop are
somebody else's, and what is written for the theory to read is nobody's: none of that is a step (SPEC 2:
compute).

Steps and the milliseconds that pass between them share one axis of points. A step takes a point with
compute; a millisecond takes a point, and has compute only where the environment grants some to no purpose.
"""

import io
import json
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import CodeType, FrameType

from kron.core.plan.step import MILLISECOND
from kron.core.time.instant import EPOCH
from kron.testing.clock import SimulatedClock
from kron.testing.simulator.compute import Weather

ROOT = Path(__file__).resolve().parents[2]
COUNTED = tuple(str(ROOT / part) for part in ("core", "runtime", "app", "fronts", "launchers"))
# One reads the time zone database, which is input too; the other writes traces, which nobody does in earnest.
APART = tuple(str(ROOT / part) for part in ("core/time/zone.py", "fronts/embed/trace.py"))
WRITING = "TraceJournal."
# Functions are optimized code; the bodies of modules and classes, which run once, are not.
IS_FUNCTION = 0x1
# Long work of the scheduler is done in threads of this name; other threads are a store's.
ASIDE = "kron-aside"
POINT = "point"
FIRST_POINT = 60_000
# A lawful story wakes somebody some thousand times; one that does so without end is broken off.
MAX_WAKES = 20_000
# What nobody does, so that it takes no compute.
FROZEN = ("UnexpectedShutdown", "Supernatural")


class Meter:
    """Points passed so far, those with compute, and the instants that the clock showed at them."""

    def __init__(self, weather: Weather) -> None:
        # The minute in which a story begins has begun without it.
        self.point = FIRST_POINT
        self.is_counting = True
        self._weather = weather
        self._clock: MeteredClock | None = None
        self._is_mine: dict[CodeType, bool] = {}
        self._steps = 0
        self._pause_at, self._pause_ms = weather.next_pause()
        # Stretches of points with compute, the last one still open, and where the clock was moved.
        self._granted = [range(point, point + 1) for point in weather.unused(FIRST_POINT)]
        self._since = FIRST_POINT
        self._shown: list[int] = []
        self._moves: list[tuple[int, int]] = []

    # --- counting --------------------------------------------------------------------------------

    @contextmanager
    def reading(self, clock: "MeteredClock") -> Iterator[None]:
        """Count while this lasts; what was kept from earlier stories is forgotten, so that counts repeat."""
        self._clock = clock
        clock.meter = self
        clock.begin()
        _forget_answers()
        before = sys.gettrace()
        threading.settrace(self._enter_thread)
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)
            clock.meter = None

    def _enter(self, frame: FrameType, event: str, _: object) -> "Meter | None":
        code = frame.f_code
        mine = self._is_mine.get(code)
        if mine is None:
            mine = self._is_mine[code] = _is_counted(code)
        return self if mine else None

    def _enter_thread(self, frame: FrameType, event: str, given: object) -> "Meter | None":
        if threading.current_thread().name.startswith(ASIDE):
            return self._enter(frame, event, given)
        sys.settrace(None)
        return None

    def __call__(self, frame: FrameType, event: str, _: object) -> "Meter":
        """Take note of what a function of Kron's does next."""
        if event == "line" and self.is_counting:
            self.point += 1
            self._steps += 1
            if self._steps >= self._pause_at:
                self._pause()
        return self

    def _pause(self) -> None:
        assert self._clock is not None
        pause_ms = self._pause_ms
        after, self._pause_ms = self._weather.next_pause()
        self._pause_at = self._steps + after
        self._clock.freeze(pause_ms)

    def step(self) -> int:
        """Take one step; return its point."""
        self.point += 1
        return self.point - 1

    def stand(self) -> int:
        """Let one point pass at which nothing could be done; return it."""
        self._close()
        self.point += 1
        self._since = self.point
        return self.point - 1

    # --- time ------------------------------------------------------------------------------------

    def passes(self, before: int, after: int, *, frozen: bool) -> None:
        """Note that time passes, in milliseconds; while nothing is frozen, some compute goes unused."""
        self._close()
        self._show(before, self.point)
        if not frozen:
            for offset in self._weather.unused(after - before):
                self._granted.append(range(self.point + offset, self.point + offset + 1))
        self.point = self._since = self.point + after - before
        self._show(after, self.point)

    def jumps(self, after: int) -> None:
        """Note that the clock was set: that takes no time."""
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

    # --- what was counted ------------------------------------------------------------------------

    def point_of(self, instant: int) -> int:
        """Return the point at which the clock first showed an instant, or a later one."""
        number = bisect_left(self._shown, instant)
        if number == len(self._moves):
            return self.point
        shown, point = self._moves[number]
        # A clock that was set shows what it skipped all at once.
        earlier = self._moves[number - 1][1] if number else 0
        return max(earlier, point - (shown - instant))

    def granted(self) -> Iterator[int]:
        """Yield the points with compute, in order."""
        self._close()
        for stretch in self._granted:
            yield from stretch


class MeteredClock(SimulatedClock):
    """A simulated clock that tells a meter how time passes, and that can be frozen with all the world.

    `wakes` counts how often somebody woke; a story in which that never ends is broken off.
    """

    meter: Meter | None = None
    wakes = 0

    def _pass_to(self, instant: datetime) -> None:
        self.wakes += 1
        if self.wakes > MAX_WAKES:
            raise TimeoutError(f"it wakes more than {MAX_WAKES} times and goes on and on")
        before = self._milliseconds()
        super()._pass_to(instant)
        self._tell(before, frozen=False)

    def jump_to(self, instant: datetime) -> None:
        """Set the wall clock."""
        super().jump_to(instant)
        if self.meter is not None:
            self.meter.jumps(self._milliseconds())

    def begin(self) -> None:
        """Show the meter when the story begins."""
        if self.meter is not None:
            self.meter.jumps(self._milliseconds())

    def freeze(self, milliseconds: int) -> None:
        """Let time pass and nobody do anything, not even wake."""
        before = self._milliseconds()
        super()._pass_to(self.now() + timedelta(milliseconds=milliseconds))
        self._tell(before, frozen=True)

    def _tell(self, before: int, *, frozen: bool) -> None:
        after = self._milliseconds()
        if self.meter is not None and after > before:
            self.meter.passes(before, after, frozen=frozen)

    def _milliseconds(self) -> int:
        return (self.now() - EPOCH) // MILLISECOND


class Stamped(io.StringIO):
    """Lines of a trace, each with the point at which it was written; writing one is a step."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def write(self, text: str) -> int:
        """Write lines; those that have no point yet get the present one."""
        stamped = [self._stamped(json.loads(line)) for line in text.splitlines()]
        return super().write("".join(json.dumps(line) + "\n" for line in stamped))

    def _stamped(self, line: dict[str, object]) -> dict[str, object]:
        if POINT in line or "event" not in line:
            return line
        is_action = line["event"] not in FROZEN
        return line | {POINT: self._meter.step() if is_action else self._meter.stand()}


def _is_counted(code: CodeType) -> bool:
    path = code.co_filename
    if not code.co_flags & IS_FUNCTION or not path.startswith(COUNTED) or path.startswith(APART):
        return False
    return not code.co_qualname.startswith(WRITING)


def _forget_answers() -> None:
    """Empty every cache of Kron's, so that a story costs the same wherever it is told."""
    for name, module in list(sys.modules.items()):
        if name.startswith("kron."):
            for value in list(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if clear is not None and not isinstance(value, type):
                    clear()
