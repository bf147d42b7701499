"""Which days match: a mask of days for each of the fourteen kinds of year.

A year is known by the weekday it begins with and by whether it is a leap year. Every day rule cron
has, `L`, `W` and `#` included, depends on nothing else, so a schedule needs at most fourteen masks.
"""

from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from kron.core.cron.field import LastDay, Mark, NearestWorkday, NthWeekday, bits_of, mirrored

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_YEAR, LAST_YEAR = 1, 9999
FIRST_ORDINAL, LAST_ORDINAL = date.min.toordinal(), date.max.toordinal()

LENGTHS = ((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
STARTS = tuple(tuple(sum(lengths[:month]) for month in range(12)) for lengths in LENGTHS)
MONTHS = tuple(
    tuple(((1 << length) - 1) << start for length, start in zip(lengths, starts, strict=True))
    for lengths, starts in zip(LENGTHS, STARTS, strict=True)
)
# One bit a week: multiplied with seven bits it repeats them over a year.
EVERY_WEEK = sum(1 << 7 * week for week in range(54))

# The calendar repeats itself after 400 years, so this is the kind of every year.
CYCLE = 400


def _kind_of(year: int) -> int:
    first = date(year + CYCLE, 1, 1)
    leap = date(year + CYCLE, 12, 31).toordinal() - first.toordinal() == 365
    return 7 * leap + first.isoweekday() % 7


KINDS = bytes(_kind_of(year) for year in range(CYCLE))


Marks: TypeAlias = tuple[Mark, ...]


class Year(NamedTuple):
    """The days `[start, end)` of one year, counted from 1970, and which of them match."""

    start: int
    end: int
    mask: int


@dataclass(frozen=True, slots=True)
class DayRule:
    """When a day matches: its month, and its day of month and weekday joined by `and` or by `or`."""

    days: int
    day_marks: Marks
    months: int
    weekdays: int
    weekday_marks: Marks
    either: bool


class MatchingDays:
    """The days that match one rule, year by year; make it with `matching_days`, which shares them.

    `mirrored`, the days run backwards: day d is known as `~d`, so that what comes before comes next.
    """

    __slots__ = ("_masks", "_mirrored", "_rule", "_years", "possible")

    def __init__(self, rule: DayRule, *, mirrored: bool = False) -> None:
        self._rule = rule
        self._mirrored = mirrored
        self._masks: list[int | None] = [None] * 14
        self._years: dict[int, Year | None] = {}
        # Whether any day of any year matches; leap years come first because they have every day.
        self.possible = any(self._mask_of(kind) for kind in range(13, -1, -1))

    def mirror(self) -> "MatchingDays":
        """Return the same days running the other way."""
        return MatchingDays(self._rule, mirrored=not self._mirrored)

    def year_from(self, day: int) -> Year | None:
        """Return the first year with a match, from the year of a day on."""
        ordinal = (~day if self._mirrored else day) + EPOCH_ORDINAL
        if not FIRST_ORDINAL <= ordinal <= LAST_ORDINAL:
            # Around the ends of the calendar local time is in the year 0 or 10000 for some hours.
            if (ordinal > LAST_ORDINAL) != self._mirrored:
                return None
            ordinal = LAST_ORDINAL if self._mirrored else FIRST_ORDINAL
        number = date.fromordinal(ordinal).year
        if number not in self._years:
            self._years[number] = self._find(number)
        return self._years[number]

    def _find(self, number: int) -> Year | None:
        while FIRST_YEAR <= number <= LAST_YEAR:
            kind = KINDS[number % CYCLE]
            if mask := self._mask_of(kind):
                start = date(number, 1, 1).toordinal() - EPOCH_ORDINAL
                end = start + (366 if kind >= 7 else 365)
                if self._mirrored:
                    return Year(-end, -start, mirrored(mask, end - start))
                return Year(start, end, mask)
            number += -1 if self._mirrored else 1
        return None

    def _mask_of(self, kind: int) -> int:
        """Return the matching days of one kind of year, bit 0 being 1 January."""
        mask = self._masks[kind]
        if mask is None:
            mask = self._masks[kind] = _mask_of(self._rule, first=kind % 7, leap=kind // 7)
        return mask


@lru_cache(maxsize=4096)
def matching_days(
    days: int, day_marks: Marks, months: int, weekdays: int, weekday_marks: Marks, either: bool
) -> MatchingDays:
    """Return the shared days of one rule; the arguments are those of `DayRule`."""
    return MatchingDays(DayRule(days, day_marks, months, weekdays, weekday_marks, either))


def _mask_of(rule: DayRule, *, first: int, leap: int) -> int:
    in_month = days = weekday_marks = 0
    for month in bits_of(rule.months >> 1):
        start, length = STARTS[leap][month], LENGTHS[leap][month]
        in_month |= MONTHS[leap][month]
        days |= (rule.days >> 1 & (1 << length) - 1) << start
        begins = (first + start) % 7
        for mark in rule.day_marks:
            days |= _marked(mark, begins, length) << start
        for mark in rule.weekday_marks:
            weekday_marks |= _marked(mark, begins, length) << start
    week = (rule.weekdays >> first | rule.weekdays << 7 - first) & 0x7F
    weekdays = week * EVERY_WEEK & in_month | weekday_marks
    return days | weekdays if rule.either else days & weekdays


def _marked(mark: Mark, begins: int, length: int) -> int:
    """Return the days of one month a mark names, bit 0 being the 1st, which is a `begins`."""
    match mark:
        case LastDay(back=back):
            day = length - back
        case NearestWorkday(day=wanted):
            day = _nearest_workday(wanted or length, begins, length)
        case NthWeekday(weekday=weekday, nth=nth):
            day = 1 + (weekday - begins) % 7
            day += 7 * (nth - 1 if nth else (length - day) // 7)
    return 1 << day - 1 if 1 <= day <= length else 0


def _nearest_workday(day: int, begins: int, length: int) -> int:
    """Return the nearest Monday to Friday in the same month; 0 where the month lacks the day."""
    if day > length:
        return 0
    weekday = (begins + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
