"""`kron runs` lists runs; `kron report` reports on one."""

from datetime import datetime
from typing import Annotated

import typer

from kron.cli.main import GOOD
from kron.cli.support.client import (
    Cursor,
    Limit,
    Namespace,
    Server,
    StoreUrl,
    Target,
    objects_in,
    request,
    show_fields,
    show_more,
    text,
)
from kron.cli.support.option import AsJson, offer, one_of, whole_number
from kron.cli.support.terminal import Cell, Color, Display, NoColor, Utc, say, show_json
from kron.core.plan.record import Result, RunStatus
from kron.core.plan.why import RESULTS
from kron.core.wording import counted
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.responses import View
from kron.fronts.service.runs import EVENTS, Feedback

OneSchedule = Annotated[
    str | None, typer.Argument(metavar="[SCHEDULE]", help="Only runs of this schedule.  [default: all]")
]
OnePeriod = Annotated[
    str | None,
    typer.Argument(
        metavar="[TIME]",
        help="Only this period, with all fields: 2026-06-01T06:30:00Z, a wall time in the schedule's zone, "
        "or latest.  [default: all]",
    ),
]
OneStatus = Annotated[
    str | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="Only runs with this status, e.g. failed.",
        parser=one_of("--status", RunStatus),
        autocompletion=offer(lambda: list(RunStatus)),
    ),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Idempotency key of the run.")]
Status = Annotated[
    str,
    typer.Argument(
        metavar="STATUS",
        help="New status: STARTED, SUCCESS or FAILED.",
        parser=one_of("STATUS", EVENTS),
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
# Pages that are searched for runs with a status; a cursor continues after them.
MAX_PAGES = 100
HEADER = ("PERIOD", "SCHEDULE", "STATUS", "STARTED", "DURATION", "ERROR OR REASON")
COLORS = {
    RunStatus.SUCCESS: Color.GREEN,
    RunStatus.FAILED: Color.RED,
    RunStatus.MISSED: Color.YELLOW,
    RunStatus.UNSCHEDULABLE: Color.YELLOW,
    RunStatus.ENQUEUED: Color.CYAN,
    RunStatus.STARTED: Color.CYAN,
    RunStatus.SKIPPED: Color.DIM,
    RunStatus.CANCELLED: Color.DIM,
}


def runs_command(
    name: OneSchedule = None,
    period: OnePeriod = None,
    status: OneStatus = None,
    limit: Limit = None,
    cursor: Cursor = None,
    utc: Utc = False,
    no_color: NoColor = False,
    namespace: Namespace = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """List runs, the latest first, or show one period.

    For one period, all its runs are shown with all fields and their earlier attempts, manual ones included.

    \b
    Examples:
      kron runs
      kron runs daily-report --limit 10
      kron runs --status failed --json
      kron runs daily-report --status failed
      kron runs daily-report 2026-06-01T06:30:00Z
      kron runs daily-report latest
    """  # noqa: D301
    target, display = Target(server, store, namespace), Display(utc=utc, no_color=no_color)
    if name is not None and period is not None:
        return _show_period(target, name, period, as_json=as_json)
    wanted = PageRequest(limit, cursor)

    async def listed(client: ServiceClient) -> View:
        if name is None:
            return await client.latest(status, wanted)
        return await (
            client.runs(name, wanted) if status is None else _of_status(client, name, status, wanted)
        )

    page = request(target, listed)
    if as_json:
        show_json(page)
        return GOOD
    empty = "no run is recorded here yet" if status is None else f"no run has the status {status}"
    _show_runs(page, display, empty)
    return GOOD


def _show_runs(page: View, display: Display, empty: str) -> None:
    rows = [_row(run, display) for run in objects_in(page, "runs")]
    dropped = objects_in(page, "dropped")
    if rows or not dropped:
        display.table(HEADER, rows, empty=empty)
    for each in dropped:
        times = f"{display.time(each['first_run_at'])} to {display.time(each['last_run_at'])}"
        say(f"dropped: {_periods(each)}, {times}: {each['sentence']}")
    show_more(page)


async def _of_status(client: ServiceClient, name: str, status: str, wanted: PageRequest) -> View:
    """Return the runs of a schedule with a status: those of the first page that has any, or of the last."""
    for _ in range(MAX_PAGES):
        page = await client.runs(name, wanted)
        runs = [run for run in objects_in(page, "runs") if run["status"] == status]
        dropped = [each for each in objects_in(page, "dropped") if str(each["outcome"]) == status.lower()]
        if runs or dropped or page["next_cursor"] is None:
            break
        wanted = wanted._replace(cursor=str(page["next_cursor"]))
    return {**page, "runs": runs, "dropped": dropped}


def _periods(dropped: Document) -> str:
    number = dropped["periods"]
    assert isinstance(number, int), "the service answers with a number"
    return counted(number, "period")


def _row(run: Document, display: Display) -> tuple[str | Cell, ...]:
    status = str(run["status"])
    # A run that waits for its next attempt has ended once.
    is_open = run["ended_at"] is None and status in (RunStatus.ENQUEUED, RunStatus.STARTED)
    duration = "-" if run["ended_at"] is None and not is_open else None
    return (
        display.time(run["run_at"]),
        text(run["schedule_id"]),
        Cell("waiting to retry", Color.YELLOW)
        if run.get("retry_at") is not None
        else Cell(status, COLORS.get(RunStatus(status)) if status in tuple(RunStatus) else None),
        display.distance(run["started_at"]),
        duration or display.duration(run["started_at"], run["ended_at"]),
        text(run["error"] or _loss(run) or run["sentence"]),
    )


def _loss(run: Document) -> str | None:
    """Return the words for a run that failed without an error because nothing is known of its end."""
    return RESULTS[Result.ORPHANED] if run.get("result") == Result.ORPHANED else None


def _show_period(target: Target, name: str, period: str, *, as_json: bool) -> int:
    async def fetched(client: ServiceClient) -> View:
        if _has_offset(period):
            return await client.period(name, period)
        # A wall time, or the latest period: `why` knows which instant it is.
        explained = await client.why(name, period)
        if explained["period_id"] is None:
            return {"period_id": period, "runs": []}
        return await client.period(name, str(explained["period_id"]))

    response = request(target, fetched)
    if as_json:
        show_json(response)
        return GOOD
    runs = objects_in(response, "runs")
    for number, run in enumerate(runs):
        if number:
            say("")
        show_fields(run)
    if not runs:
        say(f"none: {name} {response['period_id']} has no run; kron why explains it")
    return GOOD


def _has_offset(period: str) -> bool:
    try:
        return datetime.fromisoformat(period).tzinfo is not None
    except ValueError:
        return False


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
    """Report the status of a run, as its executor does.

    Late and repeated reports change nothing.

    \b
    Examples:
      kron report 5b0d0a... STARTED --run-id exec-4711
      kron report 5b0d0a... FAILED --error 'no space left'
    """  # noqa: D301
    feedback = Feedback(status, run_id, error, attempt)
    run = request(Target(server, store), lambda client: client.report(key, feedback))
    if as_json:
        show_json(run)
    else:
        say(f"{run['schedule_id']} {run['run_at']}: {run['status']}")
    return GOOD
