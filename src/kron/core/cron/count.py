"""Counting occurrences without listing them: ten years of seconds cost as little as one day."""

from itertools import pairwise

from kron.core.cron.expression import Expression
from kron.core.cron.field import bits_of
from kron.core.cron.timeline import Stretch, timeline_of
from kron.core.cron.walk import Plan
from kron.core.time.instant import DAY, EpochSeconds

HOUR, MINUTE = 3600, 60
# After this many years from the first day of any year, dates fall on the same weekdays again.
CYCLE_YEARS, ANY_DAY = 28, 0
# More than the calendar has in any zone: no year of any zone has more than eight stretches.
MAX_STRETCHES = 100_000


def count_between(plan: Plan, start: EpochSeconds, end: EpochSeconds) -> int:
    """Return the number of occurrences in `[start, end)`."""
    timeline = timeline_of(plan.zone, *plan.dst)
    times = _Times(plan.expression)
    total = 0
    for _ in range(MAX_STRETCHES):
        stretch = timeline.stretch_from(start) if start < end else None
        if stretch is None or stretch.start >= end:
            return total
        total += times.within(stretch, max(start, stretch.start), min(end, stretch.end))
        start = stretch.end
    raise AssertionError(f"a zone has more than {MAX_STRETCHES} stretches")


def smallest_gap(expression: Expression) -> int | None:
    """Return the least distance of two wall times, in seconds; None if they are days apart."""
    return _Times(expression).smallest_gap()


class _Times:
    """The wall times of one expression, counted by the day."""

    __slots__ = ("_days", "_hours", "_minutes", "_per_day", "_per_hour", "_per_minute", "_seconds")

    def __init__(self, expression: Expression) -> None:
        self._days = expression.days
        self._hours, self._minutes = expression.hour.mask, expression.minute.mask
        self._seconds = expression.second.mask
        self._per_minute = self._seconds.bit_count()
        self._per_hour = self._minutes.bit_count() * self._per_minute
        self._per_day = self._hours.bit_count() * self._per_hour

    def within(self, stretch: Stretch, start: EpochSeconds, end: EpochSeconds) -> int:
        """Return the number of matches in a part of a stretch; one at the end of a gap has one or none."""
        if stretch.walls is not None:
            first, last = stretch.walls
            return min(1, self._walls(first, last))
        return self._walls(start + stretch.offset, end + stretch.offset)

    def _walls(self, start: int, end: int) -> int:
        """Return the number of matching wall times in `[start, end)`."""
        first, last = start // DAY, (end - 1) // DAY
        whole = self._matching_days(first, last + 1)
        total = whole * self._per_day
        if self._matching_days(first, first + 1):
            total -= self._before(start - first * DAY)
        if self._matching_days(last, last + 1):
            total -= self._per_day - self._before(end - last * DAY)
        return total

    def _before(self, second: int) -> int:
        """Return the number of matching times of a day before a second of it."""
        hour, minute, second = second // HOUR, second // MINUTE % 60, second % MINUTE
        total = _count_below(self._hours, hour) * self._per_hour
        if self._hours >> hour & 1:
            total += _count_below(self._minutes, minute) * self._per_minute
            if self._minutes >> minute & 1:
                total += _count_below(self._seconds, second)
        return total

    def _matching_days(self, first: int, end: int) -> int:
        """Return the number of matching days in `[first, end)`, counted by year."""
        total = 0
        while first < end:
            year = self._days.year_from(first)
            if year is None:
                break
            start, stop = max(first, year.start), min(end, year.end)
            if start < stop:
                total += (year.mask >> start - year.start & (1 << stop - start) - 1).bit_count()
            first = year.end
        return total

    def smallest_gap(self) -> int | None:
        """Return the least distance of two times: within an hour, between hours, or over midnight."""
        hours = list(bits_of(self._hours))
        seconds = tuple(bits_of(self._seconds))
        inside = [MINUTE * minute + second for minute in bits_of(self._minutes) for second in seconds]
        gaps = [later - earlier for earlier, later in pairwise(inside)]
        gaps += [(b - a) * HOUR - inside[-1] + inside[0] for a, b in pairwise(hours)]
        if self._has_neighbours():
            gaps.append(DAY + (hours[0] - hours[-1]) * HOUR + inside[0] - inside[-1])
        return min(gaps, default=None)

    def _has_neighbours(self) -> bool:
        """Return whether two consecutive days ever match; the calendar is periodic."""
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


def _count_below(mask: int, bit: int) -> int:
    """Return the number of bits that are set below one."""
    return (mask & (1 << bit) - 1).bit_count()
