"""`kron simulate --chaos`: runs jobs in virtual time with crashes, outages and slow runs."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from kron.cli.support.option import parse_instant, whole_number
from kron.cli.support.terminal import say, show_json
from kron.core.cron.schedule import UTC as UTC_ZONE
from kron.core.errors import InvalidOptionError, one_line
from kron.core.job.job import Job
from kron.core.time.instant import datetime_of, rfc3339
from kron.core.wording import counted
from kron.testing.chaos_report import ChaosReport

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


def show_chaos(
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
        _show(report)
    if report.violations:
        raise typer.Exit(1)


def _show(report: ChaosReport) -> None:
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
