"""Windows: the closed interval around a nominal time from which a start is chosen."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from kron.core.fields import FieldReader, row, table_of
from kron.core.time.duration import MICROSECOND, parse_duration
from kron.core.time.instant import EpochSeconds
from kron.core.value_types import DURATION, choice

MICROS = 1_000_000


class WindowMode(StrEnum):
    """Where a window lies, seen from its nominal time."""

    AFTER = "after"
    BEFORE = "before"
    AROUND = "around"


# `center` is an older word for the same.
MODE_NAMES = {mode.value: mode for mode in WindowMode} | {"center": WindowMode.AROUND}


class Bounds(NamedTuple):
    """The seconds `[start, end]` of one window; closed, as SPEC 4 says."""

    start: EpochSeconds
    end: EpochSeconds


@dataclass(frozen=True, slots=True, init=False)
class Window:
    """How far from its nominal time a start may be chosen (SPEC 4: Window Semantics)."""

    mode: WindowMode = field(
        default=WindowMode.AFTER,
        metadata=row(
            choice(MODE_NAMES),
            "where the window lies: `after` or `before` the nominal time, or `around` it (or `center`)",
        ),
    )
    duration: timedelta = field(default=timedelta(0), metadata=row(DURATION, "how long the window is"))
    # How far the bounds lie from a nominal time; computed once, because every decision needs it.
    _reach: Bounds = field(init=False, compare=False, repr=False)

    def __init__(
        self, mode: WindowMode | str = WindowMode.AFTER, duration: timedelta | str = timedelta(0)
    ) -> None:
        """Check mode and duration, and compute the reach in whole seconds, each bound floored."""
        object.__setattr__(self, "mode", mode)
        object.__setattr__(
            self, "duration", parse_duration(duration) if isinstance(duration, str) else duration
        )
        WINDOW.check(self)
        object.__setattr__(self, "_reach", _reach_of(self.mode, self.duration // MICROSECOND))

    def bounds(self, nominal_time: EpochSeconds) -> Bounds:
        """Return the window of one nominal time, its bounds floored to whole seconds."""
        start, end = self._reach
        return Bounds(nominal_time + start, nominal_time + end)

    def to_dict(self) -> dict[str, object]:
        """Return mode and duration."""
        return WINDOW.write(self)


WINDOW = table_of(Window)


def read_window(reader: FieldReader) -> Window:
    """Return the window of a definition."""
    return WINDOW.build(reader, Window)


def _reach_of(mode: WindowMode, micros: int) -> Bounds:
    match mode:
        case WindowMode.AFTER:
            return Bounds(0, micros // MICROS)
        case WindowMode.BEFORE:
            return Bounds(-micros // MICROS, 0)
        case WindowMode.AROUND:
            # Half a duration may end in half a microsecond, so both bounds are counted in halves.
            return Bounds(-micros // (2 * MICROS), micros // (2 * MICROS))
