"""What tenants share: turns in a burst, so that due jobs of the others come first, and room for open runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from kron.core.plan.record import JobRecord
from kron.core.plan.step import MAX_OPEN_RUNS, Change, JobState

TenantOf = Callable[[JobRecord], str]
# The share that every tenant has before it waits for others, in jobs.
QUANTUM = 64
# How long a batch may take where tenants share a burst, in seconds, and the bounds of its size.
STEP_S = 0.05
MIN_STEP, FIRST_STEP, MAX_STEP = 64, 250, 1_000
# The part of a burst's time that the search for due jobs of other tenants may take: one in so many seconds.
SEARCH_PART = 5
# How many jobs a second of planning counts as: an ordinary job takes a tenth of a millisecond.
JOBS_PER_S = 10_000
# The shortest interval between two counts of the open runs of one tenant, in milliseconds.
RECOUNT_MS = 1_000


class Turns:
    """Counts what each tenant has had in a burst: its jobs, and the time of those that are costly to plan.

    `step` is the size of the next batch: as many jobs or reports as are written in STEP_S, so that others do
    not wait longer, however busy the machine is.
    """

    def __init__(self, tenant_of: TenantOf, *, step: int = FIRST_STEP) -> None:
        self._tenant_of = tenant_of
        self._served: Counter[str] = Counter()
        self.step = step
        # When the search for jobs of others is worth its time again.
        self._search_at = -inf

    def took(self, count: int, seconds: float) -> None:
        """Adapt the size of the next batch to how long one took."""
        if count >= MIN_STEP:
            fitting = int(count * STEP_S / max(seconds, 1e-6))
            self.step = min(MAX_STEP, max(MIN_STEP, min(fitting, 2 * self.step)))

    def may_search(self, now: float) -> bool:
        """Say whether to search for due jobs of other tenants now, by the monotonic clock."""
        return now >= self._search_at

    def searched(self, began: float, now: float) -> None:
        """Note how long a search took."""
        self._search_at = now + (SEARCH_PART - 1) * (now - began)

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
        tenants = {self._tenant_of(state.job) for state in states if _may_open_more(state, now)} - {""}
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
        tenant = self._tenant_of(state.job) if _may_open_more(state, now) else ""
        if not tenant:
            return state
        if self._open[tenant] >= self._most or len(state.runs) >= MAX_OPEN_RUNS:
            return state._replace(is_full=True)
        self._open[tenant] += 1
        return state


def _may_open_more(state: JobState, now: int) -> bool:
    """Say whether a job with open runs has another period to plan."""
    return bool(state.runs) and state.job.plan_at is not None and state.job.plan_at <= now
