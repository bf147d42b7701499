"""The coming day of a schedule as a picture: which quarters of an hour it starts something in."""

from typing import NamedTuple

from kron.core.cron.count import count_between
from kron.core.job.job import MAX_OPEN_WINDOWS
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.record import JobRecord
from kron.core.plan.registration import is_period
from kron.core.time.instant import DAY, EpochSeconds

# A day has so many parts, each of them so many seconds long.
PARTS = 96
PART_S = DAY // PARTS


class Bar(NamedTuple):
    """Neighbouring parts of the day with starts in them."""

    x: int
    width: int


class Day(NamedTuple):
    """The coming 24 hours: bars, and how many periods there are."""

    bars: list[Bar]
    periods: int


def day_of(job: JobRecord, now: EpochSeconds) -> Day:
    """Return the coming day of a schedule, as it would be if it were not paused."""
    terms = compiled_job(job.definition, job.identity)
    end = now + DAY
    if job.deleted_at is not None or job.remaining == 0:
        return Day([], 0)
    first, last = _bounds(terms, now, end)
    filled = _filled(terms, now, end)
    return Day(_bars(filled), count_between(terms.plan, first, last) if first < last else 0)


def _bounds(terms: CompiledJob, start: EpochSeconds, end: EpochSeconds) -> tuple[EpochSeconds, EpochSeconds]:
    policy = terms.policy
    first = start if policy.start_at is None else max(start, policy.start_at)
    return first, end if policy.end_at is None else min(end, policy.end_at + 1)


def _filled(terms: CompiledJob, now: EpochSeconds, end: EpochSeconds) -> set[int]:
    """Return the parts of the day in which something may start; of each part one period is enough."""
    parts: set[int] = set()
    found = terms.plan.next_after(now - terms.late - 1)
    for _ in range(MAX_OPEN_WINDOWS + PARTS):
        if found is None or found + terms.early >= end:
            break
        if is_period(terms, found):
            earliest, latest = max(found + terms.early, now), min(found + terms.late, end - 1)
            parts.update(range((earliest - now) // PART_S, (latest - now) // PART_S + 1))
        # What else lies in the same part changes nothing.
        part = (found - now) // PART_S
        found = terms.plan.next_after(now + (part + 1) * PART_S - 1)
    return parts


def _bars(parts: set[int]) -> list[Bar]:
    bars: list[Bar] = []
    for part in sorted(parts):
        if bars and bars[-1].x + bars[-1].width == part:
            bars[-1] = Bar(bars[-1].x, bars[-1].width + 1)
        else:
            bars.append(Bar(part, 1))
    return bars
