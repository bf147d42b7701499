"""Decisions: when exactly a period runs, and why then. Pure, stable, reproducible (SPEC 4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple

from kron.core.duration import format_duration
from kron.core.errors import InvalidInstantError, NoCandidateError
from kron.core.instant import FIRST_SECOND, LAST_SECOND, EpochSeconds, datetime_of, rfc3339, seconds_of
from kron.core.job import Job
from kron.core.schedule import seconds_between
from kron.core.seed import period_key, seed_hash, splitmix64, state_of, unit_of
from kron.core.window import Bounds
from kron.core.zone import tzdata_version

# The version of the certificate's format; a change of the algorithm is a change of this number.
FORMAT = 1
# How often a candidate may be rejected before the period is unschedulable (SPEC 4: Sampling budget).
BUDGET = 64
ALMOST_ONE = 1 - 2**-53
# Periods in a row without a candidate before `upcoming` gives up: 70 days of a job that runs every minute.
MAX_UNSCHEDULABLE = 100_000


class Attempt(NamedTuple):
    """One candidate: the number drawn, the second it stands for, and the constraint that rejected it."""

    u: float
    candidate: EpochSeconds
    rejected_by: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided for one period of one job; `chosen_time` is None where no time could be chosen."""

    job: Job
    nominal_time: EpochSeconds
    bounds: Bounds
    period_key: str
    seed_hash: str
    attempts: int
    chosen_time: EpochSeconds | None

    @property
    def period_id(self) -> str:
        """Return the period's canonical identifier."""
        return rfc3339(self.nominal_time)

    @property
    def unschedulable(self) -> bool:
        """Say whether no time in the window satisfies the constraints."""
        return self.chosen_time is None

    @property
    def fire_time(self) -> int | None:
        """Return when it is to start, in milliseconds."""
        return None if self.chosen_time is None else 1000 * self.chosen_time

    def to_dict(self) -> dict[str, object]:
        """Return the certificate: self-contained, and enough to recompute the decision."""
        job = self.job
        return {
            "kron_decision": FORMAT,
            "identity": job.identity,
            "salt": job.salt,
            "period_id": self.period_id,
            "nominal_time": self.period_id,
            "window": {"mode": job.window.mode.value, "duration": format_duration(job.window.duration)},
            "window_start": rfc3339(self.bounds.start),
            "window_end": rfc3339(self.bounds.end),
            "chosen_time": None if self.chosen_time is None else rfc3339(self.chosen_time),
            "timezone": job.schedule.timezone,
            "distribution": job.distribution.to_dict(),
            "seed_strategy": job.seed_strategy.value,
            "period_key": self.period_key,
            "seed_hash": self.seed_hash,
            "attempts": self.attempts,
            "constraints": job.constraints.to_dict(),
            "constraints_applied": job.constraints.applied,
            "unschedulable": self.unschedulable,
            "tzdata_version": tzdata_version(job.schedule.timezone),
        }


def decide(job: Job, nominal_time: datetime) -> Decision:
    """Return the decision for the period with this nominal time; the schedule is not consulted."""
    second = seconds_of(nominal_time)
    if nominal_time.microsecond:
        raise InvalidInstantError(value=nominal_time, reason="a nominal time is a whole second")
    return decide_at(job, second)


def decide_at(job: Job, nominal_time: EpochSeconds) -> Decision:
    """Return the decision for a nominal time in whole seconds."""
    bounds = job.window.bounds(nominal_time)
    if bounds.start < FIRST_SECOND or bounds.end > LAST_SECOND:
        raise InvalidInstantError(value=datetime_of(nominal_time), reason="its window leaves the calendar")
    key = period_key(job.seed_strategy, rfc3339(nominal_time), nominal_time, job.schedule.plan.zone)
    seed = seed_hash(job.identity, key, job.salt)
    number, last = 0, None
    for number, last in enumerate(attempts_of(job, nominal_time, bounds, seed), 1):  # noqa: B007
        pass
    assert last is not None
    chosen = last.candidate if last.rejected_by is None else None
    attempts = number if bounds.start < bounds.end else 0
    return Decision(job, nominal_time, bounds, key, seed, attempts, chosen)


def attempts_of(job: Job, nominal_time: EpochSeconds, bounds: Bounds, seed: str) -> Iterator[Attempt]:
    """Yield candidates until one is not rejected or the budget is spent; an empty window has one."""
    constraints, zone = job.constraints, job.schedule.plan.zone
    start, width = bounds.start, bounds.end - bounds.start
    if width == 0:
        yield Attempt(0.0, start, constraints.rejected_by(start, zone))
        return
    state = state_of(seed)
    for _ in range(BUDGET):
        state, number = splitmix64(state)
        u = unit_of(number)
        x = min(max(job.distribution.place(u, bounds, nominal_time), 0.0), ALMOST_ONE)
        candidate = start + min(int(x * (width + 1)), width)
        attempt = Attempt(u, candidate, constraints.rejected_by(candidate, zone))
        yield attempt
        if attempt.rejected_by is None:
            return


def upcoming(job: Job, now: datetime, *, unschedulable: bool = False) -> Iterator[Decision]:
    """Yield the decisions whose chosen time is at or after `now`, in order of chosen time.

    Windows may overlap and reach before their nominal times, so the order is not that of the nominal
    times. With `unschedulable`, periods without a chosen time are yielded where their window ends.
    """
    return upcoming_from(job, seconds_of(now) + (now.microsecond > 0), unschedulable=unschedulable)


def upcoming_from(job: Job, now: EpochSeconds, *, unschedulable: bool = False) -> Iterator[Decision]:
    """Yield what `upcoming` does, from an instant in whole seconds on."""
    early, late = job.window.bounds(0)
    waiting: list[tuple[EpochSeconds, EpochSeconds, Decision]] = []
    barren = 0
    for nominal_time in seconds_between(job.schedule.plan, max(now - late, FIRST_SECOND), None):
        # Nothing still to come can be chosen before the window of the next period begins.
        while waiting and waiting[0][0] < nominal_time + early:
            yield heappop(waiting)[2]
        if nominal_time + early < FIRST_SECOND or nominal_time + late > LAST_SECOND:
            continue
        decision = decide_at(job, nominal_time)
        barren = barren + 1 if decision.unschedulable else 0
        if barren > MAX_UNSCHEDULABLE and not unschedulable:
            raise NoCandidateError(identity=job.identity, count=barren, since=rfc3339(now))
        at = decision.bounds.end if decision.chosen_time is None else decision.chosen_time
        if at >= now and (unschedulable or not decision.unschedulable):
            heappush(waiting, (at, nominal_time, decision))
    while waiting:
        yield heappop(waiting)[2]
