"""A window: the closed interval around a nominal time in which an execution may be chosen."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from kron.core.duration import MICROSECOND
from kron.core.instant import EpochSeconds

MICROS = 1_000_000


class WindowMode(StrEnum):
    """Where a window lies."""

    AFTER = "after"
    BEFORE = "before"
    AROUND = "around"


# `center` is an older word for the same.
MODE_NAMES = {mode.value: mode for mode in WindowMode} | {"center": WindowMode.AROUND}


class Bounds(NamedTuple):
    """The seconds `[start, end]` of one window; closed, as SPEC 4 says."""

    start: EpochSeconds
    end: EpochSeconds


@dataclass(frozen=True, slots=True)
class Window:
    """How far from its nominal time an execution may be chosen (SPEC 4: Window Semantics)."""

    mode: WindowMode = WindowMode.AFTER
    duration: timedelta = timedelta(0)

    def bounds(self, nominal_time: EpochSeconds) -> Bounds:
        """Return the window of one nominal time, its bounds floored to whole seconds."""
        micros = self.duration // MICROSECOND
        match self.mode:
            case WindowMode.AFTER:
                return Bounds(nominal_time, nominal_time + micros // MICROS)
            case WindowMode.BEFORE:
                return Bounds(nominal_time - -(-micros // MICROS), nominal_time)
            case WindowMode.AROUND:
                # Half a duration may end in half a microsecond, so both bounds are counted in halves.
                half = 2 * MICROS
                return Bounds(nominal_time - -(-micros // half), nominal_time + micros // half)
