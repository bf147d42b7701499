"""The page of workers and leases, and the health of leases on the page of the present."""

from collections.abc import Sequence
from typing import NamedTuple

from kron.core.plan.query import WorkerLease
from kron.core.shard import SHARDS
from kron.fronts.service.web.time_text import UTC_ZONE, PageTime, moment_of
from kron.fronts.service.workers import WorkerState, ranges_of, state_of

# The class of the style sheet of each state.
LOOKS = {
    WorkerState.ACTIVE: "ok",
    WorkerState.WAITING: "wait",
    WorkerState.DRAINING: "run",
    WorkerState.DRAINED: "wait",
    WorkerState.EXPIRED: "bad",
}
# The states of workers that take the shards of a drained one.
RECEIVING = (WorkerState.ACTIVE, WorkerState.WAITING)


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
    is_drained: bool
    asked: PageTime | None


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
    drained = sum(lease.drained_at is not None and not lease.shards for lease in leases)
    workers = sum(lease.is_alive and bool(lease.shards) for lease in leases)
    if not leased:
        return "bad", "no worker holds a lease" + (": it is drained" if drained else "")
    words = f"{workers} {'worker' if workers == 1 else 'workers'}"
    if leased < SHARDS:
        return "bad", f"{words} with {leased} of {SHARDS} shards, the others have none"
    return "ok", f"{words} with all {SHARDS} shards"


def _row_of(lease: WorkerLease, now: int) -> WorkerRow:
    taken, renewed, expires = (
        None if time is None else moment_of(time, UTC_ZONE, now)
        for time in (lease.taken_at, lease.renewed_at, lease.expires_at)
    )
    state = state_of(lease, now)
    leased, shards = len(lease.shards), ranges_of(lease.shards)
    return WorkerRow(
        lease.owner,
        LOOKS[state],
        state.value,
        leased,
        shards,
        taken,
        renewed,
        expires,
        lease.version,
        is_drained=lease.drained_at is not None,
        asked=None if lease.drained_at is None else moment_of(lease.drained_at, UTC_ZONE, now),
    )
