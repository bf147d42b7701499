"""One job's turn in a wake: what is known of it, what is changed, and what comes of that in the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import NamedTuple

from kron.core.job.outcome import Reason
from kron.core.job.policy import LOOKAHEAD_MS, REMOTE_TIMEOUT, Policy
from kron.core.job.verdict import Settle
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.lifecycle import is_tried_again_later, settle, start
from kron.core.plan.record import OUTCOME_OF, JobRecord, RangeRecord, RunKind, RunRecord, RunStatus, key_of
from kron.core.plan.report import RunReport, Traits
from kron.core.plan.segment import segment_of
from kron.core.time.instant import EpochSeconds

MILLISECOND = timedelta(milliseconds=1)
USUAL_TRAITS = Traits()
NO_DEFINITIONS: Mapping[int, str] = {}
# What a run's reason says of how it came to start stays its reason while it runs.
KEPT_REASONS = frozenset({Reason.CAUGHT_UP, Reason.SPREAD, Reason.ASKED})


class JobState(NamedTuple):
    """One job, its open runs, and what was reported of them since the last wake.

    `definitions` are the earlier ones, by epoch, that open runs still follow; `taken_over_at` is when
    this owner began to look after this job, where that differs from the others'. `fault` says what of it
    cannot be read.
    """

    job: JobRecord
    runs: Sequence[RunRecord] = ()
    reports: Sequence[RunReport] = ()
    definitions: Mapping[int, str] = NO_DEFINITIONS
    taken_over_at: int | None = None
    fault: str | None = None


class Limits(NamedTuple):
    """How wide `spread` and a take-over's grace are, and how many missed periods a job starts in a wake."""

    lookahead_ms: int = LOOKAHEAD_MS
    catchup_per_wake: int = 100


USUAL_LIMITS = Limits()


class Snapshot(NamedTuple):
    """What a wake looks at: the jobs that have something to do, and who is looking.

    `taken_over_at` is when this owner began to look after them; `next_at` is when the first of all
    other jobs has something to do. `draining`, the owner is stopping: ends are noted, nothing starts.
    """

    cases: Sequence[JobState]
    taken_over_at: int
    token: int
    traits: Mapping[str, Traits]
    next_at: int | None = None
    draining: bool = False
    limits: Limits = USUAL_LIMITS


class WriteScope(Enum):
    """Which fields of a job's record a change touches: any, or those of an ordinary start, end or edit.

    An ordinary end touches one run, which is over: its status, result, error, `run_id` and `ended_at`. An
    ordinary edit leaves it as it was when the next period is due.
    """

    ANY = ()
    START = ("revision", "cursor", "next_time", "plan_at", "last_start_at")
    END = ("revision", "failures", "last_success_at")
    EDIT = ("definition", "epoch", "edited_at", "born_at", "revision", "cursor")


class Cohort(NamedTuple):
    """Jobs of one definition whose period starts at once: all that their changes have in common.

    `run` are a run's fields after its key and its job's name; `ahead` are a job's `cursor`, `next_time` and
    `plan_at`. With the job, the key and the revision, that is the whole change. `next_at` is when such a job
    has something to do again by itself.
    """

    run: tuple[str | int | None, ...]
    ahead: tuple[int | None, ...]
    next_at: int | None


@dataclass(slots=True)
class Change:
    """What one job's turn comes to: its new record, its runs, and what to start and to end after that.

    `revision` is the one the job must still have; `attempts` are earlier attempts of runs that start again,
    `ended` the runs whose end became known. `fault` says why the job's record cannot be used; then none of
    its runs, readable or not, comes up by itself, except a retry at its time. A change with a `cohort` is
    like all others of it, so that a store can write them together.
    """

    job: JobRecord
    revision: int
    scope: WriteScope = WriteScope.ANY
    inserts: list[RunRecord] = field(default_factory=list)
    updates: list[RunRecord] = field(default_factory=list)
    attempts: list[RunRecord] = field(default_factory=list)
    ranges: list[RangeRecord] = field(default_factory=list)
    starts: list[RunRecord] = field(default_factory=list)
    ends: list[RunRecord] = field(default_factory=list)
    ended: list[RunRecord] = field(default_factory=list)
    cohort: Cohort | None = None
    fault: str | None = None


class _NoRuns(list[RunRecord]):
    """An empty list that stays empty."""

    def append(self, run: RunRecord) -> None:
        raise AssertionError("shared by all changes without such runs")


class _NoRanges(list[RangeRecord]):
    """An empty list that stays empty."""

    def append(self, dropped: RangeRecord) -> None:
        raise AssertionError("shared by all changes without counted records")


# What most changes have of most things. A busy minute makes a hundred thousand changes, each with nine lists.
NO_RUNS, NO_RANGES = _NoRuns(), _NoRanges()


class JobStep:
    """A job and its runs as they stand while the turn lasts."""

    def __init__(self, case: JobState, snapshot: Snapshot, now: int) -> None:
        self.now = now
        self.job = case.job
        self.token = snapshot.token
        self.limits = snapshot.limits
        self.traits = snapshot.traits.get(case.job.launcher_kind, USUAL_TRAITS)
        self.catch_line = catch_line_of(case, snapshot)
        self.segment = segment_of(case.job)
        self.terms = compiled_job(case.job.definition, case.job.identity)
        self.policy = self.terms.policy
        self.change = Change(case.job, case.job.revision)
        self.runs = {run.key: run for run in case.runs}
        # Whether something was left for a wake of its own, at once.
        self.more = False
        # Whether that is a newer period, whose time has come as well.
        self.newer = False
        self._read = dict(self.runs)
        self._definitions = case.definitions

    def put(self, run: RunRecord) -> None:
        """Remember a run as it is now."""
        self.runs[run.key] = run

    def drop(self, run: RunRecord, status: RunStatus, reason: Reason) -> None:
        """End a run without an execution."""
        self.put(settle(run, status, reason))

    def settle(self, run: RunRecord, verdict: Settle) -> None:
        """End a run without an execution, as a verdict says."""
        self.drop(run, RunStatus[verdict.outcome.name], verdict.reason)

    def start(self, run: RunRecord, reason: Reason = Reason.DUE) -> bool:
        """Start the next attempt of a run, unless the job has run as often as it may; say whether."""
        if run.status is RunStatus.PENDING and run.kind is RunKind.PERIOD and self.job.remaining is not None:
            if self.job.remaining == 0:
                self.drop(run, RunStatus.SKIPPED, Reason.FINISHED)
                return False
            self.job = self.job._replace(remaining=self.job.remaining - 1)
        if run.attempt:
            self.change.attempts.append(run)
        kept = run.reason if run.reason in KEPT_REASONS else reason
        begun = start(run, reason=kept, now=self.now, token=self.token, traits=self.traits)
        begun = begun._replace(due_at=overdue_at(self.policy, self.traits, self.now))
        self.put(begun)
        self.change.starts.append(begun)
        self.job = self.job._replace(last_start_at=self.now)
        return True

    def active(self) -> list[RunRecord]:
        """Return the executions that may be under way."""
        return [run for run in self.runs.values() if run.in_flight]

    def compiled_job(self, run: RunRecord) -> CompiledJob:
        """Return the terms a run follows: those of the epoch in which it was decided."""
        if run.epoch == self.segment.epoch:
            return self.segment.terms
        definition = self._definitions.get(run.epoch)
        return self.terms if definition is None else compiled_job(definition, self.job.identity)

    def new_run(self, nominal_time: EpochSeconds, fire_time: int | None) -> RunRecord:
        """Return a period of the present segment, planned."""
        return RunRecord(
            key_of(self.job.identity, nominal_time),
            self.job.identity,
            nominal_time,
            1000 * nominal_time if fire_time is None else fire_time,
            RunStatus.PENDING,
            Reason.PLANNED,
            self.now,
            self.segment.epoch,
            fire_time,
            1,
        )

    def advance(self, cursor: EpochSeconds) -> None:
        """Note that all periods up to a nominal time are planned."""
        self.job = self.job._replace(cursor=cursor)
        self.segment = self.segment._replace(after=max(self.segment.after, cursor))

    def finish(self) -> Change:
        """Return what changed; periods dropped together for one reason become one record."""
        change = self.change
        change.job = self.job._replace(revision=change.revision + 1)
        if self.job.paused:
            self._hold()
        fresh = [run for key, run in self.runs.items() if key not in self._read]
        change.inserts += [run for run in fresh if run.is_open]
        for together in self._together([run for run in fresh if not run.is_open]):
            self._fold(together)
        change.updates += [
            run for key, run in self.runs.items() if key in self._read and run != self._read[key]
        ]
        return change

    def _hold(self) -> None:
        """Let nothing of a paused job start by itself; a retry that waits keeps its time until that comes."""
        for key, run in self.runs.items():
            if run.due_at is not None and not run.in_flight and not is_tried_again_later(run, self.now):
                self.runs[key] = run._replace(due_at=None)

    def _together(self, dropped: list[RunRecord]) -> list[list[RunRecord]]:
        """Group periods that follow one another and were dropped for the same reason."""
        groups: list[list[RunRecord]] = []
        for run in sorted(dropped, key=lambda run: run.nominal_time):
            if groups and self._follows(groups[-1][-1], run):
                groups[-1].append(run)
            else:
                groups.append([run])
        return groups

    def _follows(self, last: RunRecord, run: RunRecord) -> bool:
        same = (last.status, last.reason, last.epoch) == (run.status, run.reason, run.epoch)
        return same and self.compiled_job(run).plan.next_after(last.nominal_time) == run.nominal_time

    def _fold(self, runs: list[RunRecord]) -> None:
        first, last = runs[0], runs[-1]
        if len(runs) == 1 or first.status is RunStatus.CANCELLED:
            self.change.inserts += runs
            return
        outcome = OUTCOME_OF[first.status]
        self.change.ranges.append(
            RangeRecord(
                first.identity,
                first.nominal_time,
                last.nominal_time,
                len(runs),
                outcome,
                first.reason,
                first.epoch,
                self.now,
            )
        )


def overdue_at(policy: Policy, traits: Traits, now: int) -> int | None:
    """Return when an execution that starts now counts as lost; None if it may take for ever (DESIGN 7)."""
    timeout = policy.run_timeout
    if timeout is None:
        if not (traits.remote and traits.reports):
            return None
        timeout = REMOTE_TIMEOUT
    return now + timeout // MILLISECOND


def catch_line_of(case: JobState, snapshot: Snapshot) -> int:
    """Return the fire time before which a period was missed, and is not merely late (DESIGN 7)."""
    since = snapshot.taken_over_at if case.taken_over_at is None else case.taken_over_at
    return max(since - snapshot.limits.lookahead_ms, case.job.resumed_at or 0)
