"""The workers of the service: who holds which shards, and the drain of one of them."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby

from kron.core.plan.query import WorkerLease
from kron.fronts.service.auth.audit import drain_entry
from kron.fronts.service.documents import time_text
from kron.fronts.service.errors import UnknownWorkerError
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.responses import WorkerList, WorkerView

# A drained worker that was not heard from for so long has ended, in milliseconds.
GONE_MS = 30_000


class WorkerState(StrEnum):
    """What a worker does."""

    ACTIVE = "active"
    WAITING = "waiting"
    DRAINING = "draining"
    DRAINED = "drained"
    EXPIRED = "expired"


def state_of(lease: WorkerLease, now: int) -> WorkerState:
    """Return the state of a worker at an instant in milliseconds."""
    if lease.drained_at is not None and not lease.shards:
        is_heard = lease.renewed_at is not None and now - lease.renewed_at < GONE_MS
        return WorkerState.DRAINED if is_heard else WorkerState.EXPIRED
    if not lease.is_alive:
        return WorkerState.EXPIRED
    if lease.drained_at is not None:
        return WorkerState.DRAINING
    return WorkerState.ACTIVE if lease.shards else WorkerState.WAITING


async def list_workers(registrar: Registrar) -> WorkerList:
    """Return the workers with their shards, by name."""
    leases, now = await registrar.catalog.query.leases(), registrar.now()
    return {"workers": [_view_of(lease, now) for lease in leases]}


async def drain_worker(registrar: Registrar, owner: str, drain: bool) -> WorkerView:
    """Ask a worker to start nothing more and to hand over its shards, or to work again."""
    before = next((each for each in await registrar.catalog.query.leases() if each.owner == owner), None)
    if before is None:
        raise UnknownWorkerError(worker=owner)
    if drain != (before.drained_at is not None):
        await registrar.drain_worker(drain_entry(owner, drain, now=registrar.now()), drain)
    leases, now = await registrar.catalog.query.leases(), registrar.now()
    after = next((each for each in leases if each.owner == owner), before._replace(drained_at=None))
    return _view_of(after, now)


def ranges_of(shards: Sequence[int]) -> str:
    """Return numbers as text, with consecutive ones as a range: `0-3, 7`."""
    return ", ".join(_ranges(sorted(shards)))


def _ranges(shards: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(shards), lambda pair: pair[1] - pair[0]):
        members = [shard for _, shard in group]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def _view_of(lease: WorkerLease, now: int) -> WorkerView:
    return {
        "worker": lease.owner,
        "state": state_of(lease, now).value,
        "shard_count": len(lease.shards),
        "shards": ranges_of(lease.shards),
        "taken_over_at": time_text(lease.taken_at),
        "heartbeat_at": time_text(lease.renewed_at),
        "lease_until": time_text(lease.expires_at),
        "drain_requested_at": time_text(lease.drained_at),
        "version": lease.version,
    }
