"""Times as rows of a terminal."""

from datetime import datetime

from kron.core.cron.preview import Line, Mark
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.time.zone import Zone, wall_time

SYMBOLS = {
    None: " ",
    Mark.SKIPPED: "-",
    Mark.LEFT_OUT: "-",
    Mark.MOVED: ">",
    Mark.FIRST_OF_TWO: "1",
    Mark.SECOND_OF_TWO: "2",
}
# In the place of a UTC time.
NO_TIME = f"{'-':20}"


def wall_text(wall: datetime, *, seconds: bool) -> str:
    """Format a local time, e.g. ``Sun 2026-03-29 02:30``."""
    clock = f"{wall:%H:%M:%S}" if seconds else f"{wall:%H:%M}"
    return f"{wall:%a} {wall.date()} {clock}"


def both_times(instant: EpochSeconds, zone: Zone, *, seconds: bool) -> str:
    """Format an instant in a zone and in UTC."""
    wall = wall_time(instant, zone.offset_at(instant))
    return f"{wall_text(wall, seconds=seconds)}  {zone.name_at(instant):6} {rfc3339(instant)}"


def preview_row(line: Line, zone: Zone, *, seconds: bool) -> str:
    """Format one line of a preview, with its symbol first."""
    symbol = SYMBOLS[line.mark]
    if line.instant is None:
        return f"{symbol} {wall_text(line.wall, seconds=seconds)}  {'':6} {NO_TIME}  {line.note}"
    return f"{symbol} {both_times(line.instant, zone, seconds=seconds)}  {line.note or ''}".rstrip()


def preview_entry(line: Line) -> dict[str, object]:
    """Return one line of a preview as a JSON object."""
    return {
        "utc": None if line.instant is None else rfc3339(line.instant),
        "local": line.wall.isoformat() + offset_text(line.offset) if line.instant is not None else None,
        "wall": line.wall.isoformat(),
        "mark": line.mark,
        "note": line.note,
    }


def offset_text(offset: int) -> str:
    """Format an offset as ISO 8601, with seconds only if not zero."""
    sign, rest = ("-", -offset) if offset < 0 else ("+", offset)
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    return f"{sign}{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")
