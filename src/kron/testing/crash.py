"""Crashes on demand: everything ends without notice and without a write."""

import asyncio
from typing import TextIO

from kron.fronts.embed.runner import Runner
from kron.fronts.embed.scheduler import Scheduler
from kron.runtime.engine import Engine
from kron.stores.sqlite.store import SqliteStore


def kill(victim: Scheduler | Runner | Engine) -> "asyncio.Future[None]":
    """End a scheduler, a runner or an engine as the death of its process would.

    Locks are dropped, callbacks are interrupted, nothing is written. It is done when this returns; awaiting
    what it returns only lets interrupted callbacks come to their end.
    """
    if isinstance(victim, Engine):
        victim.kill()
        if isinstance(victim._store, SqliteStore):
            victim._store.drop_locks()
    else:
        victim._crash()
    return asyncio.ensure_future(_let_others_run())


def trace(scheduler: Scheduler, file: TextIO) -> None:
    """Have a scheduler that has a time zone of its own write a trace, for `kron.theory` to judge."""
    scheduler._trace_to(file)


async def _let_others_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
