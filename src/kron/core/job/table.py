"""Field tables: the fields of a definition, each declared once.

A row has the words a field is read under, its value type, its default and one line of documentation. The
reader, the JSON Schema, the defaults, the written form and the tables of the documentation come from it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias, TypeVar

from kron.core.errors import InputError, InvalidOptionError
from kron.core.job.fields import (
    FieldReader,
    choice_of,
    count_in,
    optional,
    parse_bool,
    parse_instant,
    refuse,
)
from kron.core.time.duration import format_duration, parse_duration
from kron.core.time.instant import FIRST_SECOND, LAST_SECOND, rfc3339

Schema: TypeAlias = dict[str, object]
Parsers: TypeAlias = Mapping[str, Callable[[object], object]]
Made = TypeVar("Made")

NO_PARSERS: Parsers = {}

NULL: Schema = {"type": "null"}
# Stand for a value that was refused, and for the default of a field that has none.
REFUSED, NO_DEFAULT = object(), object()


def unchanged(value: object) -> object:
    """Return a value as it is."""
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    """A kind of value: `parse` reads plain data, `write` gives it back, and `schema` describes it.

    `check` takes a value that is given in Python: it returns the value to keep, or refuses it. `written` is
    the schema of values that are given back, which have one form where several are read.
    """

    schema: Schema
    parse: Callable[[object], object]
    check: Callable[[object], object] = unchanged
    write: Callable[[object], object] = unchanged
    written: Schema | None = None


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One row: `name` is the attribute inside, `words` are what documents call it, the written one first.

    `service_word` is SPEC 3's word in a schedule document, None where that has no such field. A `sparse`
    field is written only where it differs from its default.
    """

    name: str
    type: ValueType
    doc: str
    default: object = NO_DEFAULT
    words: tuple[str, ...] = ()
    service_word: str | None = None
    sparse: bool = False

    @property
    def word(self) -> str:
        """Return the word the field is written under."""
        return self.words[0]

    def written_schema(self) -> Schema:
        """Return the JSON Schema of the field in a document that Kron writes."""
        return {**(self.type.written or self.type.schema), "description": self.doc}

    def schema_of(self, word: str) -> Schema:
        """Return the JSON Schema of the field under one of its words."""
        schema, hint = self.type.schema, self.type.schema.get("description")
        if word != self.word:
            return {**schema, "description": f"another word for {self.word}"}
        described: Schema = {**schema, "description": f"{self.doc} ({hint})" if hint else self.doc}
        written = None if self.default is NO_DEFAULT else self.type.write(self.default)
        return described if written in (None, [], {}) else {**described, "default": written}


@dataclass(frozen=True, slots=True)
class FieldTable:
    """The rows of one object, in the order in which they are read, written and documented."""

    rows: tuple[FieldSpec, ...]
    required: tuple[str, ...] = ()
    # Every word a document may use, with its row; and for each row what writing it takes.
    words: Mapping[str, FieldSpec] = field(init=False)
    _writers: tuple[tuple[str, str, Callable[[object], object], bool, object], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Prepare reading and writing, which every definition goes through."""
        object.__setattr__(self, "words", {word: row for row in self.rows for word in row.words})
        writers = [(row.name, row.word, row.type.write, row.sparse, row.default) for row in self.rows]
        object.__setattr__(self, "_writers", tuple(writers))

    def __getitem__(self, name: str) -> FieldSpec:
        return next(row for row in self.rows if row.name == name)

    def read(self, reader: FieldReader, parsers: Parsers = NO_PARSERS) -> dict[str, object]:
        """Return the fields that are given and valid, by name; a wrong one is a noted problem.

        `parsers` are those of fields that depend on more than their own value.
        """
        values: dict[str, object] = {}
        given = reader.values
        for word, row in self.words.items():
            if word not in given:
                continue
            if row.name in values:
                other = next(each for each in row.words if each in given)
                reader.problem(word, given[word], f"stands beside {other}; use one of the two")
                continue
            values[row.name] = reader.read(word, parsers.get(row.name, row.type.parse), REFUSED)
        return {name: value for name, value in values.items() if value is not REFUSED}

    def build(self, reader: FieldReader, make: Callable[..., Made], parsers: Parsers = NO_PARSERS) -> Made:
        """Return a dataclass made from the fields that are given and valid."""
        return make(**self.read(reader, parsers))

    def check(self, instance: object) -> None:
        """Check every field of a frozen dataclass, or raise InvalidOptionError for the first wrong one."""
        for row in self.rows:
            given = getattr(instance, row.name)
            try:
                checked = row.type.check(given)
            except InputError as error:
                reason = str(error.details["reason"])
                raise InvalidOptionError(option=row.name, value=given, reason=reason) from None
            if checked is not given:
                object.__setattr__(instance, row.name, checked)

    def write(self, instance: object) -> dict[str, object]:
        """Return a dataclass as plain data, without the sparse fields that have their defaults."""
        written: dict[str, object] = {}
        for name, word, write, sparse, default in self._writers:
            value = getattr(instance, name)
            if not (sparse and value == default):
                written[word] = write(value)
        return written

    def schema(self) -> Schema:
        """Return the JSON Schema of the object."""
        properties = {word: row.schema_of(word) for row in self.rows for word in row.words}
        schema = object_schema(properties, required=self.required)
        pairs = [list(row.words) for row in self.rows if len(row.words) > 1]
        if pairs:
            both: list[Schema] = [{"required": words} for words in pairs]
            schema["not"] = both[0] if len(both) == 1 else {"anyOf": both}
        return schema


# --- declaring rows ------------------------------------------------------------------------------

ROW = "row"


def row(
    type_: ValueType,
    doc: str,
    *,
    words: tuple[str, ...] = (),
    service_word: str | None = "",
    sparse: bool = False,
) -> Mapping[str, FieldSpec]:
    """Return the metadata that makes a dataclass field a row; its words are by default its name."""
    return {ROW: FieldSpec("", type_, doc, words=words, service_word=service_word, sparse=sparse)}


def table_of(kind: type) -> FieldTable:
    """Return the table of a dataclass: a row for each field that was declared with `row`."""
    return FieldTable(tuple(_row_of(each) for each in fields(kind) if ROW in each.metadata))


def _row_of(declared: "Field[object]") -> FieldSpec:
    spec = declared.metadata[ROW]
    assert isinstance(spec, FieldSpec)
    name = declared.name
    service_word = name if spec.service_word == "" else spec.service_word
    return replace(
        spec,
        name=name,
        default=NO_DEFAULT if declared.default is MISSING else declared.default,
        words=spec.words or (name,),
        service_word=service_word,
    )


def part(table: FieldTable, read: Callable[[FieldReader], object]) -> ValueType:
    """Return the type of an object that has a table; its parser raises with every problem at once."""

    def parse(value: object) -> object:
        reader = FieldReader(value, "", [], known=table.words)
        result = read(reader)
        if reader.problems:
            raise refuse(value, "; ".join(map(str, reader.problems)))
        return result

    return ValueType(
        schema=table.schema(),
        parse=parse,
        write=lambda value: None if value is None else table.write(value),
        written={"type": "object"},
    )


# --- schemas -------------------------------------------------------------------------------------


def object_schema(properties: Mapping[str, object], *, required: Collection[str] = ()) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def one_or_more(item: Schema) -> Schema:
    """Return the schema of a value, or of a list of such values that is not empty."""
    return {"oneOf": [item, {"type": "array", "items": item, "minItems": 1}]}


# --- value types ---------------------------------------------------------------------------------

_NUMBER = r"[0-9]{1,20}(\.[0-9]{1,20})?"
_ISO = rf"[Pp]({_NUMBER}[Ww])?({_NUMBER}[Dd])?([Tt]({_NUMBER}[Hh])?({_NUMBER}[Mm])?({_NUMBER}[Ss])?)?"


def choice(names: Mapping[str, StrEnum], *, written: Mapping[StrEnum, str] | None = None) -> ValueType:
    """Return the type of a choice by name; `written` has the names given back, where not the value's."""
    shown = written or {}

    def check(value: object) -> object:
        if not isinstance(value, str) or value not in names:
            raise refuse(value, f"use {', '.join(names)}")
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
            raise refuse(value, f"must be a whole number from {low} to {high}")
        return value

    return check


def nullable(inner: ValueType) -> ValueType:
    """Return a type that also takes null, None in Python."""

    def check(value: object) -> object:
        try:
            return None if value is None else inner.check(value)
        except InputError as error:
            reason = str(error.details["reason"])
            raise refuse(value, reason.replace("must be a", "must be None or a", 1)) from None

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
        raise refuse(value, "must be True or False")
    return value


def _check_duration(value: object) -> object:
    if not isinstance(value, timedelta) or value < timedelta(0):
        raise refuse(value, "must be a timedelta that is not negative")
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
