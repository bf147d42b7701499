"""`kron simulate --chaos`: years of crashes, outages and slow work for the jobs of a file, judged."""

import json
import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from kron.cli.main import one_line
from kron.cli.support.interval import counted
from kron.cli.support.option import parse_instant, whole_number
from kron.core.cron.schedule import UTC as UTC_ZONE
from kron.core.errors import InvalidOptionError
from kron.core.job.job import Job
from kron.core.time.instant import datetime_of, rfc3339
from kron.testing.chaos_report import ChaosReport

DEFAULT_YEARS, MAX_YEARS = 1.0, 1_000.0
# The same jobs and the same seed tell the same story on every day.
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

Chaos = Annotated[
    bool,
    typer.Option("--chaos", help="Run the jobs among crashes, outages and slow work, and judge the record."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="With --chaos: which story.  [default: 0]",
        parser=whole_number("--seed", 0, 2**63 - 1),
    ),
]
Years = Annotated[
    float | None,
    typer.Option(
        "--years", metavar="Y", help=f"With --chaos: so many years pass.  [default: {DEFAULT_YEARS:g}]"
    ),
]


def show_chaos(
    jobs: Sequence[Job],
    *,
    seed: int | None,
    years: float | None,
    start: str | None,
    as_json: bool,
    tell: Callable[[float], None] | None,
) -> None:
    """Let the jobs live through chaos, print what came of it, and end with 1 if anything was not lawful."""
    from kron.testing.simulator.chaos import run_chaos

    span = DEFAULT_YEARS if years is None else years
    if not 0 < span <= MAX_YEARS:
        reason = f"use a number above 0, at most {MAX_YEARS:g}"
        raise InvalidOptionError(option="--years", value=span, reason=reason)
    begin = BEGIN if start is None else datetime_of(parse_instant("--from", start, UTC_ZONE))
    log = logging.getLogger("kron")
    level = log.level
    log.setLevel(logging.CRITICAL)  # what fails here fails on purpose
    try:
        found = run_chaos(jobs, seed=seed or 0, years=span, start=begin, progress=tell)
    finally:
        log.setLevel(level)
    if as_json:
        first = rfc3339(int(begin.timestamp()))
        print(json.dumps({"from": first, **found.to_dict()}, indent=2, ensure_ascii=False))
    else:
        _show(found)
    if found.violations:
        raise typer.Exit(1)


def _show(found: ChaosReport) -> None:
    years = f"{found.years:g} year" + ("" if found.years == 1 else "s")
    print(
        f"seed {found.seed}, {years}: {counted(len(found.outcomes), 'job')}, {counted(found.calls, 'call')}"
    )
    ends = f"{found.crashes:,} crashes, {found.stops:,} stops"
    print(f"{ends}, {counted(found.store_faults, 'failure')} of the store\n")
    for name, outcomes in found.outcomes.items():
        print(f"  {one_line(name)}   {counted(sum(outcomes.values()), 'period')}")
        for how, count in sorted(outcomes.items(), key=lambda item: (-item[1], item[0])):
            print(f"    {count:>10,}  {how}")
    if not found.violations:
        print("\nlawful: every period has one outcome, and every start was decided, in time and in turn")
        return
    print(f"\nVIOLATION, seed {found.seed}")
    for violation in found.violations:
        print(f"  {one_line(violation)}")
