"""Invalid lists: the flaws that SPEC 1 refuses, each with the error that it names."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from kron.core.errors import InputError
from kron.core.task.errors import (
    CronExpressionInvalidError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
)

Callback = Callable[[], Awaitable[object]]
DELAY = timedelta(seconds=30)
NAME, ALWAYS = "flawed", "* * * * *"
CRONS = (
    "* * * *", "* * * * * *", "", "*/5 * * * *", "0 0 * jan *", "0 0 * * mon", "@daily", "0 0 ? * *",
    "0 0 L * *", "0 0 * * 1#2", "0 0 * * 7", "50-10 * * * *", "60 * * * *", "0 24 * * *", "0 0 0 * *",
    "0 0 * 13 *", "+1 * * * *", "-1 * * * *", "0x1 * * * *", "1e1 * * * *", "1, * * * *", "1-2-3 * * * *",
    "*,1 * * * *", "1.5 * * * *", "0 0 30 2 *",
)  # fmt: skip
FLAWS: Mapping[str, type[InputError]] = {
    "an iterator instead of a list": RegistrationsNotArrayError,
    "three parts": RegistrationShapeError,
    "five parts": RegistrationShapeError,
    "a set instead of a tuple": RegistrationShapeError,
    "a name that is a number": RegistrationShapeError,
    "an empty name": InvalidRegistrationError,
    "a name twice": ScheduleDuplicateTaskError,
    "an expression that is None": RegistrationShapeError,
    "no function": RegistrationShapeError,
    "a plain function": InvalidRegistrationError,
    "a delay in seconds": RegistrationShapeError,
    "a negative delay": NegativeRetryDelayError,
} | {f"the expression {cron!r}": CronExpressionInvalidError for cron in CRONS}


def flawed(valid: list[object], flaw: str, callback: Callback) -> object:
    """Return an invalid list: the valid registrations, and one with a flaw."""
    if flaw == "an iterator instead of a list":
        return iter(valid)
    good = (NAME, ALWAYS, callback, DELAY)
    if flaw == "a name twice":
        return [good, *valid, good]
    return [*valid, _registration(flaw, callback)]


def _registration(flaw: str, callback: Callback) -> object:
    name, cron, delay = NAME, ALWAYS, DELAY
    registrations: dict[str, object] = {
        "three parts": (name, cron, callback),
        "five parts": (name, cron, callback, delay, delay),
        "a set instead of a tuple": {name, cron, callback, delay},
        "a name that is a number": (7, cron, callback, delay),
        "an empty name": ("", cron, callback, delay),
        "an expression that is None": (name, None, callback, delay),
        "no function": (name, cron, None, delay),
        "a plain function": (name, cron, print, delay),
        "a delay in seconds": (name, cron, callback, 30),
        "a negative delay": (name, cron, callback, -delay),
    }
    given = {f"the expression {cron!r}": (name, cron, callback, delay) for cron in CRONS}
    return (registrations | given)[flaw]
