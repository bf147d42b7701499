"""Restoring: the stored state of a task is validated before use (SPEC 1: Error Model)."""

import json
from functools import lru_cache
from itertools import compress
from operator import le
from typing import Any, NamedTuple

from kron.core.errors import InputError
from kron.core.plan.compiled import MAX_COMPILED, compiled_job, handled_of
from kron.core.plan.plan import UNUSABLE_RECORD as UNUSABLE
from kron.core.plan.record import JobRecord, RunRecord, field_types
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

# Which fields of a job and of a run hold texts, and which may be None.
TEXTS: dict[type, frozenset[str]] = {
    record: frozenset(field for field, each in field_types(record).items() if each.is_text)
    for record in (JobRecord, RunRecord)
}
OPTIONAL: dict[type, frozenset[str]] = {
    record: frozenset(field for field, each in field_types(record).items() if each.is_optional)
    for record in (JobRecord, RunRecord)
}
# The errors of a text that is not a definition, and the type of the earlier definitions.
UNREADABLE = (InputError, ValueError, TypeError, LookupError, AttributeError)
EARLIER = "list of definitions"
# Counters that start at one; and the latest instant of the calendar, in milliseconds.
FROM_ONE = frozenset({"epoch", "revision"})
LAST_MS = 1000 * LAST_SECOND
# Instants of past events, in seconds and in milliseconds: none may lie in the future.
PAST_SECONDS = frozenset({"cursor", "nominal_time"})
PAST = frozenset(
    {
        "edited_at", "born_at", "resumed_at", "deleted_at", "last_start_at", "last_success_at",
        "last_failure_at", "fire_time", "created_at", "started_at", "ended_at",
    }
)  # fmt: skip

# The most cached shapes of records: their empty fields, and the types of the others.
MAX_SHAPES = 1_000


class Bounds(NamedTuple):
    """Which fields of a record are numbers, and the least and the most that each may be."""

    are_numbers: list[bool]
    least: list[int]
    most: list[int]


def fault_of(state: JobState, *, now: int) -> TaskTryDeserializeError | None:
    """Return the fault of a stored task, or None if it can be used."""
    try:
        _check_record(state.job, now)
        _check_definition(state.job)
        _check_state(state.job)
        if state.fault is not None:
            raise TaskInvalidStructureError(value=state.job.identity, reason=state.fault)
        for run in state.runs:
            _check_record(run, _latest(state.job, now))
    except TaskTryDeserializeError as fault:
        return fault
    return None


def _latest(job: JobRecord, now: int) -> int:
    """Return the latest instant of a run: one of a time when the clock was ahead may be of a later period."""
    return max([now, *(1000 * last for _, last in handled_of(job.handled))])


def _check_record(record: JobRecord | RunRecord, now: int) -> None:
    """Check every field; if types and bounds hold, the usual case, no field is read by name."""
    bounds = _bounds(type(record), tuple(map(type, record)), now)  # type: ignore[arg-type]
    if bounds is not None:
        numbers: list[Any] = list(compress(record, bounds.are_numbers))
        if all(map(le, bounds.least, numbers)) and all(map(le, numbers, bounds.most)):
            return
    _check_fields(record)
    _check_times(record, now)


@lru_cache(maxsize=MAX_SHAPES)
def _bounds(record: type[Any], kinds: tuple[type, ...], now: int) -> Bounds | None:
    """Return the bounds of each number of such a record; None if a type is wrong."""
    bounds = Bounds([], [], [])
    texts, optional = TEXTS[record], OPTIONAL[record]
    for field, kind in zip(record._fields, kinds, strict=True):
        is_number = kind is int and field not in texts
        bounds.are_numbers.append(is_number)
        if is_number:
            latest = (now + 1) // 1000 if field in PAST_SECONDS else now + 1 if field in PAST else LAST_MS
            bounds.least.append(1 if field in FROM_ONE else -LAST_MS)
            bounds.most.append(min(latest, LAST_MS))
        elif not (field in optional if kind is type(None) else field in texts and issubclass(kind, str)):
            return None
    return bounds


def _check_fields(record: JobRecord | RunRecord) -> None:
    texts, optional = TEXTS[type(record)], OPTIONAL[type(record)]
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
            raise TaskInvalidValueError(field=field, value=value, reason="is outside the years 1 to 9999")


def _check_times(record: JobRecord | RunRecord, now: int) -> None:
    """Check that no event lies in the future; `born_at` is a millisecond after the registration."""
    for field, value in zip(record._fields, record, strict=True):
        unit = 1000 if field in PAST_SECONDS else 1 if field in PAST else 0
        if isinstance(value, int) and unit * value > now + 1:
            raise TaskInvalidValueError(field=field, value=value, reason="lies in the future")


def _check_state(job: JobRecord) -> None:
    """Check for impossible states: a replay, a pause without a reason, a wake that is too late."""
    if job.replay_until is not None:
        raise TaskInvalidValueError(
            field="replay_until", value=job.replay_until, reason="a task has no replay"
        )
    if job.paused not in (0, 1) or (job.paused and job.paused_because is None):
        raise TaskInvalidValueError(field="paused", value=job.paused, reason="paused without a reason")
    if job.paused and (job.paused_because or "").startswith(UNUSABLE):
        raise TaskInvalidStructureError(value=job.identity, reason=str(job.paused_because))
    _, expected = times_ahead(job)
    if expected is not None and (job.plan_at is None or job.plan_at > expected):
        raise TaskInvalidValueError(field="plan_at", value=job.plan_at, reason="it would be planned too late")


def _check_definition(job: JobRecord) -> None:
    """Check that the definition is valid, and so are the earlier ones that an edit left."""
    _read_object("definition", job.definition)
    try:
        compiled = compiled_job(job.definition, job.identity)
        handled_of(job.handled)
    except UNREADABLE as cause:
        raise TaskInvalidValueError(field="definition", value=job.definition, reason=str(cause)) from cause
    if compiled.policy.retry_delay is None:
        raise TaskInvalidValueError(field="definition", value=job.definition, reason="has no retry delay")
    if job.past is not None:
        _check_past(job.past, job.identity)


def _check_past(past: str, identity: str) -> None:
    """Check the earlier definitions: a list, each with its epoch, its instant, its end and its text."""
    try:
        earlier = json.loads(past)
        if not isinstance(earlier, list) or not earlier:
            raise TypeError("past is not a list of definitions")
        for *numbers, definition in earlier:
            if [type(number) for number in numbers] != [int] * 3:
                raise TypeError("an earlier definition has no epoch, no instant or no end")
            compiled_job(definition, identity)
    except UNREADABLE as cause:
        raise TaskTryDeserializeError(field="past", value=past, expected_type=EARLIER) from cause


@lru_cache(maxsize=MAX_COMPILED)
def _read_object(field: str, text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError as cause:
        raise TaskInvalidStructureError(value=text, reason=f"{field} is not JSON") from cause
    if not isinstance(value, dict):
        raise TaskInvalidStructureError(value=text, reason=f"{field} is not an object")
    if "schedule" not in value:
        raise TaskMissingFieldError(field=f"{field}.schedule")
