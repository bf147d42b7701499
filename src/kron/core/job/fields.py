"""Readers of plain data: field by field, with every problem collected."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import TypeVar

from kron.core.errors import InputError, InvalidOptionError, Problem
from kron.core.time.instant import EpochSeconds, seconds_of

Value = TypeVar("Value")
NOT_RENAMED: Mapping[str, str] = {}


class FieldReader:
    """One object of a definition, read field by field; problems are collected, not raised.

    `renamed` are the paths of a document that calls some fields by other words.
    """

    def __init__(
        self,
        value: object,
        path: str,
        problems: list[Problem],
        *,
        known: Collection[str],
        renamed: Mapping[str, str] = NOT_RENAMED,
    ) -> None:
        self._path = path
        self._renamed = renamed
        self.problems = problems
        self.values: Mapping[object, object] = {}
        if not isinstance(value, Mapping):
            self.problem("", value, f"must be an object with {', '.join(known)}")
            return
        self.values = value
        for name in value:
            if name not in known:
                self.problem(str(name), value[name], f"unknown field; {suggestion(name, known)}")

    def path_of(self, name: str) -> str:
        """Return the path of a field, e.g. ``policy.deadline``."""
        path = ".".join(filter(None, (self._path, name))) or "job"
        return self._renamed.get(path, path)

    def problem(self, name: str, value: object, reason: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(self.path_of(name), value, reason))

    def has(self, name: str) -> bool:
        """Return whether a field is present."""
        return name in self.values

    def get(self, name: str, default: object = None) -> object:
        """Return a field unparsed."""
        return self.values.get(name, default)

    def read(self, name: str, parse: Callable[[object], Value], default: Value) -> Value:
        """Return a field parsed, or the default where it is absent or invalid."""
        if name not in self.values:
            return default
        value = self.values[name]
        try:
            return parse(value)
        except InputError as error:
            self.problem(name, value, str(error.details.get("reason", error)))
            return default

    def sub(self, name: str, known: Collection[str]) -> "FieldReader":
        """Return the object in a field; an absent one is empty."""
        value, path = self.values.get(name, {}), self.path_of(name)
        return FieldReader(value, path, self.problems, known=known, renamed=self._renamed)


def refuse(value: object, reason: str) -> InvalidOptionError:
    """Return the error for a value; the reader adds the path."""
    return InvalidOptionError(option="value", value=value, reason=reason)


def suggestion(name: object, names: Iterable[str]) -> str:
    """Return the closest name, or all of them."""
    from difflib import get_close_matches

    known = tuple(names)
    close = get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]}?" if close else f"use {', '.join(known)}"


def parse_text(value: object) -> str:
    """Return a text, or refuse another type."""
    if not isinstance(value, str):
        raise refuse(value, f"must be a text, got {type(value).__name__}")
    return value


def parse_bool(value: object) -> bool:
    """Return true or false, or refuse another value."""
    if not isinstance(value, bool):
        raise refuse(value, "must be true or false")
    return value


def parse_positive(value: object) -> float:
    """Return a finite number greater than 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(value, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        raise refuse(value, "must be a finite number") from None
    if not isfinite(number) or number <= 0:
        raise refuse(value, "must be greater than 0 and finite")
    return number


def choice_of(choices: Mapping[str, Value]) -> Callable[[object], Value]:
    """Return a parser of one of some names."""

    def parse(value: object) -> Value:
        if not isinstance(value, str) or value not in choices:
            raise refuse(value, suggestion(value, choices))
        return choices[value]

    return parse


def parse_utf8(value: object) -> str:
    """Return a text without lone surrogates, so that it can be hashed."""
    text = parse_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise refuse(ascii(value), "must be valid Unicode") from None
    return text


def optional(parse: Callable[[object], Value]) -> Callable[[object], Value | None]:
    """Return a parser that also accepts null."""
    return lambda value: None if value is None else parse(value)


def count_in(low: int, high: int) -> Callable[[object], int]:
    """Return a parser of whole numbers within bounds."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(value, f"must be a whole number, got {type(value).__name__}")
        if not low <= value <= high:
            raise refuse(value, f"outside {low}-{high}")
        return value

    return parse


def parse_instant(value: object) -> EpochSeconds:
    """Return a whole second from an aware datetime or an RFC 3339 text."""
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(parse_text(value))
    except ValueError as cause:
        raise refuse(value, "use an instant such as 2026-03-29T01:00:00Z") from cause
    if isinstance(value, str) and instant.tzinfo is None:
        raise refuse(value, f"has no time zone; use {instant.isoformat()}Z, or an offset such as +02:00")
    try:
        return seconds_of(instant)
    except InputError as cause:
        raise refuse(value, str(cause.details["reason"])) from cause
