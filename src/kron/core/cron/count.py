"""Counting occurrences without listing them: ten years of seconds cost as little as one day."""

from bisect import bisect_left
from itertools import pairwise

from kron.core.cron.expression import Expression
from kron.core.cron.field import bits_of
from kron.core.cron.schedule import Plan
from kron.core.cron.timeline import Stretch, timeline_of
from kron.core.time.instant import DAY, EpochSeconds

HOUR = 3600
# After so many years from any day that begins one, days and weekdays fall together as before.
CYCLE_YEARS, ANY_DAY = 28, 0
# The calendar has fewer stretches than this in any zone: no year of any zone has more than eight.
MAX_STRETCHES = 100_000


def count_between(plan: Plan, start: EpochSeconds, end: EpochSeconds) -> int:
    """Return how many occurrences lie in `[start, end)`."""
    timeline = timeline_of(plan.zone, *plan.dst)
    times = _Times(plan.expression)
    total = 0
    for _ in range(MAX_STRETCHES):
        stretch = timeline.stretch_from(start) if start < end else None
        if stretch is None or stretch.start >= end:
            return total
        total += times.within(stretch, max(start, stretch.start), min(end, stretch.end))
        start = stretch.end
    raise AssertionError("no zone has so many stretches")


def smallest_gap(expression: Expression) -> int | None:
    """Return how close two wall times of an expression can be, in seconds; None if they are days apart."""
    return _Times(expression).smallest_gap()


class _Times:
    """The wall times of one expression, counted by the day."""

    __slots__ = ("_days", "_hours", "_inside", "_per_day")

    def __init__(self, expression: Expression) -> None:
        seconds = tuple(bits_of(expression.second.mask))
        self._days = expression.days
        self._hours = expression.hour.mask
        self._inside = [
            60 * minute + second for minute in bits_of(expression.minute.mask) for second in seconds
        ]
        self._per_day = self._hours.bit_count() * len(self._inside)

    def within(self, stretch: Stretch, start: EpochSeconds, end: EpochSeconds) -> int:
        """Return how many matches lie in a part of a stretch; one that stands for a gap has one or none."""
        if stretch.walls is not None:
            first, last = stretch.walls
            return min(1, self._walls(first, last))
        return self._walls(start + stretch.offset, end + stretch.offset)

    def _walls(self, start: int, end: int) -> int:
        """Return how many wall times in `[start, end)` match."""
        first, last = start // DAY, (end - 1) // DAY
        whole = self._matching_days(first, last + 1)
        total = whole * self._per_day
        if self._matching_days(first, first + 1):
            total -= self._before(start - first * DAY)
        if self._matching_days(last, last + 1):
            total -= self._per_day - self._before(end - last * DAY)
        return total

    def _before(self, second: int) -> int:
        """Return how many times of a day lie before a second of it."""
        hour = second // HOUR
        full = (self._hours & (1 << hour) - 1).bit_count() * len(self._inside)
        if self._hours >> hour & 1:
            full += bisect_left(self._inside, second - hour * HOUR)
        return full

    def _matching_days(self, first: int, end: int) -> int:
        """Return how many days in `[first, end)` match, a year at a time."""
        total = 0
        while first < end:
            year = self._days.year_from(first)
            if year is None:
                break
            begin, stop = max(first, year.start), min(end, year.end)
            if begin < stop:
                total += (year.mask >> begin - year.start & (1 << stop - begin) - 1).bit_count()
            first = year.end
        return total

    def smallest_gap(self) -> int | None:
        """Return the least distance of two times: in an hour, from one to the next, or over midnight."""
        hours = list(bits_of(self._hours))
        inside = self._inside
        gaps = [later - earlier for earlier, later in pairwise(inside)]
        gaps += [(b - a) * HOUR - inside[-1] + inside[0] for a, b in pairwise(hours)]
        if self._has_neighbours():
            gaps.append(DAY + (hours[0] - hours[-1]) * HOUR + inside[0] - inside[-1])
        return min(gaps, default=None)

    def _has_neighbours(self) -> bool:
        """Say whether two days that follow each other ever match; the calendar repeats itself."""
        first = ANY_DAY
        ended = False
        for _ in range(CYCLE_YEARS):
            year = self._days.year_from(first)
            if year is None:
                return False
            if year.mask & year.mask >> 1 or (ended and year.start == first and year.mask & 1):
                return True
            ended = bool(year.mask >> year.end - year.start - 1 & 1)
            first = year.end
        return False
