"""`kron schedules upsert` and `preview`: a schedule from a file or from options."""

import json
from collections.abc import Mapping
from typing import Annotated

import typer

from kron.app.preview import effect_text
from kron.cli.main import GOOD
from kron.cli.support.client import Server, StoreUrl, Target, objects_in, request, show_rows, text
from kron.cli.support.job_file import parse_jobs
from kron.cli.support.option import AsJson, Count, Zone, whole_number
from kron.cli.support.read import MAX_CALENDAR, read_text
from kron.cli.support.source import Source
from kron.cli.support.terminal import Display, Utc, say, show_json
from kron.core.errors import InputError, InvalidOptionError
from kron.fronts.service.documents import Document

# The size limit of one schedule's file.
MAX_SCHEDULE = MAX_CALENDAR

File = Annotated[
    str | None,
    typer.Argument(metavar="[FILE|-]", help="A schedule as JSON or YAML; options override its fields."),
]
Id = Annotated[
    str | None, typer.Option("--id", metavar="NAME", help="Name of the schedule.  [default: a new one]")
]
Cron = Annotated[
    str | None, typer.Option("--cron", metavar="EXPR", help="Cron expression, e.g. '30 8 * * mon-fri'.")
]
Workflow = Annotated[str | None, typer.Option("--workflow", metavar="ID", help="Workflow to run.")]
Version = Annotated[
    int | None,
    typer.Option(
        "--workflow-version",
        metavar="N",
        help="Version of the workflow.",
        parser=whole_number("--workflow-version", 0, 10**9 - 1),
    ),
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Owner of the schedule.")]
Url = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Endpoint that gets a POST request for each run.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Any other field, as JSON or text; repeatable."),
]
CreateOnly = Annotated[
    bool, typer.Option("--create-only", help="Fail with exit code 1 if the schedule exists.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what it would do, and write nothing.")]

NO_LAUNCHER = (
    "launcher: is missing; use --url URL to start it over HTTP, --workflow NAME with --workflow-version and "
    """--user, or --set 'launcher={"kind": "log"}' to try it"""
)


def upsert_command(
    file: File = None,
    id_: Id = None,
    cron: Cron = None,
    tz: Zone = None,
    workflow: Workflow = None,
    version: Version = None,
    user: User = None,
    url: Url = None,
    fields: Set = None,
    create_only: CreateOnly = False,
    dry_run: DryRun = False,
    utc: Utc = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Create a schedule, or update the one with this name; its history and a pause are kept.

    \b
    Examples:
      kron schedules upsert report.yaml
      kron schedules upsert --id report --cron '30 8 * * mon-fri' --tz Europe/Berlin \\
          --workflow report --workflow-version 3 --user ann
      kron schedules upsert --id ping --cron '* * * * *' --url https://example.com/ping --set jitter_ms=500
    """  # noqa: D301
    options = {
        "schedule_id": id_,
        "cron_expr": cron,
        "timezone": tz,
        "workflow_id": workflow,
        "version": version,
    }
    document = document_of(file, {**options, "user_id": user}, url, fields)
    if "launcher" not in document and "workflow_id" not in document:
        raise InputError(NO_LAUNCHER)
    etag = "" if create_only else None
    receipt = request(
        Target(server, store),
        lambda client: client.upsert(document, if_match=etag, dry_run=dry_run),
        creates_store=True,
        dry_run=dry_run,
    )
    if as_json:
        show_json(receipt)
    else:
        say(f"{receipt['schedule_id']}: next run {Display(utc=utc).when(receipt['next_run_at'])}")
        if "would_start" in receipt:
            say(f"  it runs again: {effect_text(receipt)}")
    return GOOD


def preview_command(
    file: File = None,
    cron: Cron = None,
    tz: Zone = None,
    fields: Set = None,
    count: Count = 5,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show when a schedule would run under the service's settings, without storing it.

    \b
    Examples:
      kron schedules preview report.yaml
      kron schedules preview --cron '30 2 * * *' --tz Europe/Berlin -n 10 --set jitter_ms=500
    """  # noqa: D301
    document = document_of(file, {"cron_expr": cron, "timezone": tz}, None, fields)
    response = request(
        Target(server, store),
        lambda client: client.preview(document, count),
        creates_store=True,
        dry_run=True,
    )
    if as_json:
        show_json(response)
        return GOOD
    say(f"{response['sentence']}   {response['timezone']}")
    rows = [(text(each["run_at"]), _fires(each)) for each in objects_in(response, "times")]
    show_rows(rows)
    for change in objects_in(response, "clock_changes"):
        say(f"{change['at']}  {change['note']}")
    return GOOD


def _fires(entry: Document) -> str:
    if entry["fire_at"] is None:
        return "unschedulable"
    return "" if entry["fire_at"] == entry["run_at"] else f"fires {entry['fire_at']}"


def document_of(
    file: str | None, options: Mapping[str, object], url: str | None, fields: list[str] | None
) -> Document:
    """Return a schedule: the fields of a file, overridden by those of options."""
    document = {} if file is None else _read(file)
    document |= {name: value for name, value in options.items() if value is not None}
    if url is not None:
        document["launcher"] = {"kind": "http", "url": url}
    for field in fields or []:
        name, equals, value = field.partition("=")
        if not equals:
            raise InvalidOptionError(option="--set", value=field, reason="write FIELD=VALUE")
        document[name] = _value(value)
    if file is None:
        document.setdefault("timezone", "UTC")
    return document


def _read(file: str) -> Document:
    source = Source(name=file, text=read_text(file, MAX_SCHEDULE), has_jobs=True)
    content = parse_jobs(source).content
    if not isinstance(content, dict):
        raise InputError(f"{file}: a schedule is an object; for many schedules use kron schedules bulk")
    return {str(name): value for name, value in content.items()}


def _value(value: str) -> object:
    try:
        parsed: object = json.loads(value)
    except ValueError:
        return value
    return parsed
