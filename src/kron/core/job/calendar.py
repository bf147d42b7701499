"""Calendars: named lists of days, and how days are written."""

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import NamedTuple, TypeAlias

from kron.core.errors import InputError, Problem
from kron.core.fields import Schema, invalid_value, one_or_more, parse_text

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DAY = r"\s*[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\s*"
DAYS: Schema = {"type": "string", "pattern": rf"^{_DAY}(\.\.{_DAY})?$"}
CALENDARS: Schema = {"type": "object", "additionalProperties": one_or_more(DAYS)}


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


Calendars: TypeAlias = Mapping[str, tuple[Days, ...]]


def items_of(value: object) -> list[object]:
    """Return a list's items, or a single value as a list of one."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise invalid_value(value, "must not be empty; leave it out to allow everything")
    return items


def parse_dates(value: object) -> tuple[Days, ...]:
    """Return a list of days and spans of days."""
    return tuple(map(_parse_days, items_of(value)))


def _parse_days(value: object) -> Days:
    if isinstance(value, Days):
        return value
    if isinstance(value, date) and not isinstance(value, datetime):
        return Days(value, value)
    first, dots, last = value.partition("..") if isinstance(value, str) else ("", "", "")
    days = Days(_parse_date(first, value), _parse_date(last if dots else first, value))
    if days.first > days.last:
        raise invalid_value(value, f"{value} is reversed; write the earlier day first")
    return days


def _parse_date(text: str, value: object) -> date:
    try:
        if _DATE.fullmatch(text.strip()):
            return date.fromisoformat(text.strip())
    except ValueError as cause:
        raise invalid_value(value, f"{value} is not a day of the calendar") from cause
    raise invalid_value(value, f'{value} is not a day; write "2026-12-24" or "2026-12-24..2027-01-01"')


def calendars_named(value: object, calendars: Calendars) -> tuple[Calendar, ...]:
    """Return calendars by name, or given in full with their dates; in the order of their names."""
    if isinstance(value, Mapping):
        if not value:
            raise invalid_value(value, "must not be empty; leave it out to allow everything")
        return tuple(Calendar(name, days) for name, days in sorted(parse_calendars(value).items()))
    known: dict[str, tuple[Days, ...]] = {}
    for item in items_of(value):
        if isinstance(item, Calendar):
            known[item.name] = item.days
            continue
        name = parse_text(item)
        if name not in calendars:
            defined = f"known are {', '.join(sorted(calendars))}" if calendars else "none are defined"
            raise invalid_value(value, f'unknown calendar "{name}"; {defined}')
        known[name] = calendars[name]
    return tuple(Calendar(name, days) for name, days in sorted(known.items()))


def parse_calendars(value: object) -> dict[str, tuple[Days, ...]]:
    """Return calendars given in full: a name, and the days it has."""
    if not isinstance(value, Mapping):
        raise invalid_value(value, "must be an object: a name, and a list of days")
    return {parse_text(name): parse_dates(dates) for name, dates in value.items()}


def read_calendars(value: object, problems: list[Problem]) -> Calendars:
    """Return calendars given in full; a wrong one keeps its name, so that it is not also called unknown."""
    try:
        return parse_calendars(value)
    except InputError as error:
        whole = Problem("calendars", value, str(error.details["reason"]))
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        problems.append(whole)
        return {}
    valid: dict[str, tuple[Days, ...]] = {}
    for name, dates in value.items():
        try:
            valid[parse_text(name)] = parse_dates(dates)
        except InputError as error:
            valid[name] = ()
            problems.append(Problem(f"calendars.{name}", dates, str(error.details["reason"])))
    return valid
