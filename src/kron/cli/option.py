"""The options that commands share."""

from datetime import datetime
from typing import Annotated

import typer

from kron.core.errors import InvalidInstantError, InvalidOptionError
from kron.core.instant import EpochSeconds, seconds_from
from kron.core.zone import zone_of

MAX_COUNT = 10_000

Zone = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="IANA time zone, e.g. Europe/Berlin.  [default: UTC]"),
]
Count = Annotated[int, typer.Option("-n", "--count", metavar="N", help="How many times to show.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Start at this time (included), as 2026-03-29, 2026-03-29T02:00 or with an offset; "
        "without one it is read in the schedule's zone.  [default: now]",
    ),
]
Dialect = Annotated[str, typer.Option(metavar="NAME", help="extended or posix.")]
Identity = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What H is derived from, e.g. the job's name.")
]
DstGap = Annotated[
    str, typer.Option(metavar="CHOICE", help="skip or next: what becomes of times the clocks jump over.")
]
DstRepeat = Annotated[
    str, typer.Option(metavar="CHOICE", help="both, first or last: which of times shown twice run.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def check_count(count: int) -> int:
    """Return how many lines were asked for, or refuse it."""
    if not 1 <= count <= MAX_COUNT:
        raise InvalidOptionError(option="-n", value=count, reason=f"use 1 to {MAX_COUNT}")
    return count


def parse_instant(text: str, timezone: str) -> EpochSeconds:
    """Return the first whole second at or after a time typed by a person."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as cause:
        reason = "write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00"
        raise InvalidInstantError(value=text, reason=reason) from cause
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=zone_of(timezone).tzinfo)
    return seconds_from(instant)
