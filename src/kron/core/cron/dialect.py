"""The two dialects: parse text into an `Expression` or raise `InvalidCronExpressionError`.

The POSIX dialect's fields are in `posix`. The extended dialect is that plus steps, names, seconds, macros,
`L`, `W`, `#` and `H`; its fields are here.
"""

import re
from functools import lru_cache
from typing import NoReturn

from kron.core.cron.expression import ON_THE_MINUTE, Expression
from kron.core.cron.field import (
    DAY,
    SECOND,
    UNITS,
    WEEKDAY,
    WEEKDAY_NAMES,
    Field,
    LastDay,
    Mark,
    NearestWorkday,
    NthWeekday,
    Unit,
    lowered,
    mask_of,
)
from kron.core.cron.item import (
    check_range,
    is_decimal,
    number_of,
    quoted,
    quoted_number,
    reject_field,
    reject_shape,
    ring_of,
)
from kron.core.cron.posix import parse_posix_field
from kron.core.errors import FieldParseError, InvalidCronExpressionError, NeverMatchesError, check_choice

POSIX, EXTENDED = "posix", "extended"
DIALECTS = (POSIX, EXTENDED)
FIELD_NAMES = {
    POSIX: ("minute", "hour", "day", "month", "weekday"),
    EXTENDED: ("second", "minute", "hour", "day", "month", "weekday"),
}
ZONE_PREFIXES = ("CRON_TZ=", "TZ=")
# Far longer than any field list needs; longer texts are refused before they are split.
MAX_LENGTH = 1_000
# The identity where only the form of an expression matters: whether `H` is valid does not depend on it.
ANY_IDENTITY = "any"
# Stands for the boot of a host, which is not a time.
REBOOT = "@reboot"
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def parse(text: str, dialect: str = EXTENDED, *, identity: str | None = None) -> Expression:
    """Parse a cron expression, or raise InvalidCronExpressionError.

    `identity` is what `H` is derived from; expressions without `H` ignore it.
    """
    if not isinstance(text, str):
        _reject(text, f"must be a string, got {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        _reject(text, f"must have at most {MAX_LENGTH:,} characters, got {len(text):,}")
    try:
        if dialect == POSIX:
            expression = _parse_posix(text)
        elif dialect == EXTENDED:
            expression = _parse_extended(text, identity)
        else:
            check_choice("dialect", dialect, DIALECTS)
            raise AssertionError("every dialect is handled above")
    except FieldParseError as cause:
        raise InvalidCronExpressionError(
            expression=text, field=cause.field_name, reason=cause.reason
        ) from cause
    if not expression.days.possible:
        reason = f"can never match: {_impossible(expression)}"
        raise NeverMatchesError(expression=text, field="expression", reason=reason)
    return expression


def parse_field(text: str, name: str, dialect: str = EXTENDED, *, identity: str | None = None) -> Field:
    """Parse one field, or raise FieldParseError; `name` is the field's name, e.g. minute."""
    check_choice("dialect", dialect, DIALECTS)
    check_choice("field", name, FIELD_NAMES[dialect])
    if not isinstance(text, str):
        reason = f"must be a string, got {type(text).__name__}"
        raise FieldParseError(field_value=str(text), field_name=name, reason=reason)
    return parse_posix_field(text, name) if dialect == POSIX else parse_extended_field(text, name, identity)


def needs_identity(text: str) -> bool:
    """Return whether an expression uses `H`, so that its meaning depends on an identity."""
    return ("H" in text or "h" in text) and any(map(has_hash, text.split()))


def _parse_posix(text: str) -> Expression:
    words = _words_of(text)
    if len(words) != 5:
        if text.lstrip(" \t").startswith("@"):
            name = lowered(text.strip(" \t"))
            remedy = f"; write {MACROS[name]}" if name in MACROS else ""
            _reject(text, f"uses the macro {quoted(name)}, which POSIX cron does not have{remedy}")
        if words and words[0].upper().startswith(ZONE_PREFIXES):
            _reject(text, "has a time zone prefix, which POSIX cron does not have; use the timezone option")
        _reject(text, f"must have exactly 5 fields, got {len(words)}")
    minute, hour, day, month, weekday = words
    fields = (
        parse_posix_field(minute, "minute"),
        parse_posix_field(hour, "hour"),
        parse_posix_field(day, "day"),
        parse_posix_field(month, "month"),
        parse_posix_field(weekday, "weekday"),
    )
    return Expression(text, POSIX, fields)


def _parse_extended(text: str, identity: str | None) -> Expression:
    words = _words_of(text)
    timezone = _take_zone(words, text) if "=" in text else None
    if "@" in text and words and words[0].startswith("@"):
        words = _expand_macro(words, text)
    if len(words) not in (5, 6):
        year = f"; {NO_YEARS}" if len(words) == 7 else ""
        _reject(text, f"must have 5 fields, or 6 with seconds first, got {len(words)}{year}")
    # Without `H` the identity has no effect, and omitting it lets expressions share their fields.
    seed = identity if identity is not None and needs_identity(text) else None
    second = parse_extended_field(words.pop(0), "second", seed) if len(words) == 6 else ON_THE_MINUTE
    minute, hour, day, month, weekday = words
    fields = (
        parse_extended_field(minute, "minute", seed),
        parse_extended_field(hour, "hour", seed),
        parse_extended_field(day, "day", seed),
        parse_extended_field(month, "month", seed),
        parse_extended_field(weekday, "weekday", seed),
    )
    return Expression(text, EXTENDED, fields, second, timezone)


def _take_zone(words: list[str], text: str) -> str | None:
    """Remove a time zone prefix from the words and return its zone."""
    if not (words and words[0].upper().startswith(ZONE_PREFIXES)):
        return None
    timezone = words.pop(0).partition("=")[2]
    if not timezone:
        _reject(text, "has an empty time zone prefix; write CRON_TZ=Europe/Berlin")
    return timezone


def _expand_macro(words: list[str], text: str) -> list[str]:
    name = lowered(words[0])
    if name == REBOOT:
        _reject(text, "has @reboot, which is not a time")
    if name == "@every":
        _reject(text, "has @every; write a step instead, such as */5 * * * *")
    if len(words) > 1 or name not in MACROS:
        from difflib import get_close_matches

        close = get_close_matches(name, MACROS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(MACROS)}"
        _reject(text, f"has the macro {quoted(' '.join(words))}; {hint}")
    return MACROS[name].split(" ")


def _words_of(text: str) -> list[str]:
    """Split at spaces and tabs, the only separators of cron."""
    words = text.split()
    if " ".join(words) == text:
        return words
    for character in text:
        if character.isspace() and character not in " \t":
            _reject(text, f"contains {character!r}; only spaces and tabs may separate fields")
    return words


def _reject(text: object, reason: str) -> NoReturn:
    raise InvalidCronExpressionError(expression=str(text), field="expression", reason=reason)


def _impossible(expression: Expression) -> str:
    """Name the fields that exclude each other, as they were written."""
    day, month, weekday = expression.text.split()[-3:]
    on_weekday = "" if weekday in ANY else f" on weekday {weekday}"
    if month in ANY:
        return f"no month has a day {day}{on_weekday}"
    return f"no year has a day {day} in month {month}{on_weekday}"


# --- fields of the extended dialect --------------------------------------------------------------

_UNIT_OF = {unit.name: unit for unit in (SECOND, *UNITS)}
# A whole field that allows every value; `?`, from Quartz, only for days.
ANY = ("*", "?")
NO_YEARS = "there is no field for years: bound the schedule with start_at and end_at"
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
    if text == "?" and unit in (DAY, WEEKDAY):
        text = "*"
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
        reject_field(text, unit, f"has the step {quoted(item)} without a range; did you mean */{step}?")
    low_word, dash, high_word = bounds.partition("-")
    if dash and not (low_word and high_word):
        reject_shape(bounds, text=text, unit=unit)
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
        reject_field(text, unit, f"has {quoted(item)}, whose step is not a decimal number")
    step = number_of(word)
    if step == 0:
        reject_field(text, unit, f"has the step 0 in {quoted(item)}; a step is 1 or more")
    return step


def _value_of(word: str, item: str, text: str, unit: Unit) -> int:
    """Return a number or a name as a value; the weekday's 7 stays 7."""
    if (plain := unit.plain.get(word)) is not None:
        return plain
    if is_decimal(word):
        value = number_of(word)
        if unit is WEEKDAY and value >= 7:
            if value > 7:
                remedy = NO_YEARS if 1970 <= value <= 9999 else "Sunday is 0 or 7"
                reject_field(text, unit, f"has the value {quoted_number(word)}, outside 0-7; {remedy}")
            return value
        return check_range(value, word, text=text, unit=unit)
    if (named := unit.value_of(word)) is not None:
        return named
    _reject_word(word, item, text, unit)


def _mark_of(item: str, text: str, unit: Unit) -> Mark | None:
    """Parse an item as a day that depends on the month, or return None."""
    if unit is DAY and (match := re.fullmatch(_DAY_MARK, item)):
        if match[2]:
            last = match[2] in "lL"
            return NearestWorkday(None if last else _in_range(match[2], text, DAY))
        back = number_of(match[1]) if match[1] else 0
        if back > 30:
            reject_field(text, unit, f"has {quoted(item)}; a month has at most 30 days before its last")
        return LastDay(back)
    if unit is WEEKDAY and (match := re.fullmatch(_WEEKDAY_MARK, item)):
        weekday = _value_of(match[1], item, text, unit) % 7
        if match[2] is None:
            return NthWeekday(weekday, None)
        if not is_decimal(match[2]) or not 1 <= number_of(match[2]) <= 5:
            reject_field(text, unit, f"has {quoted(item)}; the number after # is 1 to 5")
        return NthWeekday(weekday, number_of(match[2]))
    return None


def _in_range(word: str, text: str, unit: Unit) -> int:
    return check_range(number_of(word), word, text=text, unit=unit)


def _hashed(bounds: str | None, step: str | None, *, text: str, unit: Unit, identity: str | None) -> int:
    """Return the value or values of `H`: fixed for an identity, distributed over identities."""
    if identity is None:
        reject_field(
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
        reject_field(text, unit, f"has the step {every}, larger than its range {low}-{high}")
    return mask_of(range(low + number % every, high + 1, every))


def _hash_bounds(bounds: str, text: str, unit: Unit) -> tuple[int, int]:
    low_word, _, high_word = bounds.partition("-")
    if not (is_decimal(low_word) and is_decimal(high_word)):
        reject_field(text, unit, f'has "H({bounds})"; write H(a-b) with two numbers')
    low, high = _in_range(low_word, text, unit), _in_range(high_word, text, unit)
    if low > high:
        reject_field(text, unit, f'has "H({bounds})", whose start is after its end')
    return low, high


def _foreign(word: str, unit: Unit) -> str | None:
    """Return the remedy for notations of other libraries, in upper case."""
    if match := re.fullmatch(r"([LW])([0-9]+)", word):
        mark, number = match[1], int(match[2]) if len(match[2]) < 3 else 0
        if mark == "W" and unit is DAY and 1 <= number <= 31:
            return f"write {number}W for the workday nearest to day {number}"
        if mark == "L" and unit is WEEKDAY and number <= 7:
            return f"write {number}L for the last {WEEKDAY_NAMES[number % 7].title()} of the month"
        if mark == "L" and unit is DAY and 1 <= number <= 30:
            return f"write L-{number} to count back from the last day of the month"
    if re.match(r"R(?:\(|/|$)", word):
        return "a random value has no fixed times; use H, which is derived from the identity"
    return None


def _reject_word(word: str, item: str, text: str, unit: Unit) -> NoReturn:
    """Raise for a word that is neither a number nor a name, with the most specific remedy."""
    upper = word.upper()
    if "?" in word:
        reject_field(text, unit, f"has {quoted(item)}; use * for any {unit.name}")
    if remedy := _foreign(upper, unit):
        reject_field(text, unit, f"has {quoted(item)}; {remedy}")
    if unit is WEEKDAY and upper == "L":
        reject_field(text, unit, 'has "L" without a weekday; write 5L for the last Friday of the month')
    if upper in ("L", "LW") or (upper.endswith("W") and is_decimal(word[:-1])):
        place = "stand alone: no range, no step" if unit is DAY else "belong in the day field"
        reject_field(text, unit, f"has {quoted(item)}; L and W {place}")
    if "#" in word:
        place = "takes one weekday and one number" if unit is WEEKDAY else "belongs in the weekday field"
        reject_field(text, unit, f"has {quoted(item)}; # {place}, e.g. 5#2")
    if "*" in word:
        reject_field(text, unit, f'has {quoted(item)}, but "*" stands alone or before a step, as in */15')
    if unit.names and word.isalpha():
        from difflib import get_close_matches

        short = [name[:3] for name in unit.names]
        close = get_close_matches(word.casefold(), [*short, *unit.names], n=1)
        hint = f"did you mean {close[0]}?" if close else f"names are {', '.join(short)}"
        reject_field(text, unit, f"has the unknown name {quoted(word)}; {hint}")
    reject_shape(item, text=text, unit=unit)
