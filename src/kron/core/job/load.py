"""Load: how many starts of a fleet fall into each minute, with and without its windows."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import add
from typing import NamedTuple

from kron.core.cron.walk import Plan
from kron.core.job.decision import is_plain, nominal_times, starts_between
from kron.core.job.job import Job
from kron.core.time.instant import EpochSeconds

MINUTE = 60
HOUR = 3600
HOURS_OF_DAY = 24


class PlannedStart(NamedTuple):
    """One start of one job; `on_the_hour` if its nominal time has minute :00 in the job's zone."""

    start_at: EpochSeconds
    identity: str
    nominal_time: EpochSeconds
    on_the_hour: bool


class LoadCount(NamedTuple):
    """How many periods of one job start, and how many are unschedulable."""

    starts: int
    unschedulable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The starts in each minute, from the minute at `first_at` on."""

    first_at: EpochSeconds
    minutes: tuple[int, ...]

    @property
    def starts(self) -> int:
        """Return the number of all starts."""
        return sum(self.minutes)

    @property
    def mean(self) -> float:
        """Return the starts of an average minute."""
        return self.starts / len(self.minutes)

    @property
    def peak(self) -> int:
        """Return the starts of the fullest minute."""
        return max(self.minutes)

    @property
    def p99(self) -> int:
        """Return the 99th percentile of the minutes (nearest rank, so a load that occurred)."""
        return sorted(self.minutes)[-(-len(self.minutes) * 99 // 100) - 1]

    @property
    def worst_at(self) -> EpochSeconds | None:
        """Return the start of the fullest minute, the first of equals; None if nothing starts."""
        peak = self.peak
        return self.first_at + MINUTE * self.minutes.index(peak) if peak else None

    @property
    def on_the_hour(self) -> int:
        """Return the starts in minute :00 of an hour (UTC)."""
        return sum(self.minutes[-(self.first_at // MINUTE) % MINUTE :: MINUTE])

    def peaks_by_hour(self) -> dict[int, int]:
        """Return the fullest minute of each hour of the day (UTC), of those hours that occur."""
        peaks: dict[int, int] = {}
        place = 0
        while place < len(self.minutes):
            minute = self.first_at // MINUTE + place
            stop = place + MINUTE - minute % MINUTE
            hour = minute // MINUTE % HOURS_OF_DAY
            peaks[hour] = max(peaks.get(hour, 0), *self.minutes[place:stop], 0)
            place = stop
        return peaks

    def hour_at(self, instant: EpochSeconds) -> list[int]:
        """Return the sixty minutes of the hour (UTC) an instant lies in; those outside the interval are 0."""
        first = (instant // HOUR * HOUR - self.first_at) // MINUTE
        return [
            self.minutes[place] if 0 <= place < len(self.minutes) else 0
            for place in range(first, first + MINUTE)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLoad:
    """The load of a fleet as decided, and as it would be at the nominal times."""

    decided: Load
    nominal: Load
    tallies: dict[str, LoadCount]
    suspended: tuple[str, ...]

    @property
    def unschedulable(self) -> int:
        """Return how many periods are unschedulable."""
        return sum(tally.unschedulable for tally in self.tallies.values())


def load_of(
    jobs: Iterable[Job],
    start: EpochSeconds,
    end: EpochSeconds,
    *,
    progress: Callable[[float], None] | None = None,
) -> FleetLoad:
    """Return the load of a fleet in `[start, end)`, without suspended jobs.

    `progress` is called with the share of the work that is done.
    """
    fleet = list(jobs)
    awake = [job for job in fleet if not job.policy.suspend]
    plain = [job for job in awake if is_plain(job)]
    others = [job for job in awake if not is_plain(job)]
    plain_load, counts = _at_nominal_times(plain, start, end)
    other_load, _ = _at_nominal_times(others, start, end)
    nominal = tuple(map(add, plain_load, other_load))
    tallies = {job.identity: LoadCount(counts[_periods_of(job)], 0) for job in plain}
    for number, job in enumerate(others, 1):
        tallies[job.identity] = _add_decided(job, start, end, plain_load)
        if progress is not None:
            progress(number / len(others))
    first_at = start // MINUTE * MINUTE
    return FleetLoad(
        decided=Load(first_at=first_at, minutes=tuple(plain_load)),
        nominal=Load(first_at=first_at, minutes=nominal),
        tallies=tallies,
        suspended=tuple(job.identity for job in fleet if job.policy.suspend),
    )


# What decides the periods of a job: its plan, and when they start and end.
Periods = tuple[Plan, EpochSeconds | None, EpochSeconds | None]


def _periods_of(job: Job) -> Periods:
    return job.schedule.plan, job.policy.start_at, job.policy.end_at


def _at_nominal_times(
    jobs: Sequence[Job], start: EpochSeconds, end: EpochSeconds
) -> tuple[list[int], dict[Periods, int]]:
    """Return the load at the nominal times, and the count of each plan; jobs share the walk of their plan."""
    first = start // MINUTE
    minutes, counts = [0] * (-(-end // MINUTE) - first), {}
    shared = {_periods_of(job): job for job in jobs}
    for periods, users in Counter(map(_periods_of, jobs)).items():
        count = 0
        for nominal_time in nominal_times(shared[periods], start, end):
            minutes[nominal_time // MINUTE - first] += users
            count += 1
        counts[periods] = count
    return minutes, counts


def _add_decided(job: Job, start: EpochSeconds, end: EpochSeconds, minutes: list[int]) -> LoadCount:
    first = start // MINUTE
    starts = unschedulable = 0
    for _, chosen_time in starts_between(job, start, end):
        if chosen_time is None:
            unschedulable += 1
        else:
            minutes[chosen_time // MINUTE - first] += 1
            starts += 1
    return LoadCount(starts, unschedulable)


def starts_in(jobs: Iterable[Job], start: EpochSeconds, end: EpochSeconds) -> list[PlannedStart]:
    """Return every start in `[start, end)`, in order of time, for short intervals."""
    return sorted(
        _start_of(job, chosen_time, nominal_time)
        for job in jobs
        if not job.policy.suspend
        for nominal_time, chosen_time in starts_between(job, start, end)
        if chosen_time is not None
    )


def nominal_starts_in(jobs: Iterable[Job], start: EpochSeconds, end: EpochSeconds) -> list[PlannedStart]:
    """Return the same as `starts_in`, as if every period started at its nominal time."""
    return sorted(
        _start_of(job, nominal_time, nominal_time)
        for job in jobs
        if not job.policy.suspend
        for nominal_time in nominal_times(job, start, end)
    )


def _start_of(job: Job, start_at: EpochSeconds, nominal_time: EpochSeconds) -> PlannedStart:
    wall = nominal_time + job.schedule.plan.zone.offset_at(nominal_time)
    return PlannedStart(start_at, job.identity, nominal_time, wall // MINUTE % MINUTE == 0)
