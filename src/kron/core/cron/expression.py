"""A parsed cron expression: six fields, the day rule that joins them, and the days of a year that match."""

from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from kron.core.cron.field import SECOND, Field, LastDay, Mark, NearestWorkday, NthWeekday, bits_of, mirrored

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
FIRST_YEAR, LAST_YEAR = 1, 9999
FIRST_ORDINAL, LAST_ORDINAL = date.min.toordinal(), date.max.toordinal()

LENGTHS = ((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31))
STARTS = tuple(tuple(sum(lengths[:month]) for month in range(12)) for lengths in LENGTHS)
MONTHS = tuple(
    tuple(((1 << length) - 1) << start for length, start in zip(lengths, starts, strict=True))
    for lengths, starts in zip(LENGTHS, STARTS, strict=True)
)
# One bit per week or month: multiplied with the days of one, they repeat them over a year.
EVERY_WEEK = sum(1 << 7 * week for week in range(54))
EVERY_MONTH = tuple(sum(1 << start for start in starts) for starts in STARTS)
# The days of every month, as a mask whose bit 1 is the 1st, and for each further day its days of the year.
COMMON_DAYS = (1 << 29) - (1 << 1)
FURTHER_DAYS = tuple(
    tuple(
        (
            day,
            sum(1 << start + day - 1 for length, start in zip(lengths, starts, strict=True) if day <= length),
        )
        for day in (29, 30, 31)
    )
    for lengths, starts in zip(LENGTHS, STARTS, strict=True)
)

# Years that a rule remembers: callers may ask for any of ten thousand, of each of ten thousand rules.
MAX_YEARS = 16
# The calendar repeats after 400 years, so these are the kinds of all years.
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


# No day lies in it.
NO_YEAR = (0, 0, 0)
# Stands for a year that was not searched yet.
UNKNOWN = Year(0, 0, 0)


class DayRule(NamedTuple):
    """The rule of matching days: months, and days of month and weekdays joined by `and` or `or`."""

    days: int
    day_marks: Marks
    months: int
    weekdays: int
    weekday_marks: Marks
    either: bool


class MatchingDays:
    """The days that match one rule, year by year; use `matching_days`, which shares instances.

    If `mirrored`, days run backwards: day d is represented as `~d`, so the previous one is next.
    """

    __slots__ = ("_masks", "_mirrored", "_rule", "_years", "latest", "possible")

    def __init__(self, rule: DayRule, *, mirrored: bool = False) -> None:
        self._rule = rule
        self._mirrored = mirrored
        self._masks: list[int | None] = [None] * 14
        self._years: dict[int, Year | None] = {}
        # The last result, where a new schedule starts its search: schedules that share a rule mostly search
        # near one instant. Replaced atomically. A plain tuple, because Python unpacks it much faster.
        self.latest = NO_YEAR
        # Whether any day of any year matches. A day of every month falls on each weekday in some year;
        # for other days leap years are tried first, because they have every day.
        common = rule.days & COMMON_DAYS and rule.weekdays
        self.possible = bool(common) or any(self._mask_of(kind) for kind in range(13, -1, -1))

    @property
    def masks(self) -> tuple[int, ...]:
        """Return the matching days of every kind of year: equal for rules that match the same days."""
        return tuple(map(self._mask_of, range(14)))

    def mirror(self) -> "MatchingDays":
        """Return the same days in the opposite direction."""
        return MatchingDays(self._rule, mirrored=not self._mirrored)

    def year_from(self, day: int) -> Year | None:
        """Return the first year with a match, starting with the year of a day."""
        ordinal = (~day if self._mirrored else day) + EPOCH_ORDINAL
        if not FIRST_ORDINAL <= ordinal <= LAST_ORDINAL:
            # Near the ends of the calendar local time is in the year 0 or 10000 for some hours.
            if (ordinal > LAST_ORDINAL) != self._mirrored:
                return None
            ordinal = LAST_ORDINAL if self._mirrored else FIRST_ORDINAL
        number = date.fromordinal(ordinal).year
        year = self._years.get(number, UNKNOWN)
        if year is UNKNOWN:
            if len(self._years) >= MAX_YEARS:
                self._years.clear()
            year = self._years[number] = self._find(number)
        if year is not None:
            self.latest = (year.start, year.end, year.mask)
        return year

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
    days = (rule.days & COMMON_DAYS) * EVERY_MONTH[leap] >> 1
    for day, in_year in FURTHER_DAYS[leap]:
        if rule.days >> day & 1:
            days |= in_year
    week = (rule.weekdays >> first | rule.weekdays << 7 - first) & 0x7F
    weekdays = week * EVERY_WEEK
    if rule.day_marks:
        days |= _marked_in_year(rule.day_marks, first, leap)
    if rule.weekday_marks:
        weekdays |= _marked_in_year(rule.weekday_marks, first, leap)
    return _days_of_months(rule.months, leap) & (days | weekdays if rule.either else days & weekdays)


@lru_cache(maxsize=1024)
def _days_of_months(months: int, leap: int) -> int:
    return sum(MONTHS[leap][month] for month in bits_of(months >> 1))


def _marked_in_year(marks: Marks, first: int, leap: int) -> int:
    mask = 0
    for start, length in zip(STARTS[leap], LENGTHS[leap], strict=True):
        for mark in marks:
            mask |= _marked(mark, (first + start) % 7, length) << start
    return mask


def _marked(mark: Mark, first: int, length: int) -> int:
    """Return the days of one month that a mark names, bit 0 being the 1st, whose weekday is `first`."""
    match mark:
        case LastDay(back=back):
            day = length - back
        case NearestWorkday(day=target):
            day = _nearest_workday(target or length, first, length)
        case NthWeekday(weekday=weekday, nth=nth):
            day = 1 + (weekday - first) % 7
            day += 7 * (nth - 1 if nth else (length - day) // 7)
    return 1 << day - 1 if 1 <= day <= length else 0


def _nearest_workday(day: int, first: int, length: int) -> int:
    """Return the nearest Monday to Friday in the same month; 0 if the month lacks the day."""
    if day > length:
        return 0
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


ON_THE_MINUTE = Field(SECOND, 1)

FiveFields: TypeAlias = tuple[Field, Field, Field, Field, Field]


# Immutable by type only: `frozen` took a third of the parsing time.
@dataclass(slots=True, init=False, unsafe_hash=True)
class Expression:
    """The local times that match. Equal expressions match the same times; their texts may differ."""

    second: Final[Field]
    minute: Final[Field]
    hour: Final[Field]
    day: Final[Field]
    month: Final[Field]
    weekday: Final[Field]
    timezone: Final[str | None]
    text: str = field(compare=False)
    dialect: str = field(compare=False)
    # The days that match, shared by every expression with the same day rule.
    days: MatchingDays = field(compare=False, repr=False)

    def __init__(
        self,
        text: str,
        dialect: str,
        fields: FiveFields,
        second: Field = ON_THE_MINUTE,
        timezone: str | None = None,
    ) -> None:
        """Take the five fields in cron's order."""
        self.minute, self.hour, self.day, self.month, self.weekday = fields
        self.second = second
        self.timezone = timezone
        self.text = text
        self.dialect = dialect
        _, _, day, month, weekday = fields
        either = not (day.star or weekday.star)
        self.days = matching_days(day.mask, day.marks, month.mask, weekday.mask, weekday.marks, either)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return the five fields in order, or six with seconds."""
        five = (self.minute, self.hour, self.day, self.month, self.weekday)
        return five if self.second == ON_THE_MINUTE else (self.second, *five)

    @property
    def either(self) -> bool:
        """Return whether one matching day field is sufficient.

        If either day field starts with `*` both must match, else one is sufficient (Vixie cron; for the
        strict dialect, where `*` is alone, this is SPEC 1: Day-of-Month/Day-of-Week Semantics).
        """
        return not (self.day.star or self.weekday.star)

    @property
    def times(self) -> tuple[object, ...]:
        """Return a value that is equal for expressions with the same times, however they are written."""
        return (self.second.mask, self.minute.mask, self.hour.mask, self.days.masks, self.timezone)

    def describe(self) -> str:
        """Return one English sentence, without a full stop, that describes exactly the matching times."""
        # Imported on use, so that parsing does not load it.
        from kron.core.cron.explain import describe_expression

        return describe_expression(self)

    def __str__(self) -> str:
        """Return the canonical text, from which an equal expression can be parsed."""
        prefix = f"CRON_TZ={self.timezone} " if self.timezone else ""
        return prefix + " ".join(map(str, self.fields))
