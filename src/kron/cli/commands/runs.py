"""`kron runs`: lists runs, and reports on them."""

from typing import Annotated

import typer

from kron.cli.main import GOOD, one_line
from kron.cli.support.client import (
    Cursor,
    Limit,
    Name,
    Server,
    StoreUrl,
    Target,
    objects_in,
    request,
    show_fields,
    show_json,
    show_more,
    show_rows,
    text,
)
from kron.cli.support.option import AsJson, offer, whole_number
from kron.core.errors import InvalidOptionError, check_choice
from kron.core.plan.record import RunStatus
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.responses import View
from kron.fronts.service.runs import EVENTS, Feedback

OneSchedule = Annotated[
    str | None, typer.Argument(metavar="[SCHEDULE]", help="Only runs of this schedule.  [default: all]")
]
OneStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only runs with this status, of all schedules.",
        autocompletion=offer(lambda: list(RunStatus)),
    ),
]
Period = Annotated[str, typer.Argument(metavar="TIME", help="Period, e.g. 2026-06-01T06:30:00Z.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Idempotency key of the run.")]
Status = Annotated[
    str,
    typer.Argument(
        metavar="STATUS",
        help="New status: STARTED, SUCCESS or FAILED.",
        autocompletion=offer(lambda: EVENTS),
    ),
]
RunId = Annotated[str | None, typer.Option("--run-id", metavar="TEXT", help="Id of the run in the executor.")]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Error of a failed run.")]
Attempt = Annotated[
    int | None,
    typer.Option(
        "--attempt",
        metavar="N",
        help="Attempt number.  [default: latest]",
        parser=whole_number("--attempt", 1, 10**9 - 1),
    ),
]


def list_command(
    name: OneSchedule = None,
    status: OneStatus = None,
    limit: Limit = None,
    cursor: Cursor = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """List the runs of one schedule or of all, the latest first.

    \b
    Examples:
      kron runs
      kron runs daily-report --limit 10
      kron runs --status FAILED --json
    """  # noqa: D301
    if status is not None:
        check_choice("--status", status, tuple(RunStatus))
    if name is not None and status is not None:
        raise InvalidOptionError(
            option="--status", value=status, reason="it cannot be combined with SCHEDULE"
        )
    wanted = PageRequest(limit, cursor)

    async def listed(client: ServiceClient) -> View:
        return await (client.latest(status, wanted) if name is None else client.runs(name, wanted))

    page = request(Target(server, store), listed)
    if as_json:
        show_json(page)
        return GOOD
    show_rows([_row(run) for run in objects_in(page, "runs")])
    for each in objects_in(page, "dropped"):
        times = f"{each['first_run_at']} to {each['last_run_at']}"
        print(f"dropped: {each['periods']} periods, {times}: {each['sentence']}")
    show_more(page)
    return GOOD


def _row(run: Document) -> tuple[str, ...]:
    return tuple(text(run[name]) for name in ("run_at", "schedule_id", "status", "kind", "sentence"))


def show_command(
    name: Name, period: Period, server: Server = None, store: StoreUrl = None, as_json: AsJson = False
) -> int:
    """Show the runs of one period, manual ones included, with their earlier attempts.

    \b
    Examples:
      kron runs show daily-report 2026-06-01T06:30:00Z
    """  # noqa: D301
    response = request(Target(server, store), lambda client: client.period(name, period))
    if as_json:
        show_json(response)
        return GOOD
    runs = objects_in(response, "runs")
    for number, run in enumerate(runs):
        print("\n" * (number > 0), end="")
        show_fields(run)
    if not runs:
        print(one_line(f"{name} {response['period_id']}: no run; kron why explains it"))
    return GOOD


def report_command(
    key: Key,
    status: Status,
    run_id: RunId = None,
    error: Error = None,
    attempt: Attempt = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Report the status of a run, as its executor does; late and repeated reports change nothing.

    \b
    Examples:
      kron runs report 5b0d0a... STARTED --run-id exec-4711
      kron runs report 5b0d0a... FAILED --error 'no space left'
    """  # noqa: D301
    check_choice("STATUS", status, tuple(EVENTS))
    feedback = Feedback(status, run_id, error, attempt)
    run = request(Target(server, store), lambda client: client.report(key, feedback))
    if as_json:
        show_json(run)
    else:
        print(one_line(f"{run['schedule_id']} {run['run_at']}: {run['status']}"))
    return GOOD
