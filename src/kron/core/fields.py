"""Fields of definitions: each is declared once, as a row of a table, and read from plain data by it.

A row has the words a field is read under, its value type, its default and one line of documentation. The
reader, the JSON Schema, the defaults, the written form and the tables of the documentation come from it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from datetime import datetime
from itertools import islice
from math import isfinite
from typing import Protocol, TypeAlias, TypeVar

from kron.core.errors import InputError, InvalidOptionError, Problem, cut
from kron.core.time.instant import EpochSeconds, seconds_of

Schema: TypeAlias = dict[str, object]
Parsers: TypeAlias = Mapping[str, Callable[[object], object]]
Value = TypeVar("Value")

# The types of an object in a document. Nearly all are a `dict`, which is found out much sooner.
OBJECTS = (dict, Mapping)
# How many unknown fields of an object are named.
MAX_UNKNOWN = 20
# How many texts of a document that cannot be stored are named.
MAX_TEXT_PROBLEMS = 10
NOT_RENAMED: Mapping[str, str] = {}
NO_PARSERS: Parsers = {}
# Stand for a value that was refused, and for the default of a field that has none.
REFUSED, NO_DEFAULT = object(), object()

# Fields of cron libraries, CronJobs, Celery and APScheduler, with the words that mean the same here: the
# first one that a definition knows is suggested.
WORDS_ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "crontab": ("cron_expr", "schedule"),
    "expr": ("cron_expr", "schedule"),
    "expression": ("cron_expr", "schedule"),
    "trigger": ("cron_expr", "schedule"),
    "tz": ("timezone",),
    "id": ("schedule_id", "identity"),
    "name": ("schedule_id", "identity"),
    "cmd": ("command",),
    "paused": ("suspend",),
    "disabled": ("suspend",),
    "enabled": ("suspend",),
    "coalesce": ("catchup", "catchup_policy"),
    "max_instances": ("overlap", "concurrency", "overlap_policy"),
    "concurrencyPolicy": ("overlap", "concurrency", "overlap_policy"),
    "misfire_grace_time": ("deadline",),
    "startingDeadlineSeconds": ("deadline",),
    "activeDeadlineSeconds": ("run_timeout",),
    "soft_time_limit": ("run_timeout",),
    "time_limit": ("run_timeout",),
}


class Renames(Protocol):
    """The words that a document uses for some paths."""

    def get(self, path: str, default: str, /) -> str:
        """Return the word for a path, or the default."""


class FieldReader:
    """One object of a definition, read field by field; problems are collected, not raised.

    `renamed` are the paths of a document that calls some fields by other words. With `hides_unknown` problems
    do not quote the values of unknown fields, nor a value that is not an object: it may be a secret.
    """

    __slots__ = ("_hides_unknown", "_path", "_renamed", "problems", "values")

    def __init__(
        self,
        value: object,
        path: str,
        problems: list[Problem],
        *,
        known: Collection[str],
        renamed: Renames = NOT_RENAMED,
        hides_unknown: bool = False,
    ) -> None:
        self._path = path
        self._hides_unknown = hides_unknown
        self._renamed = renamed
        self.problems = problems
        self.values: Mapping[object, object] = {}
        if not isinstance(value, OBJECTS):
            shown = None if hides_unknown else value
            self.problem("", shown, f"must be an object with {', '.join(known)}")
            return
        self.values = value
        self._refuse_unknown(known)

    def _refuse_unknown(self, known: Collection[str]) -> None:
        """Add a problem for each unknown field up to a limit, and one for the rest."""
        unknown = [name for name in self.values if name not in known]
        if not unknown:
            return
        for name in unknown[:MAX_UNKNOWN]:
            reason = f"unknown field; {suggestion(name, known)}"
            self.problem(cut(str(name)), None if self._hides_unknown else self.values[name], reason)
        if len(unknown) > MAX_UNKNOWN:
            self.problem("", None, f"has {len(unknown) - MAX_UNKNOWN} more unknown fields")

    def path_of(self, name: str) -> str:
        """Return the path of a field, e.g. ``policy.deadline``."""
        path = f"{self._path}.{name}" if self._path and name else self._path or name or "job"
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

    def read(
        self, name: str, parse: Callable[[object], Value], default: Value, *, is_secret: bool = False
    ) -> Value:
        """Return a field parsed, or the default where it is absent or invalid; a secret is not quoted."""
        if name not in self.values:
            return default
        value = self.values[name]
        try:
            return parse(value)
        except InputError as error:
            shown = None if is_secret else value
            self.problem(name, shown, str(error.details.get("reason", error)))
            return default

    def sub(self, name: str, known: Collection[str], *, hides_unknown: bool = False) -> "FieldReader":
        """Return the object in a field; an absent one is empty."""
        value, path = self.values.get(name, {}), self.path_of(name)
        return FieldReader(
            value,
            path,
            self.problems,
            known=known,
            renamed=self._renamed,
            hides_unknown=hides_unknown or self._hides_unknown,
        )


# --- parsers -------------------------------------------------------------------------------------


def invalid_value(value: object, reason: str) -> InvalidOptionError:
    """Return the error for a value; the reader adds the path."""
    return InvalidOptionError(option="value", value=value, reason=reason)


def suggestion(name: object, names: Iterable[str]) -> str:
    """Return what another scheduler's word means, the closest name, all of them, or that there is none."""
    from difflib import get_close_matches

    known = tuple(names)
    meant = [word for word in WORDS_ELSEWHERE.get(str(name), ()) if word in known]
    # Comparing costs time in proportion to the length, and no name is this long.
    close = meant or get_close_matches(cut(str(name)), known, n=1)
    return f"did you mean {close[0]}?" if close else f"use {', '.join(known)}" if known else "there are none"


def text_fault(text: str) -> str | None:
    """Return why a text cannot be stored and sent everywhere, or None."""
    if "\0" in text:
        return "must not contain a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode"
    return None


def string_fault(value: object) -> str | None:
    """Return why a value is not a text that can be stored and sent everywhere, or None."""
    if not isinstance(value, str):
        return f"must be a string, got {type(value).__name__}"
    return text_fault(value)


def parse_text(value: object) -> str:
    """Return a text, or refuse another type, a NUL character and lone surrogates."""
    if not isinstance(value, str):
        raise invalid_value(value, f"must be a string, got {type(value).__name__}")
    if fault := text_fault(value):
        raise invalid_value(ascii(value), fault)
    return value


def text_problems(value: object, path: str) -> Iterator[Problem]:
    """Yield a problem for each text in a JSON document, names included, that cannot be stored; the first ten.

    A path is only written for a problem: a document has far fewer texts than its paths have characters.
    """
    found = (
        Problem(_path_in(place, path, "document" if is_name else ""), ascii(cut(text)), reason)
        for place, text, reason, is_name in _text_faults(value)
    )
    yield from islice(found, MAX_TEXT_PROBLEMS)


# The place of a value in a document: that of the object or list around it, and its name there.
_Place: TypeAlias = "tuple[_Place, object] | None"


def _text_faults(value: object) -> Iterator[tuple[_Place, str, str, bool]]:
    """Yield the place of each text that cannot be stored, or of the object whose name it is."""
    left: list[tuple[_Place, object]] = [(None, value)]
    while left:
        place, value = left.pop()
        if isinstance(value, str) and (fault := text_fault(value)):
            yield place, value, fault, False
        elif isinstance(value, Mapping):
            for name in value:
                if isinstance(name, str) and (fault := text_fault(name)):
                    yield place, name, f"a name in it {fault}", True
            left += (((place, name), each) for name, each in value.items())
        elif isinstance(value, list | tuple):
            left += (((place, number), each) for number, each in enumerate(value))


def _path_in(place: _Place, path: str, default: str) -> str:
    """Return the path of a place; long names in it are cut off."""
    names: list[str] = []
    while place is not None:
        place, name = place
        names.append(cut(str(name)))
    return ".".join(filter(None, (path, *reversed(names)))) or default


def parse_bool(value: object) -> bool:
    """Return true or false, or refuse another value."""
    if not isinstance(value, bool):
        raise invalid_value(value, "must be true or false")
    return value


def parse_positive(value: object) -> float:
    """Return a finite number greater than 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid_value(value, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        raise invalid_value(value, "must be a finite number") from None
    if not isfinite(number) or number <= 0:
        raise invalid_value(value, "must be greater than 0 and finite")
    return number


def choice_of(choices: Mapping[str, Value]) -> Callable[[object], Value]:
    """Return a parser of one of some names."""

    def parse(value: object) -> Value:
        if not isinstance(value, str) or value not in choices:
            raise invalid_value(value, suggestion(value, choices))
        return choices[value]

    return parse


def optional(parse: Callable[[object], Value]) -> Callable[[object], Value | None]:
    """Return a parser that also accepts null."""
    return lambda value: None if value is None else parse(value)


def count_in(low: int, high: int) -> Callable[[object], int]:
    """Return a parser of whole numbers within bounds."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid_value(value, f"must be a whole number, got {type(value).__name__}")
        if not low <= value <= high:
            raise invalid_value(value, f"outside {low}-{high}")
        return value

    return parse


def parse_instant(value: object) -> EpochSeconds:
    """Return a whole second from an aware datetime or an RFC 3339 text."""
    try:
        instant = value if isinstance(value, datetime) else datetime.fromisoformat(parse_text(value))
    except ValueError as cause:
        raise invalid_value(value, "use an instant such as 2026-03-29T01:00:00Z") from cause
    if isinstance(value, str) and instant.tzinfo is None:
        raise invalid_value(
            value, f"has no time zone; use {instant.isoformat()}Z, or an offset such as +02:00"
        )
    try:
        return seconds_of(instant)
    except InputError as cause:
        raise invalid_value(value, str(cause.details["reason"])) from cause


# Every line break known to Unicode: seeds join parts by LF, so a break could make two jobs share a seed.
LINE_BREAKS = frozenset("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")


# The same as a pattern: something to read, and nothing that ends a line.
_ON_A_LINE = r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029\x00]*"
NAME_PATTERN = rf"^{_ON_A_LINE}[^\s\x1c-\x1f\x85\x00]{_ON_A_LINE}$"
# The longest name of a schedule, a workflow or a user, in bytes: databases keep it in their indexes.
MAX_NAME = 500


def identity_fault(value: object) -> str | None:
    """Return why a value is not a valid identity, or None."""
    if not isinstance(value, str):
        return string_fault(value)
    if not value.strip():
        return "must not be empty"
    if not LINE_BREAKS.isdisjoint(value):
        return "must not contain a line break; two jobs could share a seed"
    return text_fault(value)


def parse_name(value: object) -> str:
    """Return the name of a workflow or a user: one line, not empty, of limited length."""
    text = parse_text(value)
    if not text.strip():
        raise invalid_value(value, "must not be empty")
    if not LINE_BREAKS.isdisjoint(text):
        raise invalid_value(value, "must not contain a line break")
    if len(text.encode()) > MAX_NAME:
        raise invalid_value(value, f"is longer than {MAX_NAME} bytes")
    return text


# --- tables --------------------------------------------------------------------------------------


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
    # Every word a document may use, in order, with its row; and for each row what writing it takes.
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
        if self.words.keys().isdisjoint(given):
            return values
        for word, row in self.words.items():
            if word not in given:
                continue
            name = row.name
            if name in values:
                other = next(each for each in row.words if each in given)
                reader.problem(word, given[word], f"conflicts with {other}; use one of the two")
                continue
            values[name] = reader.read(word, parsers.get(name, row.type.parse), REFUSED)
        if REFUSED not in values.values():
            return values
        return {name: value for name, value in values.items() if value is not REFUSED}

    def build(self, reader: FieldReader, make: Callable[..., Value], parsers: Parsers = NO_PARSERS) -> Value:
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
            raise invalid_value(value, "; ".join(map(str, reader.problems)))
        return result

    return ValueType(
        schema=table.schema(),
        parse=parse,
        write=lambda value: None if value is None else table.write(value),
        written={"type": "object"},
    )


def object_schema(properties: Mapping[str, object], *, required: Collection[str] = ()) -> Schema:
    """Return the schema of an object that has these fields and no others."""
    schema: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(required)} if required else schema


def one_or_more(item: Schema) -> Schema:
    """Return the schema of a value, or of a list of such values that is not empty."""
    return {"oneOf": [item, {"type": "array", "items": item, "minItems": 1}]}
