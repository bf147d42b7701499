"""`kron next`: the coming times of a schedule."""

import json
from typing import Annotated

import typer

from kron.cli.option import (
    AsJson,
    Count,
    Dialect,
    DstGap,
    DstRepeat,
    From,
    Identity,
    Zone,
    check_count,
    parse_instant,
)
from kron.clocks.system import SystemClock
from kron.core.instant import rfc3339, seconds_of
from kron.core.preview import Line, Mark, preview
from kron.core.schedule import Schedule

Expression = Annotated[str, typer.Argument(metavar="EXPR", help='A cron expression, e.g. "0 9 * * 1-5".')]

SIGNS = {
    None: " ",
    Mark.SKIPPED: "-",
    Mark.LEFT_OUT: "-",
    Mark.MOVED: ">",
    Mark.FIRST_OF_TWO: "1",
    Mark.SECOND_OF_TWO: "2",
}


def next_command(
    expression: Expression,
    tz: Zone = None,
    start: From = None,
    count: Count = 5,
    dialect: Dialect = "extended",
    identity: Identity = None,
    dst_gap: DstGap = "skip",
    dst_repeat: DstRepeat = "both",
    as_json: AsJson = False,
) -> None:
    """Show the coming times of a schedule, in its zone and in UTC.

    A mark stands where a change of the clocks matters: - drops a time, > moves one, 1 and 2 are the two
    showings of a repeated one.

    \b
    Examples:
      kron next "0 9 * * 1-5" --tz Europe/Berlin
      kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-27
      kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-27 --dst-gap next
      kron next "*/15 * * * *" -n 20 --json
      kron next "0 3 1 * *" --dialect posix
    """  # noqa: D301
    schedule = Schedule(
        expression, tz, dialect=dialect, identity=identity, dst_gap=dst_gap, dst_repeat=dst_repeat
    )
    check_count(count)
    since = parse_instant(start, schedule.timezone) if start else seconds_of(SystemClock().now()) + 1
    lines = preview(schedule, since, count)
    if as_json:
        print(json.dumps(_document(schedule, lines), indent=2, ensure_ascii=False))
    else:
        _show(schedule, lines)


def _show(schedule: Schedule, lines: list[Line]) -> None:
    print(f"{schedule.text}   {schedule.timezone}")
    if not lines:
        print("  no further times: the calendar ends with the year 9999")
    seconds = any(line.wall.second for line in lines)
    for line in lines:
        print(f"{SIGNS[line.mark]} {_row(schedule, line, seconds=seconds)}".rstrip())


def _row(schedule: Schedule, line: Line, *, seconds: bool) -> str:
    clock = f"{line.wall:%H:%M:%S}" if seconds else f"{line.wall:%H:%M}"
    local = f"{line.wall:%a} {line.wall.date()} {clock}"
    if line.instant is None:
        return f"{local}  {'':6} {'-':20}  {line.note}"
    name = schedule.plan.zone.name_at(line.instant)
    return f"{local}  {name:6} {rfc3339(line.instant)}  {line.note or ''}"


def _document(schedule: Schedule, lines: list[Line]) -> dict[str, object]:
    return {
        "expression": schedule.text,
        "canonical": str(schedule.expression),
        "timezone": schedule.timezone,
        "dialect": schedule.dialect,
        "dst_gap": schedule.dst_gap,
        "dst_repeat": schedule.dst_repeat,
        "times": [_entry(line) for line in lines],
    }


def _entry(line: Line) -> dict[str, object]:
    return {
        "utc": None if line.instant is None else rfc3339(line.instant),
        "local": line.wall.isoformat() + offset_text(line.offset) if line.instant is not None else None,
        "wall": line.wall.isoformat(),
        "mark": line.mark,
        "note": line.note,
    }


def offset_text(offset: int) -> str:
    """Write an offset as ISO 8601 does, with seconds only where there are any."""
    sign, rest = ("-", -offset) if offset < 0 else ("+", offset)
    hours, minutes, seconds = rest // 3600, rest // 60 % 60, rest % 60
    return f"{sign}{hours:02}:{minutes:02}" + (f":{seconds:02}" if seconds else "")
