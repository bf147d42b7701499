"""`kron prune`: removes old history from a store, or counts what would go."""

import asyncio
import os
from typing import Annotated

import typer

from kron.app.retention import Pruned, Pruner, RetentionPolicy
from kron.cli.main import GOOD
from kron.cli.support.client import Namespace, check_namespace
from kron.cli.support.option import AsJson, Config, StoreUrl
from kron.cli.support.terminal import progress, say, show_json
from kron.core.errors import InvalidOptionError
from kron.core.time.instant import milliseconds_of
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.settings import Settings, read_settings
from kron.stores.url import is_there, open_store

DryRun = Annotated[bool, typer.Option("--dry-run", help="Count what would be pruned, and remove nothing.")]
KeepDays = Annotated[
    str | None,
    typer.Option("--keep-days", metavar="N", help="Prune runs that ended more days ago (or KRON_KEEP_DAYS)."),
]
KeepRuns = Annotated[
    str | None,
    typer.Option("--keep-runs", metavar="N", help="Keep the last runs of each schedule (or KRON_KEEP_RUNS)."),
]


def prune_command(
    store: StoreUrl = None,
    config: Config = None,
    dry_run: DryRun = False,
    keep_days: KeepDays = None,
    keep_runs: KeepRuns = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> int:
    """Remove old history from a store.

    It is that of the service's schedules, unless --namespace names another one. Workers do the same once a
    day. Open runs, the last runs of each schedule and its newest outcome stay. Workers may run at the same
    time.

    \b
    Examples:
      kron prune --dry-run
      kron prune --store sqlite:///kron.db --keep-days 30 --keep-runs 10
      kron prune --namespace operator --json
    """  # noqa: D301
    options = {"store": store, "keep_days": keep_days, "keep_runs": keep_runs}
    settings = read_settings(os.environ, options, file=config).settings
    if not is_there(settings.store_url):
        raise InvalidOptionError(option="store", value=settings.store_url, reason="the file does not exist")
    pruned = asyncio.run(_prune(settings, namespace, dry_run=dry_run)).removed
    counts = pruned.counts
    if as_json:
        show_json({"dry_run": dry_run, "records": pruned.records, **counts})
    elif not pruned.records:
        say(f"nothing to prune: {_kept(settings.retention)}")
    else:
        told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        say(f"{'would prune' if dry_run else 'pruned'} {told}")
    return GOOD


def _kept(policy: RetentionPolicy) -> str:
    if policy.keep is None:
        return "runs are kept forever (keep_days is 0)"
    return f"no run ended more than {policy.keep.days} days ago, beyond the last {policy.keep_runs}"


async def _prune(settings: Settings, namespace: str | None, *, dry_run: bool) -> Pruned:
    from kron.clocks.system import SystemClock

    clock, store = SystemClock(), open_store(settings.store_url)
    pruner = Pruner(store=store, clock=clock, namespace=namespace or NAMESPACE, policy=settings.retention)
    pruned = Pruned()
    try:
        if namespace is not None:
            check_namespace(namespace, await store.namespaces())
        async for so_far in pruner.batches(milliseconds_of(clock.now()), dry_run=dry_run):
            pruned = so_far
            progress(f"{pruned.removed.records} records")
        progress("")
    finally:
        await store.close()
    return pruned
