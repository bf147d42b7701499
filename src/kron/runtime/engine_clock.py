"""The engine's time: the wall clock made monotone."""

from dataclasses import dataclass
from datetime import timedelta

from kron.core.time.instant import EPOCH
from kron.ports import Clock

MILLISECOND = timedelta(milliseconds=1)
# A wall clock that moved against the monotonic one by more than this was set by somebody.
JUMP_MS = 500


@dataclass(slots=True)
class EngineClock:
    """The wall clock made monotone; notices when somebody set it, or when the machine slept.

    `passed` is the latest instant that the clock can have shown, whether anybody looked or not.
    """

    clock: Clock
    high: int = 0
    passed: int = 0
    _wall: int | None = None
    _mono: float = 0.0

    def wall(self) -> int:
        """Return what the wall clock shows, which may be earlier than before."""
        return (self.clock.now() - EPOCH) // MILLISECOND

    def look(self) -> int:
        """Return the present instant without taking note of a jump: only a wake does that."""
        self.high = max(self.high, self.wall())
        return self.high

    def read(self) -> tuple[int, int]:
        """Return the present instant in milliseconds, never going back, and how far the clock jumped."""
        wall, mono = self.wall(), self.clock.monotonic()
        expected = wall if self._wall is None else self._wall + round(1000 * (mono - self._mono))
        jump = wall - expected
        self._wall, self._mono = wall, mono
        self.high = max(self.high, wall)
        self.passed = max(self.high, expected)
        return self.high, jump if abs(jump) > JUMP_MS else 0
