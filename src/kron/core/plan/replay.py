"""Replay: the recorded inputs of a job, planned again under another definition.

The inputs are what the planner cannot decide: when workers ran, pauses, edits and requests of people, clock
jumps, and how long executions took. The planner itself does the rest, so a replay has no rules of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from kron.core.job.job import Job
from kron.core.plan.pace import Pace
from kron.core.plan.pause import BY_HAND, pause, resume, suspend
from kron.core.plan.plan import plan
from kron.core.plan.record import (
    EpochRecord,
    IncidentRecord,
    JobRecord,
    RangeRecord,
    Result,
    RunRecord,
    present_definition,
)
from kron.core.plan.registration import create, edit
from kron.core.plan.report import RunEvent, RunReport, Traits
from kron.core.plan.step import DEFAULT_LIMITS, Change, JobState, Snapshot
from kron.core.time.instant import EpochSeconds

# The most wakes of one replay, and of one instant.
MAX_WAKES, MAX_WAKES_AT_ONCE = 20_000, 100


class InputKind(Enum):
    """What happened to a job from outside, in the order in which things of one instant happened."""

    EDIT = auto()
    SUSPEND = auto()
    UNSUSPEND = auto()
    PAUSE = auto()
    RESUME = auto()
    REQUEST = auto()
    TAKE_OVER = auto()
    CLOCK_JUMP = auto()


class Input(NamedTuple):
    """One input. Of a take-over or a clock jump, `since` is from when on no worker planned.

    `is_ahead` says that a clock that was ahead judged it: no period before it was a short time ago.
    A take-over `orphans` the executions of its predecessor, unless they are adopted. A pause has a reason
    and perhaps a planned end, an edit a definition, a request a run.
    """

    at: int
    kind: InputKind
    since: int = 0
    is_ahead: bool = False
    orphans: bool = False
    because: str = BY_HAND
    until: int | None = None
    job: Job | None = None
    run: RunRecord | None = None


class Execution(NamedTuple):
    """How long an attempt took, in milliseconds, and how it ended; without an end it never reports one."""

    duration: int | None
    event: RunEvent = RunEvent.SUCCESS
    error: str | None = None


class Recording(NamedTuple):
    """The inputs of a job from its creation, or from a quiet instant, on.

    `executions` are known by key and attempt; any other attempt takes as long as `assumed`.
    """

    job: Job
    start: int
    born_at: int
    launcher_kind: str
    traits: Mapping[str, Traits]
    inputs: Sequence[Input]
    executions: Mapping[tuple[str, int], Execution]
    assumed: Execution
    taken_over_at: int | None = None


@dataclass(slots=True)
class Replayed:
    """The records that a replay makes: the job, its runs with attempts, its ranges and its incidents.

    `assumed` are the attempts whose duration is not recorded.
    """

    job: JobRecord
    runs: dict[str, RunRecord] = field(default_factory=dict)
    attempts: list[RunRecord] = field(default_factory=list)
    ranges: list[RangeRecord] = field(default_factory=list)
    incidents: list[IncidentRecord] = field(default_factory=list)
    definitions: dict[int, EpochRecord] = field(default_factory=dict)
    assumed: set[tuple[str, int]] = field(default_factory=set)

    def run_of(self, nominal_time: EpochSeconds) -> RunRecord | None:
        """Return the run of a period."""
        runs = (run for run in self.runs.values() if run.nominal_time == nominal_time)
        return next((run for run in runs if run.kind == "period"), None)

    def range_of(self, nominal_time: EpochSeconds) -> RangeRecord | None:
        """Return the range that covers a period."""
        return next((each for each in self.ranges if each.first <= nominal_time <= each.last), None)


def replay(
    recording: Recording,
    changed: Callable[[Job], Job],
    *,
    until: int,
    check: Callable[[], None] | None = None,
) -> Replayed:
    """Plan recorded inputs up to an instant; `changed` makes the other definition from each recorded one.

    `check` is called at each wake; what it raises ends the replay.
    """
    return _Replay(recording, changed, check).result(until)


class _Replay:
    """One replay in progress."""

    def __init__(
        self, recording: Recording, changed: Callable[[Job], Job], check: Callable[[], None] | None
    ) -> None:
        self._recording = recording
        self._changed = changed
        self._check = check
        self._now = recording.start
        self._taken_over_at = recording.start if recording.taken_over_at is None else recording.taken_over_at
        job = changed(recording.job)
        record = create(job, now=recording.start, kind=recording.launcher_kind, since=recording.born_at)
        self._made = Replayed(record)
        self._inputs = sorted(recording.inputs, key=lambda each: (each.at, each.kind.value))
        self._opened: dict[str, RunRecord] = {}
        # When running executions end, and reports that wait for a worker.
        self._ends: dict[str, tuple[int, RunReport]] = {}
        self._pace = Pace()

    def result(self, until: int) -> Replayed:
        """Replay up to an instant, and return the records."""
        for _ in range(MAX_WAKES):
            at = self._next_at()
            if at is None or at > until:
                break
            self._now = max(self._now, at)
            if not self._is_absent(taking_over=True):
                # A period that is due in the instant of a request starts first.
                self._wake(self._take_ends())
            reports = self._take_inputs()
            if not self._is_absent():
                reports += self._take_ends()
                self._wake(reports)
        return self._made

    # --- time --------------------------------------------------------------------------------------

    def _next_at(self) -> int | None:
        """Return when something happens next: an input, or, while a worker runs, an end or a due time."""
        times = [each.at for each in self._inputs[:1]]
        absent_until = self._absent_until(self._now)
        due = [self._made.job.plan_at, *(run.due_at for run in self._open())]
        due += [at for at, _ in self._ends.values()]
        for at in (at for at in due if at is not None):
            known = max(at, self._now) if absent_until is None else max(at, absent_until)
            later = self._absent_until(known)
            times.append(known if later is None else later)
        return min(times, default=None)

    def _absent_until(self, at: int) -> int | None:
        """Return when a worker takes over, if none plans at an instant."""
        gaps = [each for each in self._inputs if each.kind in (InputKind.TAKE_OVER, InputKind.CLOCK_JUMP)]
        return next((each.at for each in gaps if each.since < at < each.at), None)

    def _is_absent(self, *, taking_over: bool = False) -> bool:
        """Say whether no worker plans now, or, with `taking_over`, one is about to take over."""
        gaps = (InputKind.TAKE_OVER, InputKind.CLOCK_JUMP)
        starts = any(each.kind in gaps and each.at == self._now for each in self._inputs)
        return self._absent_until(self._now) is not None or (taking_over and starts)

    # --- inputs ------------------------------------------------------------------------------------

    def _take_inputs(self) -> list[RunReport]:
        """Apply the inputs of this instant; return the reports of runs that a take-over found orphaned."""
        reports: list[RunReport] = []
        while self._inputs and self._inputs[0].at <= self._now:
            each = self._inputs.pop(0)
            if each.kind in (InputKind.TAKE_OVER, InputKind.CLOCK_JUMP):
                self._taken_over_at = self._now + (DEFAULT_LIMITS.lookahead_ms if each.is_ahead else 0)
                if each.orphans:
                    reports += self._orphans()
            else:
                self._apply(self._change_of(each))
        return reports

    def _change_of(self, each: Input) -> Change:
        job, runs = self._made.job, self._open()
        match each.kind:
            case InputKind.PAUSE:
                return pause(job, runs, because=each.because, now=self._now, until=each.until)
            case InputKind.RESUME:
                return resume(job, runs, now=self._now)
            case InputKind.SUSPEND | InputKind.UNSUSPEND:
                return suspend(job, runs, suspended=each.kind is InputKind.SUSPEND, now=self._now)
            case InputKind.EDIT:
                assert each.job is not None
                kind = self._recording.launcher_kind
                return edit(job, runs, self._changed(each.job), now=self._now, kind=kind)
            case _:
                assert each.run is not None
                added = each.run._replace(epoch=job.epoch)
                return Change(job._replace(revision=job.revision + 1), job.revision, inserts=[added])

    def _orphans(self) -> list[RunReport]:
        running = [run for run in self._open() if run.in_flight]
        self._ends.clear()
        return [
            RunReport(run.identity, run.key, run.attempt, RunEvent.ORPHANED, self._now) for run in running
        ]

    def _take_ends(self) -> list[RunReport]:
        ended = [key for key, (at, _) in self._ends.items() if at <= self._now]
        return [self._ends.pop(key)[1]._replace(at=self._now) for key in ended]

    # --- planning ----------------------------------------------------------------------------------

    def _open(self) -> list[RunRecord]:
        return list(self._opened.values())

    def _wake(self, reports: list[RunReport]) -> None:
        """Plan as the engine does, until no more is due at this instant."""
        for _ in range(MAX_WAKES_AT_ONCE):
            if self._check is not None:
                self._check()
            due = [self._made.job.plan_at, *(run.due_at for run in self._open())]
            if not reports and not any(at is not None and at <= self._now for at in due):
                return
            definitions = {epoch: known.definition for epoch, known in self._made.definitions.items()}
            state = JobState(self._made.job, self._open(), reports, definitions)
            snapshot = Snapshot([state], self._taken_over_at, 1, self._recording.traits, pace=self._pace)
            (change,), _ = plan(snapshot, self._now)
            self._apply(change)
            reports = self._take_ends()

    def _apply(self, change: Change) -> None:
        """Keep the records of a change, and start and end executions."""
        made = self._made
        if change.job.epoch != made.job.epoch:
            made.definitions[made.job.epoch] = present_definition(made.job)
        made.job = change.job
        for run in (*change.inserts, *change.updates):
            made.runs[run.key] = run
            # In the order in which they were added, as the store returns them.
            if run.is_open:
                self._opened[run.key] = run
            else:
                self._opened.pop(run.key, None)
        made.attempts += change.attempts
        made.ranges += change.ranges
        for ended in change.closed:
            made.incidents = [
                each._replace(until_at=ended.until_at, ended_by=ended.ended_by)
                if each.kind is ended.kind and each.until_at is None
                else each
                for each in made.incidents
            ]
        made.incidents += change.incidents
        for run in change.ends:
            # It ends at once when it is requested to, or is not waited for any longer.
            report = RunReport(run.identity, run.key, run.attempt, RunEvent.CANCELLED, self._now)
            self._ends[run.key] = (self._now, report)
        for run in change.starts:
            self._start(run)

    def _start(self, run: RunRecord) -> None:
        known = self._recording.executions.get((run.key, run.attempt))
        if known is None:
            self._made.assumed.add((run.key, run.attempt))
            known = self._recording.assumed
        assert run.started_at is not None
        if known.duration is not None:
            at = run.started_at + known.duration
            report = RunReport(run.identity, run.key, run.attempt, known.event, at, known.error)
            self._ends[run.key] = (at, report)


_EVENT_OF = {
    Result.SUCCESS: RunEvent.SUCCESS,
    Result.FAILED: RunEvent.FAILED,
    Result.LAUNCH_FAILED: RunEvent.LAUNCH_FAILED,
    Result.CANCELLED: RunEvent.CANCELLED,
}


def execution_of(
    result: Result | None, started_at: int | None, ended_at: int | None, error: str | None
) -> Execution | None:
    """Return how long a recorded attempt took; None where the record does not say.

    A run that was lost, orphaned or replaced would have lasted longer: nothing recorded says how long.
    """
    if started_at is None or result in (Result.ORPHANED, Result.REPLACED):
        return None
    if result is Result.LOST or ended_at is None:
        return Execution(None)
    event = RunEvent.SUCCESS if result is None else _EVENT_OF[result]
    return Execution(max(0, ended_at - started_at), event, error)
