"""The class of environment that a trace shows, by the compute it grants."""

from dataclasses import dataclass
from enum import StrEnum

from kron.theory.event import Kind, Position

# A pause longer than this part of the trace has no bound that the trace could show.
FREEZING_PART = 0.5
# The longest pause over the mean: at least this in a burst, at most this where density is even.
BURST_FACTOR = 10
EVEN_FACTOR = 3


class EnvironmentClass(StrEnum):
    """The classes of the theory, as far as a finite trace can show them."""

    FREEZING = "freezing"
    THAWING = "thawing"
    LOWER_BOUNDED = "lower-bounded"
    BURST = "burst"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The observed environment: every `longest_pause` + 1 consecutive points have a Compute."""

    kind: EnvironmentClass
    points: int
    compute: int
    longest_pause: int

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object."""
        return {
            "class": str(self.kind),
            "points": self.points,
            "compute": self.compute,
            "longest_pause": self.longest_pause,
        }


class Pauses:
    """Measures compute and the pauses without it, one position at a time."""

    __slots__ = ("_compute", "_first", "_last", "_latest", "_longest")

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._latest: int | None = None
        self._longest = 0
        self._compute = 0

    def pass_to(self, position: Position) -> None:
        """Process one position."""
        t = position.t
        if self._first is None:
            self._first, self._latest = t, t - 1
        self._last = t
        assert self._latest is not None
        if t != self._latest and any(event.kind is Kind.COMPUTE for event in position.events):
            self._longest = max(self._longest, t - self._latest - 1)
            self._latest = t
            self._compute += 1

    def environment(self) -> Environment | None:
        """Return the environment, None for an empty trace."""
        if self._first is None or self._latest is None:
            return None
        points = self._last - self._first + 1
        longest = max(self._longest, self._last - self._latest)
        return Environment(
            kind=_kind_of(points, self._compute, longest),
            points=points,
            compute=self._compute,
            longest_pause=longest,
        )


def _kind_of(points: int, compute: int, longest: int) -> EnvironmentClass:
    if compute == 0 or longest > FREEZING_PART * points:
        return EnvironmentClass.FREEZING
    pause = points / compute
    if longest >= BURST_FACTOR * pause:
        return EnvironmentClass.BURST
    return EnvironmentClass.LOWER_BOUNDED if longest <= EVEN_FACTOR * pause else EnvironmentClass.THAWING
