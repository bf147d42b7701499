"""What tenants share: turns in a burst, so that due jobs of the others come first, and room for open runs."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from kron.core.plan.compiled import adds_many, count_near
from kron.core.plan.plan import UNUSABLE
from kron.core.plan.record import JobRecord
from kron.core.plan.step import MAX_OPEN_RUNS, Change, JobState

TenantOf = Callable[[JobRecord], str]
# The share that every tenant has before it waits for others, in jobs.
QUANTUM = 64
# How long a batch may take where tenants share a burst, in seconds, and the bounds of its size.
STEP_S = 0.05
MIN_STEP, FIRST_STEP, MAX_STEP = 64, 250, 1_000
# How many open runs a batch reads with its jobs, about as many as are read in STEP_S.
MAX_READ_RUNS = 4_000
# How much text of definitions a batch reads, in characters: reading it takes several times as much memory.
MAX_READ_TEXT = 8 << 20
# The search for due jobs of other tenants may take one second of this many in a burst.
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
        # When the jobs of others are searched for again.
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


class LoadLimit:
    """The number of jobs that a batch reads: fewer where they have many open runs, or long definitions.

    It follows the last batch, and grows again as soon as there is less to read.
    """

    def __init__(self) -> None:
        self._jobs = MAX_STEP

    def fitting(self, jobs: int) -> int:
        """Return how many jobs to read instead of a number."""
        return min(jobs, self._jobs)

    def saw(self, states: Sequence[JobState]) -> None:
        """Note the jobs of a batch."""
        runs = sum(len(state.runs) for state in states)
        text = sum(state.job.text_size for state in states)
        text += sum(sum(map(len, state.definitions.values())) for state in states if state.definitions)
        share = max(runs / MAX_READ_RUNS, text / MAX_READ_TEXT)
        if share > 1:
            self._jobs = max(1, int(len(states) / share))
        else:
            self._jobs = min(MAX_STEP, 2 * self._jobs)


class OpenLimit:
    """Gives the jobs of a tenant room for the runs that it may still open.

    A job without open runs may always start one, so a tenant has at most `most` and one for each of its jobs.
    The periods of windows and of jitter that are planned ahead are open runs, too. Periods that are due are
    added to a count, ends are not: once a tenant may have half of what it is allowed, the store counts again.
    A job without a tenant has no limit.
    """

    def __init__(self, tenant_of: TenantOf, most: int) -> None:
        self._tenant_of = tenant_of
        self._most = most
        self._open: Counter[str] = Counter()
        self._counted_at: dict[str, int] = {}

    def unsure(self, states: Sequence[JobState], now: int) -> list[str]:
        """Return the tenants of some jobs whose open runs have to be counted first."""
        tenants = {self._tenant_of(state.job) for state in states if may_open_more(state, now)} - {""}
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
        """Return jobs, each with the room that is left for it by those before."""
        return [self._marked(state, now) for state in states]

    def _marked(self, state: JobState, now: int) -> JobState:
        tenant = self._tenant_of(state.job) if may_open_more(state, now) else ""
        if not tenant:
            return state
        left = min(self._most - self._open[tenant], MAX_OPEN_RUNS - len(state.runs))
        room = max(0 if state.runs else 1, left)
        self._open[tenant] += min(room, _periods_of(state, now))
        return state._replace(room=room)


def may_open_more(state: JobState, now: int) -> bool:
    """Say whether a job has periods to plan beside an open run, or may have several at once."""
    job = state.job
    if job.plan_at is None or job.plan_at > now or state.fault is not None:
        return False
    return bool(state.runs) or _periods_of(state, now) > 1


def _periods_of(state: JobState, now: int) -> int:
    """Return how many periods a job plans now, at least one; those that are caught up are not counted."""
    try:
        return max(1, count_near(state.job, now)) if adds_many(state.job, now) else 1
    except UNUSABLE:
        # The planning step sets the job aside.
        return 1
