"""Options of several commands."""

from collections.abc import Callable, Iterable
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated

import typer

from kron.core.cron.dialect import DIALECTS
from kron.core.cron.timeline import GAP_CHOICES, REPEAT_CHOICES
from kron.core.errors import InvalidInstantError, InvalidOptionError
from kron.core.time.instant import EpochSeconds, seconds_from
from kron.core.time.zone import HOST_KEYS, zone_of

MAX_COUNT = 10_000


def whole_number(option: str, least: int, most: int) -> Callable[[object], int]:
    """Return a parser of an option that takes a whole number in a range."""

    def read(value: object) -> int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
            raise InvalidOptionError(option=option, value=text, reason=f"use {least} to {most}")
        return int(text)

    return read


def one_of(option: str, choices: Iterable[str]) -> Callable[[object], str]:
    """Return a parser of an option that takes one of some words, in any case."""
    known = tuple(map(str, choices))

    def read(value: object) -> str:
        text = str(value)
        match = next((choice for choice in known if choice.lower() == text.lower()), None)
        if match is None:
            reason = f"use one of {', '.join(known)}{did_you_mean(text.lower(), known)}"
            raise InvalidOptionError(option=option, value=text, reason=reason)
        return match

    return read


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question that names the closest of some names, in any case; nothing if none is close."""
    spellings = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), spellings, n=1)
    return f"; did you mean {spellings[close[0]]}?" if close else ""


def offer(choices: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion function that suggests the choices with a prefix."""

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices() if choice.lower().startswith(incomplete.lower())]

    return complete


def zones() -> list[str]:
    """Return the names of all IANA zones, for completion."""
    from zoneinfo import available_timezones

    return sorted(available_timezones() - HOST_KEYS)


Zone = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="IANA time zone, e.g. Europe/Berlin.  [default: UTC]",
        autocompletion=offer(zones),
    ),
]
Count = Annotated[
    int,
    typer.Option(
        "-n",
        "--count",
        metavar="N",
        help="Number of times to show.",
        parser=whole_number("-n", 1, MAX_COUNT),
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Start of the interval (inclusive): 2026-03-29, 2026-03-29T02:00, or with an offset. "
        "Without an offset it is in the schedule's zone.  [default: now]",
    ),
]
Dialect = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Cron dialect: extended or posix.",
        parser=one_of("dialect", DIALECTS),
        autocompletion=offer(lambda: DIALECTS),
    ),
]
Identity = Annotated[str | None, typer.Option(metavar="TEXT", help="Seed of H, e.g. the job's name.")]
DstGap = Annotated[
    str,
    typer.Option(
        metavar="CHOICE",
        help="Times in a clock change's gap: skip them, or run at the next valid time (next).",
        parser=one_of("dst_gap", GAP_CHOICES),
        autocompletion=offer(lambda: GAP_CHOICES),
    ),
]
DstRepeat = Annotated[
    str,
    typer.Option(
        metavar="CHOICE",
        help="Times that a clock change repeats: run both, first or last.",
        parser=one_of("dst_repeat", REPEAT_CHOICES),
        autocompletion=offer(lambda: REPEAT_CHOICES),
    ),
]
System = Annotated[
    bool, typer.Option("--system", help="Crontabs have a user column, like /etc/crontab and /etc/cron.d.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="Store to use, e.g. sqlite:///kron.db (or KRON_STORE)."),
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with settings (or KRON_CONFIG)."),
]


def parse_instant(option: str, text: str, timezone: str) -> EpochSeconds:
    """Return the first whole second at or after a time, as typed on the command line."""
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
