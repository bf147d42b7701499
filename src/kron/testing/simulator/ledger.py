"""The ledger: what must be on record of every period, by a slow reading of the policies and of the trace.

Nothing of the engine is used here. Periods are listed one by one; whether one ran follows from the starts in
the trace alone: a start is for the newest period that came since the start before it, and is an attempt of
the same one if none came. Every older period since then was dropped, on record as well, and for a reason.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kron.core.cron.schedule import Schedule
from kron.core.job.outcome import Outcome
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import RangeRecord, RunKind, RunRecord, RunStatus
from kron.testing.simulator.scenario import Act
from kron.testing.simulator.trace_repair import Line
from kron.testing.simulator.world import Story, TaskMemory

MINUTE_MS = 60_000
# Older history may have been removed, so it is not asked for (in milliseconds).
KEPT_MS = 80 * 86_400_000
# So many periods of one task are looked at, the newest ones: two weeks of minutes.
MAX_PERIODS = 20_160
# A period counts as missed if it came so long before the take-over; a store that is late moves that.
LATE_MS, SLACK_MS = 60_000, 30_000
OVER = frozenset({RunStatus.SUCCESS, RunStatus.SKIPPED, RunStatus.MISSED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class LedgerRun:
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


def _faults(story: Story, memory: TaskMemory, lines: Sequence[Line]) -> Iterator[str]:
    runs = runs_of(lines, memory.job.identity)
    periods = periods_of(story, memory)
    records = Records(memory)
    lives = Lives(lines)
    was_set = any(step.act is Act.JUMP for step in story.scenario.steps)
    # Behind an instant that nobody kept in mind, a clock's times are not those of the trace (reading 16).
    is_timed = all(line.get("kind") != "clock" for line in lines)
    starts = [run.start for run in runs]
    for number, period in enumerate(periods):
        found = records.of(period)
        if len(found) != 1:
            yield f"the period {period} has {len(found)} records"
        if len(found) != 1 or not is_timed:
            continue
        later = periods[number + 1] if number + 1 < len(periods) else None
        first = bisect_left(starts, 1000 * period)
        own = bisect_left(starts, 1000 * later) if later is not None else len(starts)
        yield from _compare(period, found[0], runs[first:own], later)
        # What a clock skips that is set forward was missed, and what it shows again comes late.
        if first == own and later is not None and not was_set:
            yield from _compare_dropped(period, later, found[0], lives)
    yield from _doubles(memory)
    yield from _left_open(memory)
    edits = edits_of(lines, memory.job.identity)
    if memory.job.epoch != 1 + edits:
        yield f"its definition changed {edits} times, but it is in epoch {memory.job.epoch} on record"


def runs_of(lines: Sequence[Line], name: str) -> list[LedgerRun]:
    """Return the runs of a task as the trace tells them, oldest first."""
    found: list[LedgerRun] = []
    for line in lines:
        if line.get("event") == "UnexpectedShutdown" and found and found[-1].ended_as is None:
            found[-1] = LedgerRun(found[-1].start, "Crash")
        if line.get("task") == name:
            if line["event"] == "RunStart":
                found.append(LedgerRun(line["t"], None))
            elif found:
                found[-1] = LedgerRun(found[-1].start, line["event"])
    return found


def periods_of(story: Story, memory: TaskMemory) -> list[int]:
    """Return the periods of the present definition that must be on record, the newest ones."""
    job = memory.job
    terms = compiled_job(job.definition, job.identity)
    plan = Schedule(terms.job.schedule.text, story.scenario.zone, dialect="posix").plan
    # What came before a clock was set back has come, also where its time is to come once more.
    until = max(job.cursor, story.until // 1000) if story.is_running else job.cursor
    # The minute of a registration may have been withdrawn; the next one may not.
    oldest = max(-(-job.edited_at // 1000), (story.until - KEPT_MS) // 1000)
    found: list[int] = []
    at = plan.prev_at_or_before(until)
    while at is not None and at > oldest and len(found) < MAX_PERIODS:
        found.append(at)
        at = plan.prev_at_or_before(at - 1)
    return found[::-1]


class Records:
    """All that is on record of one task, by period."""

    def __init__(self, memory: TaskMemory) -> None:
        self._rows: dict[int, list[RunRecord | RangeRecord]] = {}
        for run in memory.runs:
            if run.kind is RunKind.PERIOD:
                self._rows.setdefault(run.nominal_time, []).append(run)
        epoch = memory.job.epoch
        self._ranges = sorted((one for one in memory.ranges if one.epoch == epoch), key=lambda one: one.first)
        self._firsts = [dropped.first for dropped in self._ranges]

    def of(self, period: int) -> list[RunRecord | RangeRecord]:
        """Return all that is on record of one period."""
        until = bisect_right(self._firsts, period)
        # One that overlapped its neighbour would show in the last two before the period.
        shared = [dropped for dropped in self._ranges[max(0, until - 2) : until] if period <= dropped.last]
        return [*self._rows.get(period, ()), *shared]


class Lives:
    """When a scheduler looked after its tasks, by the trace."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for line in lines:
            if line.get("event") == "InitSuccess" and len(self._begins) == len(self._ends):
                self._begins.append(line["t"])
            elif line.get("event") in ENDS and len(self._begins) > len(self._ends):
                self._ends.append(line["t"])

    def holds(self, since: int, until: int) -> bool:
        """Say whether one life lasted from one instant to beyond another."""
        number = bisect_left(self._begins, since) - 1
        return number >= 0 and (number == len(self._ends) or self._ends[number] > until)

    def next_after(self, instant: int) -> int | None:
        """Return when the first life after an instant began, None if one was under way or none came."""
        number = bisect_right(self._begins, instant)
        if number == len(self._begins) or (number > 0 and self._ends[number - 1] >= instant):
            return None
        return self._begins[number]


ENDS = ("StopStart", "UnexpectedShutdown")


def edits_of(lines: Sequence[Line], name: str) -> int:
    """Return how often a task's configuration changed since it first came."""
    lists: dict[object, list[Line]] = {}
    known: tuple[object, object] | None = None
    edits = 0
    for line in lines:
        if line.get("event") == "InitStart":
            lists[line["call"]] = line["tasks"]
        elif line.get("event") == "InitSuccess":
            given = next((task for task in lists[line["call"]] if task["id"] == name), None)
            now = None if given is None else (given["schedule"], given["retry_delay"])
            edits = 0 if known is None or now is None else edits + (now != known)
            known = now
    return edits


def _compare(
    period: int, record: RunRecord | RangeRecord, own: Sequence[LedgerRun], later: int | None
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
    if succeeded != (record.status is RunStatus.SUCCESS):
        yield f"the period {period} ended as {own[-1].ended_as}, but is {record.status} on record"


def _compare_dropped(period: int, later: int, record: RunRecord | RangeRecord, lives: Lives) -> Iterator[str]:
    """Compare a period that did not run: nobody was there, or a newer one came while somebody was."""
    at = 1000 * period
    begun = lives.next_after(at)
    if lives.holds(at - LATE_MS, 1000 * later) and record.outcome is not Outcome.SKIPPED:
        yield f"the period {period} gave way to a newer one, but is {record.outcome} on record"
    # The newest that was missed still gives way to one that is merely late.
    missed = begun is not None and 1000 * later < begun - LATE_MS - SLACK_MS
    if missed and record.outcome is not Outcome.MISSED:
        yield f"the period {period} came while nobody was there, but is {record.outcome} on record"


def _left_open(memory: TaskMemory) -> Iterator[str]:
    """Find runs that are over, and that something is still to come of."""
    for run in memory.runs:
        if run.status in OVER and (run.is_open or run.due_at is not None):
            yield f"the period {run.nominal_time} is {run.status} on record, and still open"


def _doubles(memory: TaskMemory) -> Iterator[str]:
    """Find periods that stand on record more than once, of whatever definition."""
    nominal = [run.nominal_time for run in memory.runs if run.kind is RunKind.PERIOD]
    if len(set(nominal)) != len(nominal):
        yield "a period has two rows"
