"""Decisions: the exact time at which a period runs. Pure, stable, reproducible (SPEC 4)."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple

from kron.core.cron.schedule import seconds_between
from kron.core.errors import InvalidInstantError, InvalidOptionError, NoCandidateError
from kron.core.job.job import Job
from kron.core.job.seed import period_key, seed_hash, splitmix64, state_of, unit_of
from kron.core.job.window import Bounds
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND, EpochSeconds, datetime_of, rfc3339, seconds_of
from kron.core.time.zone import FIRST_PROBE, LAST_PROBE, Zone, tzdata_version

# The version of the certificate's format; it changes with the algorithm.
FORMAT = 1
# Candidates drawn before a period is unschedulable (SPEC 4: Sampling budget).
BUDGET = 64
ALMOST_ONE = 1 - 2**-53
# Periods in a row without a candidate before `upcoming` gives up: 70 days of a job that runs every minute.
MAX_UNSCHEDULABLE = 100_000


class Sample(NamedTuple):
    """One candidate: the number drawn, its second, and the constraint that rejected it."""

    u: float
    candidate: EpochSeconds
    rejected_by: str | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for one period of one job; `chosen_time` is None where no time could be chosen."""

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
        """Return whether no time in the window satisfies the constraints."""
        return self.chosen_time is None

    @property
    def fire_time(self) -> int | None:
        """Return the fire time in milliseconds."""
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
            "window": job.window.to_dict(),
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
    if not isinstance(job, Job):
        raise InvalidOptionError(option="job", value=job, reason=f"expected a Job, got {type(job).__name__}")
    second = seconds_of(nominal_time)
    if nominal_time.microsecond:
        raise InvalidInstantError(value=nominal_time, reason="a nominal time is a whole second")
    return decide_at(job, second)


def decide_at(job: Job, nominal_time: EpochSeconds) -> Decision:
    """Return the decision for a nominal time in whole seconds."""
    bounds = job.window.bounds(nominal_time)
    zone = job.schedule.plan.zone
    if not _in_calendar(bounds, zone):
        raise InvalidInstantError(
            value=datetime_of(nominal_time), reason="its window extends beyond the years 1 to 9999"
        )
    key = period_key(job.seed_strategy, rfc3339(nominal_time), nominal_time, zone)
    seed = seed_hash(job.identity, key, job.salt)
    start, end = bounds
    if start == end:
        chosen = start if job.constraints.rejected_by(start, zone) is None else None
        return Decision(job, nominal_time, bounds, key, seed, 0, chosen)
    state = state_of(seed)
    for number in range(1, BUDGET + 1):
        state, _, candidate, rejection = _draw(job, nominal_time, bounds, state)
        if rejection is None:
            return Decision(job, nominal_time, bounds, key, seed, number, candidate)
    return Decision(job, nominal_time, bounds, key, seed, BUDGET, None)


def _in_calendar(bounds: Bounds, zone: Zone) -> bool:
    """Return whether a whole window lies within the calendar, in UTC and in the job's zone."""
    if bounds.start >= FIRST_PROBE and bounds.end <= LAST_PROBE:
        return True
    return all(
        FIRST_SECOND <= second <= LAST_SECOND
        for bound in bounds
        for second in (bound, bound + zone.offset_at(bound))
    )


def attempts_of(job: Job, nominal_time: EpochSeconds, bounds: Bounds, seed: str) -> Iterator[Sample]:
    """Yield candidates until one is not rejected or the budget is spent; an empty window has one."""
    if bounds.start == bounds.end:
        yield Sample(0.0, bounds.start, job.constraints.rejected_by(bounds.start, job.schedule.plan.zone))
        return
    state = state_of(seed)
    for _ in range(BUDGET):
        state, u, candidate, rejection = _draw(job, nominal_time, bounds, state)
        yield Sample(u, candidate, rejection)
        if rejection is None:
            return


def _draw(
    job: Job, nominal_time: EpochSeconds, bounds: Bounds, state: int
) -> tuple[int, float, EpochSeconds, str | None]:
    """Return the generator's next state and one candidate, as a plain tuple for speed."""
    start, end = bounds
    width = end - start
    state, number = splitmix64(state)
    u = unit_of(number)
    x = job.distribution.place(u, bounds, nominal_time)
    x = 0.0 if x < 0.0 else ALMOST_ONE if x > ALMOST_ONE else x
    offset = int(x * (width + 1))
    candidate = start + (offset if offset < width else width)
    return state, u, candidate, job.constraints.rejected_by(candidate, job.schedule.plan.zone)


def upcoming(job: Job, now: datetime, *, unschedulable: bool = False) -> Iterator[Decision]:
    """Yield the decisions whose chosen time is at or after `now`, in order of chosen time.

    Windows may overlap and reach before their nominal times, so the order is not that of the nominal
    times. With `unschedulable`, periods without a chosen time are yielded where their window ends.
    """
    return upcoming_from(job, seconds_of(now) + (now.microsecond > 0), unschedulable=unschedulable)


def upcoming_from(job: Job, now: EpochSeconds, *, unschedulable: bool = False) -> Iterator[Decision]:
    """Yield the same as `upcoming`, from an instant in whole seconds on."""
    early, late = job.window.bounds(0)
    waiting: list[tuple[EpochSeconds, EpochSeconds, Decision]] = []
    barren = 0
    for nominal_time in nominal_times(job, max(now - late, FIRST_SECOND), None):
        # No later period can be chosen before the window of the next period starts.
        while waiting and waiting[0][0] < nominal_time + early:
            yield heappop(waiting)[2]
        if not _in_calendar(Bounds(nominal_time + early, nominal_time + late), job.schedule.plan.zone):
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


def nominal_times(job: Job, start: EpochSeconds, end: EpochSeconds | None) -> Iterator[EpochSeconds]:
    """Yield the periods of a job in `[start, end)`, or all from `start`, within `start_at` and `end_at`."""
    first, last = job.policy.start_at, job.policy.end_at
    if first is not None:
        start = max(start, first)
    if last is not None:
        end = last + 1 if end is None else min(end, last + 1)
    return seconds_between(job.schedule.plan, start, end)


def starts_between(
    job: Job, start: EpochSeconds, end: EpochSeconds
) -> Iterator[tuple[EpochSeconds, EpochSeconds | None]]:
    """Yield the nominal and the chosen time of every period that starts in `[start, end)`.

    The order is that of the nominal times. A period without a chosen time counts where its window ends.
    """
    early, late = job.window.bounds(0)
    times = nominal_times(job, max(start - late, FIRST_SECOND), end - early)
    if is_plain(job):
        yield from ((nominal_time, nominal_time) for nominal_time in times)
        return
    near_the_ends = start + early - late < FIRST_PROBE or end + late - early > LAST_PROBE
    for nominal_time in times:
        if near_the_ends and not _in_calendar(job.window.bounds(nominal_time), job.schedule.plan.zone):
            continue
        chosen = decide_at(job, nominal_time).chosen_time
        if start <= (nominal_time + late if chosen is None else chosen) < end:
            yield nominal_time, chosen


def is_plain(job: Job) -> bool:
    """Return whether every period of a job starts at its nominal time, without a decision."""
    return job.window.bounds(0) == (0, 0) and not job.constraints.applied
