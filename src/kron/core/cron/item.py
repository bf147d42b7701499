"""One item of a field's list: parsing its numbers, and the error for an invalid one."""

import re
from typing import NoReturn

from kron.core.cron.field import MONTH, WEEKDAY, Unit, mask_of, runs_of
from kron.core.errors import FieldParseError

# More digits than any value has, leading zeros aside: larger numbers are not converted in full.
MAX_DIGITS = 4
# The most characters that a message quotes, so that it stays one line.
MAX_QUOTED = 40

# Used by error messages only, so they are compiled on first use.
_STEP = r"(?:\*|([0-9]{1,2})(?:-([0-9]{1,2}))?)?/([0-9]{1,3})"
_WORD = r"[A-Za-z]{2,}"


def reject_field(text: str, unit: Unit, reason: str) -> NoReturn:
    """Raise the error for one field."""
    raise FieldParseError(field_value=text, field_name=unit.name, reason=reason)


def quoted(text: str) -> str:
    """Quote a part of the input, truncated if it is long."""
    return f'"{text}"' if len(text) <= MAX_QUOTED else f'"{text[:MAX_QUOTED]}..."'


def is_decimal(word: str) -> bool:
    """Return whether a word consists of ASCII digits only."""
    return word.isascii() and word.isdigit()


def number_of(word: str) -> int:
    """Return the value of ASCII digits; any number of leading zeros is legal."""
    digits = word.lstrip("0")[:MAX_DIGITS]
    return int(digits) if digits else 0


def check_range(value: int, word: str, *, text: str, unit: Unit) -> int:
    """Return a value if it is in the unit's range, else raise."""
    if unit.low <= value <= unit.high:
        return value
    if unit is WEEKDAY and value == 7:
        reject_field(text, unit, "has the value 7, outside 0-6; use 0 for Sunday")
    reject_field(text, unit, f"has the value {quoted_number(word)}, outside {unit.low}-{unit.high}")


def quoted_number(word: str) -> str:
    """Format a number for a message, without leading zeros and truncated if it is long."""
    digits = word.lstrip("0") or "0"
    return digits if len(digits) <= MAX_QUOTED else f"{digits[:MAX_QUOTED]}..."


def reject_shape(item: str, *, text: str, unit: Unit) -> NoReturn:
    """Raise for an item that is empty or has a non-decimal number, with the most specific reason."""
    if not item:
        reject_field(text, unit, f"has an empty list item in {quoted(text)}" if text else "is empty")
    low, dash, high = item.partition("-")
    if not dash:
        reject_field(text, unit, f"has {quoted(item)}, which is not a decimal number (digits 0-9 only)")
    if "-" in high and low and is_decimal(low):
        reject_field(text, unit, f"has {quoted(item)}, which is not a range of two numbers")
    if not low:
        reject_field(text, unit, f"has {quoted(item)}: signs are not allowed, and a range needs a start")
    if not high:
        reject_field(text, unit, f"has {quoted(item)}: a range needs an end")
    wrong = high if is_decimal(low) else low
    reject_field(text, unit, f"has {quoted(wrong)}, which is not a decimal number (digits 0-9 only)")


def values_of_step(item: str, unit: Unit) -> str | None:
    """Format the values of a step as a list, or return None if it is not a step."""
    match = re.fullmatch(_STEP, item)
    if match is None or not int(match[3]):
        return None
    low = int(match[1]) if match[1] else unit.low
    high = int(match[2]) if match[2] else unit.high
    if not unit.low <= low <= high <= unit.high:
        return None
    return ",".join(runs_of(range(low, high + 1, int(match[3]))))


def unwrapped(low: int, high: int, unit: Unit) -> str:
    """Format a range that wraps around as items that do not."""
    return ",".join(runs_of(v for v in range(unit.low, unit.high + 1) if v >= low or v <= high))


def named_value(item: str) -> tuple[str, Unit, int] | None:
    """Return the first month or weekday name in an item, with its unit and value."""
    for word in re.findall(_WORD, item):
        for unit in (MONTH, WEEKDAY):
            if (value := unit.value_of(word)) is not None:
                return word, unit, value
    return None


def ring_of(low: int, high: int, step: int, unit: Unit) -> int:
    """Return the mask of a range with a step, continued at the unit's start if it wraps around."""
    if low > high:
        high += unit.size
    elif step == 1:
        return (1 << high + 1) - (1 << low)
    return mask_of(unit.low + (v - unit.low) % unit.size for v in range(low, high + 1, step))
