"""Inquiries: why a period ended as it did, asked of a store and of nothing else."""

from datetime import datetime

from kron.core.errors import InvalidInstantError, UnknownJobError
from kron.core.plan import why as chain
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import EpochRecord, RunKind
from kron.core.plan.walltime import meant_by
from kron.core.plan.why import Explanation, PeriodHistory, definition_at, present_definition, schedule_of
from kron.core.time.instant import EpochSeconds, seconds_of
from kron.ports import ReadStore


async def why(
    store: ReadStore, namespace: str, identity: str, when: str | datetime, *, now: int
) -> Explanation:
    """Return the chain of facts behind one period of a job, which may be deleted.

    `when` is its period id or any other text or datetime of the same instant. Without an offset it is a wall
    time in the job's zone: one that a change of the clocks skips is answered too. `now` is in milliseconds.
    """
    moment = _moment_of(when)
    memory = await recall_job(store, namespace, identity)
    if moment.tzinfo is not None:
        return await _answer(store, namespace, memory, seconds_of(moment), now)
    followed = _definition_on(memory, moment)
    meant = meant_by(compiled_job(followed.definition, identity), moment)
    if meant.instant is None:
        return Explanation(identity, None, None, [schedule_of(memory, followed), *meant.facts])
    answer = await _answer(store, namespace, memory, meant.instant, now)
    return answer._replace(facts=[*meant.facts, *answer.facts])


async def recall_job(store: ReadStore, namespace: str, identity: str) -> PeriodHistory:
    """Return a job with its earlier definitions, or raise UnknownJobError."""
    cases = await store.cases(namespace, [identity])
    if not cases:
        raise UnknownJobError(namespace=namespace, identity=identity)
    return PeriodHistory(cases[0].job, await store.epochs(namespace, identity))


async def recall_period(
    store: ReadStore, namespace: str, memory: PeriodHistory, nominal_time: EpochSeconds
) -> PeriodHistory:
    """Return what is remembered of one period of a job: its own record with its attempts, or a shared one."""
    newest = await store.runs(namespace, memory.job.identity, before=nominal_time + 1, limit=1)
    # A period's own run comes before all that were asked for with its nominal time.
    found = [run for run in newest if run.nominal_time == nominal_time and run.kind is RunKind.PERIOD]
    if found:
        attempts = await store.attempts(namespace, found[0].key) if found[0].attempt > 1 else []
        return memory._replace(run=found[0], attempts=attempts)
    shared = await store.ranges(namespace, memory.job.identity, at=nominal_time)
    return memory._replace(dropped=shared[0] if shared else None)


async def _answer(
    store: ReadStore, namespace: str, memory: PeriodHistory, nominal_time: EpochSeconds, now: int
) -> Explanation:
    memory = await recall_period(store, namespace, memory, nominal_time)
    return chain.why(memory, nominal_time, now=now)


def _moment_of(when: str | datetime) -> datetime:
    try:
        moment = when if isinstance(when, datetime) else datetime.fromisoformat(when)
    except ValueError as cause:
        raise InvalidInstantError(value=when, reason="write 2026-03-29T01:00:00Z, or a wall time") from cause
    if moment.microsecond:
        raise InvalidInstantError(value=when, reason="a nominal time is a whole second")
    return moment


def _definition_on(memory: PeriodHistory, wall: datetime) -> EpochRecord:
    """Return the definition a wall time is asked of: the one that held then, by the present one's zone."""
    present = present_definition(memory.job)
    zone = compiled_job(present.definition, present.identity).plan.zone
    return definition_at(memory, seconds_of(wall.replace(tzinfo=zone.tzinfo))) or present
