"""`kron schedules list`, `show` and `delete`."""

from typing import Annotated

import typer

from kron.cli.main import GOOD
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
    show_more,
)
from kron.cli.support.option import AsJson
from kron.cli.support.schedule import NO_SCHEDULE, Search, next_start_text, stopped_by
from kron.cli.support.terminal import Display, NoColor, Utc, say, show_json
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest
from kron.fronts.service.documents import Document

Paused = Annotated[
    bool | None, typer.Option("--paused/--active", help="Only paused schedules, or only active ones.")
]
Workflow = Annotated[
    str | None, typer.Option("--workflow", metavar="ID", help="Only schedules of this workflow.")
]
HEADER = ("SCHEDULE", "NEXT", "EXPRESSION", "TIME ZONE")
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Only schedules of this user.")]


def list_command(
    search: Search = None,
    paused: Paused = None,
    workflow: Workflow = None,
    user: User = None,
    limit: Limit = None,
    cursor: Cursor = None,
    utc: Utc = False,
    no_color: NoColor = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """List schedules by name, with the next run of each.

    \b
    Examples:
      kron schedules list --search report
      kron schedules list --paused --json
    """  # noqa: D301
    suspended = False if paused is False else None
    wanted = JobFilter(search=search, paused=paused, suspended=suspended, workflow_id=workflow, user_id=user)
    page = request(Target(server, store), lambda client: client.schedules(wanted, PageRequest(limit, cursor)))
    if as_json:
        show_json(page)
        return GOOD
    display = Display(utc=utc, no_color=no_color)
    rows = [_row(schedule, display) for schedule in objects_in(page, "schedules")]
    display.table(HEADER, rows, empty=NO_SCHEDULE)
    show_more(page)
    return GOOD


def _row(schedule: Document, display: Display) -> tuple[str, ...]:
    start = next_start_text(schedule, display)
    state = ", ".join(part for part in (stopped_by(schedule), start) if part)
    return str(schedule["schedule_id"]), state, str(schedule["cron_expr"]), str(schedule["timezone"])


def show_command(name: Name, server: Server = None, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Show all fields of a schedule, and its next five fire times.

    \b
    Examples:
      kron schedules show daily-report
    """  # noqa: D301
    schedule = dict(request(Target(server, store), lambda client: client.schedule(name)))
    if as_json:
        show_json(schedule)
        return GOOD
    times = schedule.pop("preview")
    assert isinstance(times, list), "the service answers with a list of times"
    show_fields(schedule)
    say("preview" if times else "preview      none")
    for time in times:
        say(f"  {time}")
    return GOOD


def delete_command(name: Name, server: Server = None, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Delete a schedule. Its history is kept, so that no period runs twice if it is created again.

    \b
    Examples:
      kron schedules delete daily-report
    """  # noqa: D301
    request(Target(server, store), lambda client: client.delete(name))
    if as_json:
        show_json({"schedule_id": name, "deleted": True})
    else:
        say(f"{name}: deleted")
    return GOOD
