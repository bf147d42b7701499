"""`kron status`: the state of the worker and of the schedules."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.client import (
    Cursor,
    Limit,
    Namespace,
    Server,
    StoreUrl,
    Target,
    namespaces_in,
    objects_in,
    request,
    show_more,
    text,
)
from kron.cli.support.option import AsJson
from kron.cli.support.schedule import NO_SCHEDULE, Search, next_start_text, stopped_by
from kron.cli.support.terminal import Cell, Color, Display, NoColor, Utc, say, show_json
from kron.core.errors import InvalidOptionError
from kron.core.plan.query import JobFilter
from kron.core.wording import counted
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.registrar import NAMESPACE as SERVICE
from kron.fronts.service.responses import View

HEADER = ("SCHEDULE", "NEXT", "LAST START", "PHASE", "STATE")
All = Annotated[
    bool,
    typer.Option("--all", help="Show all namespaces of the store, those of programs that embed Kron too."),
]


def status_command(
    search: Search = None,
    limit: Limit = None,
    cursor: Cursor = None,
    every: All = False,
    namespace: Namespace = None,
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
      kron status --store sqlite:///kron.db --all
    """  # noqa: D301
    target, wanted = Target(server, store, namespace), PageRequest(limit, cursor)
    display = Display(utc=utc, no_color=no_color)
    if every:
        _check_all(target, cursor)
        return _show_all(target, JobFilter(search=search), wanted, display, as_json=as_json)
    is_store = target.server_url is None
    health, page = request(target, _reading(JobFilter(search=search), wanted, is_store=is_store))
    if as_json:
        show_json({"health": health, **page})
        return GOOD if page else NO
    _show_health(health)
    if not page:
        return NO
    rows = [_row(schedule, display) for schedule in objects_in(page, "schedules")]
    display.table(HEADER, rows, empty="" if rows else f"{NO_SCHEDULE}{_others(target)}")
    show_more(page)
    return GOOD


def _reading(
    wanted: JobFilter, page: PageRequest, *, is_store: bool
) -> Callable[[ServiceClient], Awaitable[tuple[View, View]]]:
    """Return a request of the health of a service and its schedules; no schedules if it is not ready."""

    async def fetched(client: ServiceClient) -> tuple[View, View]:
        if is_store:
            # There is no worker; a store that cannot be used is an error, as for every other command.
            schedules = await client.schedules(wanted, page)
            return await client.health(), schedules
        health = await client.health()
        ready = health["status"] == "ok"
        return health, await client.schedules(wanted, page) if ready else {}

    return fetched


def _show_health(health: View) -> None:
    if health.get("worker") is not None:
        say(f"worker: {health['worker']}")
    if health.get("error") is not None:
        say(str(health["error"]))


def _others(target: Target) -> str:
    """Return a hint at the other namespaces of a store that have schedules."""
    others = [name for name in namespaces_in(target) if name != (target.namespace or SERVICE)]
    return f"; kron status --all shows {', '.join(others)}" if others else ""


def _check_all(target: Target, cursor: str | None) -> None:
    for option, value in (("--namespace", target.namespace), ("--cursor", cursor)):
        if value is not None:
            raise InvalidOptionError(option=option, value=value, reason="it cannot be combined with --all")
    if target.server_url is not None:
        reason = "a server has one namespace; use --store"
        raise InvalidOptionError(option="--all", value=target.server_url, reason=reason)


def _show_all(
    target: Target, wanted: JobFilter, page: PageRequest, display: Display, *, as_json: bool
) -> int:
    """Show the schedules of all namespaces of a store."""
    pages = {
        name: request(target._replace(namespace=name), lambda client: client.schedules(wanted, page))
        for name in namespaces_in(target)
    }
    if as_json:
        show_json({"namespaces": [{"namespace": name, **each} for name, each in pages.items()]})
        return GOOD
    rows = [
        (name, *_row(schedule, display))
        for name, each in pages.items()
        for schedule in objects_in(each, "schedules")
    ]
    display.table(("NAMESPACE", *HEADER), rows, empty=NO_SCHEDULE)
    for name, each in pages.items():
        if each["next_cursor"] is not None:
            say(f"more of {name}: --namespace {name} --cursor {each['next_cursor']}")
    return GOOD


def _row(schedule: Document, display: Display) -> tuple[str | Cell, ...]:
    failures = schedule["failures"]
    assert isinstance(failures, int), "the service answers with a number"
    stopped = stopped_by(schedule, display)
    failed = f"{counted(failures, 'failure')} in a row" if failures else ""
    # A pause after failures has them as its reason.
    words = [stopped, *([failed] if failed not in stopped else [])] if stopped else [failed]
    color = Color.RED if failures else Color.YELLOW if stopped else Color.GREEN
    return (
        str(schedule["schedule_id"]),
        next_start_text(schedule, display) or "-",
        display.distance(schedule["last_start_at"]),
        text(schedule.get("phase")),
        Cell("; ".join(words) or "ok", color),
    )
