"""Constraints: which local times may be chosen (SPEC 4: Constraint Semantics).

`only`: every kind present must match, any value within it. `avoid`: any match rejects.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias, TypedDict, Unpack

from kron.core.cron.expression import EPOCH_ORDINAL
from kron.core.cron.field import MONTH, WEEKDAY, Unit
from kron.core.errors import InputError, InvalidOptionError
from kron.core.fields import (
    FieldReader,
    FieldSpec,
    Parsers,
    Schema,
    ValueType,
    invalid_value,
    one_or_more,
    part,
    row,
    suggestion,
    table_of,
)
from kron.core.job.calendar import (
    CALENDARS,
    DAYS,
    Calendar,
    Calendars,
    Days,
    calendars_named,
    items_of,
    parse_dates,
)
from kron.core.time.instant import DAY, EpochSeconds
from kron.core.time.zone import Zone

# 1 January 1970 was a Thursday, and Sunday is 0.
EPOCH_WEEKDAY = 4


class ConstraintKind(StrEnum):
    """Which part of a local time a constraint tests."""

    HOURS = "hours"
    DOW = "dow"
    DOM = "dom"
    MONTHS = "months"
    BETWEEN = "between"
    DATES = "dates"
    CALENDARS = "calendars"


# The kinds that test the time of day; the others test the day.
OF_THE_MINUTE = frozenset({ConstraintKind.HOURS, ConstraintKind.BETWEEN})


class MinuteRange(NamedTuple):
    """The minutes of the day `[first, last]`, closed; a first after the last wraps over midnight."""

    first: int
    last: int

    def __str__(self) -> str:
        return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in self)


class LocalTime(NamedTuple):
    """A local time taken apart once, for the checks of every kind."""

    minute: int
    hour: int
    dow: int
    day: date


Check: TypeAlias = Callable[[LocalTime], bool]
HOURS, DOM = Unit("hours", 0, 23), Unit("dom", 1, 31)
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


# --- values --------------------------------------------------------------------------------------


def _numbers(value: object, unit: Unit) -> frozenset[int]:
    numbers: set[int] = set()
    for item in items_of(value):
        numbers |= _range_of(item, unit)
    return frozenset(numbers)


def _range_of(item: object, unit: Unit) -> set[int]:
    """Return the values of a number, a name, or a range `a-b` of them; Sunday may be 7."""
    words = item.split("-") if isinstance(item, str) and item.count("-") == 1 else [item]
    low, high = _number_of(words[0], item, unit), _number_of(words[-1], item, unit)
    if low > high:
        raise invalid_value(item, f"the range {item} is reversed")
    return {value % 7 if unit is WEEKDAY else value for value in range(low, high + 1)}


def _number_of(word: object, item: object, unit: Unit) -> int:
    highest = 7 if unit is WEEKDAY else unit.high
    if isinstance(word, str):
        text = word.strip()
        named = unit.value_of(text)
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else named
    else:
        number = word if isinstance(word, int) and not isinstance(word, bool) else None
    if number is None or not unit.low <= number <= highest:
        names = " or names" if unit.names else ""
        raise invalid_value(item, f"{item} is not among {unit.low}-{highest}{names}")
    return number


def _parse_clock(value: object) -> MinuteRange:
    if isinstance(value, MinuteRange):
        return value
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise invalid_value(value, f'{value} is not a time span; write "09:00-17:30"')
    hour, minute, last_hour, last_minute = map(int, match.groups())
    return MinuteRange(60 * hour + minute, 60 * last_hour + last_minute)


# --- value types ---------------------------------------------------------------------------------

_MINUTE = r"([01][0-9]|2[0-3]):[0-5][0-9]"


def _numbers_type(unit: Unit, high: int) -> ValueType:
    """Return the type of numbers, names, or ranges of them."""
    names = [part for name in unit.names for part in (name, name[:3])]
    word = "|".join(["[0-9]{1,4}", *(_any_case(name) for name in names)])
    item: Schema = {
        "oneOf": [
            {"type": "integer", "minimum": unit.low, "maximum": high},
            {"type": "string", "pattern": rf"^\s*({word})\s*(-\s*({word})\s*)?$"},
        ]
    }
    return ValueType(schema=one_or_more(item), parse=lambda value: _numbers(value, unit), write=_sorted)


def _any_case(name: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" for letter in name)


def _sorted(value: object) -> object:
    assert isinstance(value, frozenset)
    return sorted(value)


def _texts(value: object) -> object:
    assert isinstance(value, tuple)
    return list(map(str, value))


def _write_calendars(value: object) -> object:
    assert isinstance(value, tuple)
    return {calendar.name: list(map(str, calendar.days)) for calendar in value}


BETWEEN = ValueType(
    schema=one_or_more({"type": "string", "pattern": rf"^{_MINUTE}-{_MINUTE}$"}),
    parse=lambda value: tuple(map(_parse_clock, items_of(value))),
    write=_texts,
)
DATES = ValueType(schema=one_or_more(DAYS), parse=parse_dates, write=_texts)
CALENDAR_NAMES = ValueType(
    schema={
        "oneOf": [one_or_more({"type": "string"}), {**CALENDARS, "minProperties": 1}],
        "description": "names of calendars, or calendars in full",
    },
    parse=lambda value: calendars_named(value, {}),
    write=_write_calendars,
)
NO_NUMBERS: frozenset[int] = frozenset()


# --- constraints ---------------------------------------------------------------------------------


class RuleKinds(TypedDict, total=False):
    """The kinds of one side as a program gives them: one value, or several."""

    hours: int | str | Iterable[int | str]
    dow: int | str | Iterable[int | str]
    dom: int | str | Iterable[int | str]
    months: int | str | Iterable[int | str]
    between: str | Iterable[str | MinuteRange]
    dates: str | date | Iterable[str | date | Days]
    calendars: Mapping[str, Sequence[str | date]] | Iterable[Calendar]


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class ConstraintRule:
    """The kinds on one side, `only` or `avoid`; a kind that is not present is empty."""

    hours: frozenset[int] = field(
        default=NO_NUMBERS, metadata=row(_numbers_type(HOURS, 23), "hours of the day, 0-23", sparse=True)
    )
    dow: frozenset[int] = field(
        default=NO_NUMBERS,
        metadata=row(
            _numbers_type(WEEKDAY, 7), "days of the week, 0-7 (Sunday is 0 and 7) or names", sparse=True
        ),
    )
    dom: frozenset[int] = field(
        default=NO_NUMBERS, metadata=row(_numbers_type(DOM, 31), "days of the month, 1-31", sparse=True)
    )
    months: frozenset[int] = field(
        default=NO_NUMBERS, metadata=row(_numbers_type(MONTH, 12), "months, 1-12 or names", sparse=True)
    )
    between: tuple[MinuteRange, ...] = field(
        default=(),
        metadata=row(
            BETWEEN, "times of day `HH:MM-HH:MM`, both minutes included; may cross midnight", sparse=True
        ),
    )
    dates: tuple[Days, ...] = field(
        default=(), metadata=row(DATES, "days, or spans of days `A..B`, both included", sparse=True)
    )
    calendars: tuple[Calendar, ...] = field(
        default=(), metadata=row(CALENDAR_NAMES, "days of named lists", sparse=True)
    )

    def __init__(self, **kinds: Unpack[RuleKinds]) -> None:
        """Read the values of each kind, as a definition writes them or parsed already."""
        for name, value in kinds.items():
            if name not in RULE.words:
                raise InvalidOptionError(option=name, value=value, reason=suggestion(name, RULE.words))
        for kind in RULE.rows:
            object.__setattr__(self, kind.name, _values_of(kind, kinds.get(kind.name, ())))

    def checks(self) -> list[tuple[ConstraintKind, Check]]:
        """Return each kind present and its check of a local time."""
        minutes = _minutes_of(self.between)
        calendar_days = tuple(days for calendar in self.calendars for days in calendar.days)
        every: list[tuple[ConstraintKind, Check]] = [
            (ConstraintKind.HOURS, lambda moment: moment.hour in self.hours),
            (ConstraintKind.DOW, lambda moment: moment.dow in self.dow),
            (ConstraintKind.DOM, lambda moment: moment.day.day in self.dom),
            (ConstraintKind.MONTHS, lambda moment: moment.day.month in self.months),
            (ConstraintKind.BETWEEN, lambda moment: bool(minutes >> moment.minute & 1)),
            (ConstraintKind.DATES, _among(self.dates)),
            (ConstraintKind.CALENDARS, _among(calendar_days)),
        ]
        return [(kind, check) for kind, check in every if getattr(self, kind.value)]

    @property
    def entries(self) -> int:
        """Return how many days, times of day and characters of names there are."""
        named = sum(len(calendar.name) + len(calendar.days) for calendar in self.calendars)
        return len(self.between) + len(self.dates) + named

    def to_dict(self) -> dict[str, object]:
        """Return the kinds present with their values, calendars with their days."""
        return RULE.write(self)


RULE = table_of(ConstraintRule)


def _values_of(kind: FieldSpec, value: object) -> object:
    """Return the values of one kind in the form that is kept."""
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        items = list(value)
        if not items:
            return kind.default
        value = tuple(items) if isinstance(items[0], Calendar) else items
    try:
        return kind.type.parse(value)
    except InputError as error:
        reason = str(error.details["reason"])
        raise InvalidOptionError(option=kind.name, value=value, reason=reason) from None


RULE_TYPE = part(RULE, lambda reader: _read_rule(reader, {}))
NO_RULE = ConstraintRule()


def _read_rule(reader: FieldReader, calendars: Calendars) -> ConstraintRule:
    parsers: Parsers = {"calendars": lambda value: calendars_named(value, calendars)}
    return RULE.build(reader, ConstraintRule, parsers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Both sides together; the empty one allows every time."""

    only: ConstraintRule = field(
        default=NO_RULE, metadata=row(RULE_TYPE, "the times allowed: every kind that is given must match")
    )
    avoid: ConstraintRule = field(
        default=NO_RULE, metadata=row(RULE_TYPE, "the times excluded: any match rejects")
    )
    # Every check with its name and the result that rejects; prepared once, because each candidate runs them.
    _checks: tuple[tuple[str, Check, bool], ...] = field(init=False, compare=False, repr=False)
    # How many values of unlimited number they have: days, times of day, and characters of names.
    entries: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Prepare the checks."""
        only = [(f"only.{kind}", check, False) for kind, check in self.only.checks()]
        avoid = [(f"avoid.{kind}", check, True) for kind, check in self.avoid.checks()]
        object.__setattr__(self, "_checks", tuple(only + avoid))
        object.__setattr__(self, "entries", self.only.entries + self.avoid.entries)

    @property
    def applied(self) -> list[str]:
        """Return the names of the checks, e.g. ``only.hours``."""
        return [name for name, _, _ in self._checks]

    def rejected_by(self, instant: EpochSeconds, zone: Zone) -> str | None:
        """Return the name of the first constraint an instant breaks, or None if it may be chosen."""
        if not self._checks:
            return None
        moment = moment_of(instant, zone)
        for name, check, rejects in self._checks:
            if check(moment) is rejects:
                return name
        return None

    def allowed_from(self, instant: EpochSeconds, zone: Zone, until: EpochSeconds) -> EpochSeconds | None:
        """Return the first instant in `[instant, until)` that may be chosen, or None; a day is one step."""
        is_large = self.entries > MAX_SHARED
        minutes = (_minutes_of_many if is_large else _allowed_minutes)(self)
        while minutes and instant < until:
            span = zone.span_at(instant)
            day, second = divmod(instant + span.offset, DAY)
            allowed_day = (_day_of_many if is_large else _allowed_day_from)(self, day)
            if allowed_day is None:
                return None
            if allowed_day > day:
                # That day's midnight, or an earlier change of the clocks.
                instant = min(instant - second + (allowed_day - day) * DAY, span.end)
                continue
            left = minutes >> second // 60
            if left:
                minute = second // 60 + (left & -left).bit_length() - 1
                found = max(instant, instant - second + 60 * minute)
                if found < span.end:
                    return found if found < until else None
            instant = min(instant - second + DAY, span.end)
        return None

    def to_dict(self) -> dict[str, object]:
        """Return both sides, each present even when empty."""
        return {"only": self.only.to_dict(), "avoid": self.avoid.to_dict()}


CONSTRAINTS = table_of(Constraints)


# Constraints with more entries are large, and how many small and large ones are remembered.
MAX_SHARED, MAX_REMEMBERED, MAX_LARGE = 200, 512, 16
# How many days ahead an allowed one is searched: every date occurs in this time.
MAX_DAYS = 9 * 366


@lru_cache(maxsize=MAX_REMEMBERED)
def _allowed_day_from(constraints: Constraints, day: int) -> int | None:
    """Return the first local day, as days since 1970, that may be chosen; None if none is near."""
    checks = [
        (check, rejects)
        for rule, rejects in ((constraints.only, False), (constraints.avoid, True))
        for kind, check in rule.checks()
        if kind not in OF_THE_MINUTE
    ]
    for number in range(day, min(day + MAX_DAYS, date.max.toordinal() - EPOCH_ORDINAL)):
        time = LocalTime(0, 0, (number + EPOCH_WEEKDAY) % 7, date.fromordinal(number + EPOCH_ORDINAL))
        if not any(check(time) is rejects for check, rejects in checks):
            return number
    return None


@lru_cache(maxsize=MAX_REMEMBERED)
def _allowed_minutes(constraints: Constraints) -> int:
    """Return the minutes of the day that may be chosen on a day that may, as a bit mask."""
    checks = [
        (check, rejects)
        for rule, rejects in ((constraints.only, False), (constraints.avoid, True))
        for kind, check in rule.checks()
        if kind in OF_THE_MINUTE
    ]
    times = (LocalTime(minute, minute // 60, 0, date.min) for minute in range(DAY // 60))
    return sum(
        1 << time.minute for time in times if not any(check(time) is rejects for check, rejects in checks)
    )


# Constraints with many entries take much memory, so that few of them are remembered.
_day_of_many = lru_cache(maxsize=MAX_LARGE)(_allowed_day_from.__wrapped__)
_minutes_of_many = lru_cache(maxsize=MAX_LARGE)(_allowed_minutes.__wrapped__)


def read_constraints(reader: FieldReader, calendars: Calendars) -> Constraints:
    """Return the constraints of a definition; `calendars` are those it may name."""
    only, avoid = (_read_rule(reader.sub(side, RULE.words), calendars) for side in CONSTRAINTS.words)
    return Constraints(only=only, avoid=avoid)


def moment_of(instant: EpochSeconds, zone: Zone) -> LocalTime:
    """Take the local time of an instant apart."""
    day, second = divmod(instant + zone.span_at(instant).offset, DAY)
    date_ = date.fromordinal(day + EPOCH_ORDINAL)
    return LocalTime(second // 60, second // 3600, (day + EPOCH_WEEKDAY) % 7, date_)


def _minutes_of(clocks: tuple[MinuteRange, ...]) -> int:
    """Return the minutes of the day in any of the ranges, as a bit mask."""
    minutes = 0
    for first, last in clocks:
        if first <= last:
            minutes |= (2 << last) - (1 << first)
        else:
            minutes |= (2 << last) - 1 | -1 << first
    return minutes


def _among(spans: tuple[Days, ...]) -> Check:
    """Return the check whether a day is in a list, by bisection: each candidate makes it."""
    firsts: list[date] = []
    # The latest day of all spans up to each one.
    lasts: list[date] = []
    for first, last in sorted(spans):
        firsts.append(first)
        lasts.append(max(last, lasts[-1]) if lasts else last)

    def check(moment: LocalTime) -> bool:
        index = bisect_right(firsts, moment.day)
        return index > 0 and moment.day <= lasts[index - 1]

    return check
