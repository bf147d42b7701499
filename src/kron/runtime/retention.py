"""Retention: history that is older than wanted is removed, a little at a time."""

import asyncio
from datetime import timedelta
from typing import NamedTuple

from kron.core.errors import InvalidOptionError
from kron.ports import EngineStore

MILLISECOND = timedelta(milliseconds=1)
# What one transaction removes: small enough that whoever writes meanwhile hardly waits.
BATCH = 1_000
# More than any store holds in batches of one; a store that claims to remove more never comes to an end.
MAX_BATCHES = 1_000_000_000


class Pruned(NamedTuple):
    """What was removed: how many records, in how many transactions."""

    records: int
    batches: int


async def prune_history(
    store: EngineStore, namespace: str, *, keep: timedelta, now: int, batch: int = BATCH
) -> Pruned:
    """Remove what last changed longer ago than `keep`, and let others have their turn after each batch.

    What is open, what is not handled yet, and the newest outcome of each job stay, however old they are.
    A definition goes with the last record that follows it. `now` is in milliseconds.
    """
    if keep < timedelta(0):
        raise InvalidOptionError(option="keep", value=keep, reason="must not be negative")
    if batch < 1:
        raise InvalidOptionError(option="batch", value=batch, reason="must be at least 1")
    before, records = now - keep // MILLISECOND, 0
    for batches in range(MAX_BATCHES):
        removed = await store.prune(namespace, before=before, limit=batch)
        if not removed:
            return Pruned(records, batches)
        records += removed
        await asyncio.sleep(0)
    raise AssertionError("a store is empty at some time")
