"""The fast path: an on-time start, its acknowledgement or a success, without the full planning step.

Everything else is planned by `plan`. The part that all jobs of one definition share is computed once a wake.
"""

from kron.core.job.outcome import Reason
from kron.core.job.verdict import Stage, stage_of
from kron.core.plan.compiled import CompiledJob, compiled_job, segment_of
from kron.core.plan.record import (
    JobRecord,
    Result,
    RunKind,
    RunRecord,
    RunStatus,
    key_of,
    positions,
)
from kron.core.plan.report import RunEvent, RunReport
from kron.core.plan.step import (
    DEFAULT_TRAITS,
    NO_RANGES,
    NO_RUNS,
    Change,
    Cohort,
    JobState,
    Snapshot,
    WriteScope,
    catch_line_of,
    overdue_at,
)

# Marks a start that needs the full planning step.
NO_COHORT = Cohort(RunRecord("", "", 0, 0, RunStatus.PENDING, Reason.PLANNED, 0, 0), 0, None, None, None)
# Makes a record of all its fields without counting them.
new = tuple.__new__
# Choices that every start or end needs: the lookup in an enum takes seven times as long as that of a name.
START, END = WriteScope.START, WriteScope.END
SUCCEEDED, ACCEPTED = RunEvent.SUCCESS, RunEvent.ACCEPTED
SUCCESS, RESULT_SUCCESS = RunStatus.SUCCESS, Result.SUCCESS
# The fields that change, by position: a list of all fields with some assigned is much faster than `_replace`.
REVISION, CURSOR, NEXT_TIME, PLAN_AT, FAILURES, LAST_START_AT, LAST_SUCCESS_AT = positions(
    JobRecord._fields,
    ("revision", "cursor", "next_time", "plan_at", "failures", "last_start_at", "last_success_at"),
)
KEY, IDENTITY, TOKEN, STATUS, DUE_AT, IS_OPEN, ENDED_AT, RESULT, ERROR, RUN_ID, ACKED = positions(
    RunRecord._fields,
    (
        "key",
        "identity",
        "token",
        "status",
        "due_at",
        "is_open",
        "ended_at",
        "result",
        "error",
        "run_id",
        "acked",
    ),
)


class FastPath:
    """The fast path of one wake."""

    def __init__(self, snapshot: Snapshot, now: int) -> None:
        self._snapshot = snapshot
        self.now = now
        self._since = snapshot.taken_over_at - snapshot.limits.lookahead_ms
        self._token = snapshot.token
        self._cohorts: dict[tuple[str, str, int, int], Cohort] = {}

    def start(self, state: JobState) -> Change | None:
        """Return the start of one plain period, on time and with no open run; None for anything else."""
        job, now = state.job, self.now
        nominal_time = job.next_time
        if state.runs or state.reports or nominal_time is None or job.past or job.deleted_at:
            return None
        if job.paused or job.suspended or job.replay_until is not None or job.remaining is not None:
            return None
        if job.handled is not None or (job.last_success_at or 0) > now or (job.last_failure_at or 0) > now:
            # Some periods ahead are handled, or its last run ended after this wake began.
            return None
        since = self._since
        if job.resumed_at or state.taken_over_at is not None:
            since = catch_line_of(state, self._snapshot)
        if 1000 * nominal_time < since:
            return None
        group = (job.definition, job.launcher_kind, job.epoch, nominal_time)
        cohort = self._cohorts.get(group) or self._cohort_for(job, nominal_time)
        if cohort is NO_COHORT:
            return None
        run = [*cohort.run]
        run[IDENTITY] = identity = job.identity
        run[KEY] = key_of(identity, nominal_time)
        run[TOKEN] = self._token if state.token is None else state.token
        started = [new(RunRecord, run)]
        after = [*job]
        after[REVISION] = job.revision + 1
        _, after[CURSOR], after[NEXT_TIME], after[PLAN_AT], _ = cohort
        after[LAST_START_AT] = now
        changed, revision, none = new(JobRecord, after), job.revision, NO_RUNS
        return Change(changed, revision, START, started, none, none, NO_RANGES, started, none, none, cohort)

    def _cohort_for(self, job: JobRecord, nominal_time: int) -> Cohort:
        compiled = compiled_job(job.definition, job.identity)
        cohort = self._cohort_of(job, compiled, nominal_time)
        if compiled.is_shared:
            self._cohorts[job.definition, job.launcher_kind, job.epoch, nominal_time] = cohort
        return cohort

    def _cohort_of(self, job: JobRecord, compiled: CompiledJob, nominal_time: int) -> Cohort:
        """Return the part that the starts of all jobs of one definition share."""
        now, fire_time = self.now, 1000 * nominal_time
        if self._snapshot.draining or not compiled.plain:
            return NO_COHORT
        if stage_of(fire_time, now, deadline_s=compiled.deadline_s) is not Stage.DUE:
            return NO_COHORT
        following = segment_of(job).next_after(nominal_time)
        if following is not None and 1000 * following <= now:
            return NO_COHORT
        traits = self._snapshot.traits.get(job.launcher_kind, DEFAULT_TRAITS)
        due_at = overdue_at(compiled.policy, traits, now)
        run = RunRecord(
            "",
            "",
            nominal_time,
            fire_time,
            status=RunStatus.ENQUEUED if traits.enqueues else RunStatus.STARTED,
            reason=Reason.DUE,
            created_at=now,
            epoch=job.epoch,
            due_at=due_at,
            is_open=1,
            kind=RunKind.PERIOD,
            attempt=1,
            started_at=now,
        )
        plan_at = None if following is None else 1000 * following
        next_at = min((at for at in (plan_at, due_at) if at is not None), default=None)
        return Cohort(run, nominal_time, following, plan_at, next_at)

    def report(self, state: JobState) -> Change | None:
        """Return the acknowledgement or the success of the one open run; None if anything else is due."""
        job, runs, reports = state.job, state.runs, state.reports
        if len(runs) != 1 or len(reports) != 1 or (job.plan_at is not None and job.plan_at <= self.now):
            return None
        run, report = runs[0], reports[0]
        if report.key != run.key or report.attempt != run.attempt or not run.in_flight:
            return None
        if report.happened is not SUCCEEDED:
            return self._acknowledge(job, run, report)
        closed = [*run]
        closed[STATUS], closed[RESULT] = SUCCESS, RESULT_SUCCESS
        closed[DUE_AT], closed[IS_OPEN], closed[ACKED] = None, 0, 1
        closed[ENDED_AT] = report.at
        closed[ERROR], closed[RUN_ID] = report.error or run.error, report.run_id or run.run_id
        after = [*job]
        after[REVISION] = job.revision + 1
        after[FAILURES], after[LAST_SUCCESS_AT] = 0, report.at
        changed, ended, none = new(JobRecord, after), [new(RunRecord, closed)], NO_RUNS
        return Change(changed, job.revision, END, none, ended, none, NO_RANGES, none, none, ended)

    def _acknowledge(self, job: JobRecord, run: RunRecord, report: RunReport) -> Change | None:
        """Return a run that its target accepted, if it is not overdue; it is over if no end is reported."""
        if report.happened is not ACCEPTED or (run.due_at is not None and run.due_at <= self.now):
            return None
        fields, after = [*run], [*job]
        fields[ACKED], fields[RUN_ID] = 1, report.run_id or run.run_id
        if not self._snapshot.traits.get(job.launcher_kind, DEFAULT_TRAITS).reports:
            fields[DUE_AT], fields[IS_OPEN] = None, 0
        acked, after[REVISION] = new(RunRecord, fields), job.revision + 1
        return Change(new(JobRecord, after), job.revision, updates=[] if acked == run else [acked])
