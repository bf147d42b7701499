"""Whether the host's clock can be trusted: a pure judgement of readings of the wall and the monotonic clock.

The engine's time is the wall clock made monotone. A wall clock that is behind the latest recorded instant by
more than the lookahead was wrong before, or is wrong now; it is authoritative again once it has run steadily,
that is in step with the monotonic clock, for a bounded time. All instants are milliseconds.
"""

from typing import NamedTuple

# A wall clock that moved against the monotonic one by more than this was set, or the machine slept.
JUMP_MS = 500
# A forward jump of more than this is recorded and shown.
DAY_MS = 86_400_000


def offset_of(asked_at: int, answered_at: int, reference: int, *, lookahead_ms: int) -> int:
    """Return how far the wall clock is ahead of another clock, negative if behind; 0 within the lookahead.

    The other one showed `reference` at some time between two readings of the wall clock.
    """
    if asked_at - reference > lookahead_ms:
        return asked_at - reference
    return answered_at - reference if reference - answered_at > lookahead_ms else 0


class Reading(NamedTuple):
    """One reading of both clocks."""

    wall: int
    mono: int


class Judgement(NamedTuple):
    """The result of one reading.

    `now` is the engine's time. `jump` is how far the wall clock was set since the last reading. `behind` is
    how far it is behind the latest recorded instant, 0 within the lookahead. `expected` is what the wall
    clock would show without the jump.
    """

    now: int
    jump: int
    behind: int
    expected: int
    is_steady: bool


class ClockState(NamedTuple):
    """The latest instant read or recorded, the last reading, and the first one of the steady stretch."""

    high: int = 0
    last: Reading | None = None
    steady_from: Reading | None = None

    def recorded(self, instant: int) -> "ClockState":
        """Return the state after an instant was found on disk, or stamped on a report."""
        return self._replace(high=instant) if instant > self.high else self

    def read(self, reading: Reading, *, lookahead_ms: int, steady_ms: int) -> tuple["ClockState", Judgement]:
        """Return the state after a reading, and its judgement."""
        wall, mono = reading
        expected = wall if self.last is None else self.last.wall + mono - self.last.mono
        jump = wall - expected if abs(wall - expected) > JUMP_MS else 0
        steady_from = reading if jump or self.steady_from is None else self.steady_from
        high = max(self.high, wall)
        behind = high - wall if high - wall > lookahead_ms else 0
        is_steady = mono - steady_from.mono >= steady_ms
        state = ClockState(high, reading, steady_from)
        return state, Judgement(high, jump, behind, expected, is_steady)

    def corrected(self) -> "ClockState":
        """Return the state once the records are corrected: the wall clock is authoritative again."""
        return self if self.last is None else self._replace(high=self.last.wall)

    def steady_at(self, steady_ms: int) -> int | None:
        """Return the wall clock's time at which the present stretch becomes steady."""
        return None if self.steady_from is None else self.steady_from.wall + steady_ms
