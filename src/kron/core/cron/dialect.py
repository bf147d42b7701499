"""The two dialects: parse text into an `Expression` or raise `InvalidCronExpressionError`."""

from typing import NoReturn

from kron.core.cron.expression import ON_THE_MINUTE, Expression
from kron.core.cron.extended import MACROS, has_hash, parse_extended_field
from kron.core.cron.field import Field, lowered
from kron.core.cron.item import quoted
from kron.core.cron.posix import parse_posix_field
from kron.core.errors import FieldParseError, InvalidCronExpressionError, NeverMatchesError, check_choice

POSIX, EXTENDED = "posix", "extended"
DIALECTS = (POSIX, EXTENDED)
FIELD_NAMES = {
    POSIX: ("minute", "hour", "day", "month", "weekday"),
    EXTENDED: ("second", "minute", "hour", "day", "month", "weekday"),
}
ZONE_PREFIXES = ("CRON_TZ=", "TZ=")


def parse(text: str, dialect: str = EXTENDED, *, identity: str | None = None) -> Expression:
    """Parse a cron expression, or raise InvalidCronExpressionError.

    `identity` is what `H` is derived from; expressions without `H` ignore it.
    """
    if not isinstance(text, str):
        _refuse(text, f"must be a string, got {type(text).__name__}")
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
            _refuse(text, f"uses the macro {quoted(name)}, which POSIX cron does not have{remedy}")
        if words and words[0].upper().startswith(ZONE_PREFIXES):
            _refuse(text, "has a time zone prefix, which POSIX cron does not have; use the timezone option")
        _refuse(text, f"must have exactly 5 fields, got {len(words)}")
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
        _refuse(text, f"must have 5 fields, or 6 with seconds first, got {len(words)}")
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
        _refuse(text, "has an empty time zone prefix; write CRON_TZ=Europe/Berlin")
    return timezone


def _expand_macro(words: list[str], text: str) -> list[str]:
    name = lowered(words[0])
    if name == "@reboot":
        _refuse(text, "has @reboot, which is not a time")
    if name == "@every":
        _refuse(text, "has @every; write a step instead, such as */5 * * * *")
    if len(words) > 1 or name not in MACROS:
        from difflib import get_close_matches

        close = get_close_matches(name, MACROS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(MACROS)}"
        _refuse(text, f"has the macro {quoted(' '.join(words))}; {hint}")
    return MACROS[name].split(" ")


def _words_of(text: str) -> list[str]:
    """Split at spaces and tabs, the only separators of cron."""
    words = text.split()
    if " ".join(words) == text:
        return words
    for character in text:
        if character.isspace() and character not in " \t":
            _refuse(text, f"contains {character!r}; only spaces and tabs may separate fields")
    return words


def _refuse(text: object, reason: str) -> NoReturn:
    raise InvalidCronExpressionError(expression=str(text), field="expression", reason=reason)


def _impossible(expression: Expression) -> str:
    weekday = expression.weekday
    on_weekday = "" if weekday.star and not weekday.marks else f" on weekday {weekday}"
    return f"no year has a day {expression.day} in month {expression.month}{on_weekday}"
