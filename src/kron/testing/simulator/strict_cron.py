"""SPEC 1's cron expressions, read and searched without Kron's parsers, so that a fault there shows."""

import re
from bisect import bisect_right
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
FIELD = re.compile(r"\*|[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class StrictCron(NamedTuple):
    """The values of each field, and whether the day fields are restricted."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    has_days: bool
    has_weekdays: bool

    def has_day(self, day: date) -> bool:
        """Return whether a day matches: either day field if both are restricted."""
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        both = by_day or by_weekday if self.has_days and self.has_weekdays else by_day and by_weekday
        return day.month in self.months and both


@lru_cache(maxsize=4096)
def parsed(text: str) -> StrictCron | None:
    """Return the values of an expression, or None if it is invalid or can never match."""
    fields = re.split(r"[ \t]+", text.strip(" \t"))
    if len(fields) != len(BOUNDS):
        return None
    values = [_values(field, *bounds) for field, bounds in zip(fields, BOUNDS, strict=True)]
    if not all(values):
        return None
    minutes, hours, days, months, weekdays = values
    cron = StrictCron(minutes, hours, days, months, weekdays, fields[2] != "*", fields[4] != "*")
    can_match = cron.has_weekdays or any(LONGEST_MONTHS[month - 1] >= min(cron.days) for month in cron.months)
    return cron if can_match else None


def _values(field: str, least: int, most: int) -> frozenset[int]:
    """Return the values of one field; none if it is invalid."""
    if field == "*":
        return frozenset(range(least, most + 1))
    if FIELD.fullmatch(field) is None:
        return frozenset()
    found: set[int] = set()
    for element in field.split(","):
        first, _, last = element.partition("-")
        start, end = int(first), int(last or first)
        if not least <= start <= end <= most:
            return frozenset()
        found.update(range(start, end + 1))
    return frozenset(found)


def next_after(cron: StrictCron, zone: ZoneInfo, instant: int, *, until: int) -> int | None:
    """Return the first matching minute after an instant and up to another, in epoch seconds."""
    day = datetime.fromtimestamp(instant, zone).date() - timedelta(days=1)
    last = datetime.fromtimestamp(until, zone).date() + timedelta(days=1)
    while day <= last:
        if cron.has_day(day):
            minutes = _minutes_of(cron, zone, day)
            number = bisect_right(minutes, instant)
            if number < len(minutes):
                return minutes[number] if minutes[number] <= until else None
        day += timedelta(days=1)
    return None


@lru_cache(maxsize=4096)
def _minutes_of(cron: StrictCron, zone: ZoneInfo, day: date) -> list[int]:
    """Return the instants of a day's matching wall times: skipped ones have none, repeated ones two."""
    found = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            for fold in (0, 1):
                wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold)
                instant = int(wall.timestamp())
                if datetime.fromtimestamp(instant, zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
                    found.add(instant)
    return sorted(found)
