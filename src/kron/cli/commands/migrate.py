"""`kron migrate`: applies the pending migrations of a database, or shows their status."""

import asyncio
import os
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO
from kron.cli.support.option import AsJson, Config
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InvalidOptionError
from kron.fronts.service.settings import read_settings
from kron.stores.migration import Applied, Migration, Schema, pending
from kron.stores.url import schema_of

Url = Annotated[
    str | None,
    typer.Argument(
        metavar="[URL]",
        help="The database, e.g. sqlite:///kron.db or postgresql://host/kron (or KRON_STORE).",
    ),
]
Status = Annotated[
    bool, typer.Option("--status", help="Show which migrations are applied; exit with 1 if any is pending.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the pending migrations without applying them.")]


def migrate_command(
    url: Url = None,
    config: Config = None,
    status: Status = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Apply the pending migrations of a database.

    Without a URL it is the store of the settings, which may contain a password.

    There is no downgrade. A database that is newer than this program, or that lacks a migration, is rejected.
    Workers of the previous version keep running during a rolling upgrade.

    \b
    Examples:
      kron migrate sqlite:///kron.db
      kron migrate postgresql://kron@db.example/kron --status
      KRON_STORE_FILE=store.txt kron migrate --dry-run
    """  # noqa: D301
    if status and dry_run:
        raise InvalidOptionError(option="--dry-run", value=True, reason="--status changes nothing")
    schema = schema_of(read_settings(os.environ, {"store": url}, file=config).settings.store_url)
    if status:
        return asyncio.run(_show_status(schema, as_json=as_json))
    return asyncio.run(_apply(schema, dry_run=dry_run, as_json=as_json))


async def _show_status(schema: Schema, *, as_json: bool) -> int:
    applied = await schema.applied()
    missing = pending(schema.steps, applied)
    if as_json:
        steps = [_entry(step, applied) for step in schema.steps]
        show_json({"at": len(applied), "newest": len(schema.steps), "steps": steps})
    else:
        for step in schema.steps:
            entry = _entry(step, applied)
            say(f"{step.number:4}  {step.name:20}  {entry['applied_at'] or 'not applied'}")
    return NO if missing else GOOD


async def _apply(schema: Schema, *, dry_run: bool, as_json: bool) -> int:
    steps = pending(schema.steps, await schema.applied()) if dry_run else await schema.forward()
    if as_json:
        entries = [{"number": step.number, "name": step.name} for step in steps]
        document = {"newest": len(schema.steps), "dry_run": dry_run, "steps": entries}
        show_json(document)
        return GOOD
    verb = "would apply" if dry_run else "applied"
    for step in steps:
        say(f"{verb} {step.number} {step.name}")
    if not steps:
        say(f"nothing to do: the database is at migration {len(schema.steps)}")
    return GOOD


def _entry(step: Migration, applied: list[Applied]) -> dict[str, object]:
    done = applied[step.number - 1] if step.number <= len(applied) else None
    return {
        "number": step.number,
        "name": step.name,
        "applied_at": None if done is None else done.applied_at,
    }
