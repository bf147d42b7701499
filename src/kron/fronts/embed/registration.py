"""Registrations: the caller's list of tasks, validated in full before anything is stored."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from inspect import (
    Parameter,
    isasyncgenfunction,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from typing import Any, NamedTuple

from kron.core.cron.dialect import EXTENDED, POSIX, parse
from kron.core.errors import InvalidCronExpressionError
from kron.core.fields import text_fault
from kron.core.task.errors import (
    CronExpressionInvalidError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
)
from kron.core.task.task import TaskConfig
from kron.core.time.instant import MILLISECOND

PARTS = 4
# Made once: to write it in each check takes longer than the check.
SEQUENCE = (list, tuple)
# Longer ones cannot be written as a duration; one that ends after the calendar is accepted.
MAX_DELAY = timedelta(days=timedelta.max.days)
Callback = Callable[[], Awaitable[object]]
POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


class Registration(NamedTuple):
    """One task and its callback."""

    task: TaskConfig
    callback: Callback


class Checked(NamedTuple):
    """Valid values that registrations may share, by text or by id: the list keeps each object alive."""

    crons: set[str]
    callbacks: set[int]
    delays: set[int]


def read_registrations(registrations: object) -> list[Registration]:
    """Return the registrations of a list, or raise the error of the first invalid one."""
    if not isinstance(registrations, list | tuple):
        raise RegistrationsNotArrayError
    valid: dict[str, Registration] = {}
    known = Checked(set(), set(), set())
    for index, item in enumerate(registrations):
        registration = _read(index, item, known)
        name = registration.task.name
        if name in valid:
            raise ScheduleDuplicateTaskError(registration_index=index, task_name=name)
        valid[name] = registration
    return list(valid.values())


def _read(index: int, item: Any, known: Checked) -> Registration:
    if fault := _shape_fault(item, known):
        raise RegistrationShapeError(registration_index=index, received=item, reason=fault)
    name, cron, callback, delay = item
    if fault := _name_fault(name):
        raise InvalidRegistrationError(registration_index=index, field="name", value=name, reason=fault)
    if cron not in known.crons:
        _check_cron(index, cron)
        known.crons.add(cron)
    if id(callback) not in known.callbacks:
        _check_callback(index, callback)
        known.callbacks.add(id(callback))
    if id(delay) not in known.delays:
        _check_delay(index, delay)
        known.delays.add(id(delay))
    return Registration(TaskConfig(name, cron, delay), callback)


def _name_fault(name: str) -> str | None:
    """Return why a string is not a name, or None: tasks have no seed, so blanks and line breaks are fine."""
    return text_fault(name) if name else "must not be empty"


def _check_cron(index: int, cron: str) -> None:
    try:
        parse(cron, POSIX)
    except InvalidCronExpressionError as cause:
        # One traceback: the message is the parser's, and its error is in the details.
        raise CronExpressionInvalidError(
            registration_index=index, cause=cause, is_extended=_is_extended(cron)
        ) from None


def _is_extended(cron: str) -> bool:
    """Return whether the extended dialect accepts an expression; any identity serves for `H`."""
    try:
        parse(cron, EXTENDED, identity="any")
    except InvalidCronExpressionError:
        return False
    return True


def _check_callback(index: int, callback: Callable[..., object]) -> None:
    if fault := callback_fault(callback):
        raise InvalidRegistrationError(
            registration_index=index, field="callback", value=callback, reason=fault
        )


def _check_delay(index: int, delay: timedelta) -> None:
    if delay < timedelta(0):
        raise NegativeRetryDelayError(registration_index=index, retry_delay_ms=_milliseconds(delay))
    if delay >= MAX_DELAY:
        reason = f"must be shorter than {MAX_DELAY.days} days"
        raise InvalidRegistrationError(
            registration_index=index, field="retryDelay", value=delay, reason=reason
        )


def _shape_fault(item: object, known: Checked) -> str | None:
    """Return the fault in the number or the types of a registration's parts, or None."""
    if not isinstance(item, SEQUENCE):
        return f"is not a tuple but {type(item).__name__}"
    if len(item) != PARTS:
        return f"has {len(item)} parts instead of {PARTS}"
    name, cron, callback, delay = item
    if not isinstance(name, str):
        return f"its name is not a string but {type(name).__name__}"
    if not isinstance(cron, str):
        return f"its cron expression is not a string but {type(cron).__name__}"
    if id(callback) not in known.callbacks:
        if iscoroutine(callback):
            return "its callback is a coroutine; pass the function itself, without calling it"
        if not callable(callback):
            return f"its callback is not a function but {type(callback).__name__}"
    if not isinstance(delay, timedelta):
        return f"its retry delay is not a timedelta but {type(delay).__name__}"
    return None


def is_async(callback: Callable[..., object]) -> bool:
    """Return whether calling a callable returns a coroutine."""
    return iscoroutinefunction(callback) or iscoroutinefunction(_call_method(callback))


def _call_method(callback: Callable[..., object]) -> object:
    return getattr(type(callback), "__call__", None)  # noqa: B004 - the method itself is inspected


def callback_fault(
    callback: Callable[..., object], *, arguments: int = 0, may_block: bool = False
) -> str | None:
    """Return why a callable cannot be called with this number of arguments, or None if it can.

    Unless it `may_block`, it must be an async function.
    """
    if not is_async(callback):
        each = (callback, _call_method(callback))
        if any(map(isasyncgenfunction, each)) or any(map(isgeneratorfunction, each)):
            return f"must be {'a' if may_block else 'an async'} function without yield"
        if not may_block:
            return "must be an async function; wrap blocking work in asyncio.to_thread"
    try:
        parameters = signature(callback).parameters.values()
    except (TypeError, ValueError):
        return None
    required = [parameter.name for parameter in parameters if _is_required(parameter)]
    if len(required) > arguments:
        return f"must be callable without arguments, but needs {', '.join(required)}; use functools.partial"
    return None


def takes_argument(callback: Callable[..., object]) -> bool:
    """Return whether a callable takes a positional argument; one without a signature takes none."""
    try:
        parameters = signature(callback).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(parameter.kind in POSITIONAL for parameter in parameters)


def _is_required(parameter: Parameter) -> bool:
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in optional


def _milliseconds(delay: timedelta) -> float:
    """Return a duration in milliseconds, as an integer if it is whole."""
    whole, rest = divmod(delay, MILLISECOND)
    return whole if not rest else delay / MILLISECOND
