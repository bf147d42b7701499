"""`kron plan`: the effect of a changed job file on future starts."""

from typing import Annotated

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.difference import MAX_SHOWN, All, difference_document, show_difference
from kron.cli.support.interval import Days, From, To, parse_interval
from kron.cli.support.job_file import load_jobs
from kron.cli.support.option import AsJson
from kron.cli.support.read import check_once
from kron.cli.support.terminal import say, show_json
from kron.core.job.difference import difference_of

Old = Annotated[str, typer.Argument(metavar="OLD", help="Current job file; - is standard input.")]
New = Annotated[str, typer.Argument(metavar="NEW", help="New job file, or -.")]


def plan_command(
    old: Old,
    new: New,
    start: From = None,
    end: To = None,
    days: Days = None,
    everything: All = False,
    as_json: AsJson = False,
) -> int:
    """Show which starts change between two versions of a job file.

    Starts may move, appear, vanish or collide.
    The exit code is 0 if the jobs are equal, and 1 if not. All times are UTC.

    \b
    Examples:
      kron plan jobs.yaml jobs-new.yaml
      kron plan jobs.yaml jobs-new.yaml --from 2026-03-01 --days 31 --all
      git show HEAD:jobs.yaml | kron plan - jobs.yaml
    """  # noqa: D301
    interval = parse_interval(start, end, days)
    check_once([old, new])
    before, after = (load_jobs(file, may_be_empty=True) for file in (old, new))
    difference = difference_of(before, after, *interval)
    if as_json:
        show_json({"old": old, "new": new, **difference_document(interval, difference)})
    else:
        say(f"{old} -> {new}", f"{interval}, all times in UTC", "")
        show_difference(difference, most=None if everything else MAX_SHOWN)
    return NO if difference.changes else GOOD
