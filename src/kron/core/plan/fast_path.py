"""What most turns come to, at once: one plain period starts on time, or the one open run succeeded.

Everything else takes the whole turn. What is the same for all jobs of one definition is found once a wake.
"""

from kron.core.job.outcome import Reason
from kron.core.job.verdict import Stage, stage_of
from kron.core.plan.compiled import CompiledJob, compiled_job
from kron.core.plan.record import JobRecord, Result, RunKind, RunRecord, RunStatus, key_of
from kron.core.plan.report import RunEvent
from kron.core.plan.segment import segment_of
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

# Stands for a start that takes the whole turn.
UNUSUAL = Cohort((), (), None)
# A record from all its fields, which nobody counts.
new = tuple.__new__


class FastPath:
    """The usual turns of one wake."""

    def __init__(self, snapshot: Snapshot, now: int) -> None:
        self._snapshot = snapshot
        self._now = now
        self._since = snapshot.taken_over_at - snapshot.limits.lookahead_ms
        self._cohorts: dict[tuple[str, str, int, int], Cohort] = {}

    def start(self, case: JobState) -> Change | None:
        """Return the start of one plain period, on time, with nothing else open; None for anything else."""
        job = case.job
        nominal_time = job.next_time
        if case.runs or case.reports or nominal_time is None or job.past or job.paused or job.deleted_at:
            return None
        if job.replay_until is not None or job.remaining is not None:
            return None
        since = self._since
        if job.resumed_at or case.taken_over_at is not None:
            since = catch_line_of(case, self._snapshot)
        if 1000 * nominal_time < since:
            return None
        sort = (job.definition, job.launcher_kind, job.epoch, nominal_time)
        cohort = self._cohorts.get(sort) or self._found(job, nominal_time)
        if cohort is UNUSUAL:
            return None
        identity = job.identity
        begun = [new(RunRecord, (key_of(identity, nominal_time), identity, *cohort.run))]
        # The same as `_replace` with these five fields, and several times as fast.
        after = new(JobRecord, (*job[:7], job.revision + 1, *cohort.ahead, *job[11:21], self._now, *job[22:]))
        none = NO_RUNS
        return Change(
            after, job.revision, WriteScope.START, begun, none, none, NO_RANGES, begun, none, none, cohort
        )

    def _found(self, job: JobRecord, nominal_time: int) -> Cohort:
        terms = compiled_job(job.definition, job.identity)
        cohort = self._cohort_of(job, terms, nominal_time)
        if terms.is_shared:
            self._cohorts[job.definition, job.launcher_kind, job.epoch, nominal_time] = cohort
        return cohort

    def _cohort_of(self, job: JobRecord, terms: CompiledJob, nominal_time: int) -> Cohort:
        """Return what jobs of one definition have in common when they start together."""
        now, fire_time = self._now, 1000 * nominal_time
        if self._snapshot.draining or not terms.plain:
            return UNUSUAL
        if stage_of(fire_time, now, deadline_s=terms.deadline_s) is not Stage.DUE:
            return UNUSUAL
        following = segment_of(job).next_after(nominal_time)
        if following is not None and 1000 * following <= now:
            return UNUSUAL
        traits = self._snapshot.traits.get(job.launcher_kind, DEFAULT_TRAITS)
        due_at = overdue_at(terms.policy, traits, now)
        status = RunStatus.ENQUEUED if traits.enqueues else RunStatus.STARTED
        before = (nominal_time, fire_time, status, Reason.DUE, now, job.epoch)
        since = (due_at, 1, RunKind.PERIOD, 1, self._snapshot.token, now, None, None, None, None, 0)
        plan_at = None if following is None else 1000 * following
        next_at = min((at for at in (plan_at, due_at) if at is not None), default=None)
        return Cohort((*before, *since), (nominal_time, following, plan_at), next_at)

    def end(self, case: JobState) -> Change | None:
        """Return the end of the one open run, which succeeded; None if anything else is to do."""
        job, runs, reports = case.job, case.runs, case.reports
        if len(runs) != 1 or len(reports) != 1 or (job.plan_at is not None and job.plan_at <= self._now):
            return None
        run, report = runs[0], reports[0]
        if report.happened is not RunEvent.SUCCESS or not run.in_flight:
            return None
        if (report.key, report.attempt) != (run.key, run.attempt):
            return None
        error, run_id = report.error or run.error, report.run_id or run.run_id
        how = (report.at, Result.SUCCESS, error, run_id, 1)
        over = [new(RunRecord, (*run[:4], RunStatus.SUCCESS, *run[5:8], None, 0, *run[10:14], *how))]
        after = new(JobRecord, (*job[:7], job.revision + 1, *job[8:20], 0, job[21], report.at, *job[23:]))
        none = NO_RUNS
        return Change(after, job.revision, WriteScope.END, none, over, none, NO_RANGES, none, none, over)
