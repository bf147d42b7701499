"""iCalendar files (RFC 5545) as calendars: the whole days of their events.

Read are VEVENTs with whole days, yearly rules, RDATE and EXDATE. Everything that would need a guess is an
error with its line: an event with a time of day, another frequency, a moved occurrence.
"""

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

from kron.core.errors import InputError, cut
from kron.core.job.calendar import Days

# The years for which rules are written out: fixed, because the days of a calendar are part of a definition.
FIRST_YEAR, LAST_YEAR = 2000, 2050
# The longest event, in days, and the most events of a file.
MAX_DAYS, MAX_EVENTS = 3660, 5_000
# The largest COUNT of a rule.
MAX_COUNT = 10_000

_LINE = re.compile(r'([A-Za-z0-9-]+)((?:;[^:"]*(?:"[^"]*"[^:"]*)*)?):(.*)', re.DOTALL)
_DAY = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{6})Z?)?")
_DURATION = re.compile(r"P(?:([0-9]{1,4})W|([0-9]{1,4})D(?:T0+[HMS])?)")
_BY_DAY = re.compile(r"([+-]?[1-5])?(MO|TU|WE|TH|FR|SA|SU)")
_DOWS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_RULE_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYMONTH", "BYMONTHDAY", "BYDAY", "WKST"})
_ONE_DAY = timedelta(days=1)


class InvalidCalendarError(InputError):
    """An iCalendar file cannot be read as a list of days."""

    code = "invalid_calendar"

    def __init__(self, *, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}", line=line, reason=reason)


class _Property(NamedTuple):
    """One content line, unfolded, with the number of its first line."""

    number: int
    name: str
    value: str

    def fault(self, reason: str) -> InvalidCalendarError:
        return InvalidCalendarError(line=self.number, reason=reason)


class _CalendarEvent(NamedTuple):
    """The properties of a VEVENT, without those of its alarms."""

    begin: _Property
    lines: list[_Property]

    def all(self, name: str) -> list[_Property]:
        return [line for line in self.lines if line.name == name]

    def one(self, name: str) -> _Property | None:
        """Return a property that an event may have once."""
        found = self.all(name)
        if len(found) > 1:
            raise found[1].fault(f"{self} has a second {name}; write an event for each")
        return found[0] if found else None

    def __str__(self) -> str:
        summaries = self.all("SUMMARY")
        return f'the event "{cut(summaries[0].value)}"' if summaries else "the event"


def parse_icalendar(text: str) -> tuple[Days, ...]:
    """Return the days of all events, in order and without repetition."""
    properties = list(_unfolded(text))
    if not properties or (properties[0].name, properties[0].value.upper()) != ("BEGIN", "VCALENDAR"):
        raise InvalidCalendarError(
            line=1, reason="is not an iCalendar file, which begins with BEGIN:VCALENDAR"
        )
    events = list(_events(properties))
    if len(events) > MAX_EVENTS:
        reason = f"has {len(events):,} events; at most {MAX_EVENTS:,} are read"
        raise InvalidCalendarError(line=1, reason=reason)
    days = {day for event in events for day in _days_of(event)}
    if not days:
        raise InvalidCalendarError(line=1, reason="has no events")
    return tuple(sorted(days))


def _unfolded(text: str) -> Iterator[_Property]:
    """Yield the content lines: a line that begins with a space continues the one before."""
    lines: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = line.removesuffix("\r")
        if line[:1] in (" ", "\t") and lines:
            lines[-1][1].append(line[1:])
        elif line.strip():
            lines.append((number, [line]))
    for number, parts in lines:
        found = _LINE.fullmatch("".join(parts))
        if found is None:
            reason = f'"{cut(parts[0])}" is not a line of an iCalendar file; it has the form NAME:VALUE'
            raise InvalidCalendarError(line=number, reason=reason)
        yield _Property(number, found[1].upper(), found[3].strip())


def _events(properties: list[_Property]) -> Iterator[_CalendarEvent]:
    """Yield the events; components nested in them (alarms), and others, are ignored."""
    open_parts: list[str] = []
    event: _CalendarEvent | None = None
    for line in properties:
        if line.name == "BEGIN":
            open_parts.append(line.value.upper())
            if open_parts == ["VCALENDAR", "VEVENT"]:
                event = _CalendarEvent(line, [])
        elif line.name == "END":
            if not open_parts or open_parts.pop() != line.value.upper():
                raise line.fault(f"END:{cut(line.value)} ends nothing that began")
            if event is not None and len(open_parts) == 1:
                yield event
                event = None
        elif event is not None and len(open_parts) == 2:
            event.lines.append(line)
    if open_parts:
        raise properties[-1].fault(f"the file ends within {cut(open_parts[-1])}")


def _days_of(event: _CalendarEvent) -> Iterator[Days]:
    if any(line.value.upper() == "CANCELLED" for line in event.all("STATUS")):
        return
    for line in event.all("RECURRENCE-ID"):
        raise line.fault("moves one occurrence; write it as an EXDATE and an event of its own")
    start, rule = event.one("DTSTART"), event.one("RRULE")
    if start is None:
        raise event.begin.fault(f"{event} has no DTSTART")
    first = _whole_day(start, event)
    length = _length_of(event, first)
    starts = [first] if rule is None else list(_recurring(rule, first))
    starts += [day for line in event.all("RDATE") for day in _whole_days(line, event)]
    removed = {day for line in event.all("EXDATE") for day in _whole_days(line, event)}
    for day in starts:
        if day not in removed:
            try:
                yield Days(day, day + length)
            except OverflowError:
                raise event.begin.fault(f"{event} ends after the year 9999") from None


def _whole_days(line: _Property, event: _CalendarEvent) -> list[date]:
    return [_whole_day(line._replace(value=part.strip()), event) for part in line.value.split(",")]


def _whole_day(line: _Property, event: _CalendarEvent) -> date:
    """Return a date; a time is allowed if it is midnight, as some programs write whole days."""
    found = _DAY.fullmatch(line.value)
    if found is None:
        raise line.fault(f'{line.name} "{cut(line.value)}" is not a day; write 20261224')
    if found[4] not in (None, "000000"):
        reason = f"{event} has a time of day; a calendar has whole days (DTSTART;VALUE=DATE:20261224)"
        raise line.fault(reason)
    try:
        return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        raise line.fault(f"{line.name} {line.value} is not a day of the calendar") from None


def _length_of(event: _CalendarEvent, first: date) -> timedelta:
    """Return how many days follow the first one; DTEND is the day after the last."""
    end, duration = event.one("DTEND"), event.one("DURATION")
    days = 1
    if end is not None:
        days = (_whole_day(end, event) - first).days
        if days < 0:
            raise end.fault(f"{event} ends before it starts")
        days = max(days, 1)
    elif duration is not None:
        found = _DURATION.fullmatch(duration.value.removeprefix("+"))
        if found is None:
            raise duration.fault(f'DURATION "{cut(duration.value)}" is not a number of days; write P1D')
        days = int(found[1] or 0) * 7 + int(found[2] or 0)
    if not 1 <= days <= MAX_DAYS:
        raise event.begin.fault(f"{event} takes {days} days; 1 to {MAX_DAYS} are allowed")
    return (days - 1) * _ONE_DAY


@dataclass(frozen=True, slots=True)
class _Rule:
    """A yearly rule; `by_day` has pairs of an ordinal (0: every) and a weekday (0: Monday)."""

    interval: int
    count: int | None
    until: date | None
    months: tuple[int, ...]
    month_days: tuple[int, ...]
    by_day: tuple[tuple[int, int], ...]


def _recurring(line: _Property, first: date) -> Iterator[date]:
    """Yield the first day, and the days that a yearly rule names after it."""
    rule, counted = _rule_of(line, first), 1
    yield first
    for year in range(first.year, LAST_YEAR + 1, rule.interval):
        for day in _days_in(rule, year):
            if day <= first:
                continue
            counted += 1
            is_over = rule.count is not None and counted > rule.count
            if is_over or (rule.until is not None and day > rule.until):
                return
            if year >= FIRST_YEAR:
                yield day


def _days_in(rule: _Rule, year: int) -> list[date]:
    """Return the days of a year that have the month, the day of the month and the weekday of a rule."""
    days: set[date] = set()
    for month in rule.months:
        length = monthrange(year, month)[1]
        for number in range(1, length + 1):
            if (
                rule.month_days
                and number not in rule.month_days
                and number - length - 1 not in rule.month_days
            ):
                continue
            day = date(year, month, number)
            if not rule.by_day or any(_is_named(day, each, length) for each in rule.by_day):
                days.add(day)
    return sorted(days)


def _is_named(day: date, named: tuple[int, int], length: int) -> bool:
    """Say whether a day is the named weekday of its month: (-1, 0) is the last Monday."""
    ordinal, dow = named
    if day.weekday() != dow:
        return False
    from_start, from_end = (day.day - 1) // 7 + 1, -((length - day.day) // 7 + 1)
    return ordinal in (0, from_start, from_end)


def _rule_of(line: _Property, first: date) -> _Rule:
    parts: dict[str, str] = {}
    for part in filter(None, line.value.upper().split(";")):
        name, _, value = part.partition("=")
        if name not in _RULE_PARTS:
            raise line.fault(
                f"RRULE has {cut(name)}; a calendar reads yearly rules by month, day and weekday"
            )
        parts[name] = value
    if parts.get("FREQ") != "YEARLY":
        reason = f"RRULE repeats {cut(parts.get('FREQ', 'nothing'))}; a calendar reads FREQ=YEARLY only"
        raise line.fault(f"{reason}; use dow, dom or months of the constraints, or list the days")
    months = _numbers(line, parts, "BYMONTH", 1, 12)
    month_days = _numbers(line, parts, "BYMONTHDAY", -31, 31)
    by_day = tuple(_by_day(line, text) for text in parts["BYDAY"].split(",")) if "BYDAY" in parts else ()
    if by_day and not months:
        raise line.fault("RRULE has BYDAY without BYMONTH; name the month")
    return _Rule(
        interval=_numbers(line, parts, "INTERVAL", 1, 1000)[0] if "INTERVAL" in parts else 1,
        count=_numbers(line, parts, "COUNT", 1, MAX_COUNT)[0] if "COUNT" in parts else None,
        until=_until(line, parts["UNTIL"]) if "UNTIL" in parts else None,
        months=months or (first.month,),
        month_days=month_days if month_days or by_day else (first.day,),
        by_day=by_day,
    )


def _numbers(line: _Property, parts: dict[str, str], name: str, low: int, high: int) -> tuple[int, ...]:
    if name not in parts:
        return ()
    numbers = []
    for text in parts[name].split(","):
        if not re.fullmatch(r"[+-]?[0-9]{1,5}", text) or not low <= int(text) <= high or int(text) == 0:
            raise line.fault(f'RRULE has {name} "{cut(text)}"; use {low} to {high}')
        numbers.append(int(text))
    return tuple(numbers)


def _by_day(line: _Property, text: str) -> tuple[int, int]:
    found = _BY_DAY.fullmatch(text)
    if found is None:
        raise line.fault(f'RRULE has BYDAY "{cut(text)}"; write MO, 4TH or -1MO')
    return int(found[1] or 0), _DOWS.index(found[2])


def _until(line: _Property, text: str) -> date:
    found = _DAY.fullmatch(text)
    try:
        if found is not None:
            return date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        pass
    raise line.fault(f'RRULE has UNTIL "{cut(text)}"; write 20301231')
