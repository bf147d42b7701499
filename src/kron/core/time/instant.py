"""Instants: whole UTC seconds since 1970 inside, aware datetimes at the surface."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from kron.core.errors import InvalidInstantError

EpochSeconds: TypeAlias = int

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MILLISECOND = timedelta(seconds=1), timedelta(milliseconds=1)

# The calendar is datetime's: its first and its last second, in UTC.
FIRST_SECOND: EpochSeconds = (datetime.min.replace(tzinfo=UTC) - EPOCH) // SECOND
LAST_SECOND: EpochSeconds = (datetime.max.replace(tzinfo=UTC) - EPOCH) // SECOND


def seconds_of(instant: datetime) -> EpochSeconds:
    """Return the whole second an aware datetime lies in."""
    try:
        since = instant - EPOCH
        seconds = since.days * DAY + since.seconds
    except (TypeError, AttributeError, OverflowError) as cause:
        raise InvalidInstantError(value=instant, reason=_fault_of(instant)) from cause
    if FIRST_SECOND <= seconds <= LAST_SECOND:
        return seconds
    raise InvalidInstantError(value=instant, reason=_fault_of(instant))


def milliseconds_of(instant: datetime | int) -> int:
    """Return the whole millisecond an aware datetime lies in; an int already is one."""
    if isinstance(instant, int) and not isinstance(instant, bool):
        return instant
    if not isinstance(instant, datetime):
        reason = f"expected an aware datetime or whole milliseconds, got {type(instant).__name__}"
        raise InvalidInstantError(value=instant, reason=reason)
    return 1000 * seconds_of(instant) + instant.microsecond // 1000


def seconds_from(instant: datetime) -> EpochSeconds:
    """Return the first whole second at or after an aware datetime."""
    return seconds_of(instant) + (instant.microsecond > 0)


def datetime_of(seconds: EpochSeconds) -> datetime:
    """Return a second as an aware datetime in UTC."""
    return EPOCH + timedelta(0, seconds)


def rfc3339(seconds: EpochSeconds) -> str:
    """Return a second in the canonical form, e.g. ``2026-03-29T01:00:00Z``."""
    day, second = divmod(seconds, DAY)
    return f"{_day_text(day)}T{_clock_text(second)}Z"


def instant_text(milliseconds: int) -> str:
    """Return an instant in UTC, with milliseconds where there are any."""
    text, rest = rfc3339(milliseconds // 1000), milliseconds % 1000
    return f"{text[:-1]}.{rest:03}Z" if rest else text


@lru_cache(maxsize=4096)
def _day_text(day: int) -> str:
    """Format a day, counted from 1970; cached, because the same days recur."""
    return (EPOCH + timedelta(day)).date().isoformat()


@lru_cache(maxsize=4096)
def _clock_text(second: int) -> str:
    """Format a second of the day; cached, because schedules use few of them."""
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _fault_of(value: object) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            return "it has no time zone; pass an aware datetime, e.g. with tzinfo=datetime.UTC"
        return "it lies outside the years 1 to 9999 in UTC"
    return f"expected an aware datetime, got {type(value).__name__}"
