"""What needs attention: failing schedules, and periods and runs that went wrong, each in one sentence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kron.app.query import Query
from kron.core.plan.record import JobRecord, RangeRecord, RunKind, RunRecord, RunStatus
from kron.core.time.instant import rfc3339
from kron.core.time.zone import Zone
from kron.fronts.service.web.time_text import PageTime, moment_of
from kron.fronts.service.web.timeline import PROBLEM, SEVERITY, View, look_of
from kron.fronts.service.web.view_models import OUTCOMES, offer_of, reason_of, zone_of_job

# How many problems are listed.
MAX_PROBLEMS = 8
# How many of a failing schedule's newest runs are searched for the one that failed.
NEWEST = 5


class Attention(NamedTuple):
    """A schedule that needs attention: when and why, in one sentence, and what would change it."""

    name: str
    at: PageTime
    look: str
    zone: Zone
    sentence: str = ""
    remedy: str | None = None
    period_id: str | None = None
    key: str | None = None
    is_paused: bool = False
    # The range of a backfill that runs the period again.
    backfill: tuple[str, str] | None = None


class FleetProblem(NamedTuple):
    """What went wrong at an instant: a period, or a manual run with its key and error."""

    at: int
    identity: str
    nominal_time: int
    look: str
    # A manual run belongs to no period.
    manual: tuple[str, str] | None = None


def manual_of(run: RunRecord) -> tuple[str, str] | None:
    """Return the key and the error of a manual run; None for others."""
    return (run.key, reason_of(run)) if run.kind is RunKind.MANUAL else None


def problem_of(run: RunRecord) -> FleetProblem:
    """Return the problem that a run is."""
    return FleetProblem(run.fire_time, run.identity, run.nominal_time, look_of(run), manual_of(run))


def dropped_problem(dropped: RangeRecord, now: int) -> FleetProblem:
    """Return the problem that the last of some aggregated periods is, or the first if the last is ahead."""
    # Periods without an allowed time are recorded before their nominal times.
    time = dropped.last if 1000 * dropped.last <= now else dropped.first
    return FleetProblem(1000 * time, dropped.identity, time, OUTCOMES[dropped.outcome][0])


def is_problem(run: RunRecord, view: View) -> bool:
    """Say whether a run in a view needs attention, beside those of failing schedules."""
    look = look_of(run)
    # The failed periods of failing schedules are known; a manual run does not make a schedule failing.
    is_new = look != "bad" or run.kind is RunKind.MANUAL
    # A period without an allowed time is recorded before its nominal time.
    is_new = is_new and run.fire_time <= view.now
    return SEVERITY[look] >= PROBLEM and is_new and view.has(run.fire_time)


def newest_failing(jobs: Iterable[JobRecord]) -> list[JobRecord]:
    """Return the jobs whose last execution failed, the latest first, as many as are listed."""
    failing = [job for job in jobs if job.failures]
    return sorted(failing, key=lambda job: job.last_failure_at or 0, reverse=True)[:MAX_PROBLEMS]


async def attention_of(
    query: Query, jobs: Mapping[str, JobRecord], others: Sequence[FleetProblem], now: int
) -> list[Attention]:
    """Return the failing jobs of some and other problems, the newest first, each explained by its records."""
    failing = newest_failing(jobs.values())
    newest = await query.newest_runs([job.identity for job in failing], limit=NEWEST)
    failed = [
        FleetProblem(run.ended_at or run.fire_time, run.identity, run.nominal_time, "bad", manual_of(run))
        for runs in newest.values()
        for run in [run for run in runs if run.status is RunStatus.FAILED][:1]
    ]
    known = {problem.identity for problem in failed}
    problems = [*failed, *(problem for problem in others if problem.identity not in known)]
    shown = sorted(problems, key=lambda each: each[:3], reverse=True)[:MAX_PROBLEMS]
    return [await _explained(query, jobs[problem.identity], problem, now) for problem in shown]


async def _explained(query: Query, job: JobRecord, problem: FleetProblem, now: int) -> Attention:
    zone = zone_of_job(job)
    at = moment_of(problem.at, zone, now)
    known = Attention(problem.identity, at, problem.look, zone, is_paused=bool(job.paused))
    if problem.manual is not None:
        key, error = problem.manual
        return known._replace(key=key, sentence=f"a manual run failed: {error}")
    period_id = rfc3339(problem.nominal_time)
    explanation = await query.why(problem.identity, period_id)
    return known._replace(
        sentence=explanation.headline,
        remedy=explanation.remedy,
        period_id=period_id,
        backfill=offer_of(job, problem.nominal_time, now).backfill,
    )
