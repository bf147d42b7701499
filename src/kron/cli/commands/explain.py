"""`kron explain`: the meaning of an expression, or how the time of a job was chosen."""

from collections.abc import Mapping
from typing import Annotated

import typer

from kron.cli.support.interval import since_of
from kron.cli.support.option import (
    MAX_COUNT,
    AsJson,
    Dialect,
    DstGap,
    DstRepeat,
    From,
    Identity,
    System,
    Zone,
    whole_number,
)
from kron.cli.support.source import Options, Source, check_crontab_only, crontab_schedules, read_source
from kron.cli.support.table import preview_entry, preview_row
from kron.cli.support.terminal import say, show_json
from kron.core.cron.crontab import CrontabEntry
from kron.core.cron.field import MONTH, WEEKDAY, Field
from kron.core.cron.preview import Line, changes_ahead, preview
from kron.core.cron.schedule import Schedule
from kron.core.errors import InputError, InvalidOptionError
from kron.core.lint.lint import strict_text
from kron.core.time.instant import DAY, EpochSeconds

# How far ahead clock changes are shown: the next two of every zone.
AHEAD = 2 * 366 * DAY

DEFAULT_COUNT = 3

Subject = Annotated[
    str,
    typer.Argument(
        metavar="EXPR|FILE", help="A cron expression, a crontab or a job file; - is standard input."
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--count",
        metavar="N",
        help=f"Number of times to show; not for job files.  [default: {DEFAULT_COUNT}]",
        parser=whole_number("-n", 1, MAX_COUNT),
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Job files: period to explain.  [default: the next one]"),
]
Now = Annotated[
    str | None, typer.Option("--now", metavar="TIME", help="Job files: time of the verdict.  [default: now]")
]
JobName = Annotated[
    str | None, typer.Option("--job", metavar="IDENTITY", help="Job files: job to explain.  [default: all]")
]
Front = Annotated[
    str,
    typer.Option(
        "--front",
        metavar="FRONT",
        help="Job files: whose defaults apply: job (also for kron apply), or service (an upsert).",
    ),
]
Active = Annotated[bool, typer.Option("--active", help="Job files: assume that an earlier run is active.")]


def explain_command(
    subject: Subject,
    tz: Zone = None,
    start: From = None,
    count: Count = None,
    dialect: Dialect = "extended",
    identity: Identity = None,
    dst_gap: DstGap = "skip",
    dst_repeat: DstRepeat = "both",
    system: System = False,
    at: At = None,
    now: Now = None,
    job: JobName = None,
    active: Active = False,
    front: Front = "job",
    as_json: AsJson = False,
) -> None:
    """Explain an expression in words, or how and why a job's time was chosen.

    For an expression: a sentence, its fields, its day rule, its next times, the clock changes that affect it,
    and the equivalent strict POSIX expression. For a job file: every step of one period, from the nominal
    time, the window and the seed to each sample with the constraint that rejected it, the chosen time, the
    policy with the origin of each value, and the verdict.

    \b
    Examples:
      kron explain "0 9 1,15 * mon"
      kron explain "*/15 22-2 * * *" --tz America/New_York
      kron explain /etc/crontab
      kron explain jobs.yaml --job prod/backup --at 2026-03-29T00:00:00Z
    """  # noqa: D301
    options = Options(tz=tz, dialect=dialect, identity=identity, dst_gap=dst_gap, dst_repeat=dst_repeat)
    source = read_source(subject)
    check_crontab_only(source, system=system)
    if source is not None and source.has_jobs:
        options.check_unused(subject)
        _refuse({"--from": start}, "for job files use --at or --now")
        _refuse({"-n": count}, "one period of each job is explained; choose it with --at")
        _explain_jobs(source, name=job, at=at, now=now, active=active, front=front, as_json=as_json)
        return
    other_front = None if front == "job" else front
    _refuse({"--at": at, "--now": now, "--job": job, "--front": other_front}, "only for job files")
    if active:
        raise InputError("Invalid --active: only for job files")
    entries: list[tuple[CrontabEntry | None, Schedule]] = []
    if source is None:
        entries.append((None, options.schedule(subject)))
    else:
        entries += crontab_schedules(source, options, system=system)
    _explain_schedules(source, entries, start, count or DEFAULT_COUNT, as_json=as_json)


def _explain_jobs(
    source: Source,
    *,
    name: str | None,
    at: str | None,
    now: str | None,
    active: bool,
    front: str,
    as_json: bool,
) -> None:
    """Explain the jobs of a file; the reader of job files is loaded on use."""
    from kron.cli.support.decision_steps import explain_jobs
    from kron.cli.support.job_file import parse_jobs

    explain_jobs(parse_jobs(source), name=name, at=at, now=now, active=active, front=front, as_json=as_json)


def _explain_schedules(
    source: Source | None,
    entries: list[tuple[CrontabEntry | None, Schedule]],
    start: str | None,
    count: int,
    *,
    as_json: bool,
) -> None:
    documents = []
    for number, (entry, schedule) in enumerate(entries):
        since = since_of(start, schedule.timezone)
        if as_json:
            place: dict[str, object] = {"line": entry.line, "command": entry.command} if entry else {}
            documents.append(place | _document(schedule, since, count))
        else:
            if number:
                say("")
            if entry and source:
                say(f"{source.name}:{entry.line}  {entry.command}".rstrip())
            _show(schedule, since, count)
    if as_json:
        show_json(documents if source else documents[0])


def _refuse(given: Mapping[str, object], reason: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise InvalidOptionError(option=option, value=value, reason=reason)


def _show(schedule: Schedule, since: EpochSeconds, count: int) -> None:
    expression = schedule.expression
    say(f"{schedule.text}   {schedule.timezone}")
    say(schedule.describe(), "")
    for field in expression.fields:
        say(f"  {field.unit.name:9} {field!s:15} {_values(field)}".rstrip())
    say(f"  {'day rule':9} {day_rule(schedule)}")
    strict = strict_text(expression)
    say(f"  {'strict':9} {strict or 'has no equivalent in the posix dialect'}")
    zone = schedule.plan.zone
    for title, lines in (("next", preview(schedule, since, count)), ("clocks", _clocks(schedule, since))):
        seconds = any(line.wall.second for line in lines)
        for number, line in enumerate(lines):
            say(f"  {title if number == 0 else '':7} {preview_row(line, zone, seconds=seconds)}")
        if not lines:
            say(f"  {title:9} {'no clock change in two years affects it' if title == 'clocks' else 'none'}")


def _clocks(schedule: Schedule, since: EpochSeconds) -> list[Line]:
    return changes_ahead(schedule, since, since + AHEAD)


def _values(field: Field) -> str:
    """Return the names of a field's values, or that it has all of them."""
    if field.mask == field.unit.full:
        # "Every weekday" would mean Monday to Friday.
        return "every day of the week" if field.unit is WEEKDAY else f"every {field.unit.name}"
    if field.unit in (MONTH, WEEKDAY):
        return ", ".join(field.unit.names[value - field.unit.low].capitalize() for value in field.values)
    return ""


def day_rule(schedule: Schedule) -> str:
    """Describe how the two day fields of a schedule combine."""
    day, weekday = schedule.expression.day, schedule.expression.weekday
    if schedule.expression.either:
        return "day or weekday: one match is enough, because neither starts with *"
    if _is_any(day) and _is_any(weekday):
        return "every day"
    if _is_any(weekday):
        return "the day alone counts, because weekday is *"
    if _is_any(day):
        return "the weekday alone counts, because day is *"
    return "day and weekday: both must match, because one starts with *"


def _is_any(field: Field) -> bool:
    return field.star and field.mask == field.unit.full and not field.marks


def _document(schedule: Schedule, since: EpochSeconds, count: int) -> dict[str, object]:
    expression = schedule.expression
    return {
        "expression": schedule.text,
        "canonical": str(expression),
        "strict": strict_text(expression),
        "timezone": schedule.timezone,
        "dialect": schedule.dialect,
        "dst_gap": schedule.dst_gap,
        "dst_repeat": schedule.dst_repeat,
        "sentence": schedule.describe(),
        "fields": {
            field.unit.name: {
                "text": str(field),
                "values": field.values,
                "marks": list(map(str, field.marks)),
            }
            for field in expression.fields
        },
        "day_rule": day_rule(schedule),
        "times": [preview_entry(line) for line in preview(schedule, since, count)],
        "clock_changes": [preview_entry(line) for line in _clocks(schedule, since)],
    }
