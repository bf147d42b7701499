"""Turns: which tenants have had their share of a burst, so that the due jobs of the others come first."""

from collections import Counter
from collections.abc import Callable, Iterable

from kron.core.plan.record import JobRecord
from kron.core.plan.step import Change

TenantOf = Callable[[JobRecord], str]
# The share that every tenant has before it waits for others, in jobs.
QUANTUM = 64
# How many jobs a second of planning counts as: an ordinary job takes a tenth of a millisecond.
JOBS_PER_S = 10_000


class Turns:
    """Counts what each tenant has had in a burst: its jobs, and the time of those that are costly to plan."""

    def __init__(self, tenant_of: TenantOf) -> None:
        self._tenant_of = tenant_of
        self._served: Counter[str] = Counter()

    def count(self, changes: Iterable[Change]) -> None:
        """Count jobs that were planned."""
        tenant_of = self._tenant_of
        self._served.update(tenant_of(change.job) for change in changes)

    def spend(self, job: JobRecord, seconds: float) -> None:
        """Count the time that a job took."""
        self._served[self._tenant_of(job)] += int(JOBS_PER_S * seconds)

    def over_share(self) -> list[str]:
        """Return the tenants that have had more than half of what the first of them has had."""
        share = max(QUANTUM, max(self._served.values(), default=0) // 2)
        return [tenant for tenant, served in self._served.items() if served >= share]
