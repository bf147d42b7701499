"""One job's step in a wake: its state, the changes made to it, and the resulting `Change`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from enum import Enum
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from kron.core.job.notify import Notify
from kron.core.job.outcome import Reason
from kron.core.job.policy import LOOKAHEAD_MS, REMOTE_TIMEOUT, Overlap, Policy
from kron.core.job.verdict import Settle
from kron.core.plan.compiled import CompiledJob, compiled_job, handled_after, segment_of
from kron.core.plan.incident import blocked
from kron.core.plan.lifecycle import is_retried_later, settle, start
from kron.core.plan.pace import Pace
from kron.core.plan.record import (
    OUTCOME_OF,
    IncidentRecord,
    JobRecord,
    NoticeRecord,
    RangeRecord,
    ReopenedRecord,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
)
from kron.core.plan.report import RunReport, Traits
from kron.core.time.instant import LAST_SECOND, MILLISECOND, EpochSeconds

DEFAULT_TRAITS = Traits()
NO_DEFINITIONS: Mapping[int, str] = {}
NO_PREDECESSORS: Mapping[int, "Predecessor"] = {}
# The most open runs of one job where they are limited: each wake of the job reads all of them.
MAX_OPEN_RUNS = 2_000
# Reasons of missed periods that run, and of runs that wait for another one and may be of such a period.
CATCH_UP = frozenset({Reason.CAUGHT_UP, Reason.SPREAD})
DELAYED = frozenset({Reason.QUEUED, Reason.REPLACING})
# Reasons that stay with a run while it executes, because they explain its start.
KEPT_REASONS = frozenset({Reason.CAUGHT_UP, Reason.SPREAD, Reason.ASKED, Reason.BOOT})


class JobState(NamedTuple):
    """One job, its open runs, and their reports since the last wake.

    `definitions` are the earlier ones, by epoch, of runs that have not started; `taken_over_at` is when
    this owner took over the job, and `token` the fencing token of its shard, if they differ from the
    snapshot's. `fault` says why the job cannot be read. It opens at most `room` more runs; None is no bound.
    """

    job: JobRecord
    runs: Sequence[RunRecord] = ()
    reports: Sequence[RunReport] = ()
    definitions: Mapping[int, str] = NO_DEFINITIONS
    taken_over_at: int | None = None
    token: int | None = None
    fault: str | None = None
    room: int | None = None


class Predecessor(NamedTuple):
    """The last owner of a shard: its name, when it ended or was last seen, and how it ended.

    `ending` is `stopped`, `killed` (its process ended without a stop) or `expired` (its lease did).
    """

    owner: str
    ended_at: int
    ending: str


class Ownership(NamedTuple):
    """The shards of a namespace that one owner leases, each with the fencing token of its writes.

    A lease expires after `ttl_ms` unless renewed; None lasts as long as the process. `busy` shards have runs
    that no other worker can adopt, so they stay with their owner; one `leaving_since` an instant keeps
    no others, one that `yields` only if there are no other workers. `high` is the latest instant written in
    the namespace: the engine's time never goes back behind it. The `predecessors` are the last owners of the
    shards that this call acquired, where they had one. `granted_at` is the time of the store's own clock, if
    it has one.
    """

    namespace: str
    owner: str
    shards: Mapping[int, int]
    ttl_ms: int | None = None
    busy: frozenset[int] = frozenset()
    high: int = 0
    leaving_since: int | None = None
    yields: bool = False
    predecessors: Mapping[int, Predecessor] = NO_PREDECESSORS
    granted_at: int | None = None

    @property
    def token(self) -> int:
        """Return the newest token: no later owner of any of these shards gets a lower one."""
        return max(self.shards.values(), default=0)


class LoadResult(NamedTuple):
    """The jobs that are due, when the next of all others is due, and the latest instant that was recorded.

    Another process may have recorded it, with a clock that was ahead. It is 0 where none is known, and while
    more jobs are due.
    """

    cases: list[JobState]
    next_at: int | None
    high: int = 0


class Limits(NamedTuple):
    """The width of `spread` and of a take-over's grace, and the bounds of catch-up.

    At most `catchup_per_tick` missed periods start in `tick_ms`, over all jobs of a worker; None is no bound.
    A wake plans at most `replayed_per_wake` of one job. A job with an open run opens no other
    if its tenant has `open_per_tenant` of them, or it has MAX_OPEN_RUNS itself; None is no bound of either.
    """

    lookahead_ms: int = LOOKAHEAD_MS
    catchup_per_tick: int | None = 100
    tick_ms: int = 1_000
    replayed_per_wake: int = 100
    open_per_tenant: int | None = None


DEFAULT_LIMITS = Limits()
UNPACED = Pace()


class Snapshot(NamedTuple):
    """The input of a wake: the jobs with work to do, and their owner.

    `taken_over_at` is when this owner took them over; `next_at` is the earliest due time of all other
    jobs. With `draining` the owner is stopping: ends are recorded, nothing starts. `notify` is the default
    of jobs whose definitions have none.
    """

    cases: Sequence[JobState]
    taken_over_at: int
    token: int
    traits: Mapping[str, Traits]
    next_at: int | None = None
    draining: bool = False
    limits: Limits = DEFAULT_LIMITS
    pace: Pace = UNPACED
    notify: Notify | None = None


class WriteScope(Enum):
    """The fields of a job's record that a change writes: any, or those of an ordinary start, end or edit.

    An ordinary end writes one ended run: its status, result, error, `run_id` and `ended_at`. An ordinary
    edit does not change when the next period is due.
    """

    # Sets: Python 3.11.2 (Debian 12) replaces an empty tuple by a bare object.
    ANY = frozenset[str]()
    START = frozenset({"revision", "cursor", "next_time", "plan_at", "last_start_at"})
    END = frozenset({"revision", "failures", "last_success_at"})
    EDIT = frozenset({"definition", "epoch", "edited_at", "born_at", "revision", "cursor"})

    # That of an enum is computed in Python code, and stores group the changes of a burst by scope.
    __hash__ = object.__hash__


class Cohort(NamedTuple):
    """Jobs of one definition that start the same period together: the part their changes share.

    `run` is their run without its key, its job's name and its fencing token; `cursor`, `next_time` and
    `plan_at` are the jobs' new ones. With the job, the key, the token and the revision, that is the whole
    change. `next_at` is when such a job is due again.
    """

    run: RunRecord
    cursor: EpochSeconds
    next_time: EpochSeconds | None
    plan_at: int | None
    next_at: int | None


class Rewind(NamedTuple):
    """Records that were written while the clock was ahead and are withdrawn (SPEC 2: reading 16).

    `removed` runs never started. Of the `cut` ranges the `kept` parts stay; `reopened` is the rest.
    """

    removed: Sequence[RunRecord] = ()
    cut: Sequence[RangeRecord] = ()
    kept: Sequence[RangeRecord] = ()
    reopened: Sequence[ReopenedRecord] = ()


@dataclass(slots=True)
class Change:
    """The result of one job's step: its new record, its runs, and the runs to start and to end after commit.

    `revision` is the one the job must still have; `attempts` are earlier attempts of runs that start again,
    `ended` the runs whose end was reported. `fault` says why the job's record cannot be used; then none of
    its runs becomes due, except a retry at its time. Changes with the same `cohort` are alike, so that a
    store can write them in one batch. A `rewind` starts a new epoch of an unchanged definition. `incidents`
    are those that start with it; of each of `closed`, the incident of its kind that lasts ends with it.
    `notices` are sent once the change is committed.
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
    # How many of the starts are catch-up, and how many catch-up runs were put in line for later ticks.
    caught_up: int = 0
    waiting: int = 0
    rewind: Rewind | None = None
    incidents: Sequence[IncidentRecord] = ()
    closed: Sequence[IncidentRecord] = ()
    notices: Sequence[NoticeRecord] = ()


_rest_of = attrgetter(*(item.name for item in fields(Change) if item.name != "job"))


def with_job(change: Change, job: JobRecord) -> Change:
    """Return a change of another job that is the same otherwise: a quarter of the time of `replace`."""
    return Change(job, *_rest_of(change))


class WriteResult(NamedTuple):
    """The writes a store refused: jobs whose revision is stale, and runs that already exist.

    `refused_jobs` are those among the stale ones whose records cannot be written for now, with the errors:
    another try at once would fail too. The others of the same write are not affected.
    """

    stale_jobs: frozenset[str]
    existing_runs: frozenset[str]
    refused_jobs: Mapping[str, str] = MappingProxyType({})


# The result of a write that refused nothing.
CLEAN = WriteResult(frozenset(), frozenset())


class _NoRuns(list[RunRecord]):
    """An empty list that stays empty."""

    def append(self, run: RunRecord) -> None:
        raise AssertionError("shared by all changes without such runs")


class _NoRanges(list[RangeRecord]):
    """An empty list that stays empty."""

    def append(self, dropped: RangeRecord) -> None:
        raise AssertionError("shared by all changes without counted records")


# Shared empty lists: a busy minute makes a hundred thousand changes with nine lists each, most empty.
NO_RUNS, NO_RANGES = _NoRuns(), _NoRanges()


class JobStep:
    """A job and its runs during a step."""

    def __init__(self, state: JobState, snapshot: Snapshot, now: int, pace: Pace | None = None) -> None:
        self.now = now
        self.pace = snapshot.pace if pace is None else pace
        self.job = state.job
        self.token = token_of(state, snapshot)
        self.limits = snapshot.limits
        self.traits = snapshot.traits.get(state.job.launcher_kind, DEFAULT_TRAITS)
        self.catch_line = catch_line_of(state, snapshot)
        self.segment = segment_of(state.job)
        self.compiled = compiled_job(state.job.definition, state.job.identity)
        self.policy = self.compiled.policy
        self.change = Change(state.job, state.job.revision)
        self.runs = {run.key: run for run in state.runs}
        # Whether more work is left for an immediate further wake.
        self.more = False
        # Whether that work is a newer period that is due as well.
        self.newer = False
        self._read = dict(self.runs)
        self._blocked: dict[tuple[str, str], list[RunRecord]] = {}
        self._definitions = state.definitions

    def put(self, run: RunRecord) -> None:
        """Store a run's new state."""
        self.runs[run.key] = run

    def note(self, incident: IncidentRecord) -> None:
        """Record an incident with this change."""
        self.change.incidents = (*self.change.incidents, incident)

    def block(self, run: RunRecord, blocker: RunRecord | None, how: str) -> None:
        """Record that a run cannot start, or ends, because of another one."""
        if blocker is not None:
            self._blocked.setdefault((blocker.key, how), []).append(run)

    def drop(self, run: RunRecord, status: RunStatus, reason: Reason) -> None:
        """End a run without an execution."""
        self.put(settle(run, status, reason))

    def refuse_new(self, room: int) -> None:
        """Skip the periods that this step added, except the first `room`: no more runs may be open.

        Where an active run makes its policy skip them, that is the reason.
        """
        is_skipped = self.policy.overlap is Overlap.SKIP and bool(self.active())
        added = [
            run
            for key, run in self.runs.items()
            if key not in self._read
            and run.status is RunStatus.PENDING
            and not (is_skipped and run.fire_time <= self.now)
        ]
        for run in added[room:]:
            self.drop(run, RunStatus.SKIPPED, Reason.OPEN_LIMIT)

    def settle(self, run: RunRecord, verdict: Settle) -> None:
        """End a run without an execution, as a verdict says."""
        self.drop(run, RunStatus[verdict.outcome.name], verdict.reason)

    def start(self, run: RunRecord, reason: Reason = Reason.DUE) -> bool:
        """Start the next attempt of a run, unless the job has no runs remaining; return whether it did."""
        if run.status is RunStatus.PENDING and run.kind is RunKind.PERIOD and self.job.remaining is not None:
            if self.job.remaining == 0:
                self.drop(run, RunStatus.SKIPPED, Reason.FINISHED)
                return False
            self.job = self.job._replace(remaining=self.job.remaining - 1)
        if self._is_catch_up(run):
            self.pace = self.pace.after(self.now, starts=1, waits=0)
            self.change.caught_up += 1
        if run.attempt:
            self.change.attempts.append(run)
        kept = run.reason if run.reason in KEPT_REASONS else reason
        at = self._start_time()
        started = start(run, reason=kept, now=at, token=self.token, traits=self.traits)
        started = started._replace(due_at=overdue_at(self.policy, self.traits, at))
        self.put(started)
        self.change.starts.append(started)
        self.job = self.job._replace(last_start_at=at)
        return True

    def may_start(self, run: RunRecord) -> bool:
        """Say whether a run may start in this tick; only catch-up runs have to wait for a later one."""
        return self.pace.has_room(self.now) or not self._is_catch_up(run)

    def wait_for_tick(self, line: list[RunRecord]) -> None:
        """Let catch-up runs wait for later ticks, in order: the first has a time, the others follow it."""
        if not line:
            return
        first, *rest = line
        at = first.due_at
        if at is None or at <= self.now:
            # One that wakes shortly before the tick ends keeps its place at the head of the line.
            is_next = at is not None and at != first.fire_time and self.now - at < self.pace.tick_ms
            if is_next:
                at = self.pace.ends_at
            else:
                self.pace = self.pace.with_line(len(line))
                at = self.pace.line_at
                self.change.waiting += len(line)
        self.put(first._replace(due_at=at))
        for run in rest:
            self.put(run._replace(due_at=None))

    def _is_catch_up(self, run: RunRecord) -> bool:
        """Say whether a waiting run is of a period that was missed; a queued one has another reason."""
        if run.status is not RunStatus.PENDING or run.kind is not RunKind.PERIOD:
            return False
        return run.reason in CATCH_UP or (run.reason in DELAYED and run.fire_time < self.catch_line)

    def _start_time(self) -> int:
        """Return when a run starts now, in milliseconds: not before the end of the run it waited for.

        Another process may have recorded that end after this wake began, or by a clock that is ahead.
        """
        if self.policy.overlap is Overlap.ALLOW:
            return self.now
        return max(self.now, last_end_of(self.job, self.now + self.limits.lookahead_ms))

    def active(self) -> list[RunRecord]:
        """Return the runs that may be executing; a target that does not report has none."""
        return [run for run in self.runs.values() if run.in_flight] if self.traits.reports else []

    def compiled_job(self, run: RunRecord) -> CompiledJob:
        """Return the definition a run follows: that of the epoch in which it was decided."""
        if run.epoch == self.segment.epoch:
            return self.segment.compiled
        definition = self._definitions.get(run.epoch)
        return self.compiled if definition is None else compiled_job(definition, self.job.identity)

    def new_run(self, nominal_time: EpochSeconds, fire_time: int | None) -> RunRecord:
        """Return a planned run of a period of the current segment."""
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
        """Record that all periods up to a nominal time are planned."""
        self.job = self.job._replace(cursor=cursor)
        self.segment = self.segment._replace(after=max(self.segment.after, cursor))

    def finish(self) -> Change:
        """Return the change; consecutive periods dropped for one reason become one record."""
        change = self.change
        handled = handled_after(self.job.handled, self.job.cursor)
        change.job = self.job._replace(revision=change.revision + 1, handled=handled)
        # A run that is sent again after a take-over may end in the same step: it is overdue, or reported on.
        change.starts = [run for run in change.starts if self._is_current(run)]
        if self.job.is_stopped:
            self._hold()
        for (key, how), blocked_runs in self._blocked.items():
            self.note(blocked(self.runs[key], blocked_runs, how, self.now))
        fresh = [run for key, run in self.runs.items() if key not in self._read]
        change.inserts += [run for run in fresh if run.is_open]
        for group in self._consecutive([run for run in fresh if not run.is_open]):
            self._fold(group)
        change.updates += [
            run for key, run in self.runs.items() if key in self._read and run != self._read[key]
        ]
        return change

    def _is_current(self, started: RunRecord) -> bool:
        """Say whether a run is still in flight with the attempt that was started, and not accepted yet."""
        run = self.runs[started.key]
        return run.in_flight and run.attempt == started.attempt and not run.acked

    def _hold(self) -> None:
        """Keep the periods of a stopped job from starting; a retry and a manual run keep their due times."""
        for key, run in self.runs.items():
            waits = not run.in_flight and not is_retried_later(run, self.now) and not run.is_manual
            if run.due_at is not None and waits:
                self.runs[key] = run._replace(due_at=None)

    def _consecutive(self, dropped: list[RunRecord]) -> list[list[RunRecord]]:
        """Group consecutive periods that were dropped for the same reason."""
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
    """Return when an execution that starts now counts as lost; None if it has no timeout."""
    timeout = policy.run_timeout
    if timeout is None:
        if not (traits.remote and traits.reports):
            return None
        timeout = REMOTE_TIMEOUT
    return now + timeout // MILLISECOND


def last_end_of(job: JobRecord, until: int) -> int:
    """Return the last recorded end of a run up to an instant, or 0; a later one is that of a wrong clock."""
    ends = (job.last_success_at or 0, job.last_failure_at or 0)
    return max(at if at <= until else 0 for at in ends)


def retry_at(failed_at: int, delay: timedelta) -> int:
    """Return when a failed run is due again, never before its delay is over; at the latest in year 9999."""
    return min(failed_at - (-delay // MILLISECOND), 1000 * LAST_SECOND)


def token_of(state: JobState, snapshot: Snapshot) -> int:
    """Return the fencing token of the starts of a job."""
    return snapshot.token if state.token is None else state.token


def catch_line_of(state: JobState, snapshot: Snapshot) -> int:
    """Return the fire time before which a period was missed, and is not merely late."""
    since = snapshot.taken_over_at if state.taken_over_at is None else state.taken_over_at
    return max(since - snapshot.limits.lookahead_ms, state.job.resumed_at or 0)
