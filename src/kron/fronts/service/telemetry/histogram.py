"""Histograms as plain lists: a value costs one bisection, whoever scrapes pays for the rest."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

# Upper bounds in seconds: calls that take milliseconds, and starts that may be hours late.
CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAUNCH_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
DRIFT_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3600.0)


class Histogram:
    """Counts values by the first bound that is not below them; the last count is of what is beyond all."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value that was seen so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Return how many values were counted."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return each bound with how many values are not beyond it, as Prometheus has them."""
        names = [*map(str, self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))
