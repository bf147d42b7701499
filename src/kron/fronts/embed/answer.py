"""The values that a runner returns: jobs, runs and explanations, with aware datetimes in UTC."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from kron.core.job.job import Job
from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.next_start import NextStart
from kron.core.plan.record import RunRecord
from kron.core.plan.report import DataInterval
from kron.core.plan.step import JobState
from kron.core.plan.why import Explanation
from kron.core.time.instant import EPOCH, datetime_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One period of a job, or one manual run, with its latest attempt.

    `key` is the same for every attempt: use it as an idempotency key to do the work once. The data interval
    is the stretch of time it is responsible for, from the previous period to its own.
    """

    job: str
    key: str
    kind: str
    nominal_time: datetime
    fire_time: datetime
    status: str
    reason: Reason
    outcome: Outcome | None
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None
    data_interval_start: datetime
    data_interval_end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A job of a runner: its definition, its next start, and the state of its runs.

    `next_nominal_at` is its next period and `next_start_at` when a run starts next, each None if there is
    none; `passed_over` periods before it cannot start. `failures` counts those since the last success.
    """

    identity: str
    definition: Job
    has_function: bool
    next_nominal_at: datetime | None
    next_start_at: datetime | None
    passed_over: int
    running: int
    is_paused: bool
    paused_because: str | None
    paused_until: datetime | None
    last_start_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyFact:
    """One fact of an explanation: a stable code, a sentence, and its instant if it has one."""

    code: str
    sentence: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a period has its outcome: the answer in one sentence, and the facts that led to it, in their order.

    `remedy` is what would change the outcome, if something would. `outcome` is None while the period is open,
    or if it is not a period; `code` is that of the last fact, the present state. Without a `nominal_time` the
    requested wall time does not exist.
    """

    job: str
    nominal_time: datetime | None
    outcome: Outcome | None
    code: str
    headline: str
    remedy: str | None
    facts: tuple[WhyFact, ...]

    @property
    def sentences(self) -> list[str]:
        """Return the sentences of the facts."""
        return [fact.sentence for fact in self.facts]


def run_of(record: RunRecord, interval: DataInterval) -> Run:
    """Return a run from its record and its data interval."""
    return Run(
        job=record.identity,
        key=record.key,
        kind=record.kind.value,
        nominal_time=datetime_of(record.nominal_time),
        fire_time=_instant(record.fire_time),
        status=record.status.value,
        reason=record.reason,
        outcome=record.outcome,
        attempt=record.attempt,
        started_at=_moment(record.started_at),
        ended_at=_moment(record.ended_at),
        error=record.error,
        data_interval_start=datetime_of(interval.start),
        data_interval_end=datetime_of(interval.end),
    )


def status_of(state: JobState, definition: Job, following: NextStart, *, has_function: bool) -> JobStatus:
    """Return the status of a job from its records and its next start."""
    job = state.job
    return JobStatus(
        identity=job.identity,
        definition=definition,
        has_function=has_function,
        next_nominal_at=following.next_nominal_at,
        next_start_at=following.next_start_at,
        passed_over=following.passed_over,
        running=sum(run.in_flight for run in state.runs),
        is_paused=bool(job.paused),
        paused_because=job.paused_because,
        paused_until=_moment(job.paused_until),
        last_start_at=_moment(job.last_start_at),
        last_success_at=_moment(job.last_success_at),
        last_failure_at=_moment(job.last_failure_at),
        failures=job.failures,
    )


def why_of(explanation: Explanation) -> Why:
    """Return an explanation with datetimes."""
    nominal_time = explanation.nominal_time
    return Why(
        job=explanation.identity,
        nominal_time=None if nominal_time is None else datetime_of(nominal_time),
        outcome=explanation.outcome,
        code=str(explanation.code),
        headline=explanation.headline,
        remedy=explanation.remedy,
        facts=tuple(
            WhyFact(code=str(fact.code), sentence=fact.sentence, at=_moment(fact.at))
            for fact in explanation.facts
        ),
    )


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _instant(milliseconds)


def _instant(milliseconds: int) -> datetime:
    """Return milliseconds since 1970 as an aware datetime."""
    return EPOCH + timedelta(milliseconds=milliseconds)
