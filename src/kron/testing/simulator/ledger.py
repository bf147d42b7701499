"""The ledger: the record that every period must have, by a slow evaluation of the policies and the trace.

It uses nothing of the engine. Periods are listed one by one; whether one ran follows from the starts in the
trace alone: a start is for the newest period due since the previous start, or another attempt of the same
period if none was due. Every older period since then was dropped, and must have a record with a reason.
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
from kron.testing.simulator.world import History, TaskHistory

MINUTE_MS = 60_000
# Older history may have been pruned, so it is not checked (in milliseconds).
KEPT_MS = 80 * 86_400_000
# The most periods checked per task, the newest ones: two weeks of minutes.
MAX_PERIODS = 20_160
# A period counts as missed if it was due this long before the take-over; a slow store moves the bound.
LATE_MS, SLACK_MS = 60_000, 30_000
ENDED = frozenset({RunStatus.SUCCESS, RunStatus.SKIPPED, RunStatus.MISSED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class LedgerRun:
    """One start in the trace, and how it ended."""

    start: int
    ended_as: str | None


def faults_of(history: History, lines: Sequence[Line]) -> list[str]:
    """Return the differences between the stored records of periods and the expected ones."""
    return [
        f"{task.job.identity}: {fault}" for task in history.tasks for fault in _faults(history, task, lines)
    ]


def _faults(history: History, task: TaskHistory, lines: Sequence[Line]) -> Iterator[str]:
    runs = runs_of(lines, task.job.identity)
    periods = periods_of(history, task)
    records = StoredRecords(task)
    uptime = Uptime(lines)
    was_set = any(step.act is Act.JUMP for step in history.scenario.steps)
    # Behind an instant that was not persisted, the clock's times differ from the trace's (reading 16).
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
        # Periods skipped by a clock set forward are missed, and those repeated by one set back are late.
        if first == own and later is not None and not was_set:
            yield from _compare_dropped(period, later, found[0], uptime)
    yield from _doubles(task)
    yield from _left_open(task)
    edits = edits_of(lines, task.job.identity)
    # Each correction of a clock that was ahead may start an epoch.
    clocks = sum(line.get("kind") == "clock" for line in lines)
    if not 0 <= task.job.epoch - 1 - edits <= clocks:
        yield f"its definition changed {edits} times, but its recorded epoch is {task.job.epoch}"


def runs_of(lines: Sequence[Line], name: str) -> list[LedgerRun]:
    """Return the runs of a task in the trace, oldest first."""
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


def periods_of(history: History, task: TaskHistory) -> list[int]:
    """Return the periods of the current definition that must have a record, the newest ones."""
    job = task.job
    compiled = compiled_job(job.definition, job.identity)
    plan = Schedule(compiled.job.schedule.text, history.scenario.zone, dialect="posix").plan
    # Periods before a clock was set back were due, even if the clock shows their times again.
    until = max(job.cursor, history.until // 1000) if history.is_running else job.cursor
    # The minute of a registration may have been withdrawn; the next one may not.
    oldest = max(-(-job.edited_at // 1000), (history.until - KEPT_MS) // 1000)
    found: list[int] = []
    at = plan.prev_at_or_before(until)
    while at is not None and at > oldest and len(found) < MAX_PERIODS:
        found.append(at)
        at = plan.prev_at_or_before(at - 1)
    return found[::-1]


class StoredRecords:
    """All stored records of one task, by period."""

    def __init__(self, task: TaskHistory) -> None:
        self._rows: dict[int, list[RunRecord | RangeRecord]] = {}
        for run in task.runs:
            if run.kind is RunKind.PERIOD:
                self._rows.setdefault(run.nominal_time, []).append(run)
        epoch = task.job.epoch
        self._ranges = sorted((one for one in task.ranges if one.epoch == epoch), key=lambda one: one.first)
        self._firsts = [dropped.first for dropped in self._ranges]

    def of(self, period: int) -> list[RunRecord | RangeRecord]:
        """Return all stored records of one period."""
        until = bisect_right(self._firsts, period)
        # One that overlapped its neighbour would show in the last two before the period.
        shared = [dropped for dropped in self._ranges[max(0, until - 2) : until] if period <= dropped.last]
        return [*self._rows.get(period, ()), *shared]


class Uptime:
    """The spans in which a scheduler was active, by the trace."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for line in lines:
            if line.get("event") == "InitSuccess" and len(self._starts) == len(self._ends):
                self._starts.append(line["t"])
            elif line.get("event") in ENDS and len(self._starts) > len(self._ends):
                self._ends.append(line["t"])

    def holds(self, since: int, until: int) -> bool:
        """Return whether one span lasted from one instant to beyond another."""
        number = bisect_left(self._starts, since) - 1
        return number >= 0 and (number == len(self._ends) or self._ends[number] > until)

    def next_after(self, instant: int) -> int | None:
        """Return the start of the first span after an instant, None if one was active or none follows."""
        number = bisect_right(self._starts, instant)
        if number == len(self._starts) or (number > 0 and self._ends[number - 1] >= instant):
            return None
        return self._starts[number]


ENDS = ("StopStart", "UnexpectedShutdown")


def edits_of(lines: Sequence[Line], name: str) -> int:
    """Return how often a task's configuration changed since it was first registered."""
    lists: dict[object, list[Line]] = {}
    known: tuple[object, object] | None = None
    edits = 0
    for line in lines:
        if line.get("event") == "InitStart":
            lists[line["call"]] = line["tasks"]
        elif line.get("event") == "InitSuccess":
            registered = next((task for task in lists[line["call"]] if task["id"] == name), None)
            now = None if registered is None else (registered["schedule"], registered["retry_delay"])
            edits = 0 if known is None or now is None else edits + (now != known)
            known = now
    return edits


def _compare(
    period: int, record: RunRecord | RangeRecord, own: Sequence[LedgerRun], later: int | None
) -> Iterator[str]:
    """Compare a period with its starts: those before the next period was due."""
    outcome = record.outcome
    if not own:
        if later is not None and outcome not in (Outcome.MISSED, Outcome.SKIPPED):
            yield f"the period {period} did not run, but is recorded as {outcome}"
        if later is None and (outcome is not None or isinstance(record, RangeRecord)):
            yield f"the period {period} is still pending, but is recorded as {outcome}"
        return
    if isinstance(record, RangeRecord) or outcome is not Outcome.EXECUTED:
        yield f"the period {period} ran at {own[0].start}, but is recorded as {outcome}"
        return
    if record.started_at is not None and record.attempt != len(own):
        yield f"the period {period} was started {len(own)} times, but {record.attempt} attempts are recorded"
    succeeded = own[-1].ended_as == "RunSuccess"
    if succeeded != (record.status is RunStatus.SUCCESS):
        yield f"the period {period} ended as {own[-1].ended_as}, but is recorded as {record.status}"


def _compare_dropped(
    period: int, later: int, record: RunRecord | RangeRecord, uptime: Uptime
) -> Iterator[str]:
    """Compare a period that did not run: no scheduler was active, or a newer period superseded it."""
    at = 1000 * period
    started = uptime.next_after(at)
    if uptime.holds(at - LATE_MS, 1000 * later) and record.outcome is not Outcome.SKIPPED:
        yield f"the period {period} was superseded by a newer one, but is recorded as {record.outcome}"
    # The newest missed period is still superseded by one that is merely late.
    missed = started is not None and 1000 * later < started - LATE_MS - SLACK_MS
    if missed and record.outcome is not Outcome.MISSED:
        yield f"the period {period} was due without an active scheduler, but is recorded as {record.outcome}"


def _left_open(task: TaskHistory) -> Iterator[str]:
    """Find runs that have ended and are still open."""
    for run in task.runs:
        if run.status in ENDED and (run.is_open or run.due_at is not None):
            yield f"the period {run.nominal_time} is recorded as {run.status}, and still open"


def _doubles(task: TaskHistory) -> Iterator[str]:
    """Find periods with more than one record, of any definition."""
    nominal = [run.nominal_time for run in task.runs if run.kind is RunKind.PERIOD]
    if len(set(nominal)) != len(nominal):
        yield "a period has two rows"
