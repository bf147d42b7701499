"""`kron schedules`: the service's schedules, one verb each."""

from typing import Annotated

import typer

from kron.cli.commands.bulk import bulk_command
from kron.cli.commands.pause import pause_command, resume_command
from kron.cli.commands.run import backfill_command, run_command
from kron.cli.commands.upsert import preview_command, upsert_command
from kron.cli.commands.why import why_command
from kron.cli.main import GOOD, one_line
from kron.cli.support.client import (
    Cursor,
    Name,
    Server,
    StoreUrl,
    Where,
    ask,
    objects_in,
    show_fields,
    show_json,
    show_rows,
    text,
)
from kron.cli.support.group import group_of
from kron.cli.support.option import AsJson, whole_number
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest
from kron.fronts.service.documents import Document

Search = Annotated[
    str | None, typer.Option("--search", metavar="TEXT", help="Only those with this in their names.")
]
Paused = Annotated[bool | None, typer.Option("--paused/--active", help="Only those that are paused, or not.")]
Workflow = Annotated[str | None, typer.Option("--workflow", metavar="ID", help="Only those of a workflow.")]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Only those of a user.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        help="The most entries to show.  [default: 100]",
        parser=whole_number("--limit", 1, 10_000),
    ),
]


def list_command(
    search: Search = None,
    paused: Paused = None,
    workflow: Workflow = None,
    user: User = None,
    limit: Limit = None,
    cursor: Cursor = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """List schedules in the order of their names, with when each runs next.

    \b
    Examples:
      kron schedules list --search report
      kron schedules list --paused --json
    """  # noqa: D301
    wanted = JobFilter(search=search, paused=paused, workflow_id=workflow, user_id=user)
    page = ask(Where(server, store), lambda desk: desk.schedules(wanted, PageRequest(limit, cursor)))
    if as_json:
        show_json(page)
        return GOOD
    show_rows([_row(schedule) for schedule in objects_in(page, "schedules")])
    show_more(page)
    return GOOD


def _row(schedule: Document) -> tuple[str, ...]:
    state = "paused" if schedule["paused"] else text(schedule["next_run_at"])
    return str(schedule["schedule_id"]), state, str(schedule["cron_expr"]), str(schedule["timezone"])


def show_more(page: Document) -> None:
    """Say how the next page is asked for, if there is one."""
    if page["next_cursor"] is not None:
        print(f"more: --cursor {page['next_cursor']}")


def show_command(name: Name, server: Server = None, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Show a schedule with all its fields, and its next five fire times.

    \b
    Examples:
      kron schedules show daily-report
    """  # noqa: D301
    schedule = ask(Where(server, store), lambda desk: desk.schedule(name))
    if as_json:
        show_json(schedule)
        return GOOD
    times = schedule.pop("preview")
    assert isinstance(times, list), "the service answers with a list of times"
    show_fields(schedule)
    print("preview")
    for time in times:
        print(f"  {time}")
    return GOOD


def delete_command(name: Name, server: Server = None, store: StoreUrl = None, as_json: AsJson = False) -> int:
    """Delete a schedule; what is on record of its runs stays, so created again it runs no period twice.

    \b
    Examples:
      kron schedules delete daily-report
    """  # noqa: D301
    ask(Where(server, store), lambda desk: desk.delete(name))
    if as_json:
        show_json({"schedule_id": name, "deleted": True})
    else:
        print(one_line(f"{name}: deleted"))
    return GOOD


app = group_of(
    "Create, look at, pause, run and delete schedules, at a server or directly at a store.",
    {
        "upsert": upsert_command,
        "bulk": bulk_command,
        "list": list_command,
        "show": show_command,
        "pause": pause_command,
        "resume": resume_command,
        "delete": delete_command,
        "run": run_command,
        "backfill": backfill_command,
        "preview": preview_command,
        "why": why_command,
    },
)
