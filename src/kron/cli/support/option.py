"""The options that commands share."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Annotated

import typer

from kron.core.cron.dialect import DIALECTS
from kron.core.cron.timeline import GAP_CHOICES, REPEAT_CHOICES
from kron.core.errors import InvalidInstantError, InvalidOptionError
from kron.core.time.instant import EpochSeconds, seconds_from
from kron.core.time.zone import HOST_KEYS, zone_of

MAX_COUNT = 10_000


def whole_number(option: str, least: int, most: int) -> Callable[[object], int]:
    """Return what reads the value of an option that takes a whole number between two others."""

    def read(value: object) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
            raise InvalidOptionError(option=option, value=text, reason=f"use {least} to {most}")
        return int(text)

    return read


def offer(choices: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what tells a shell how a word may go on."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices() if choice.startswith(incomplete)]

    return complete


def _zones() -> list[str]:
    from zoneinfo import available_timezones

    return sorted(available_timezones() - HOST_KEYS)


Zone = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="IANA time zone, e.g. Europe/Berlin.  [default: UTC]",
        autocompletion=offer(_zones),
    ),
]
Count = Annotated[
    int,
    typer.Option(
        "-n",
        "--count",
        metavar="N",
        help="How many times to show.",
        parser=whole_number("-n", 1, MAX_COUNT),
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Start at this time (included), as 2026-03-29, 2026-03-29T02:00 or with an offset; "
        "without one it is read in the schedule's zone.  [default: now]",
    ),
]
Dialect = Annotated[
    str,
    typer.Option(metavar="NAME", help="extended or posix.", autocompletion=offer(lambda: DIALECTS)),
]
Identity = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What H is derived from, e.g. the job's name.")
]
DstGap = Annotated[
    str,
    typer.Option(
        metavar="CHOICE",
        help="skip or next: what becomes of times the clocks jump over.",
        autocompletion=offer(lambda: GAP_CHOICES),
    ),
]
DstRepeat = Annotated[
    str,
    typer.Option(
        metavar="CHOICE",
        help="both, first or last: which of times shown twice run.",
        autocompletion=offer(lambda: REPEAT_CHOICES),
    ),
]
System = Annotated[
    bool, typer.Option("--system", help="Crontabs have a user column, as /etc/crontab and /etc/cron.d do.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def parse_instant(option: str, text: str, timezone: str) -> EpochSeconds:
    """Return the first whole second at or after a time typed by a person."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as cause:
        reason = "write 2026-03-29, 2026-03-29T02:00 or 2026-03-29T02:00+01:00"
        raise InvalidOptionError(option=option, value=text, reason=reason) from cause
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=zone_of(timezone).tzinfo)
    try:
        return seconds_from(instant)
    except InvalidInstantError as error:
        reason = str(error.details["reason"])
        raise InvalidOptionError(option=option, value=text, reason=reason) from error
