"""Simulated crashes: everything ends at once, without a write."""

import asyncio
from typing import TextIO

from kron.fronts.embed.runner import Runner
from kron.fronts.embed.scheduler import Scheduler
from kron.fronts.embed.trace import CallJudge
from kron.runtime.engine import Engine
from kron.stores.sqlite.store import SqliteStore


def kill(victim: Scheduler | Runner | Engine) -> "asyncio.Future[None]":
    """End a scheduler, a runner or an engine as the death of its process would.

    Locks are dropped, callbacks are interrupted, nothing is written. The crash is complete on return;
    awaiting the returned future only lets interrupted callbacks finish.
    """
    if isinstance(victim, Engine):
        victim.kill()
        if isinstance(victim._store, SqliteStore):
            victim._store.drop_locks()
    else:
        victim._crash()
    return asyncio.ensure_future(_yield_to_others())


def trace(scheduler: Scheduler, file: TextIO, *, judge: CallJudge | None = None) -> None:
    """Make a scheduler with an explicit time zone write a trace for `kron.theory`.

    `judge` says whether a list must be accepted, and whether an error is the store's. Without one, lists are
    judged by the checker, and errors by their type.
    """
    scheduler._trace_to(file, judge)


async def _yield_to_others() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
