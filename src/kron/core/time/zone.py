"""Civil time: a zone is a list of spans in which local time is UTC plus a constant.

A gap has no instants and a fold has each wall time twice, by construction: no code checks whether
daylight saving time is in force.
"""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import cache, lru_cache
from typing import NamedTuple
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from kron.core.errors import UnknownTimezoneError
from kron.core.time.instant import DAY, EPOCH, FIRST_SECOND, LAST_SECOND, EpochSeconds

# Offsets are compared once a day. The shortest span of any zone is four days (Freetown, September
# 1939), so no transition is missed between two probes; a test checks this for all zones.
PROBE = DAY
# From this year on every zone follows a rule that depends only on the kind of year, whose spans are longer,
# so fewer probes are enough. A test checks both for all zones.
REPEATING_FROM = 2088
LONG_PROBE = 14 * DAY

# Near its ends the calendar cannot represent local times, so the offset a day further in is used.
FIRST_PROBE = FIRST_SECOND + DAY
LAST_PROBE = LAST_SECOND - DAY

# Files of a zone database that are not IANA zones: they depend on the host or on leap seconds.
HOST_KEYS = frozenset({"localtime", "posixrules"})
FOREIGN_FOLDERS = ("posix/", "right/")
# More characters than any key has; a longer text is neither looked for nor compared with them.
MAX_KEY = 100

# Years that a zone remembers: callers may ask for any of ten thousand, in each of six hundred zones.
MAX_YEARS = 128

UNIX_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class Span(NamedTuple):
    """The instants `[start, end)` in which local time is UTC plus `offset` seconds."""

    start: EpochSeconds
    end: EpochSeconds
    offset: int


class Transition(NamedTuple):
    """The instant at which a zone's offset changes, and the offsets around it."""

    at: EpochSeconds
    before: int
    after: int

    @property
    def size(self) -> int:
        """Return the seconds skipped (positive, a gap) or repeated (negative, a fold)."""
        return self.after - self.before


class Zone:
    """One IANA zone; use `zone_of`, which shares instances."""

    __slots__ = ("_years", "key", "tzinfo")

    def __init__(self, key: str, tzinfo: ZoneInfo) -> None:
        self.key = key
        self.tzinfo = tzinfo
        self._years: dict[int, tuple[Span, ...]] = {}

    def offset_at(self, instant: EpochSeconds) -> int:
        """Return local time minus UTC, in seconds."""
        near = min(max(instant, FIRST_PROBE), LAST_PROBE)
        local = self.tzinfo.fromutc((EPOCH + timedelta(0, near)).replace(tzinfo=self.tzinfo))
        offset = local.utcoffset()
        assert offset is not None
        return offset.days * DAY + offset.seconds

    def name_at(self, instant: EpochSeconds) -> str:
        """Return the abbreviation of local time at an instant, e.g. ``CEST``."""
        near = min(max(instant, FIRST_PROBE), LAST_PROBE)
        return (EPOCH + timedelta(0, near)).astimezone(self.tzinfo).tzname() or ""

    def spans_of(self, year: int) -> tuple[Span, ...]:
        """Return the spans that make up one UTC year, cut at its ends."""
        spans = self._years.get(year)
        if spans is None:
            if len(self._years) >= MAX_YEARS:
                self._years.clear()
            spans = self._years[year] = tuple(self._probe(year))
        return spans

    def span_at(self, instant: EpochSeconds) -> Span:
        """Return the span an instant lies in, cut at the ends of its UTC year."""
        for span in self.spans_of(year_of(instant)):
            if instant < span.end:
                return span
        raise AssertionError("the spans of a year cover it")

    def changes(self, start: EpochSeconds, end: EpochSeconds) -> Iterator[Transition]:
        """Yield the transitions in `[start, end)`, oldest first."""
        start, end = max(start, FIRST_SECOND + 1), min(end, LAST_SECOND + 1)
        if start >= end:
            return
        before = self.offset_at(start - 1)
        for year in range(year_of(start), year_of(end - 1) + 1):
            for span in self.spans_of(year):
                if span.offset != before and start <= span.start < end:
                    yield Transition(span.start, before, span.offset)
                if span.end > start:
                    before = span.offset

    def _probe(self, year: int) -> Iterator[Span]:
        start, end = year_bounds(year)
        distance = PROBE if year < REPEATING_FROM else LONG_PROBE
        since, offset = start, self.offset_at(start)
        for probe in range(start + distance, end + distance, distance):
            probe = min(probe, end - 1)
            if (now := self.offset_at(probe)) != offset:
                change = self._first_with(now, max(since, probe - distance), probe)
                yield Span(since, change, offset)
                since, offset = change, now
        yield Span(since, end, offset)

    def _first_with(self, offset: int, before: EpochSeconds, after: EpochSeconds) -> EpochSeconds:
        """Return the first instant in `(before, after]` with the offset of `after`."""
        while after - before > 1:
            middle = (before + after) // 2
            if self.offset_at(middle) == offset:
                after = middle
            else:
                before = middle
        return after


@lru_cache(maxsize=1024)
def zone_of(key: str) -> Zone:
    """Return the shared zone of an IANA key, or raise UnknownTimezoneError."""
    try:
        # To look for a file of a key with thousands of folders would exceed the depth of calls.
        if len(key) > MAX_KEY or key in HOST_KEYS or key.startswith(FOREIGN_FOLDERS):
            raise LookupError
        return Zone(key, ZoneInfo(key))
    except (ValueError, TypeError, AttributeError, OSError, LookupError) as cause:
        raise UnknownTimezoneError(timezone=key, suggestions=_close_to(key)) from cause


@lru_cache(maxsize=1024)
def tzdata_version(key: str) -> str | None:
    """Return the release of the zone database a zone was read from, or None if it is unknown."""
    for folder in TZPATH:
        if _is_readable(f"{folder}/{key}"):
            return _release_of(folder)
    from tzdata import IANA_VERSION

    return str(IANA_VERSION)


def _is_readable(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False


@lru_cache(maxsize=16)
def _release_of(folder: str) -> str | None:
    """Return the version of a compiled zone database, from one of the files that packagers use."""
    for name, prefix in (("tzdata.zi", "# version "), ("+VERSION", ""), ("version", "")):
        try:
            with open(f"{folder}/{name}", encoding="ascii") as file:
                line = file.readline().strip()
        except (OSError, ValueError):
            continue
        if line.startswith(prefix):
            return line.removeprefix(prefix)
    return None


def year_of(instant: EpochSeconds) -> int:
    """Return the UTC year of an instant inside the calendar."""
    return date.fromordinal(instant // DAY + UNIX_EPOCH_ORDINAL).year


@lru_cache(maxsize=1024)
def year_bounds(year: int) -> tuple[EpochSeconds, EpochSeconds]:
    """Return the instants `[start, end)` of a UTC year."""
    start = (date(year, 1, 1).toordinal() - UNIX_EPOCH_ORDINAL) * DAY
    days = 366 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 365
    return start, start + days * DAY


def wall_time(instant: EpochSeconds, offset: int) -> datetime:
    """Return the naive local datetime an instant has under an offset."""
    return (EPOCH + timedelta(0, instant + offset)).replace(tzinfo=None)


def _close_to(key: object) -> list[str]:
    if not isinstance(key, str) or len(key) > MAX_KEY:
        return []
    from difflib import get_close_matches

    keys = _known_keys()
    if exact := keys.get(key.casefold()):
        return [] if exact == key else [exact]
    return [keys[known] for known in get_close_matches(key.casefold(), keys, n=2, cutoff=0.75)]


@cache
def _known_keys() -> dict[str, str]:
    """Return the keys of the database; to list its files takes long."""
    return {known.casefold(): known for known in available_timezones() - HOST_KEYS}
