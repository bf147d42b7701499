"""Workers that a person asked to drain, as every store lists them."""

from collections.abc import Iterable, Sequence

from kron.core.plan.query import WorkerLease
from kron.core.time.steady import DAY_MS

# How often a drained worker notes that it still waits, and how long a request outlives its worker.
SEEN_MS, KEEP_DRAIN_MS = 10_000, DAY_MS


def with_drains(
    leases: Sequence[WorkerLease], drains: Iterable[tuple[str, int, int | None]]
) -> list[WorkerLease]:
    """Add the requests to drain to their workers' leases, and the drained workers, which have none."""
    asked = {owner: (asked_at, seen_at) for owner, asked_at, seen_at in drains}
    marked = [lease._replace(drained_at=asked.pop(lease.owner, (None,))[0]) for lease in leases]
    drained = [
        WorkerLease(owner, (), seen_at is not None, seen_at, drained_at=asked_at)
        for owner, (asked_at, seen_at) in asked.items()
    ]
    return sorted([*marked, *drained], key=lambda lease: lease.owner)
