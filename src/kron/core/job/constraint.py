"""Constraints: which local times may be chosen (SPEC 4: Constraint Semantics).

`only`: every kind present must match, any value within it. `avoid`: any match rejects.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from kron.core.cron.year import EPOCH_ORDINAL
from kron.core.time.instant import DAY, EpochSeconds
from kron.core.time.zone import Zone

# 1 January 1970 was a Thursday, and Sunday is 0.
EPOCH_WEEKDAY = 4


class ConstraintKind(StrEnum):
    """What a constraint looks at."""

    HOURS = "hours"
    DOW = "dow"
    DOM = "dom"
    MONTHS = "months"
    BETWEEN = "between"
    DATES = "dates"
    CALENDARS = "calendars"


class Days(NamedTuple):
    """The days `[first, last]`, closed, as a person writes them."""

    first: date
    last: date

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first}..{self.last}"


class Calendar(NamedTuple):
    """A named list of days."""

    name: str
    days: tuple[Days, ...]


class MinuteRange(NamedTuple):
    """The minutes of the day `[first, last]`, closed; a first after the last wraps over midnight."""

    first: int
    last: int

    def __str__(self) -> str:
        return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in self)


class LocalTime(NamedTuple):
    """A local time taken apart once, for every kind to look at."""

    minute: int
    hour: int
    dow: int
    day: date


Check: TypeAlias = Callable[[LocalTime], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintRule:
    """The kinds on one side, `only` or `avoid`; a kind that is not present is empty."""

    hours: frozenset[int] = frozenset()
    dow: frozenset[int] = frozenset()
    dom: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    between: tuple[MinuteRange, ...] = ()
    dates: tuple[Days, ...] = ()
    calendars: tuple[Calendar, ...] = ()

    def checks(self) -> list[tuple[ConstraintKind, Check]]:
        """Return each kind present and the question it asks of a moment."""
        calendar_days = tuple(days for calendar in self.calendars for days in calendar.days)
        every: list[tuple[ConstraintKind, Check]] = [
            (ConstraintKind.HOURS, lambda moment: moment.hour in self.hours),
            (ConstraintKind.DOW, lambda moment: moment.dow in self.dow),
            (ConstraintKind.DOM, lambda moment: moment.day.day in self.dom),
            (ConstraintKind.MONTHS, lambda moment: moment.day.month in self.months),
            (
                ConstraintKind.BETWEEN,
                lambda moment: any(_within(clock, moment.minute) for clock in self.between),
            ),
            (ConstraintKind.DATES, lambda moment: _among(self.dates, moment.day)),
            (ConstraintKind.CALENDARS, lambda moment: _among(calendar_days, moment.day)),
        ]
        return [(kind, check) for kind, check in every if getattr(self, kind.value)]

    def to_dict(self) -> dict[str, object]:
        """Return the kinds present with their values, calendars with their days."""
        values: dict[str, object] = {
            "hours": sorted(self.hours),
            "dow": sorted(self.dow),
            "dom": sorted(self.dom),
            "months": sorted(self.months),
            "between": list(map(str, self.between)),
            "dates": list(map(str, self.dates)),
            "calendars": {calendar.name: list(map(str, calendar.days)) for calendar in self.calendars},
        }
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Both sides together; the empty one allows every time."""

    only: ConstraintRule = ConstraintRule()
    avoid: ConstraintRule = ConstraintRule()
    # Every question, with its name and the answer that rejects; made once, because each candidate is asked.
    _checks: tuple[tuple[str, Check, bool], ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Line the questions up."""
        only = [(f"only.{kind}", check, False) for kind, check in self.only.checks()]
        avoid = [(f"avoid.{kind}", check, True) for kind, check in self.avoid.checks()]
        object.__setattr__(self, "_checks", tuple(only + avoid))

    @property
    def applied(self) -> list[str]:
        """Return the names of what is checked, e.g. ``only.hours``."""
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

    def to_dict(self) -> dict[str, object]:
        """Return both sides, each present even when empty."""
        return {"only": self.only.to_dict(), "avoid": self.avoid.to_dict()}


def moment_of(instant: EpochSeconds, zone: Zone) -> LocalTime:
    """Take the local time of an instant apart."""
    day, second = divmod(instant + zone.span_at(instant).offset, DAY)
    date_ = date.fromordinal(day + EPOCH_ORDINAL)
    return LocalTime(second // 60, second // 3600, (day + EPOCH_WEEKDAY) % 7, date_)


def _within(clock: MinuteRange, minute: int) -> bool:
    if clock.first <= clock.last:
        return clock.first <= minute <= clock.last
    return minute >= clock.first or minute <= clock.last


def _among(spans: tuple[Days, ...], day: date) -> bool:
    return any(days.first <= day <= days.last for days in spans)
