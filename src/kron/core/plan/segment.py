"""The periods a job still has to plan: whose definition they follow, which were missed, and how many."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.cron.schedule import Plan
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.record import JobRecord
from kron.core.time.instant import EpochSeconds

# How far back the newest missed period that can be chosen at all is looked for, one by one.
MAX_UNSCHEDULABLE = 1_000
# Answers kept ready: jobs of one definition ask for the same, one after the other.
MAX_ANSWERS = 10_000


class Segment(NamedTuple):
    """The unplanned periods of one definition: nominal times in `(after, until]`, or from `after` on."""

    terms: CompiledJob
    epoch: int
    edited_at: int
    after: EpochSeconds
    until: EpochSeconds | None

    def next_after(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the first nominal time later than an instant."""
        found = _next_after(self.terms.plan, max(instant, self.after))
        return None if found is None or (self.until is not None and found > self.until) else found

    def last_until(self, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last nominal time at or before an instant."""
        found = last_at(self.terms.plan, self._end(instant))
        return None if found is None or found <= self.after else found

    def count_until(self, instant: EpochSeconds) -> int:
        """Return how many nominal times there are up to an instant."""
        return count_between(self.terms.plan, self.after + 1, self._end(instant) + 1)

    def times_until(self, instant: EpochSeconds) -> Iterator[EpochSeconds]:
        """Yield the nominal times up to an instant, oldest first."""
        found = self.next_after(self.after)
        while found is not None and found <= instant:
            yield found
            found = self.next_after(found)

    def nth_last(self, count: int, instant: EpochSeconds) -> EpochSeconds:
        """Return the nominal time that is the n-th last up to an instant; there are so many."""
        found: EpochSeconds | None = instant + 1
        for _ in range(count):
            assert found is not None
            found = self.last_until(found - 1)
        assert found is not None
        return found

    def newest_possible(self, identity: str, instant: EpochSeconds) -> EpochSeconds | None:
        """Return the last nominal time up to an instant whose constraints leave a time to choose."""
        found = self.last_until(instant)
        for _ in range(MAX_UNSCHEDULABLE):
            if found is None or self.terms.fire_time(identity, found) is not None:
                return found
            found = self.last_until(found - 1)
        return None

    def _end(self, instant: EpochSeconds) -> EpochSeconds:
        return instant if self.until is None else min(instant, self.until)


@lru_cache(maxsize=MAX_ANSWERS)
def _next_after(plan: Plan, instant: EpochSeconds) -> EpochSeconds | None:
    return plan.next_after(instant)


@lru_cache(maxsize=MAX_ANSWERS)
def last_at(plan: Plan, instant: EpochSeconds) -> EpochSeconds | None:
    """Return a plan's last nominal time at or before an instant."""
    return plan.prev_at_or_before(instant)


def segment_of(job: JobRecord) -> Segment:
    """Return the oldest definition with periods to plan; what an edit replaced still has those before it."""
    if job.past is None:
        return _segment(job, compiled_job(job.definition, job.identity), job.epoch, job.edited_at, None)
    epoch, edited_at, until, definition = json.loads(job.past)[0]
    return _segment(job, compiled_job(definition, job.identity), epoch, edited_at, until)


def with_newest(job: JobRecord, until: EpochSeconds) -> str:
    """Return the earlier definitions with the present one added: its periods end at an edit."""
    earlier = json.loads(job.past) if job.past else []
    return json.dumps([*earlier, [job.epoch, job.edited_at, until, job.definition]])


def end_of_oldest(past: str) -> EpochSeconds:
    """Return the last second the oldest of the earlier definitions holds for."""
    until: EpochSeconds = json.loads(past)[0][2]
    return until


def without_oldest(past: str | None) -> str | None:
    """Return the earlier definitions that remain when the oldest has nothing left to plan."""
    rest = json.loads(past)[1:] if past else []
    return json.dumps(rest) if rest else None


def definitions_of(job: JobRecord) -> dict[int, str]:
    """Return the earlier definitions that still have periods to plan, by epoch."""
    return {epoch: definition for epoch, _, _, definition in json.loads(job.past or "[]")}


def _segment(
    job: JobRecord, terms: CompiledJob, epoch: int, edited_at: int, until: EpochSeconds | None
) -> Segment:
    after, policy = job.cursor, terms.policy
    if policy.start_at is not None:
        after = max(after, policy.start_at - 1)
    if policy.end_at is not None:
        until = policy.end_at if until is None else min(until, policy.end_at)
    return Segment(terms, epoch, edited_at, after, until)
