"""Segments: the unplanned periods of a job, grouped by the definition they follow."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.cron.schedule import Plan
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.record import JobRecord
from kron.core.time.instant import EpochSeconds

# The most periods examined for the newest missed one that is schedulable.
MAX_UNSCHEDULABLE = 1_000
# The most cached lookups: jobs of one definition need the same ones, one after the other.
MAX_CACHED = 10_000


class Segment(NamedTuple):
    """The unplanned periods of one definition: nominal times in `(after, until]`, or all after `after`."""

    compiled: CompiledJob
    epoch: int
    edited_at: int
    after: EpochSeconds
    until: EpochSeconds | None

    def next_after(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the first nominal time later than an instant."""
        time = _next_after(self.compiled.plan, max(instant, self.after))
        return None if time is None or (self.until is not None and time > self.until) else time

    def last_until(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last nominal time at or before an instant."""
        time = last_at(self.compiled.plan, self._end(instant))
        return None if time is None or time <= self.after else time

    def count_until(self, instant: EpochSeconds) -> int:
        """Return the number of nominal times up to an instant."""
        return count_between(self.compiled.plan, self.after + 1, self._end(instant) + 1)

    def times_until(self, instant: EpochSeconds) -> Iterator[EpochSeconds]:
        """Yield the nominal times up to an instant, oldest first."""
        time = self.next_after(self.after)
        while time is not None and time <= instant:
            yield time
            time = self.next_after(time)

    def nth_last(self, count: int, instant: EpochSeconds) -> EpochSeconds:
        """Return the n-th last nominal time up to an instant; at least n must exist."""
        time: EpochSeconds | None = instant + 1
        for _ in range(count):
            assert time is not None
            time = self.last_until(time - 1)
        assert time is not None
        return time

    def newest_possible(self, identity: str, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last schedulable nominal time up to an instant."""
        time = self.last_until(instant)
        for _ in range(MAX_UNSCHEDULABLE):
            if time is None or self.compiled.fire_time(identity, time) is not None:
                return time
            time = self.last_until(time - 1)
        return None

    def _end(self, instant: EpochSeconds) -> EpochSeconds:
        return instant if self.until is None else min(instant, self.until)


@lru_cache(maxsize=MAX_CACHED)
def _next_after(plan: Plan, instant: EpochSeconds) -> EpochSeconds | None:
    return plan.next_after(instant)


@lru_cache(maxsize=MAX_CACHED)
def last_at(plan: Plan, instant: EpochSeconds) -> EpochSeconds | None:
    """Return a plan's last nominal time at or before an instant."""
    return plan.prev_at_or_before(instant)


def segment_of(job: JobRecord) -> Segment:
    """Return the segment of the oldest definition with periods to plan; an edit keeps earlier periods."""
    if job.past is None:
        return _segment(job, compiled_job(job.definition, job.identity), job.epoch, job.edited_at, None)
    epoch, edited_at, until, definition = json.loads(job.past)[0]
    return _segment(job, compiled_job(definition, job.identity), epoch, edited_at, until)


def with_newest(job: JobRecord, until: EpochSeconds) -> str:
    """Return the earlier definitions plus the current one, whose periods end at an edit."""
    earlier = json.loads(job.past) if job.past else []
    return json.dumps([*earlier, [job.epoch, job.edited_at, until, job.definition]])


def end_of_oldest(past: str) -> EpochSeconds:
    """Return the last second of the oldest earlier definition."""
    until: EpochSeconds = json.loads(past)[0][2]
    return until


def without_oldest(past: str | None) -> str | None:
    """Return the earlier definitions without the oldest, which has nothing left to plan."""
    rest = json.loads(past)[1:] if past else []
    return json.dumps(rest) if rest else None


def definitions_of(job: JobRecord) -> dict[int, str]:
    """Return the earlier definitions that still have periods to plan, by epoch."""
    return {epoch: definition for epoch, _, _, definition in json.loads(job.past or "[]")}


def _segment(
    job: JobRecord, compiled: CompiledJob, epoch: int, edited_at: int, until: EpochSeconds | None
) -> Segment:
    after, policy = job.cursor, compiled.policy
    if policy.start_at is not None:
        after = max(after, policy.start_at - 1)
    if policy.end_at is not None:
        until = policy.end_at if until is None else min(until, policy.end_at)
    return Segment(compiled, epoch, edited_at, after, until)
