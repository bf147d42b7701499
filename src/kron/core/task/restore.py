"""Restoring: what was stored of a task is checked before it is believed (SPEC 1: Error Model)."""

import json
from functools import lru_cache
from typing import TypeAlias

from kron.core.errors import InputError
from kron.core.plan.compiled import MAX_TERMS, compiled_job
from kron.core.plan.plan import UNUSABLE_RECORD as UNUSABLE
from kron.core.plan.record import JobRecord, RunRecord
from kron.core.plan.registration import times_ahead
from kron.core.plan.step import JobState
from kron.core.task.errors import (
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
)
from kron.core.time.instant import LAST_SECOND

TEXTS = frozenset({"identity", "definition", "launcher", "launcher_kind", "past", "paused_because"})
OPTIONAL = frozenset(
    {
        "next_time", "plan_at", "past", "replay_until", "replay_at", "paused_because", "resumed_at",
        "deleted_at", "remaining", "last_start_at", "last_success_at", "last_failure_at",
    }
)  # fmt: skip
RUN_TEXTS = frozenset({"key", "identity", "status", "reason", "kind", "result", "error", "run_id"})
RUN_OPTIONAL = frozenset({"due_at", "started_at", "ended_at", "result", "error", "run_id"})
# Counters that begin at one; and the latest instant of the calendar, in milliseconds.
FROM_ONE = frozenset({"epoch", "revision"})
LAST_MS = 1000 * LAST_SECOND
# Instants of what has happened, in seconds and in milliseconds: none of them lies ahead.
PAST_SECONDS = frozenset({"cursor", "nominal_time"})
PAST = frozenset(
    {
        "edited_at", "born_at", "resumed_at", "deleted_at", "last_start_at", "last_success_at",
        "last_failure_at", "fire_time", "created_at", "started_at", "ended_at",
    }
)  # fmt: skip

# Shapes that records come in: which fields are empty, and of what types the others are.
MAX_SHAPES = 1_000
Bounds: TypeAlias = tuple[list[int], list[int]]


def fault_of(case: JobState, *, now: int) -> TaskTryDeserializeError | None:
    """Return what is wrong with what was stored of a task, or None where it can be used."""
    try:
        _check_record(case.job, TEXTS, OPTIONAL, now)
        _check_definition(case.job)
        _check_state(case.job)
        if case.fault is not None:
            raise TaskInvalidStructureError(value=case.job.identity, reason=case.fault)
        for run in case.runs:
            _check_record(run, RUN_TEXTS, RUN_OPTIONAL, now)
    except TaskTryDeserializeError as fault:
        return fault
    return None


def _check_record(
    record: JobRecord | RunRecord, texts: frozenset[str], optional: frozenset[str], now: int
) -> None:
    """Check every field; where types and bounds hold, as they mostly do, no field is looked at by name."""
    bounds = _bounds(record._fields, tuple(map(type, record)), texts, optional, now)
    if bounds is not None:
        numbers = [value for value in record if isinstance(value, int)]
        if all(map(int.__le__, bounds[0], numbers)) and all(map(int.__le__, numbers, bounds[1])):
            return
    _check_fields(record, texts, optional)
    _check_times(record, now)


@lru_cache(maxsize=MAX_SHAPES)
def _bounds(
    fields: tuple[str, ...],
    kinds: tuple[type, ...],
    texts: frozenset[str],
    optional: frozenset[str],
    now: int,
) -> Bounds | None:
    """Return the least and the most each number of such a record may be; None where a type is wrong."""
    least: list[int] = []
    most: list[int] = []
    for field, kind in zip(fields, kinds, strict=True):
        if kind is int and field not in texts:
            latest = (now + 1) // 1000 if field in PAST_SECONDS else now + 1 if field in PAST else LAST_MS
            least.append(1 if field in FROM_ONE else -LAST_MS)
            most.append(min(latest, LAST_MS))
        elif not (field in optional if kind is type(None) else field in texts and issubclass(kind, str)):
            return None
    return least, most


def _check_fields(record: JobRecord | RunRecord, texts: frozenset[str], optional: frozenset[str]) -> None:
    for field, value in zip(record._fields, record, strict=True):
        if value is None:
            if field not in optional:
                raise TaskMissingFieldError(field=field)
        elif field in texts:
            if not isinstance(value, str):
                raise TaskInvalidTypeError(field=field, value=value, expected_type="string")
        elif isinstance(value, bool) or not isinstance(value, int):
            raise TaskInvalidTypeError(field=field, value=value, expected_type="integer")
        elif field in FROM_ONE and value < 1:
            raise TaskInvalidValueError(field=field, value=value, reason="must be at least 1")
        elif abs(value) > LAST_MS and field != "token":
            raise TaskInvalidValueError(field=field, value=value, reason="lies beyond the calendar")


def _check_times(record: JobRecord | RunRecord, now: int) -> None:
    """Check that nothing has happened later than now; a birth lies a millisecond after its registration."""
    for field, value in zip(record._fields, record, strict=True):
        unit = 1000 if field in PAST_SECONDS else 1 if field in PAST else 0
        if isinstance(value, int) and unit * value > now + 1:
            raise TaskInvalidValueError(field=field, value=value, reason="lies in the future")


def _check_state(job: JobRecord) -> None:
    """Check for what no task is ever in: a replay, a pause without a reason, a wake that comes too late."""
    if job.replay_until is not None:
        raise TaskInvalidValueError(field="replay_until", value=job.replay_until, reason="no task replays")
    if job.paused not in (0, 1) or (job.paused and job.paused_because is None):
        raise TaskInvalidValueError(field="paused", value=job.paused, reason="nobody paused it")
    if job.paused and (job.paused_because or "").startswith(UNUSABLE):
        raise TaskInvalidStructureError(value=job.identity, reason=str(job.paused_because))
    _, expected = times_ahead(job)
    if expected is not None and (job.plan_at is None or job.plan_at > expected):
        raise TaskInvalidValueError(
            field="plan_at", value=job.plan_at, reason="it would be looked at too late"
        )


def _check_definition(job: JobRecord) -> None:
    """Check that the definition is one, and that what an edit left behind is a list of such."""
    _read_object("definition", job.definition)
    try:
        terms = compiled_job(job.definition, job.identity)
        if job.past is not None:
            _check_past(job.past, job.identity)
    except (InputError, ValueError, TypeError, LookupError, AttributeError) as cause:
        raise TaskInvalidValueError(field="definition", value=job.definition, reason=str(cause)) from cause
    if terms.policy.retry_delay is None:
        raise TaskInvalidValueError(field="definition", value=job.definition, reason="has no retry delay")


def _check_past(past: str, identity: str) -> None:
    """Check the earlier definitions: a list, each with its epoch, its instant, its end and its text."""
    earlier = json.loads(past)
    if not isinstance(earlier, list) or not earlier:
        raise TypeError("past is no list of definitions")
    for *numbers, definition in earlier:
        if [type(number) for number in numbers] != [int] * 3:
            raise TypeError("an earlier definition has no epoch, no instant or no end")
        compiled_job(definition, identity)


@lru_cache(maxsize=MAX_TERMS)
def _read_object(field: str, text: str) -> None:
    try:
        found = json.loads(text)
    except ValueError as cause:
        raise TaskInvalidStructureError(value=text, reason=f"{field} is no JSON") from cause
    if not isinstance(found, dict):
        raise TaskInvalidStructureError(value=text, reason=f"{field} is no object")
    if "schedule" not in found:
        raise TaskMissingFieldError(field=f"{field}.schedule")
