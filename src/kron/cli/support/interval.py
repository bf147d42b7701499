"""The interval of a command: `--from`, and `--to` or `--days`."""

import sys
from shutil import get_terminal_size
from typing import Annotated, NamedTuple

import typer

from kron.cli.support.option import parse_instant, whole_number
from kron.clocks.system import SystemClock
from kron.core.cron.schedule import UTC
from kron.core.errors import InvalidOptionError
from kron.core.time.instant import DAY, LAST_SECOND, EpochSeconds, rfc3339, seconds_of

DEFAULT_DAYS = 7
# A leap year.
MAX_DAYS = 366
# The width of output to a file or pipe, and the maximum on a terminal.
NARROW, WIDE = 80, 120

From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Start (inclusive), in UTC unless it has an offset.  [default: now]"
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="End (exclusive), in UTC unless it has an offset."),
]
Days = Annotated[
    int | None,
    typer.Option(
        "--days",
        metavar="N",
        help=f"Length of the interval in days.  [default: {DEFAULT_DAYS}]",
        parser=whole_number("--days", 1, MAX_DAYS),
    ),
]


class Interval(NamedTuple):
    """The seconds `[start, end)`."""

    start: EpochSeconds
    end: EpochSeconds

    def __str__(self) -> str:
        return f"{rfc3339(self.start)} to {rfc3339(self.end)}"


def parse_interval(start: str | None, end: str | None, days: int | None) -> Interval:
    """Return the interval of the options; one that is empty, reversed or too long is an error."""
    if end is not None and days is not None:
        raise InvalidOptionError(option="--days", value=days, reason="give --to or --days, not both")
    first = _next_minute() if start is None else parse_instant("--from", start, UTC)
    last = first + (days or DEFAULT_DAYS) * DAY if end is None else parse_instant("--to", end, UTC)
    if last <= first:
        raise InvalidOptionError(option="--to", value=end, reason=f"must be later than {rfc3339(first)}")
    if last - first > MAX_DAYS * DAY:
        raise InvalidOptionError(option="--to", value=end, reason=f"use at most {MAX_DAYS} days")
    if last > LAST_SECOND:
        raise InvalidOptionError(option="--from", value=start, reason="the calendar ends with the year 9999")
    return Interval(first, last)


def since_of(start: str | None, timezone: str) -> EpochSeconds:
    """Return the start of the interval: that of --from, or the next second."""
    if start is not None:
        return parse_instant("--from", start, timezone)
    return seconds_of(SystemClock().now()) + 1


def _next_minute() -> EpochSeconds:
    return -(-seconds_of(SystemClock().now()) // 60) * 60


def columns() -> int:
    """Return the width of the output: that of the terminal within bounds, fixed without one."""
    if not sys.stdout.isatty():
        return NARROW
    return min(max(get_terminal_size().columns, NARROW), WIDE)
