"""Runs as a program gets them: aware datetimes and names instead of stored numbers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import Parameter, signature

from kron.core.job.outcome import Outcome, Reason
from kron.core.plan.record import RunRecord
from kron.core.time.instant import EPOCH, datetime_of
from kron.launchers.callback import Callback
from kron.ports import Launch

Work = Callable[..., Awaitable[object]]
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One period of a job, or one manual run, with its latest attempt.

    `key` is the same for every attempt: use it as an idempotency key to do the work once.
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


def run_of(record: RunRecord) -> Run:
    """Return a run from its record."""
    return Run(
        job=record.identity,
        key=record.key,
        kind=record.kind.value,
        nominal_time=datetime_of(record.nominal_time),
        fire_time=moment(record.fire_time),
        status=record.status.value,
        reason=record.reason,
        outcome=record.outcome,
        attempt=record.attempt,
        started_at=None if record.started_at is None else moment(record.started_at),
        ended_at=None if record.ended_at is None else moment(record.ended_at),
        error=record.error,
    )


def moment(milliseconds: int) -> datetime:
    """Return milliseconds since 1970 as an aware datetime."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def calling(work: Work) -> Callback:
    """Return a callback that calls a function, with the run if it takes an argument."""
    takes_run = any(parameter.kind in POSITIONAL for parameter in signature(work).parameters.values())

    async def call(launch: Launch) -> None:
        await (work(run_of(launch.run)) if takes_run else work())

    return call
