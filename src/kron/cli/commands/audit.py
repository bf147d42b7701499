"""`kron audit`: who changed what."""

from typing import Annotated

import typer

from kron.cli.commands.schedules import Limit, show_more
from kron.cli.main import GOOD
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
from kron.core.plan.query import AuditFilter
from kron.fronts.service.client import PageRequest

OneName = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Only of this schedule or workflow; without it, of all."),
]
Who = Annotated[str | None, typer.Option("--who", metavar="NAME", help="Only what this caller did.")]


def audit_command(
    name: OneName = None,
    who: Who = None,
    limit: Limit = None,
    cursor: Cursor = None,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show who changed what, the latest first; --json shows what was before and after.

    \b
    Examples:
      kron audit
      kron audit ann/daily-report --json
      kron audit --who ann --server http://127.0.0.1:8080
    """  # noqa: D301
    wanted = AuditFilter(identity=name, who=who)
    page = ask(Where(server, store), lambda desk: desk.audit(wanted, PageRequest(limit, cursor)))
    if as_json:
        show_json(page)
        return GOOD
    fields = ("at", "who", "action", "name", "request_id")
    entries = [tuple(text(entry[field]) for field in fields) for entry in objects_in(page, "entries")]
    show_rows([("AT", "WHO", "ACTION", "NAME", "REQUEST"), *entries])
    show_more(page)
    return GOOD
