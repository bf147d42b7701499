"""`kron next`: the next times of a schedule, a crontab, or a job file."""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from kron.cli.support.interval import since_of
from kron.cli.support.option import (
    AsJson,
    Count,
    Dialect,
    DstGap,
    DstRepeat,
    From,
    Identity,
    System,
    Zone,
)
from kron.cli.support.source import Options, Source, check_crontab_only, crontab_schedules, read_source
from kron.cli.support.table import NO_TIME, both_times, preview_entry, preview_row
from kron.cli.support.terminal import say, show_json
from kron.core.cron.crontab import CrontabEntry
from kron.core.cron.preview import Line, preview
from kron.core.cron.schedule import Schedule
from kron.core.time.instant import EpochSeconds
from kron.core.wording import counted

if TYPE_CHECKING:
    from kron.core.job.decision import Decision
    from kron.core.job.job import Job

Subject = Annotated[
    str,
    typer.Argument(
        metavar="EXPR|FILE",
        help='A cron expression, e.g. "0 9 * * 1-5", a crontab or a job file; - is standard input.',
    ),
]


def next_command(
    subject: Subject,
    tz: Zone = None,
    start: From = None,
    count: Count = 5,
    dialect: Dialect = "extended",
    identity: Identity = None,
    dst_gap: DstGap = "skip",
    dst_repeat: DstRepeat = "both",
    system: System = False,
    as_json: AsJson = False,
) -> None:
    """Show the next times of a schedule, in its zone and in UTC.

    For a crontab or a job file (.yaml, .yml, .json, .krontab), the starts of all entries are merged.
    Symbols mark clock changes: - drops a time, > moves it, 1 and 2 are the two occurrences of a repeated one.

    \b
    Examples:
      kron next "0 9 * * 1-5" --tz Europe/Berlin
      kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-27
      kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-27 --dst-gap next
      kron next "*/15 * * * *" -n 20 --json
      kron next "0 3 1 * *" --dialect posix
      kron next jobs.yaml -n 20
      kron next /etc/crontab --system
      crontab -l | kron next -
    """  # noqa: D301
    options = Options(tz=tz, dialect=dialect, identity=identity, dst_gap=dst_gap, dst_repeat=dst_repeat)
    source = read_source(subject)
    check_crontab_only(source, system=system)
    if source is None:
        _next_expression(options.schedule(subject), start, count, as_json=as_json)
    elif source.has_jobs:
        _next_jobs(source, options, start, count, as_json=as_json)
    else:
        entries = crontab_schedules(source, options, system=system)
        _next_crontab(source.name, entries, start, count, as_json=as_json)


def _next_expression(schedule: Schedule, start: str | None, count: int, *, as_json: bool) -> None:
    lines = preview(schedule, since_of(start, schedule.timezone), count)
    if as_json:
        return show_json(_document(schedule, lines))
    say(f"{schedule.text}   {schedule.timezone}")
    if not lines:
        say("  no times: clock changes skip all of them, or the calendar ends (year 9999)")
    seconds = any(line.wall.second for line in lines)
    for line in lines:
        say(preview_row(line, schedule.plan.zone, seconds=seconds))
    return None


def _document(schedule: Schedule, lines: list[Line]) -> dict[str, object]:
    return {
        "expression": schedule.text,
        "canonical": str(schedule.expression),
        "timezone": schedule.timezone,
        "dialect": schedule.dialect,
        "dst_gap": schedule.dst_gap,
        "dst_repeat": schedule.dst_repeat,
        "times": [preview_entry(line) for line in lines],
    }


def _next_crontab(
    file: str, entries: list[tuple[CrontabEntry, Schedule]], start: str | None, count: int, *, as_json: bool
) -> None:
    rows: list[tuple[CrontabEntry, Schedule, Line]] = []
    for entry, schedule in entries:
        lines = preview(schedule, since_of(start, schedule.timezone), count)
        rows += [(entry, schedule, line) for line in lines]
    rows.sort(key=lambda row: (row[2].at, row[2].instant is not None, row[0].line))
    rows = rows[: _end_of(count, [line for _, _, line in rows])]
    if as_json:
        documents = [
            {"line": entry.line, "command": entry.command, **_document(schedule, [line])}
            for entry, schedule, line in rows
        ]
        return show_json(documents)
    say(f"{file}   {counted(len(entries), 'entry', 'entries')}")
    seconds = any(line.wall.second for _, _, line in rows)
    for entry, schedule, line in rows:
        name = entry.command or entry.expression
        row = preview_row(line, schedule.plan.zone, seconds=seconds)
        say(f"{row}  {file}:{entry.line}  {name}")
    return None


def _end_of(count: int, lines: list[Line]) -> int:
    """Return how many lines have a number of runs; skipped times are shown in addition."""
    running = (number for number, line in enumerate(lines, 1) if line.instant is not None)
    return next(islice(running, count - 1, None), len(lines))


def _next_jobs(source: Source, options: Options, start: str | None, count: int, *, as_json: bool) -> None:
    from kron.cli.support.job_file import parse_jobs
    from kron.core.job.decision import Decision, upcoming_from
    from kron.core.job.seed import jitter_of

    def place(decision: Decision) -> EpochSeconds:
        return decision.bounds.end if decision.chosen_time is None else decision.chosen_time

    options.check_unused(source.name)
    jobs = parse_jobs(source).jobs()
    streams = [
        _remaining(upcoming_from(job, since_of(start, job.schedule.timezone), unschedulable=True), job)
        for job in jobs
        if not job.policy.suspend
    ]
    coming = list(islice(heapq.merge(*streams, key=place), count))
    if as_json:
        documents = [decision.to_dict() for decision in coming]
        return show_json(documents)
    suspended = len(jobs) - len(streams)
    paused = f", {suspended} of them suspended" if suspended else ""
    say(f"{source.name}   {counted(len(jobs), 'job')}{paused}")
    if not coming:
        say("  no further times")
    width = max((len(decision.job.identity) for decision in coming), default=0)
    for decision in coming:
        zone = decision.job.schedule.plan.zone
        identity = f"{decision.job.identity:{width}}"
        nominal = both_times(decision.nominal_time, zone, seconds=False)[:27].rstrip()
        if decision.chosen_time is None:
            row = f"! {'':31} {NO_TIME}  {identity}  for {nominal}: unschedulable"
        else:
            jitter = jitter_of(decision.job.identity, decision.period_id, decision.job.policy.jitter_ms)
            starts = both_times(decision.chosen_time + jitter // 1000, zone, seconds=True)
            row = f"  {starts}  {identity}  for {nominal}"
        say(row)
    return None


def _remaining(decisions: "Iterator[Decision]", job: "Job") -> "Iterator[Decision]":
    """Yield the decisions of a job until its remaining runs have started."""
    left = job.policy.remaining
    for decision in decisions:
        if left == 0:
            return
        yield decision
        if left is not None and decision.chosen_time is not None:
            left -= 1
