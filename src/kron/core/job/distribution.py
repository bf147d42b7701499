"""Distributions: from a number u in [0, 1) to a place x in the window, 0 its start and 1 its end.

DESIGN 6 is the contract. The formulas are written out, in the order of their operations, so that a
decision does not change with the library that computes it.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import erf, exp, log, sqrt
from statistics import NormalDist
from typing import Protocol

from kron.core.job.window import Bounds
from kron.core.time.duration import format_duration

# What a normal distribution's probability is held within before it is inverted.
LEAST, MOST = 2**-54, 1 - 2**-53
ROOT_2 = sqrt(2)
STANDARD = NormalDist()

DEFAULT_SHAPE = 2.0
DEFAULT_RATE = 1.0


class Mu(StrEnum):
    """Where a normal distribution has its peak."""

    NOMINAL = "nominal"
    START = "start"
    MID = "mid"
    END = "end"


class Dir(StrEnum):
    """At which end an exponential distribution is dense."""

    EARLY = "early"
    LATE = "late"


class Distribution(Protocol):
    """A way to choose a place in a window of at least one second."""

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the place a number in [0, 1) stands for; the caller holds it inside the window."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the name and the parameters beside it."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every second is as likely as any other."""

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return u itself."""
        return u

    def to_dict(self) -> dict[str, object]:
        """Return the name; there are no parameters."""
        return {"name": "uniform"}


@dataclass(frozen=True, slots=True)
class SkewEarly:
    """Dense at the start of the window, the more so the larger `shape` is."""

    shape: float = DEFAULT_SHAPE

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return u to the power of the shape."""
        return float(u**self.shape)

    def to_dict(self) -> dict[str, object]:
        """Return the name and the shape."""
        return {"name": "skewEarly", "shape": self.shape}


@dataclass(frozen=True, slots=True)
class SkewLate:
    """Dense at the end of the window, the more so the larger `shape` is."""

    shape: float = DEFAULT_SHAPE

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the mirror image of SkewEarly."""
        return float(1 - (1 - u) ** self.shape)

    def to_dict(self) -> dict[str, object]:
        """Return the name and the shape."""
        return {"name": "skewLate", "shape": self.shape}


@dataclass(frozen=True, slots=True)
class Normal:
    """A bell around `mu`, cut off at the window's bounds; `sigma` is a sixth of the window unless given."""

    mu: Mu
    sigma: timedelta | None = None

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the inverse of the cut-off bell's distribution function."""
        width = bounds.end - bounds.start
        peak = self._peak(bounds, nominal_time)
        sigma = width / 6 if self.sigma is None else self.sigma.total_seconds()
        low, high = _phi((0 - peak) / sigma), _phi((width - peak) / sigma)
        probability = min(max(low + u * (high - low), LEAST), MOST)
        return (peak + sigma * STANDARD.inv_cdf(probability)) / width

    def _peak(self, bounds: Bounds, nominal_time: int) -> float:
        """Return the seconds from the window's start to the peak."""
        match self.mu:
            case Mu.NOMINAL:
                return nominal_time - bounds.start
            case Mu.START:
                return 0
            case Mu.MID:
                return (bounds.end - bounds.start) / 2
            case Mu.END:
                return bounds.end - bounds.start

    def to_dict(self) -> dict[str, object]:
        """Return the name, the peak, and the width where it was given."""
        sigma = {} if self.sigma is None else {"sigma": format_duration(self.sigma)}
        return {"name": "normal", "mu": self.mu.value, **sigma}


@dataclass(frozen=True, slots=True)
class Exponential:
    """Dense at one end and thinning out towards the other, the more so the larger `rate` is."""

    rate: float = DEFAULT_RATE
    dir: Dir = Dir.EARLY

    def place(self, u: float, bounds: Bounds, nominal_time: int) -> float:
        """Return the inverse of the cut-off exponential's distribution function."""
        x = -log(1 - u * (1 - exp(-self.rate))) / self.rate
        return x if self.dir is Dir.EARLY else 1 - x

    def to_dict(self) -> dict[str, object]:
        """Return the name, the rate under its usual name, and the direction."""
        return {"name": "exponential", "lambda": self.rate, "dir": self.dir.value}


def _phi(z: float) -> float:
    return 0.5 * (1.0 + erf(z / ROOT_2))
