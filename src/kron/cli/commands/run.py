"""`kron run` and `kron schedules backfill`: manual runs."""

from typing import Annotated

import typer

from kron.app.backfill import Only
from kron.cli.main import GOOD
from kron.cli.support.client import (
    Name,
    RequestId,
    Server,
    StoreUrl,
    Target,
    objects_in,
    request,
    show_rows,
)
from kron.cli.support.option import AsJson, offer, one_of
from kron.cli.support.terminal import say, show_json
from kron.fronts.service.client import BackfillRange

From = Annotated[
    str,
    typer.Option("--from", metavar="TIME", help="First nominal time (inclusive), e.g. 2026-05-01T00:00Z."),
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="Last nominal time (exclusive).")]
Which = Annotated[
    str,
    typer.Option(
        "--only",
        metavar="WHICH",
        help="Periods to run: missing (never ran), failed or all.",
        parser=one_of("--only", Only),
        autocompletion=offer(lambda: list(Only)),
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the periods, and run none.")]


def run_command(
    name: Name,
    request_id: RequestId = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Run a schedule now, in addition to its periods.

    A worker starts the run.

    \b
    Examples:
      kron run daily-report
      kron run daily-report --request-id deploy-17
    """  # noqa: D301
    run = request(Target(server, store), lambda client: client.run(name, request_id))
    if as_json:
        show_json(run)
    else:
        say(f"{name}: {run['status']}, key {run['idempotency_key']}")
    return GOOD


def backfill_command(
    name: Name,
    start: From,
    end: To,
    only: Which = Only.MISSING.value,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Run past periods of a schedule: those that never ran, that failed, or all.

    \b
    Examples:
      kron schedules backfill daily-report --from 2026-05-01T00:00Z --to 2026-06-01T00:00Z --dry-run
      kron schedules backfill daily-report --from 2026-05-01T00:00Z --to 2026-06-01T00:00Z --only failed
    """  # noqa: D301
    periods = BackfillRange(start, end, only, dry_run, request_id)
    answer = request(Target(server, store), lambda client: client.backfill(name, periods))
    if as_json:
        show_json(answer)
        return GOOD
    verb = "would run" if dry_run else "running"
    say(f"{name}: {verb} {answer['count']} periods, request {answer['request_id']}")
    show_rows([(f"  {each['run_at']}", str(each["idempotency_key"])) for each in objects_in(answer, "runs")])
    for field, state in (("already_asked", "already requested"), ("still_to_be_judged", "not decided yet")):
        if answer[field]:
            say(f"  {answer[field]} {state}")
    return GOOD
