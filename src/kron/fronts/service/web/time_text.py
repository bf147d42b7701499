"""Instants as text: in a time zone, in UTC, and relative to now."""

from datetime import datetime
from typing import NamedTuple

from kron.core.time.instant import datetime_of
from kron.core.time.zone import Zone, zone_of
from kron.fronts.service.documents import time_text

# Units of relative times, from this many seconds on.
UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# From this many of one unit on, the next smaller one is left out.
COARSE = 10
# In milliseconds.
SECOND = 1000


class PageTime(NamedTuple):
    """An instant on a page: as ISO 8601, in the schedule's zone, in UTC, and relative to now."""

    iso: str
    local: str
    utc: str
    away: str


def moment_of(milliseconds: int, zone: Zone, now: int) -> PageTime:
    """Return an instant as a page shows it."""
    seconds = milliseconds // 1000
    utc = datetime_of(seconds)
    try:
        local, name = utc.astimezone(zone.tzinfo), zone.name_at(seconds)
    except OverflowError:
        # Near the ends of the calendar some zones have no date for it.
        local, name = utc, "UTC"
    iso = str(time_text(milliseconds))
    year = datetime_of(now // 1000).year
    return PageTime(
        iso,
        f"{_wall_text(local, year)} {name}",
        f"{utc:%a} {utc.day} {utc:%b %Y %H:%M:%S} UTC",
        away(milliseconds - now),
    )


def moment_of_text(text: str, now: str, zone: Zone | None = None) -> PageTime:
    """Return an instant of a document, RFC 3339 in UTC, as a page of a whole second shows it."""
    at, present = _milliseconds_of(text), _milliseconds_of(now)
    # A later instant in the second of the page is not to come.
    return moment_of(at, zone or UTC_ZONE, present)._replace(away=away(at // 1000 * 1000 - present))


def _milliseconds_of(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _wall_text(wall: datetime, year: int) -> str:
    """Format a wall time, with seconds only if not zero and the year only if not this one."""
    clock = f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
    day = f"{wall:%a} {wall.day} {wall:%b}"
    return f"{day} {clock}" if wall.year == year else f"{day} {wall.year} {clock}"


def away(milliseconds: int) -> str:
    """Format a relative time: `in 5 min`, `2 h 10 min ago`, `now`."""
    if abs(milliseconds) < SECOND:
        return "now"
    text = _in_units(abs(milliseconds))
    return f"in {text}" if milliseconds > 0 else f"{text} ago"


def span(milliseconds: int) -> str:
    """Format a duration in its two largest units; of a few seconds the tenths are told."""
    if SECOND < milliseconds < COARSE * SECOND and milliseconds % SECOND >= SECOND // 10:
        return f"{milliseconds // SECOND}.{milliseconds % SECOND * 10 // SECOND} s"
    return _in_units(milliseconds)


def _in_units(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    if milliseconds < 1000:
        return f"{milliseconds} ms" if milliseconds >= COARSE else "0 s"
    for index, (size, name) in enumerate(UNITS):
        if seconds >= size:
            count, rest = divmod(seconds, size)
            smaller = UNITS[index + 1] if index + 1 < len(UNITS) else None
            if smaller is None or count >= COARSE or rest < smaller[0]:
                return f"{count} {name}"
            return f"{count} {name} {rest // smaller[0]} {smaller[1]}"
    raise AssertionError("a second is the smallest unit")


UTC_ZONE = zone_of("UTC")
