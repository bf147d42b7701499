"""`kron audit`: the audit log."""

from typing import Annotated

import typer

from kron.cli.main import GOOD
from kron.cli.support.client import (
    Cursor,
    Limit,
    Server,
    StoreUrl,
    Target,
    objects_in,
    request,
    show_more,
    text,
)
from kron.cli.support.option import AsJson
from kron.cli.support.terminal import Display, NoColor, Utc, show_json
from kron.core.plan.query import AuditFilter
from kron.fronts.service.client import PageRequest

OneName = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Only changes of this schedule or workflow.  [default: all]"),
]
Who = Annotated[str | None, typer.Option("--who", metavar="NAME", help="Only changes by this caller.")]


def audit_command(
    name: OneName = None,
    who: Who = None,
    limit: Limit = None,
    cursor: Cursor = None,
    utc: Utc = False,
    no_color: NoColor = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """List changes and their callers, the latest first.

    --json includes the state before and after.

    \b
    Examples:
      kron audit
      kron audit ann/daily-report --json
      kron audit --who ann --server http://127.0.0.1:8080
    """  # noqa: D301
    wanted = AuditFilter(identity=name, who=who)
    page = request(Target(server, store), lambda client: client.audit(wanted, PageRequest(limit, cursor)))
    if as_json:
        show_json(page)
        return GOOD
    display, fields = Display(utc=utc, no_color=no_color), ("who", "action", "name", "request_id")
    rows = [
        (display.time(entry["at"]), *(text(entry[field]) for field in fields))
        for entry in objects_in(page, "entries")
    ]
    display.table(("AT", "WHO", "ACTION", "NAME", "REQUEST"), rows, empty="no change is recorded here")
    show_more(page)
    return GOOD
