"""The extended dialect: the strict one plus steps, names, seconds, macros, `L`, `W`, `#` and `H`."""

import re
from functools import lru_cache
from typing import NoReturn

from kron.core.cron.field import (
    DAY,
    SECOND,
    UNITS,
    WEEKDAY,
    Field,
    LastDay,
    Mark,
    NearestWorkday,
    NthWeekday,
    Unit,
    mask_of,
)
from kron.core.cron.item import (
    check_range,
    is_decimal,
    number_of,
    quoted,
    quoted_number,
    refuse,
    refuse_shape,
    ring_of,
)

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_UNIT_OF = {unit.name: unit for unit in (SECOND, *UNITS)}
# The days of every month, so that a hashed day always exists.
HASHED_DAYS = (1, 28)

# Compiled on first use, which is rare.
_HASH = r"(?i)h(?:\(([^()]*)\))?(?:/(.*))?"
_DAY_MARK = r"(?i)(?:l(?:-([0-9]+))?|([0-9]+|l)w)"
_WEEKDAY_MARK = r"(?i)([0-9]+|[a-z]{3,})(?:#(.*)|l)"


@lru_cache(maxsize=8192)
def parse_extended_field(text: str, name: str, identity: str | None = None) -> Field:
    """Parse one field of an extended expression, or raise FieldParseError.

    Only `H` uses the identity; pass None for fields without it, so that they are shared.
    """
    unit = _UNIT_OF[name]
    mask = 0
    marks: set[Mark] = set()
    for item in text.split(","):
        if (value := unit.plain.get(item)) is not None:
            mask |= 1 << value
        elif mark := _mark_of(item, text, unit):
            marks.add(mark)
        else:
            mask |= _mask_of(item, text, unit, identity)
    star = text.startswith("*") if unit is DAY or unit is WEEKDAY else mask == unit.full
    return Field(unit, mask, star, tuple(sorted(marks, key=str)) if marks else ())


def has_hash(text: str) -> bool:
    """Return whether a field uses `H`."""
    return any(re.fullmatch(_HASH, item) for item in text.split(","))


def _mask_of(item: str, text: str, unit: Unit, identity: str | None) -> int:
    if item == "*":
        return unit.full
    if item[:1] in ("H", "h") and (match := re.fullmatch(_HASH, item)):
        return _hashed(match[1], match[2], text=text, unit=unit, identity=identity)
    bounds, slash, step_word = item.partition("/")
    step = _step_of(step_word, item, text, unit) if slash else 1
    if bounds == "*":
        return ring_of(unit.low, unit.high, step, unit)
    if not bounds and slash:
        refuse(text, unit, f"has the step {quoted(item)} without a range; did you mean */{step}?")
    low_word, dash, high_word = bounds.partition("-")
    if dash and not (low_word and high_word):
        refuse_shape(bounds, text=text, unit=unit)
    low = _value_of(low_word, bounds, text, unit)
    if not dash and slash and unit is WEEKDAY and low == 7:
        # The range from 7 to the end has only 7.
        return 1
    if not dash:
        return ring_of(low % _modulus(unit), unit.high, step, unit) if slash else 1 << low % _modulus(unit)
    high = _value_of(high_word, bounds, text, unit)
    return _range_of(low, high, step, unit)


def _range_of(low: int, high: int, step: int, unit: Unit) -> int:
    """Return a range's mask; the weekday's 7 is Sunday at either end."""
    if unit is WEEKDAY:
        low = low % 7 if low != high else low
        if high == 7:
            return mask_of(value % 7 for value in range(low, 8, step))
    return ring_of(low, high, step, unit)


def _modulus(unit: Unit) -> int:
    return 7 if unit is WEEKDAY else unit.high + 1


def _step_of(word: str, item: str, text: str, unit: Unit) -> int:
    if not is_decimal(word):
        refuse(text, unit, f"has {quoted(item)}, whose step is not a decimal number")
    step = number_of(word)
    if step == 0:
        refuse(text, unit, f"has the step 0 in {quoted(item)}; a step is 1 or more")
    return step


def _value_of(word: str, item: str, text: str, unit: Unit) -> int:
    """Return a number or a name as a value; the weekday's 7 stays 7."""
    if (plain := unit.plain.get(word)) is not None:
        return plain
    if is_decimal(word):
        value = number_of(word)
        if unit is WEEKDAY and value >= 7:
            if value > 7:
                reason = f"has the value {quoted_number(word)}, outside 0-7; Sunday is 0 or 7"
                refuse(text, unit, reason)
            return value
        return check_range(value, word, text=text, unit=unit)
    if (named := unit.value_of(word)) is not None:
        return named
    _refuse_word(word, item, text, unit)


def _mark_of(item: str, text: str, unit: Unit) -> Mark | None:
    """Parse an item as a day that depends on the month, or return None."""
    if unit is DAY and (match := re.fullmatch(_DAY_MARK, item)):
        if match[2]:
            last = match[2] in "lL"
            return NearestWorkday(None if last else _in_range(match[2], text, DAY))
        back = number_of(match[1]) if match[1] else 0
        if back > 30:
            refuse(text, unit, f"has {quoted(item)}; a month has at most 30 days before its last")
        return LastDay(back)
    if unit is WEEKDAY and (match := re.fullmatch(_WEEKDAY_MARK, item)):
        weekday = _value_of(match[1], item, text, unit) % 7
        if match[2] is None:
            return NthWeekday(weekday, None)
        if not is_decimal(match[2]) or not 1 <= number_of(match[2]) <= 5:
            refuse(text, unit, f"has {quoted(item)}; the number after # is 1 to 5")
        return NthWeekday(weekday, number_of(match[2]))
    return None


def _in_range(word: str, text: str, unit: Unit) -> int:
    return check_range(number_of(word), word, text=text, unit=unit)


def _hashed(bounds: str | None, step: str | None, *, text: str, unit: Unit, identity: str | None) -> int:
    """Return the value or values of `H`: fixed for an identity, distributed over identities."""
    if identity is None:
        refuse(
            text,
            unit,
            'uses "H", which is derived from an identity; pass one (identity=, --identity)',
        )
    low, high = HASHED_DAYS if unit is DAY else (unit.low, unit.high)
    if bounds is not None:
        low, high = _hash_bounds(bounds, text, unit)
    from hashlib import sha256

    digest = sha256(f"{identity}\nH\n{unit.name}".encode("utf-8", "surrogatepass")).digest()
    number = int.from_bytes(digest[:8], "big")
    if step is None:
        return 1 << low + number % (high - low + 1)
    every = _step_of(step, text, text, unit)
    if every > high - low + 1:
        refuse(text, unit, f"has the step {every}, larger than its range {low}-{high}")
    return mask_of(range(low + number % every, high + 1, every))


def _hash_bounds(bounds: str, text: str, unit: Unit) -> tuple[int, int]:
    low_word, _, high_word = bounds.partition("-")
    if not (is_decimal(low_word) and is_decimal(high_word)):
        refuse(text, unit, f'has "H({bounds})"; write H(a-b) with two numbers')
    low, high = _in_range(low_word, text, unit), _in_range(high_word, text, unit)
    if low > high:
        refuse(text, unit, f'has "H({bounds})", whose start is after its end')
    return low, high


def _refuse_word(word: str, item: str, text: str, unit: Unit) -> NoReturn:
    """Raise for a word that is neither a number nor a name, with the most specific remedy."""
    upper = word.upper()
    if "?" in word:
        refuse(text, unit, f"has {quoted(item)}; use * for any {unit.name}")
    if unit is WEEKDAY and upper == "L":
        refuse(text, unit, 'has "L" without a weekday; write 5L for the last Friday of the month')
    if upper in ("L", "LW") or (upper.endswith("W") and is_decimal(word[:-1])):
        place = "stand alone: no range, no step" if unit is DAY else "belong in the day field"
        refuse(text, unit, f"has {quoted(item)}; L and W {place}")
    if "#" in word:
        place = "takes one weekday and one number" if unit is WEEKDAY else "belongs in the weekday field"
        refuse(text, unit, f"has {quoted(item)}; # {place}, e.g. 5#2")
    if "*" in word:
        refuse(text, unit, f'has {quoted(item)}, but "*" stands alone or before a step, as in */15')
    if unit.names and word.isalpha():
        from difflib import get_close_matches

        short = [name[:3] for name in unit.names]
        close = get_close_matches(word.casefold(), [*short, *unit.names], n=1)
        hint = f"did you mean {close[0]}?" if close else f"names are {', '.join(short)}"
        refuse(text, unit, f"has the unknown name {quoted(word)}; {hint}")
    refuse_shape(item, text=text, unit=unit)
