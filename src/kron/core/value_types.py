"""Value types of fields: choices, numbers, flags, durations and instants, with parsers and JSON Schemas."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from enum import StrEnum

from kron.core.errors import InputError
from kron.core.fields import (
    NAME_PATTERN,
    Schema,
    ValueType,
    choice_of,
    count_in,
    invalid_value,
    optional,
    parse_bool,
    parse_instant,
    parse_name,
)
from kron.core.time.duration import format_duration, parse_duration
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND, rfc3339

NULL: Schema = {"type": "null"}

_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,20})?"
_ISO = rf"[Pp]({_NUMBER}[Ww])?({_NUMBER}[Dd])?([Tt]({_NUMBER}[Hh])?({_NUMBER}[Mm])?({_NUMBER}[Ss])?)?"


def choice(names: Mapping[str, StrEnum], *, written: Mapping[StrEnum, str] | None = None) -> ValueType:
    """Return the type of a choice by name; `written` has the names given back, where not the value's."""
    shown = written or {}

    def check(value: object) -> object:
        if not isinstance(value, str) or value not in names:
            raise invalid_value(value, f"use {', '.join(names)}")
        return names[value]

    def write(value: object) -> object:
        assert isinstance(value, StrEnum)
        return shown.get(value, value.value)

    given_back: list[object] = [write(value) for value in dict.fromkeys(names.values())]
    return ValueType(
        schema={"enum": list(names)},
        parse=choice_of(names),
        check=check,
        write=write,
        written={"type": "string", "enum": given_back},
    )


def names_of(kind: type[StrEnum]) -> dict[str, StrEnum]:
    """Return the members of a choice by their own names."""
    return {member.value: member for member in kind}


def one_of(names: Iterable[str]) -> ValueType:
    """Return the type of a text that is one of a few."""
    choices = {name: name for name in names}
    return ValueType(
        schema={"enum": list(choices)},
        parse=choice_of(choices),
        written={"type": "string", "enum": list(choices)},
    )


def whole_number(low: int, high: int) -> ValueType:
    """Return the type of a whole number within bounds."""
    schema: Schema = {"type": "integer", "minimum": low, "maximum": high}
    return ValueType(schema=schema, parse=count_in(low, high), check=_whole_check(low, high))


def _whole_check(low: int, high: int) -> Callable[[object], object]:
    def check(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise invalid_value(value, f"must be a whole number from {low} to {high}")
        return value

    return check


def nullable(inner: ValueType) -> ValueType:
    """Return a type that also takes null, None in Python."""

    def check(value: object) -> object:
        try:
            return None if value is None else inner.check(value)
        except InputError as error:
            reason = str(error.details["reason"])
            raise invalid_value(value, reason.replace("must be a", "must be None or a", 1)) from None

    return ValueType(
        schema=_nullable_schema(inner.schema),
        parse=optional(inner.parse),
        check=check,
        write=lambda value: None if value is None else inner.write(value),
        written={"anyOf": [inner.written or inner.schema, NULL]},
    )


def _nullable_schema(schema: Schema) -> Schema:
    match schema:
        case {"type": str(name)}:
            return {**schema, "type": [name, "null"]}
        case {"enum": list(names)}:
            return {**schema, "enum": [*names, None]}
        case _:
            return {"oneOf": [schema, NULL]}


def _check_flag(value: object) -> object:
    if not isinstance(value, bool):
        raise invalid_value(value, "must be True or False")
    return value


def _check_duration(value: object) -> object:
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise invalid_value(value, "must be a timedelta that is not negative")
    return value


def _write_duration(value: object) -> object:
    assert isinstance(value, timedelta)
    return format_duration(value)


def _write_instant(value: object) -> object:
    assert isinstance(value, int)
    return rfc3339(value)


FLAG = ValueType(schema={"type": "boolean"}, parse=parse_bool, check=_check_flag)
DURATION = ValueType(
    schema={
        "description": "90s, 1h30m, ISO 8601 PT90M, or a number of seconds",
        "oneOf": [
            {"type": "string", "pattern": rf"^\s*({_NUMBER}|({_NUMBER}(ms|us|[wdhms]))+|{_ISO})\s*$"},
            {"type": "number", "minimum": 0},
        ],
    },
    parse=parse_duration,
    check=_check_duration,
    write=_write_duration,
    written={"type": "string"},
)
# An instant is kept in whole seconds since 1970.
INSTANT = ValueType(
    schema={"type": "string", "description": "an instant with its offset, e.g. 2026-03-29T01:00:00Z"},
    parse=parse_instant,
    check=_whole_check(FIRST_SECOND, LAST_SECOND),
    write=_write_instant,
    written={"type": "string"},
)
NAME_TEXT = ValueType(schema={"type": "string", "pattern": NAME_PATTERN}, parse=parse_name)
# The versions of a workflow: the range of an integer in every database.
MAX_VERSION = 2**31 - 1
VERSION = whole_number(0, MAX_VERSION)
