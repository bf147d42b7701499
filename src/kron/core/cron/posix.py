"""The strict dialect: exactly SPEC 1's grammar and its nine reasons for rejection."""

import re
from functools import lru_cache
from typing import NoReturn

from kron.core.cron.field import DAY, UNITS, WEEKDAY, Field, Unit
from kron.core.cron.item import (
    check_range,
    is_decimal,
    named_value,
    number_of,
    quoted,
    reject_field,
    reject_shape,
    unwrapped,
    values_of_step,
)

_UNIT_OF = {unit.name: unit for unit in UNITS}

_TOKENS = r"(?i)[?#]|(?<![a-z])(?:lw|[lwh])(?![a-z])"
_INSTEAD = {"?": "use * for any day", "H": "write a number"}


@lru_cache(maxsize=8192)
def parse_posix_field(text: str, name: str) -> Field:
    """Parse one field of a strict expression, or raise FieldParseError."""
    unit = _UNIT_OF[name]
    if text == "*":
        return Field(unit, unit.full, star=True)
    mask = 0
    for item in text.split(","):
        value = unit.plain.get(item)
        mask |= _mask_of(item, text, unit) if value is None else 1 << value
    # Only the day rule distinguishes `*` from a full list; in other fields they are equal.
    return Field(unit, mask, star=mask == unit.full and unit not in (DAY, WEEKDAY))


def _mask_of(item: str, text: str, unit: Unit) -> int:
    low_word, dash, high_word = item.partition("-")
    if not is_decimal(low_word) or (dash and not is_decimal(high_word)):
        _reject_item(item, text, unit)
    low = check_range(number_of(low_word), low_word, text=text, unit=unit)
    if not dash:
        return 1 << low
    high = check_range(number_of(high_word), high_word, text=text, unit=unit)
    if low > high:
        instead = unwrapped(low, high, unit)
        reject_field(text, unit, f"has the range {low}-{high}, which wraps around; write {instead}")
    return (1 << high + 1) - (1 << low)


def _reject_item(item: str, text: str, unit: Unit) -> NoReturn:
    """Raise for an item that is neither a number nor a range, naming the syntax it resembles."""
    if "/" in item:
        values = values_of_step(item, unit)
        remedy = f"write {values}" if values else "list the values"
        reject_field(text, unit, f"uses step syntax {quoted(item)}, which POSIX cron does not have; {remedy}")
    if "*" in item:
        reject_field(text, unit, f'has {quoted(text)}, but "*" must stand alone in its field')
    if named := named_value(item):
        word, owner, value = named
        remedy = f"write {value}" if owner is unit else f"a {owner.name} name does not belong here"
        reject_field(text, unit, f"uses the name {quoted(word)}, which POSIX cron does not have; {remedy}")
    if item.startswith("@"):
        reject_field(text, unit, f"uses the macro {quoted(item)}, which POSIX cron does not have")
    if match := re.search(_TOKENS, item):
        token = match[0].upper()
        remedy = _INSTEAD.get(token, "list the days")
        reject_field(text, unit, f'uses the token "{token}", which POSIX cron does not have; {remedy}')
    reject_shape(item, text=text, unit=unit)
