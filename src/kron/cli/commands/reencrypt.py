"""`kron reencrypt`: encrypts the secrets of all launchers with the first key."""

import asyncio
import os
from typing import Annotated

import typer

from kron.cli.main import GOOD
from kron.cli.support.extra import importing
from kron.cli.support.option import AsJson, Config, StoreUrl
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InvalidOptionError
from kron.core.plan.query import JobFilter
from kron.fronts.service.registrar import NAMESPACE, PAGE, Registrar
from kron.fronts.service.settings import Settings, read_settings
from kron.stores.url import is_there, open_store

DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be encrypted, and write nothing.")]


def reencrypt_command(
    store: StoreUrl = None, config: Config = None, dry_run: DryRun = False, as_json: AsJson = False
) -> int:
    """Encrypt the secrets of launchers and notifications with the first key of secret_keys.

    They may be encrypted with another key now, or not at all.

    Services and workers may run at the same time, with the same keys.

    \b
    Examples:
      KRON_SECRET_KEYS_FILE=keys.txt kron reencrypt --dry-run
      kron reencrypt --store sqlite:///kron.db --config kron.toml
    """  # noqa: D301
    settings = read_settings(os.environ, {"store": store}, file=config).settings
    if not is_there(settings.store_url):
        raise InvalidOptionError(option="store", value=settings.store_url, reason="the file does not exist")
    with importing("service"):
        import cryptography as _  # noqa: F401
    count = asyncio.run(_reencrypt(settings, dry_run=dry_run))
    if as_json:
        show_json({"dry_run": dry_run, "schedules": count})
    else:
        say(f"{'would encrypt' if dry_run else 'encrypted'} the secrets of {count} schedules")
    return GOOD


async def _reencrypt(settings: Settings, *, dry_run: bool) -> int:
    from kron.clocks.system import SystemClock

    store = open_store(settings.store_url)
    registrar, count, after = Registrar(store, SystemClock(), rules=settings.rules), 0, ""
    try:
        while True:
            wanted = JobFilter(deleted=True)
            found = await store.find_jobs(NAMESPACE, wanted, after=after, limit=PAGE)
            if not found:
                return count
            names = [each.job.identity for each in found]
            count += await registrar.reencrypt(names, dry_run=dry_run)
            after = names[-1]
    finally:
        await store.close()
