"""`kron status`: how the service and its schedules are doing."""

from kron.cli.commands.schedules import Limit, Search, show_more
from kron.cli.main import GOOD, NO, one_line
from kron.cli.support.client import (
    Cursor,
    Server,
    StoreUrl,
    Where,
    ask,
    objects_in,
    show_json,
    show_rows,
    text,
)
from kron.cli.support.option import AsJson
from kron.cli.support.table import counted
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document


def status_command(
    search: Search = None,
    limit: Limit = None,
    cursor: Cursor = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show how schedules are doing: when each runs next, ran last, and whether it fails.

    Of a server it also says how its worker is doing; one that is not ready makes the exit code 1.

    \b
    Examples:
      kron status
      kron status --server http://127.0.0.1:8080 --search report
    """  # noqa: D301

    async def looked(desk: ServiceClient) -> tuple[Document, Document]:
        health = await desk.health()
        ready = health["status"] == "ok"
        wanted = JobFilter(search=search)
        return health, await desk.schedules(wanted, PageRequest(limit, cursor)) if ready else {}

    health, page = ask(Where(server, store), looked)
    if as_json:
        show_json({"health": health, **page})
    else:
        if health.get("worker") is not None:
            print(f"worker: {health['worker']}")
        if health.get("error") is not None:
            print(one_line(str(health["error"])))
        if page:
            show_rows([_row(schedule) for schedule in objects_in(page, "schedules")])
            show_more(page)
    return GOOD if page else NO


def _row(schedule: Document) -> tuple[str, ...]:
    paused, because = schedule["paused"], schedule["paused_because"]
    failures = schedule["failures"]
    assert isinstance(failures, int), "the service answers with a number"
    state = f"paused {because or ''}".rstrip() if paused else f"next {text(schedule['next_run_at'])}"
    fails = f"{counted(failures, 'failure')} in a row" if failures else "ok"
    return str(schedule["schedule_id"]), state, f"last {text(schedule['last_start_at'])}", fails
