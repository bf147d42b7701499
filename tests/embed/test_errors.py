"""The error taxonomy of the declarative scheduler: names, codes, messages and details, to the letter."""

import copy
import functools
import pickle
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import kron
from kron.core.errors import ConflictError, InputError, InvalidCronExpressionError, KronError, StoreError
from kron.core.task import errors as task_error
from kron.fronts.embed.scheduler import Scheduler
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock

MINUTE = timedelta(minutes=1)
SHAPE = "Invalid registration shape: expected [string, string, function, Duration]"
EVERY = "* * * * *"


async def call() -> None:
    """Do nothing."""


async def needs(path: str) -> None:
    """Need something."""


async def yields() -> AsyncIterator[None]:
    yield


def plain() -> None:
    """Be no coroutine function."""


class Worker:
    """Has callbacks of every kind."""

    async def __call__(self, *, often: int = 1) -> None:
        """Do nothing."""

    async def method(self) -> None:
        """Do nothing."""


GOOD = ("a", EVERY, call, MINUTE)
CAUSE = InvalidCronExpressionError(expression="x", field="minute", reason="is odd")

# Each with what it is made from: class, code, family, message, details.
TAXONOMY: list[Any] = [
    (
        task_error.RegistrationsNotArrayError(),
        "registrations_not_array",
        InputError,
        "Registrations must be an array",
        {},
    ),
    (
        task_error.RegistrationShapeError(registration_index=2, received=7, reason="is not a tuple but int"),
        "registration_shape",
        InputError,
        SHAPE,
        {"registrationIndex": 2, "received": 7},
    ),
    (
        task_error.InvalidRegistrationError(
            registration_index=0, field="name", value="", reason="must not be empty"
        ),
        "invalid_registration",
        InputError,
        "Invalid registration 0: name must not be empty",
        {"field": "name", "value": "", "reason": "must not be empty"},
    ),
    (
        task_error.ScheduleDuplicateTaskError(registration_index=1, task_name="a"),
        "schedule_duplicate_task",
        InputError,
        'Task with name "a" is already scheduled',
        {"taskName": "a"},
    ),
    (
        task_error.CronExpressionInvalidError(registration_index=1, cause=CAUSE),
        "cron_expression_invalid",
        InputError,
        'Invalid cron expression "x": minute field is odd',
        {"expression": "x", "field": "minute", "reason": "is odd", "cause": CAUSE},
    ),
    (
        task_error.NegativeRetryDelayError(registration_index=1, retry_delay_ms=-5),
        "negative_retry_delay",
        InputError,
        "Retry delay must be non-negative",
        {"retryDelayMs": -5},
    ),
    (
        task_error.SchedulerAlreadyActiveError(current_state="running"),
        "scheduler_already_active",
        ConflictError,
        "Cannot initialize scheduler: scheduler is already running",
        {"currentState": "running"},
    ),
    (
        task_error.SchedulerStopInCallbackError(),
        "scheduler_stop_in_callback",
        ConflictError,
        (
            "Cannot stop scheduler: a callback cannot wait for stop(), which waits for the callback; "
            "use asyncio.create_task(scheduler.stop())"
        ),
        {},
    ),
    (
        task_error.SchedulerFailedError(operation="stop", cause=CAUSE),
        "scheduler_failed",
        StoreError,
        f"Cannot stop scheduler: InvalidCronExpressionError: {CAUSE}",
        {"operation": "stop", "cause": CAUSE},
    ),
    (
        task_error.TaskTryDeserializeError(field="cursor", value="x", expected_type="integer"),
        "task_unreadable",
        StoreError,
        "Cannot read field 'cursor': expected integer",
        {"field": "cursor", "value": "x", "expectedType": "integer"},
    ),
    (
        task_error.TaskMissingFieldError(field="cursor"),
        "task_missing_field",
        task_error.TaskTryDeserializeError,
        "Missing required field: cursor",
        {"field": "cursor"},
    ),
    (
        task_error.TaskInvalidTypeError(field="cursor", value="x", expected_type="integer"),
        "task_invalid_type",
        task_error.TaskTryDeserializeError,
        "Invalid type for field 'cursor': expected integer, got str",
        {"field": "cursor", "value": "x", "expectedType": "integer", "actualType": "str"},
    ),
    (
        task_error.TaskInvalidValueError(field="epoch", value=0, reason="must be at least 1"),
        "task_invalid_value",
        task_error.TaskTryDeserializeError,
        "Invalid value for field 'epoch': must be at least 1",
        {"field": "epoch", "value": 0, "reason": "must be at least 1"},
    ),
    (
        task_error.TaskInvalidStructureError(value="[]", reason="definition is not an object"),
        "task_invalid_structure",
        task_error.TaskTryDeserializeError,
        "Invalid task structure: definition is not an object",
        {"value": "[]"},
    ),
]


@pytest.mark.parametrize(
    ("error", "code", "family", "message", "details"),
    TAXONOMY,
    ids=[type(row[0]).__name__ for row in TAXONOMY],
)
def test_an_error_says_what_the_specification_prints(
    error: KronError, code: str, family: type[KronError], message: str, details: dict[str, object]
) -> None:
    assert isinstance(error, family)
    assert (error.code, str(error), error.details) == (code, message, details)
    assert getattr(kron, type(error).__name__) is type(error)
    again = copy.copy(error)
    assert (type(again), str(again), again.details) == (type(error), message, details)


def test_the_table_has_every_error() -> None:
    classes = {
        value
        for value in vars(task_error).values()
        if isinstance(value, type) and issubclass(value, KronError)
    }
    own = {kind for kind in classes if kind.__module__ == task_error.__name__}
    assert {type(row[0]) for row in TAXONOMY} == own
    assert len({row[1] for row in TAXONOMY}) == len(TAXONOMY)


def test_an_error_reaches_another_process_as_it_is() -> None:
    error = task_error.NegativeRetryDelayError(registration_index=3, retry_delay_ms=-1)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.details, again.registration_index) == (str(error), error.details, 3)


# --- what initialize refuses -----------------------------------------------------------------------

NOT_ARRAYS = [None, 1, "abc", {"a": 1}, {GOOD}, iter([GOOD]), (row for row in [GOOD])]
SHAPES = [
    pytest.param(None, "is not a tuple but NoneType", id="nothing"),
    pytest.param("abcd", "is not a tuple but str", id="a text of four"),
    pytest.param((), "has 0 parts instead of 4", id="no parts"),
    pytest.param(GOOD[:3], "has 3 parts instead of 4", id="three parts"),
    pytest.param((*GOOD, 1), "has 5 parts instead of 4", id="five parts"),
    pytest.param((1, EVERY, call, MINUTE), "its name is not a string but int", id="a number for a name"),
    pytest.param((None, EVERY, call, MINUTE), "its name is not a string but NoneType", id="no name"),
    pytest.param(
        ("a", b"* * * * *", call, MINUTE), "its cron expression is not a string but bytes", id="bytes"
    ),
    pytest.param(
        ("a", EVERY, "call", MINUTE), "its callback is not a function but str", id="the name of a function"
    ),
    # The registration before has the same object as its delay: it was checked as that only.
    pytest.param(
        ("b", EVERY, MINUTE, MINUTE), "its callback is not a function but timedelta", id="a known delay"
    ),
    pytest.param(("a", EVERY, call, 60), "its retry delay is not a timedelta but int", id="seconds"),
    pytest.param(("a", EVERY, call, None), "its retry delay is not a timedelta but NoneType", id="no delay"),
]
INVALID = [
    pytest.param(("", EVERY, call, MINUTE), "name", "must not be empty", id="an empty name"),
    pytest.param(("a\0", EVERY, call, MINUTE), "name", "must not contain a NUL", id="a zero sign"),
    pytest.param(("\ud800", EVERY, call, MINUTE), "name", "must be valid Unicode", id="half a sign"),
    pytest.param(("a", EVERY, plain, MINUTE), "callback", "must be an async function", id="a plain function"),
    pytest.param(("a", EVERY, lambda: None, MINUTE), "callback", "must be an async function", id="a lambda"),
    pytest.param(("a", EVERY, print, MINUTE), "callback", "must be an async function", id="a built-in"),
    pytest.param(("a", EVERY, yields, MINUTE), "callback", "without yield", id="an async generator"),
    pytest.param(("a", EVERY, Worker, MINUTE), "callback", "must be an async function", id="a class"),
    pytest.param(("a", EVERY, needs, MINUTE), "callback", "but needs path", id="an argument"),
    pytest.param(("a", EVERY, call, timedelta.max), "retryDelay", "shorter", id="too long"),
]
EXPRESSIONS = [
    ("", "expression field must have exactly 5 fields, got 0"),
    ("* * * *", "expression field must have exactly 5 fields, got 4"),
    ("*/15 * * * *", "minute field uses step syntax"),
    ("0 0 * * mon", "weekday field"),
    ("@daily", "expression field"),
    ("0 0 ? * *", "day field"),
    ("0 0 * * 7", "weekday field"),
    ("30-10 * * * *", "minute field"),
    ("60 * * * *", "minute field"),
    ("0 0 30 2 *", "field"),
]


async def refusal(registrations: Any) -> tuple[KronError, list[str]]:
    """Return how a list is refused, and what was heard of it; nothing may have been touched."""
    events: list[str] = []
    store = SqliteStore()
    scheduler = Scheduler(
        store,
        clock=SimulatedClock(datetime(2026, 1, 1, 12, tzinfo=UTC)),
        timezone="UTC",
        on_event=lambda event: events.append(event.name),
    )
    attempt = scheduler.initialize(registrations)
    with pytest.raises(KronError) as refused:
        # The first step raises: nothing was awaited, so nothing was opened or written.
        attempt.send(None)
    assert scheduler.state == "uninitialized"
    assert store._connection is None
    await scheduler.initialize([GOOD])
    await scheduler.stop()
    await store.close()
    return refused.value, events[:2]


REFUSED = ["SchedulerInitializationStarted", "SchedulerInitializationFailed"]


@pytest.mark.parametrize("registrations", NOT_ARRAYS, ids=lambda value: type(value).__name__)
async def test_what_is_no_list_is_refused(registrations: object) -> None:
    error, events = await refusal(registrations)
    assert isinstance(error, task_error.RegistrationsNotArrayError)
    assert events == REFUSED


@pytest.mark.parametrize(("registration", "reason"), SHAPES)
async def test_a_registration_of_another_shape_is_refused(registration: object, reason: str) -> None:
    error, events = await refusal([GOOD, registration])
    assert isinstance(error, task_error.RegistrationShapeError)
    assert str(error) == SHAPE
    assert error.details == {"registrationIndex": 1, "received": registration}
    assert (error.registration_index, error.reason) == (1, reason)
    assert error.__notes__ == [f"registration 1: {reason}"]
    assert events == REFUSED


async def test_a_coroutine_is_refused_with_advice() -> None:
    coroutine = call()
    error, _ = await refusal([("a", EVERY, coroutine, MINUTE)])
    coroutine.close()
    assert isinstance(error, task_error.RegistrationShapeError)
    assert error.reason == "its callback is a coroutine; pass the function itself, without calling it"


@pytest.mark.parametrize(("registration", "field", "reason"), INVALID)
async def test_a_registration_that_cannot_be_used_is_refused(
    registration: tuple[object, ...], field: str, reason: str
) -> None:
    error, events = await refusal([GOOD, registration])
    assert isinstance(error, task_error.InvalidRegistrationError)
    assert (error.registration_index, error.field) == (1, field)
    assert set(error.details) == {"field", "value", "reason"}
    assert reason in error.reason
    assert str(error) == f"Invalid registration 1: {field} {error.reason}"
    assert events == REFUSED


@pytest.mark.parametrize(
    "callback",
    [call, Worker(), Worker().method, functools.partial(needs, "x")],
    ids=["function", "object", "method", "partial"],
)
async def test_whatever_can_be_awaited_without_arguments_is_a_callback(callback: Any) -> None:
    async with Scheduler("memory://", timezone="UTC") as scheduler:
        await scheduler.initialize([("a", EVERY, callback, MINUTE)])


@pytest.mark.parametrize(("expression", "said"), EXPRESSIONS)
async def test_a_registration_with_a_wrong_expression_is_refused(expression: str, said: str) -> None:
    error, events = await refusal([("a", expression, call, MINUTE)])
    assert isinstance(error, task_error.CronExpressionInvalidError)
    assert str(error).startswith(f'Invalid cron expression "{expression}": ')
    assert said in str(error)
    cause = error.details["cause"]
    assert isinstance(cause, InvalidCronExpressionError)
    assert "".join(traceback.format_exception(error)).count("Traceback") == 1
    assert error.details == {**cause.details, "cause": cause}
    assert events == REFUSED


@pytest.mark.parametrize(
    ("expression", "instead"),
    [
        ("*/5 * * * *", "; write 0,5,10,15,20,25,30,35,40,45,50,55"),
        ("0 9 * * mon", "; write 1"),
        ("@daily", "; write 0 0 * * *"),
    ],
)
async def test_an_extended_expression_is_refused_with_its_replacement_and_with_the_front_that_takes_it(
    expression: str, instead: str
) -> None:
    error, _ = await refusal([("a", expression, call, MINUTE)])
    *_, message, note = traceback.format_exception(error)
    assert message.endswith(f"{instead}\n")
    assert note == f'kron.Runner accepts "{expression}" as written; kron.Scheduler accepts POSIX cron only\n'


async def test_no_other_front_is_named_for_an_expression_that_none_takes() -> None:
    error, _ = await refusal([("a", "61 * * * *", call, MINUTE)])
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize(
    ("delay", "milliseconds"),
    [(timedelta(seconds=-1), -1000), (timedelta(microseconds=-1), -0.001), (timedelta(days=-1), -86_400_000)],
)
async def test_a_negative_delay_is_refused(delay: timedelta, milliseconds: float) -> None:
    error, events = await refusal([("a", EVERY, call, delay)])
    assert isinstance(error, task_error.NegativeRetryDelayError)
    assert error.details == {"retryDelayMs": milliseconds}
    assert events == REFUSED


async def test_a_name_that_comes_twice_is_refused() -> None:
    error, events = await refusal([GOOD, ("b", EVERY, call, MINUTE), ("a", "0 0 * * *", call, MINUTE)])
    assert isinstance(error, task_error.ScheduleDuplicateTaskError)
    assert (error.task_name, error.registration_index) == ("a", 2)
    assert events == REFUSED


async def test_the_first_error_is_the_one_reported() -> None:
    error, _ = await refusal([("a", "x", call, MINUTE), ("b", EVERY, plain, MINUTE), None])
    assert isinstance(error, task_error.CronExpressionInvalidError)
    error, _ = await refusal([("a", EVERY, plain, -MINUTE), ("b", "x", call, MINUTE)])
    assert isinstance(error, task_error.InvalidRegistrationError)


async def test_no_message_has_the_password_of_a_state() -> None:
    secret = "postgresql://user:s3cret@127.0.0.1:1/none"
    scheduler = Scheduler(secret, timezone="UTC")
    with pytest.raises(StoreError) as failed:
        await scheduler.initialize([GOOD])
    assert "s3cret" not in repr(failed.value) + str(failed.value.details)
    assert scheduler.state == "uninitialized"


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    import asyncio

    path = tmp_path / "kron.db"
    path.write_text("this is no database, and long enough to be taken for one " * 20)

    async def try_it() -> None:
        scheduler = Scheduler(f"sqlite:///{path}", timezone="UTC")
        with pytest.raises(StoreError, match="not a database"):
            await scheduler.initialize([GOOD])
        assert scheduler.state == "uninitialized"

    asyncio.run(try_it())
