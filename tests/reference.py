"""The matches of a strict cron expression, found minute by minute: slow, plain, and independent of Kron.

The parser follows SPEC 1's grammar; the calendar and the zones are the standard library's. Tests compare
Kron's arithmetic with this enumeration. Instants are whole UTC seconds since 1970.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

MINUTE, HOUR, DAY = 60, 3600, 86_400
MINUTES_A_DAY = 1440

# minute, hour, day of month, month, weekday
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_ELEMENT = "[0-9]+(?:-[0-9]+)?"
_FIELD = rf"(?:\*|{_ELEMENT}(?:,{_ELEMENT})*)"
_STRICT = re.compile(rf"[ \t]*{_FIELD}(?:[ \t]+{_FIELD}){{4}}[ \t]*")


# --- the grammar -----------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """The meaning of a strict expression; `times` are minutes of the day."""

    times: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    def on(self, day: date) -> bool:
        """Return whether a local date matches."""
        in_days, in_weekdays = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        in_either = in_days or in_weekdays if self.either else in_days and in_weekdays
        return day.month in self.months and in_either

    @property
    def possible(self) -> bool:
        """Return whether any year has a day that matches."""
        return self.either or any(
            day <= LONGEST_MONTHS[month - 1] for day in self.days for month in self.months
        )


@lru_cache(maxsize=1024)
def read(text: str) -> Wanted | None:
    """Return the meaning of an expression, or None where it breaks SPEC 1's grammar or its ranges."""
    if not _STRICT.fullmatch(text):
        return None
    words = re.split("[ \t]+", text.strip(" \t"))
    fields = [_values(word, low, high) for word, (low, high) in zip(words, LIMITS, strict=True)]
    if None in fields:
        return None
    minutes, hours, days, months, weekdays = (frozenset(field or ()) for field in fields)
    times = frozenset(hour * 60 + minute for hour in hours for minute in minutes)
    return Wanted(times, days, months, weekdays, either="*" not in (words[2], words[4]))


def _values(word: str, low: int, high: int) -> set[int] | None:
    if word == "*":
        return set(range(low, high + 1))
    values: set[int] = set()
    for element in word.split(","):
        first, _, last = element.partition("-")
        begin, end = _number(first), _number(last or first)
        if not low <= begin <= end <= high:
            return None
        values.update(range(begin, end + 1))
    return values


def _number(digits: str) -> int:
    short = digits.lstrip("0") or "0"
    return int(short) if len(short) < 5 else 99_999


# --- the minutes -----------------------------------------------------------------------------------


class Gap(NamedTuple):
    """The instant at which local clocks had been set forward, and the local minutes they skipped."""

    end: int
    skipped: frozenset[int]


class Minutes:
    """The local minutes of the UTC interval `[start, end)`, computed once and shared by many expressions.

    `rows` are (instant, local minute), the latter counted from the first day of the calendar. With a
    `step` of one second also zones are right whose offset has seconds, as all had once.
    """

    def __init__(self, zone: str, start: int, end: int, *, step: int = MINUTE) -> None:
        self.rows: list[tuple[int, int]] = []
        self.gaps: list[Gap] = []
        local_zone = ZoneInfo(zone)
        wall = None
        for at in range(start, end, step):
            local = datetime.fromtimestamp(at, local_zone)
            before = wall
            wall = ((local.toordinal() * 24 + local.hour) * 60 + local.minute) * 60 + local.second
            if before is not None and wall - before > step:
                skipped = range(-(-(before + step) // MINUTE), -(-wall // MINUTE))
                self.gaps.append(Gap(at, frozenset(skipped)))
            if not local.second:
                self.rows.append((at, wall // MINUTE))
            else:
                assert step == 1, f"{zone} has an offset with seconds around {at}: look at every second"

    @cached_property
    def days(self) -> dict[int, date]:
        """Return the local dates seen or skipped, by number."""
        walls: Iterable[int] = {wall for _, wall in self.rows}.union(*(gap.skipped for gap in self.gaps))
        return {number: date.fromordinal(number) for number in {wall // MINUTES_A_DAY for wall in walls}}

    @cached_property
    def showings(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the instants whose local minute is shown again later, and those that show one again."""
        seen: dict[int, int] = {}
        first: set[int] = set()
        again: set[int] = set()
        for at, wall in self.rows:
            if wall in seen:
                first.add(seen[wall])
                again.add(at)
            seen[wall] = at
        return frozenset(first), frozenset(again)

    def matches(self, text: str, *, gap: str = "skip", repeat: str = "both") -> list[int]:
        """Return the instants at which an expression matches, oldest first.

        The meaning of the options: `next` adds the end of a gap if any skipped minute matched; `first`
        drops the second showing of a minute, `last` the first.
        """
        wanted = read(text)
        assert wanted is not None, f"{text!r} is not strict"
        walls = {
            number * MINUTES_A_DAY + time
            for number, day in self.days.items()
            if wanted.on(day)
            for time in wanted.times
        }
        found = [at for at, wall in self.rows if wall in walls]
        if repeat != "both":
            dropped = self.showings[1 if repeat == "first" else 0]
            found = [at for at in found if at not in dropped]
        if gap == "next":
            found = sorted({*found, *(gap.end for gap in self.gaps if not walls.isdisjoint(gap.skipped))})
        return found


@lru_cache(maxsize=32)
def minutes_of(zone: str, start: int, end: int, *, step: int = MINUTE) -> Minutes:
    """Return the shared minutes of an interval."""
    return Minutes(zone, start, end, step=step)


def between(text: str, zone: str, start: int, end: int) -> list[int]:
    """Return the instants in `[start, end)` at which an expression matches."""
    first = -(-start // MINUTE) * MINUTE
    return minutes_of(zone, first, end).matches(text)


def next_after(text: str, zone: str, instant: int, *, horizon: int) -> int | None:
    """Return the first match later than an instant and at most a horizon away."""
    found = between(text, zone, instant + 1, instant + horizon + 1)
    return found[0] if found else None


def prev_at_or_before(text: str, zone: str, instant: int, *, horizon: int) -> int | None:
    """Return the last match not later than an instant and at most a horizon away."""
    found = between(text, zone, instant - horizon, instant + 1)
    return found[-1] if found else None


def neighbours(found: list[int], instant: int) -> tuple[int | None, int | None]:
    """Return, of ascending instants, the last at or before an instant and the first after it."""
    index = bisect_right(found, instant)
    return found[index - 1] if index else None, found[index] if index < len(found) else None


# --- the zones -------------------------------------------------------------------------------------

# The standard library's zones in Python keep the tables they were read from; those in C hide them.
_OpenZone: Any = import_module("zoneinfo._zoneinfo").ZoneInfo


class OffsetChange(NamedTuple):
    """An instant at which a zone's offset changes, and the offsets around it in seconds."""

    at: int
    before: int
    after: int

    @property
    def size(self) -> int:
        """Return the seconds skipped (positive) or repeated (negative)."""
        return self.after - self.before


@lru_cache(maxsize=1024)
def offset_changes(zone: str, *, until: int) -> tuple[OffsetChange, ...]:
    """Return every change of a zone's offset before the end of a year, read from its tables."""
    source = _OpenZone(zone)
    if source._tti_before is None:
        return ()
    offset = _seconds(source._tti_before)
    changes: list[OffsetChange] = []
    end = epoch(until, 12, 31) + DAY
    for at, after in (*_table(source), *_tail(source, until)):
        if after != offset and at < end:
            changes.append(OffsetChange(at, offset, after))
            offset = after
    return tuple(changes)


def _table(source: Any) -> Iterator[tuple[int, int]]:
    for at, kind in zip(source._trans_utc, source._ttinfos, strict=True):
        yield at, _seconds(kind)


def _tail(source: Any, until: int) -> Iterator[tuple[int, int]]:
    """Yield the changes that a rule makes each year after the table's end."""
    rule = source._tz_after
    if not hasattr(rule, "transitions"):
        return
    last = source._trans_utc[-1] if source._trans_utc else epoch(1970)
    for year in range(datetime.fromtimestamp(last, UTC).year, until + 1):
        begins, ends = rule.transitions(year)
        standard, summer = _seconds(rule.std), _seconds(rule.dst)
        pair = ((begins - standard, summer), (ends - summer, standard))
        yield from ((int(at), offset) for at, offset in sorted(pair) if at > last)


def _seconds(kind: Any) -> int:
    return int(kind.utcoff.total_seconds())


# --- instants --------------------------------------------------------------------------------------


def epoch(year: int, month: int = 1, day: int = 1, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    """Return a UTC time in seconds since 1970."""
    return round((datetime(year, month, day, hour, minute, second) - datetime(1970, 1, 1)).total_seconds())


def local_text(instant: int, zone: str) -> str:
    """Return an instant as people write it, for messages and tables."""
    return datetime.fromtimestamp(instant, ZoneInfo(zone)).isoformat()
