"""`kron status`: the state of the worker and of the schedules."""

from kron.cli.commands.schedules import NO_SCHEDULE, Search, next_start_text, stopped_by
from kron.cli.main import GOOD, NO
from kron.cli.support.client import (
    Cursor,
    Limit,
    Server,
    StoreUrl,
    Target,
    objects_in,
    request,
    show_more,
)
from kron.cli.support.option import AsJson
from kron.cli.support.table import counted
from kron.cli.support.terminal import Cell, Color, Display, NoColor, Utc, say, show_json
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.responses import View

HEADER = ("SCHEDULE", "NEXT", "LAST START", "STATE")


def status_command(
    search: Search = None,
    limit: Limit = None,
    cursor: Cursor = None,
    utc: Utc = False,
    no_color: NoColor = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show the state and the next run of each schedule.

    With a server, its worker's state is shown too. The exit code is 1 if the service is not ready.

    \b
    Examples:
      kron status
      kron status --server http://127.0.0.1:8080 --search report
    """  # noqa: D301

    async def fetched(client: ServiceClient) -> tuple[View, View]:
        health = await client.health()
        ready = health["status"] == "ok"
        wanted = JobFilter(search=search)
        return health, await client.schedules(wanted, PageRequest(limit, cursor)) if ready else {}

    health, page = request(Target(server, store), fetched)
    if as_json:
        show_json({"health": health, **page})
    else:
        if health.get("worker") is not None:
            say(f"worker: {health['worker']}")
        if health.get("error") is not None:
            say(str(health["error"]))
        if page:
            display = Display(utc=utc, no_color=no_color)
            rows = [_row(schedule, display) for schedule in objects_in(page, "schedules")]
            display.table(HEADER, rows, empty=NO_SCHEDULE)
            show_more(page)
    return GOOD if page else NO


def _row(schedule: Document, display: Display) -> tuple[str | Cell, ...]:
    failures = schedule["failures"]
    assert isinstance(failures, int), "the service answers with a number"
    stopped = stopped_by(schedule, display)
    words = [
        *([stopped] if stopped else []),
        *([f"{counted(failures, 'failure')} in a row"] if failures else []),
    ]
    color = Color.RED if failures else Color.YELLOW if stopped else Color.GREEN
    return (
        str(schedule["schedule_id"]),
        next_start_text(schedule, display) or "-",
        display.distance(schedule["last_start_at"]),
        Cell("; ".join(words) or "ok", color),
    )
