"""What tenants share: turns in a burst, so that due jobs of the others come first, and room for open runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from kron.core.plan.record import JobRecord
from kron.core.plan.step import MAX_OPEN_RUNS, Change, JobState

TenantOf = Callable[[JobRecord], str]
# The share that every tenant has before it waits for others, in jobs.
QUANTUM = 64
# How many jobs a second of planning counts as: an ordinary job takes a tenth of a millisecond.
JOBS_PER_S = 10_000
# The shortest interval between two counts of the open runs of one tenant, in milliseconds.
RECOUNT_MS = 1_000


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


class OpenLimit:
    """Marks the jobs that may open no more runs: those with open runs whose tenant has too many of them.

    A job without open runs may always start one, so a tenant has at most `most` and one for each of its jobs.
    Starts are added to a count, ends are not: once a tenant may have half of what it is allowed, the store
    counts again. A job without a tenant has no limit.
    """

    def __init__(self, tenant_of: TenantOf, most: int) -> None:
        self._tenant_of = tenant_of
        self._most = most
        self._open: Counter[str] = Counter()
        self._counted_at: dict[str, int] = {}

    def unsure(self, states: Sequence[JobState], now: int) -> list[str]:
        """Return the tenants of some jobs whose open runs have to be counted first."""
        tenants = {self._tenant_of(state.job) for state in states if state.runs} - {""}
        return [tenant for tenant in tenants if self._is_unsure(tenant, now)]

    def _is_unsure(self, tenant: str, now: int) -> bool:
        counted_at = self._counted_at.get(tenant)
        if counted_at is None:
            return True
        return 2 * self._open[tenant] >= self._most and not 0 <= now - counted_at < RECOUNT_MS

    def count(self, counts: Mapping[str, int], now: int) -> None:
        """Note how many runs tenants have open now."""
        self._open.update({tenant: count - self._open[tenant] for tenant, count in counts.items()})
        self._counted_at.update(dict.fromkeys(counts, now))

    def marked(self, states: Sequence[JobState], now: int) -> list[JobState]:
        """Return jobs, those that may have no more open runs as full; the others may open one more each."""
        return [self._marked(state, now) for state in states]

    def _marked(self, state: JobState, now: int) -> JobState:
        tenant = self._tenant_of(state.job) if state.runs else ""
        if not tenant:
            return state
        if self._open[tenant] >= self._most or len(state.runs) >= MAX_OPEN_RUNS:
            return state._replace(is_full=True)
        if state.job.plan_at is not None and state.job.plan_at <= now:
            self._open[tenant] += 1
        return state
