"""`kron status`: the state of the worker and of the schedules."""

from kron.cli.commands.schedules import Search, stopped_by
from kron.cli.main import GOOD, NO, one_line
from kron.cli.support.client import (
    Cursor,
    Limit,
    Server,
    StoreUrl,
    Target,
    objects_in,
    request,
    show_json,
    show_more,
    show_rows,
    text,
)
from kron.cli.support.option import AsJson
from kron.cli.support.table import counted
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.responses import View


def status_command(
    search: Search = None,
    limit: Limit = None,
    cursor: Cursor = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show the next run, the last run and the failures of each schedule.

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
            print(f"worker: {health['worker']}")
        if health.get("error") is not None:
            print(one_line(str(health["error"])))
        if page:
            show_rows([_row(schedule) for schedule in objects_in(page, "schedules")])
            show_more(page)
    return GOOD if page else NO


def _row(schedule: Document) -> tuple[str, ...]:
    failures = schedule["failures"]
    assert isinstance(failures, int), "the service answers with a number"
    state = stopped_by(schedule, detailed=True) or f"next {text(schedule['next_run_at'])}"
    fails = f"{counted(failures, 'failure')} in a row" if failures else "ok"
    return str(schedule["schedule_id"]), state, f"last {text(schedule['last_start_at'])}", fails
