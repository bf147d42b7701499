"""`kron simulate`: the future load of all jobs, minute by minute; `--chaos` runs them with faults instead."""

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from kron.cli.support.interval import Days, From, Interval, To, columns, parse_interval
from kron.cli.support.job_file import load_jobs
from kron.cli.support.option import AsJson, parse_instant, whole_number
from kron.cli.support.read import check_once
from kron.cli.support.terminal import progress, put, say, show_json, to_json
from kron.core.cron.schedule import UTC as UTC_ZONE
from kron.core.errors import InvalidJobFileError, InvalidOptionError, Problem, one_line
from kron.core.job.job import Job
from kron.core.job.load import (
    HOUR,
    MINUTE,
    FleetLoad,
    Load,
    PlannedStart,
    load_of,
    nominal_starts_in,
    starts_in,
)
from kron.core.time.instant import DAY, EpochSeconds, datetime_of, rfc3339
from kron.core.wording import counted
from kron.testing.chaos_report import ChaosReport

FULL, EXTRA = "█", "░"
EIGHTHS = " ▁▂▃▄▅▆▇█"
# The rows of an hour's chart.
HEIGHT = 6
# How many names are listed; the others are counted.
MAX_SHOWN = 10
# The minutes marked below the chart.
MARKS = range(0, 60, 10)
# How many years `--chaos` simulates.
DEFAULT_YEARS, MAX_YEARS = 1.0, 1_000.0
# Fixed, so that the same jobs and seed give the same result on every day.
START = datetime(2026, 1, 1, tzinfo=UTC)

Chaos = Annotated[
    bool,
    typer.Option("--chaos", help="Run the jobs with crashes, outages and slow runs, and check the records."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="With --chaos: random seed.  [default: 0]",
        parser=whole_number("--seed", 0, 2**63 - 1),
    ),
]
Years = Annotated[
    float | None,
    typer.Option(
        "--years", metavar="Y", help=f"With --chaos: simulated years.  [default: {DEFAULT_YEARS:g}]"
    ),
]
Files = Annotated[
    list[str], typer.Argument(metavar="JOBFILE...", help="Job files, YAML or JSON; - is standard input.")
]


def simulate_command(
    files: Files,
    start: From = None,
    end: To = None,
    days: Days = None,
    chaos: Chaos = False,
    seed: Seed = None,
    years: Years = None,
    as_json: AsJson = False,
) -> None:
    """Show the future load of jobs, with their windows and without.

    Every period of every job is decided as it will be. The load of a minute is its number of starts;
    suspended jobs are left out. Without windows each period starts at its nominal time. Times are UTC.
    With --chaos the jobs run in virtual time with crashes, outages and slow runs, and their records are
    checked against their policies; the exit code is 1 if there is a violation.

    \b
    Examples:
      kron simulate jobs.yaml
      kron simulate jobs.yaml more-jobs.yaml --from 2026-03-01 --to 2026-04-01
      kron simulate jobs.yaml --days 30 --json
      kron simulate jobs.yaml --chaos --seed 7 --years 2
    """  # noqa: D301
    if chaos:
        _check_unused({"--to": end, "--days": days}, "it cannot be combined with --chaos; use --years")
        jobs = load_fleet(files)
        _show_chaos(jobs, seed=seed, years=years, start=start, as_json=as_json, progress=_progress())
        return
    _check_unused({"--seed": seed, "--years": years}, "only for --chaos")
    interval = parse_interval(start, end, days)
    jobs = load_fleet(files)
    load = load_of(jobs, *interval, progress=_progress())
    worst = _starts_at(load.decided.worst_at, jobs, interval, starts_in)
    nominal_worst = _starts_at(load.nominal.worst_at, jobs, interval, nominal_starts_in)
    if as_json:
        put(_document(files, interval, load, worst, nominal_worst))
        return
    _show_summary(files, interval, load, worst, nominal_worst)
    if load.nominal.starts or load.decided.starts:
        say("")
        _show_day(load, interval)
        _show_worst_hour(load)
        _show_worst_minute(load, worst)
    _show_idle(load)


def _check_unused(options: Mapping[str, object], reason: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise InvalidOptionError(option=option, value=value, reason=reason)


def load_fleet(files: Sequence[str]) -> list[Job]:
    """Return the jobs of several files; an identity in two of them is an error."""
    jobs: list[Job] = []
    seen: dict[str, str] = {}
    problems = []
    check_once(files)
    for file in files:
        loaded = load_jobs(file)
        for job in loaded:
            if job.identity in seen:
                reason = f"{seen[job.identity]} has it already"
                problems.append(f"{file}: {Problem('identity', job.identity, reason)}")
            seen[job.identity] = file
        jobs += loaded
    if problems:
        raise InvalidJobFileError(problems=problems)
    return jobs


def _progress() -> Callable[[float], None] | None:
    """Return a function that shows the progress on a terminal; None without one."""
    if not sys.stderr.isatty():
        return None
    shown = -1

    def report(share: float) -> None:
        nonlocal shown
        percent = int(100 * share)
        if percent > shown:
            shown = percent
            text = "" if percent == 100 else f"kron: simulating, {percent:2} %"
            progress(text)

    return report


def _starts_at(
    minute_at: EpochSeconds | None,
    jobs: list[Job],
    interval: Interval,
    starts_of: Callable[[list[Job], EpochSeconds, EpochSeconds], list[PlannedStart]],
) -> list[PlannedStart]:
    """Return the starts of one minute, clipped to the interval."""
    if minute_at is None:
        return []
    return starts_of(jobs, max(minute_at, interval.start), min(minute_at + MINUTE, interval.end))


# --- text ---


def _show_summary(
    files: Sequence[str],
    interval: Interval,
    load: FleetLoad,
    worst: Sequence[PlannedStart],
    nominal_worst: Sequence[PlannedStart],
) -> None:
    count = len(load.tallies) + len(load.suspended)
    suspended = f", {len(load.suspended):,} of them suspended" if load.suspended else ""
    say(f"{one_line(', '.join(files))}   {counted(count, 'job')}{suspended}")
    say(f"{interval}, {_length(interval)}", "")
    decided, nominal = load.decided, load.nominal
    rows = [
        ("", "with windows", "without"),
        ("starts", f"{decided.starts:,}", f"{nominal.starts:,}"),
        ("mean in a minute", f"{decided.mean:,.2f}", f"{nominal.mean:,.2f}"),
        ("p99 in a minute", f"{decided.p99:,}", f"{nominal.p99:,}"),
        ("peak in a minute", f"{decided.peak:,}", f"{nominal.peak:,}"),
        ("  of these set for :00", _on_the_hour(worst), _on_the_hour(nominal_worst)),
        ("starts in minute :00", _share(decided), _share(nominal)),
        ("unschedulable periods", f"{load.unschedulable:,}", "-"),
    ]
    for name, one, other in rows:
        say(f"  {name:24} {one:>14} {other:>14}".rstrip())


def _length(interval: Interval) -> str:
    seconds = interval.end - interval.start
    days, rest = divmod(seconds, DAY)
    if rest == 0:
        return counted(days, "day")
    hours, minutes = rest // HOUR, rest // MINUTE % 60
    parts = [f"{days} d"] * (days > 0) + [f"{hours} h"] * (hours > 0) + [f"{minutes} min"] * (minutes > 0)
    return " ".join(parts) or f"{seconds} s"


def _on_the_hour(starts: Sequence[PlannedStart]) -> str:
    return f"{sum(start.on_the_hour for start in starts):,} of {len(starts):,}" if starts else "-"


def _share(load: Load) -> str:
    return f"{100 * load.on_the_hour / load.starts:.1f} %" if load.starts else "-"


def _show_day(load: FleetLoad, interval: Interval) -> None:
    """Print the fullest minute of each hour of the day: a bar with windows, extended without."""
    decided, nominal = load.decided.peaks_by_hour(), load.nominal.peaks_by_hour()
    highest = max(load.decided.peak, load.nominal.peak)
    # Without the text beside a bar, and the last column, in which some terminals wrap.
    room = columns() - 29
    whole_days = interval.end - interval.start >= DAY
    say("Fullest minute of each hour of the day (UTC)" if whole_days else "Fullest minute of each hour (UTC)")
    say(f"  {'hour':5}  {f'{FULL} with windows, {EXTRA} without':{room}}  {'with':>8} {'without':>8}")
    for hour in sorted(decided) if whole_days else decided:
        bar = _bar(decided[hour], nominal[hour], highest, room)
        say(f"  {hour:02}:00  {bar:{room}}  {decided[hour]:8,} {nominal[hour]:8,}")


def _bar(decided: int, nominal: int, highest: int, room: int) -> str:
    """Return one bar for two numbers, at least one column wide if not zero."""
    one, other = (-(-number * room // highest) for number in (decided, nominal))
    return FULL * one + EXTRA * (other - one)


def _show_worst_hour(load: FleetLoad) -> None:
    worst_at = load.decided.worst_at
    if worst_at is None:
        return
    hour_at = worst_at // HOUR * HOUR
    decided, nominal = load.decided.hour_at(worst_at), load.nominal.hour_at(worst_at)
    highest = max(*decided, *nominal)
    day, clock = _words(hour_at)
    say("", f"The worst hour, minute by minute: {day} {clock} UTC")
    alike = decided == nominal
    charts = [("with windows and without" if alike else "with windows", decided), ("without", nominal)]
    for title, minutes in charts[: 1 if alike else 2]:
        say(f"  {title}: {counted(sum(minutes), 'start')}, at most {max(minutes):,} in a minute")
        for line in _chart(minutes, highest):
            say(line.rstrip())
    say(f"  {'':7} {''.join(f':{mark:02}       ' for mark in MARKS)}".rstrip())


def _chart(minutes: Sequence[int], highest: int) -> list[str]:
    """Return a chart of sixty columns, with a row per start if they are few, else scaled."""
    height = min(highest, HEIGHT)
    eighths = [-(-number * height * 8 // highest) for number in minutes]
    lines = []
    for row in range(height, 0, -1):
        label = f"{highest:,}" if row == height else ""
        cells = "".join(EIGHTHS[min(max(eighth - 8 * (row - 1), 0), 8)] for eighth in eighths)
        lines.append(f"  {label:>6} |{cells}")
    return [*lines, f"  {0:>6} +{'-' * 60}"]


def _show_worst_minute(load: FleetLoad, worst: Sequence[PlannedStart]) -> None:
    if load.decided.worst_at is None:
        return
    day, clock = _words(load.decided.worst_at)
    equals = load.decided.minutes.count(load.decided.peak) - 1
    also = f"; {counted(equals, 'other minute')} as full" if equals else ""
    say("", f"The worst minute: {day} {clock} UTC, {counted(load.decided.peak, 'start')}{also}")
    for start in worst[:MAX_SHOWN]:
        say(f"  {_clock(start.start_at)}  {one_line(start.identity)}{_origin(start)}")
    if len(worst) > MAX_SHOWN:
        say(f"  ... {len(worst) - MAX_SHOWN:,} more (--json lists them)")


def _origin(start: PlannedStart) -> str:
    """Return the nominal time of a start, unless it is the same."""
    if start.start_at == start.nominal_time:
        return ""
    same_day = start.start_at // DAY == start.nominal_time // DAY
    clock = _clock(start.nominal_time)
    return f"  (set for {clock})" if same_day else f"  (set for {_words(start.nominal_time)[0]} {clock})"


def _show_idle(load: FleetLoad) -> None:
    """Print the jobs with unschedulable periods, and those without a period."""
    unschedulable = [(name, tally) for name, tally in load.tallies.items() if tally.unschedulable]
    idle = [name for name, tally in load.tallies.items() if tally == (0, 0)]
    if unschedulable:
        say("", "Unschedulable periods: no time in the window satisfies the constraints")
    for name, tally in unschedulable[:MAX_SHOWN]:
        say(f"  {one_line(name)}: {tally.unschedulable:,} of {counted(sum(tally), 'period')}")
    if len(unschedulable) > MAX_SHOWN:
        say(f"  ... {counted(len(unschedulable) - MAX_SHOWN, 'more job')} (--json lists them)")
    if idle:
        more = f" and {len(idle) - MAX_SHOWN:,} more" if len(idle) > MAX_SHOWN else ""
        say("", "No period in this interval", f"  {', '.join(idle[:MAX_SHOWN])}{more}")


def _words(instant: EpochSeconds) -> tuple[str, str]:
    """Return the date with its weekday, and the time of day to the minute."""
    moment = datetime_of(instant)
    return f"{moment:%a} {moment.date()}", f"{moment:%H:%M}"


def _clock(instant: EpochSeconds) -> str:
    return rfc3339(instant)[11:19]


# --- JSON ---


def _document(
    files: Sequence[str],
    interval: Interval,
    load: FleetLoad,
    worst: Sequence[PlannedStart],
    nominal_worst: Sequence[PlannedStart],
) -> str:
    """Return the summary indented, and the long lists of minutes on one line each."""
    decided, nominal = load.decided, load.nominal
    summary = {
        "files": list(files),
        "from": rfc3339(interval.start),
        "to": rfc3339(interval.end),
        "jobs": {name: tally._asdict() for name, tally in load.tallies.items()},
        "suspended": list(load.suspended),
        "unschedulable": load.unschedulable,
        "with_windows": _figures(decided, worst),
        "without_windows": _figures(nominal, nominal_worst),
        "first_minute": rfc3339(decided.first_at),
    }
    head = to_json(summary, indent=2).removesuffix("\n}")
    lists = {"minutes_with_windows": decided.minutes, "minutes_without_windows": nominal.minutes}
    tail = "".join(f',\n  "{name}": {json.dumps(minutes)}' for name, minutes in lists.items())
    return f"{head}{tail}\n}}\n"


def _figures(load: Load, worst: Sequence[PlannedStart]) -> dict[str, object]:
    return {
        "starts": load.starts,
        "mean": load.mean,
        "p99": load.p99,
        "peak": load.peak,
        "in_minute_00": load.on_the_hour,
        "peak_by_hour": {f"{hour:02}": peak for hour, peak in load.peaks_by_hour().items()},
        "worst_minute": None if load.worst_at is None else rfc3339(load.worst_at),
        "worst_minute_set_for_00": sum(start.on_the_hour for start in worst),
        "worst_minute_starts": [
            {
                "identity": start.identity,
                "start_at": rfc3339(start.start_at),
                "nominal_time": rfc3339(start.nominal_time),
            }
            for start in worst
        ],
    }


# --- chaos ---


def _show_chaos(
    jobs: Sequence[Job],
    *,
    seed: int | None,
    years: float | None,
    start: str | None,
    as_json: bool,
    progress: Callable[[float], None] | None,
) -> None:
    """Run the jobs with faults, print the outcomes, and exit with 1 if there is a violation."""
    from kron.testing.simulator.chaos import run_chaos

    span = DEFAULT_YEARS if years is None else years
    if not 0 < span <= MAX_YEARS:
        reason = f"use a number above 0, at most {MAX_YEARS:g}"
        raise InvalidOptionError(option="--years", value=span, reason=reason)
    first_at = START if start is None else datetime_of(parse_instant("--from", start, UTC_ZONE))
    log = logging.getLogger("kron")
    level = log.level
    log.setLevel(logging.CRITICAL)  # the faults are injected
    try:
        report = run_chaos(jobs, seed=seed or 0, years=span, start=first_at, progress=progress)
    finally:
        log.setLevel(level)
    if as_json:
        first = rfc3339(int(first_at.timestamp()))
        show_json({"from": first, **report.to_dict()})
    else:
        _show_report(report)
    if report.violations:
        raise typer.Exit(1)


def _show_report(report: ChaosReport) -> None:
    years = f"{report.years:g} year" + ("" if report.years == 1 else "s")
    jobs, calls = counted(len(report.outcomes), "job"), counted(report.calls, "call")
    say(f"seed {report.seed}, {years}: {jobs}, {calls}")
    ends = f"{report.crashes:,} crashes, {report.stops:,} stops"
    say(f"{ends}, {counted(report.store_faults, 'failure')} of the store", "")
    for name, outcomes in report.outcomes.items():
        say(f"  {one_line(name)}   {counted(sum(outcomes.values()), 'period')}")
        for how, count in sorted(outcomes.items(), key=lambda item: (-item[1], item[0])):
            say(f"    {count:>10,}  {how}")
    if not report.violations:
        say(
            "",
            "no violations: every period has one outcome, and every start was decided, on time and in order",
        )
        return
    say("", f"VIOLATION, seed {report.seed}")
    for violation in report.violations:
        say(f"  {one_line(violation)}")
