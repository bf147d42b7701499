"""Durations: `90s`, `1h30m`, ISO 8601 `PT90M` or a number of seconds, kept as whole microseconds."""

import re
from datetime import timedelta
from decimal import Context, Decimal, localcontext

from kron.core.errors import InvalidOptionError

MICROSECOND = timedelta(microseconds=1)
# The bound of timedelta, so that every duration can be returned as one.
MAX_DURATION = timedelta.max
# More digits than the longest duration has; longer numbers are rejected before conversion.
MAX_DIGITS = 20
# More characters than any duration needs; to match a longer text takes a microsecond for each of them.
MAX_LENGTH = 200

# Enough digits for exact sums, independent of the decimal context of the program.
EXACT = Context(prec=100, traps=[])

FORMS = "write 90s, 1h30m, PT90M or a number of seconds"
_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NUMBER = rf"([0-9]{{1,{MAX_DIGITS}}}(?:\.[0-9]{{1,{MAX_DIGITS}}})?)"
_SHORT = re.compile(rf"(?:{_NUMBER}(ms|us|[wdhms]))")
_ISO = re.compile(
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.IGNORECASE | re.ASCII,
)
_SHORT_SECONDS: dict[str, int | Decimal] = {**_UNITS, "ms": Decimal("0.001"), "us": Decimal("0.000001")}


def parse_duration(value: object) -> timedelta:
    """Parse a duration from a string, a number of seconds or a timedelta; negative ones are invalid."""
    with localcontext(EXACT):
        return _duration_of(value)


def _duration_of(value: object) -> timedelta:
    seconds = _seconds_of(value)
    if seconds is None or not seconds.is_finite():
        raise InvalidOptionError(option="duration", value=value, reason=FORMS)
    if seconds < 0:
        raise InvalidOptionError(option="duration", value=value, reason="must not be negative")
    if seconds >= Decimal(MAX_DURATION.days) * 86_400:
        raise InvalidOptionError(option="duration", value=value, reason="is too long")
    return timedelta(microseconds=int(seconds * 1_000_000))


def format_duration(duration: timedelta) -> str:
    """Format a duration in its canonical short form, e.g. ``1h30m`` or ``0s``."""
    micros = duration // MICROSECOND
    seconds, micros = divmod(micros, 1_000_000)
    parts: list[str] = []
    for unit in ("h", "m"):
        count, seconds = divmod(seconds, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if micros:
        parts.append(f"{seconds}.{micros:06}".rstrip("0") + "s")
    elif seconds or not parts:
        parts.append(f"{seconds}s")
    return "".join(parts)


def _seconds_of(value: object) -> Decimal | None:
    match value:
        case bool():
            return None
        case timedelta():
            return Decimal(value // MICROSECOND) / 1_000_000
        case int():
            return Decimal(value)
        case float():
            return Decimal(repr(value))
        case str():
            return _seconds_of_text(value.strip()) if len(value) <= MAX_LENGTH else None
        case _:
            return None


def _seconds_of_text(text: str) -> Decimal | None:
    if text.startswith("-"):
        seconds = _seconds_of_text(text[1:])
        return None if seconds is None else -seconds
    if re.fullmatch(_NUMBER, text):
        return Decimal(text)
    iso = _ISO.fullmatch(text)
    if iso and text[-1] not in "PpTt":
        sizes = (604_800, 86_400, 3_600, 60, 1)
        parts = [Decimal(part or 0) * size for part, size in zip(iso.groups(), sizes, strict=True)]
        return sum(parts, Decimal())
    pairs: list[tuple[str, str]] = _SHORT.findall(text.lower())
    whole = "".join(number + unit for number, unit in pairs) == text.lower()
    if not pairs or not whole or len({unit for _, unit in pairs}) < len(pairs):
        return None
    return sum((Decimal(number) * _SHORT_SECONDS[unit] for number, unit in pairs), Decimal())
