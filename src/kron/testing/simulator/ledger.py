"""The ledger: what must be on record of every period, by a slow reading of the policies and of the trace.

Nothing of the engine is used here. Periods are listed one by one; whether one ran follows from the starts in
the trace alone: a start is for the newest period that came since the start before it, and is an attempt of
the same one if none came. Every older period since then was dropped, on record as well, and for a reason.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kron.core.outcome import Outcome
from kron.core.record import Kind, RangeRecord, RunRecord, Status
from kron.core.schedule import Schedule
from kron.core.terms import terms_of
from kron.testing.simulator.testimony import Line
from kron.testing.simulator.world import Memory, Story

MINUTE_MS = 60_000
# Older history may have been removed, so it is not asked for (in milliseconds).
KEPT_MS = 80 * 86_400_000
# So many periods of one task are looked at, the newest ones.
MAX_PERIODS = 2_000
# By how much a store that is late can move a take-over.
SLACK_MS = 30_000


@dataclass(frozen=True, slots=True)
class Run:
    """One start in the trace, when it ended, and how."""

    start: int
    ended_as: str | None


def faults_of(story: Story, lines: Sequence[Line]) -> list[str]:
    """Return what is on record of periods and should not be, or the other way round."""
    return [
        f"{memory.job.identity}: {fault}"
        for memory in story.memories
        for fault in _faults(story, memory, lines)
    ]


def _faults(story: Story, memory: Memory, lines: Sequence[Line]) -> Iterator[str]:
    runs = runs_of(lines, memory.job.identity)
    periods = periods_of(story, memory)
    starts = [run.start for run in runs]
    for number, period in enumerate(periods):
        records = records_of(memory, period)
        if len(records) != 1:
            yield f"the period {period} has {len(records)} records"
            continue
        later = periods[number + 1] if number + 1 < len(periods) else None
        first = bisect_left(starts, 1000 * period)
        own = bisect_left(starts, 1000 * later) if later is not None else len(starts)
        yield from _compare(period, records[0], runs[first:own], later, story)
    yield from _doubles(memory)


def runs_of(lines: Sequence[Line], name: str) -> list[Run]:
    """Return the runs of a task as the trace tells them, oldest first."""
    found: list[Run] = []
    for line in lines:
        if line.get("event") == "UnexpectedShutdown" and found and found[-1].ended_as is None:
            found[-1] = Run(found[-1].start, "Crash")
        if line.get("task") == name:
            if line["event"] == "RunStart":
                found.append(Run(line["t"], None))
            elif found:
                found[-1] = Run(found[-1].start, line["event"])
    return found


def periods_of(story: Story, memory: Memory) -> list[int]:
    """Return the periods of the present definition that must be on record, the newest ones."""
    job = memory.job
    terms = terms_of(job.definition, job.identity)
    plan = Schedule(terms.job.schedule.text, story.scenario.zone, dialect="posix").plan
    until = story.until // 1000 if story.is_running else job.cursor
    # The minute of a registration may have been withdrawn; the next one may not.
    oldest = max(-(-job.edited_at // 1000), (story.until - KEPT_MS) // 1000)
    found: list[int] = []
    at = plan.prev_at_or_before(until)
    while at is not None and at > oldest and len(found) < MAX_PERIODS:
        found.append(at)
        at = plan.prev_at_or_before(at - 1)
    return found[::-1]


def records_of(memory: Memory, period: int) -> list[RunRecord | RangeRecord]:
    """Return all that is on record of one period."""
    job = memory.job
    own: list[RunRecord | RangeRecord] = [
        run for run in memory.runs if run.kind is Kind.PERIOD and run.nominal_time == period
    ]
    return own + [
        dropped
        for dropped in memory.ranges
        if dropped.epoch == job.epoch and dropped.first <= period <= dropped.last
    ]


def _compare(
    period: int, record: RunRecord | RangeRecord, own: Sequence[Run], later: int | None, story: Story
) -> Iterator[str]:
    """Compare a period with its starts: those before the next period came."""
    outcome = record.outcome
    if not own:
        if later is not None and outcome not in (Outcome.MISSED, Outcome.SKIPPED):
            yield f"the period {period} did not run, but is {outcome} on record"
        if later is None and (outcome is not None or isinstance(record, RangeRecord)):
            yield f"the period {period} is still owed, but is {outcome} on record"
        return
    if isinstance(record, RangeRecord) or outcome is not Outcome.EXECUTED:
        yield f"the period {period} ran at {own[0].start}, but is {outcome} on record"
        return
    if record.started_at is not None and record.attempt != len(own):
        yield f"the period {period} was started {len(own)} times, but {record.attempt} are on record"
    succeeded = own[-1].ended_as == "RunSuccess"
    if succeeded != (record.status is Status.SUCCESS):
        yield f"the period {period} ended as {own[-1].ended_as}, but is {record.status} on record"


def _doubles(memory: Memory) -> Iterator[str]:
    """Find periods that stand on record more than once, of whatever definition."""
    nominal = [run.nominal_time for run in memory.runs if run.kind is Kind.PERIOD]
    if len(set(nominal)) != len(nominal):
        yield "a period has two rows"
