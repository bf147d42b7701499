"""The page of workers and leases, and the health of leases on the page of the present."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from kron.core.plan.query import WorkerLease
from kron.core.shard import SHARDS
from kron.fronts.service.web.time_text import UTC_ZONE, PageTime, moment_of


class WorkerRow(NamedTuple):
    """One worker: its state, its shards as ranges, and when it was last heard from."""

    owner: str
    look: str
    state: str
    leased: int
    shards: str
    taken: PageTime | None
    renewed: PageTime | None
    expires: PageTime | None
    version: str | None


class WorkersPage(NamedTuple):
    """All workers, and a sentence on the shards of the namespace."""

    rows: list[WorkerRow]
    look: str
    sentence: str


def workers_page(leases: Sequence[WorkerLease], now: int) -> WorkersPage:
    """Return the page of some leases, which were read at an instant in milliseconds."""
    return WorkersPage([_row_of(lease, now) for lease in leases], *lease_health(leases))


def lease_health(leases: Sequence[WorkerLease]) -> tuple[str, str]:
    """Return the look of the leases of a namespace, and a sentence without names."""
    leased = len({shard for lease in leases if lease.is_alive for shard in lease.shards})
    workers = sum(lease.is_alive and bool(lease.shards) for lease in leases)
    if not leased:
        return "bad", "no worker holds a lease"
    words = f"{workers} {'worker' if workers == 1 else 'workers'}"
    if leased < SHARDS:
        return "bad", f"{words} with {leased} of {SHARDS} shards, the others have none"
    return "ok", f"{words} with all {SHARDS} shards"


def ranges_of(shards: Sequence[int]) -> str:
    """Return numbers as text, with consecutive ones as a range: `0-3, 7`."""
    return ", ".join(_ranges(sorted(shards)))


def _ranges(shards: Sequence[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(shards), lambda pair: pair[1] - pair[0]):
        members = [shard for _, shard in group]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def _row_of(lease: WorkerLease, now: int) -> WorkerRow:
    taken, renewed, expires = (
        None if time is None else moment_of(time, UTC_ZONE, now)
        for time in (lease.taken_at, lease.renewed_at, lease.expires_at)
    )
    look, state = _state_of(lease)
    leased, shards = len(lease.shards), ranges_of(lease.shards)
    return WorkerRow(lease.owner, look, state, leased, shards, taken, renewed, expires, lease.version)


def _state_of(lease: WorkerLease) -> tuple[str, str]:
    if not lease.is_alive:
        return "bad", "expired"
    return ("ok", "active") if lease.shards else ("wait", "waiting")
