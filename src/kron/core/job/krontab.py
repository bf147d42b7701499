"""krontab: one job a line, for people who think in crontabs.

    30 2 * * *  @tz(Europe/Berlin) @win(after,1h) @policy(deadline=10m)  name=backup command="/opt/backup"

A line has five or six fields or a macro, then directives and `word=value` fields in any order. It yields the
same document as a job file, so one reader checks both.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kron.core.errors import InputError, InvalidJobError, InvalidJobFileError, quoted
from kron.core.fields import FieldSpec, FieldTable, Schema
from kron.core.job.constraint import RULE
from kron.core.job.host import HOST_WORDS
from kron.core.job.job import JOB, PLACES, TABLES, Job
from kron.core.job.policy import POLICY

# The longest line; more is a file of another kind.
MAX_LINE = 65_536
_BLANK = " \t"
_WORD = re.compile(r"[^ \t]+")
_MACRO = re.compile(r"@[A-Za-z_]+(?![A-Za-z_(])")
_DIRECTIVE = re.compile(r"@([A-Za-z_]*)\(")
_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_RAW = re.compile(r"'([^']*)'")
_ARGUMENT = re.compile(r"[^,;)]*")
_ARGUMENT_NAME = re.compile(r"[ \t]*([A-Za-z_]+)[ \t]*=[ \t]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# A word that needs no quotes as a value.
_PLAIN = re.compile(r"""[^ \t"'\[{#,;()][^ \t]*""")
_PLAIN_ARGUMENT = re.compile(r"""[^ \t"'\[{,;()=][^ \t,;()"']*""")
_JSON = json.JSONDecoder()
# The fields of expressions.
COUNTS = (5, 6)


class KrontabProblem(NamedTuple):
    """One problem of a krontab: where, the text there, the reason and the remedy."""

    line: int
    column: int
    text: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        shown = f' "{quoted(self.text)}"' if self.text else ""
        return f"{self.line}:{self.column}:{shown} {self.reason}; {self.remedy}"


class InvalidKrontabError(InvalidJobFileError):
    """Lines of a krontab cannot be read, each problem with its line and column."""

    code = "invalid_krontab"

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        prefix = f"{self.file}:" if self.file else ""
        return [f"{prefix}{problem}" for problem in self.problems]


class SourcePosition(NamedTuple):
    """A place in a text, both numbers from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Krontab:
    """The jobs of a krontab as the content of a job file, and the place of every path in it.

    `named` are the paths of jobs that take their identity from the file's name.
    """

    content: dict[str, list[dict[str, object]]]
    places: Mapping[str, SourcePosition]
    named: frozenset[str]


class _SyntaxError(Exception):
    """A line cannot be read from `start` on; `text` is what stands there."""

    def __init__(self, start: int, text: str, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.start, self.text, self.reason, self.remedy = start, text, reason, remedy


# --- reading -------------------------------------------------------------------------------------


def parse_krontab(text: str, *, stem: str, file: str | None = None) -> Krontab:
    """Return the jobs of a krontab, or raise InvalidKrontabError with the problems of all lines.

    `stem` is the name of the file without its suffix: a job that has a `name` and no `identity` is called
    `<stem>/<name>`.
    """
    jobs: list[dict[str, object]] = []
    places: dict[str, SourcePosition] = {}
    problems: list[KrontabProblem] = []
    named: set[str] = set()
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = line.removesuffix("\r")
        body = line.strip(_BLANK)
        if not body or body.startswith("#"):
            continue
        try:
            parsed = _Line(line, stem).read()
        except _SyntaxError as error:
            problem = KrontabProblem(number, error.start + 1, error.text, error.reason, error.remedy)
            problems.append(problem)
            continue
        prefix = f"jobs[{len(jobs)}]"
        places[prefix] = SourcePosition(number, 1)
        places |= {f"{prefix}.{path}": SourcePosition(number, at + 1) for path, at in parsed.places.items()}
        jobs.append(parsed.document)
        if parsed.named:
            named.add(prefix)
    if problems:
        raise InvalidKrontabError(problems=problems, file=file)
    return Krontab({"jobs": jobs}, places, frozenset(named))


@dataclass(slots=True)
class _Line:
    """One line while it is read: `at` is how far."""

    text: str
    stem: str
    at: int = 0
    document: dict[str, object] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    named: bool = False

    def read(self) -> "_Line":
        if len(self.text) > MAX_LINE:
            raise _SyntaxError(0, "", f"is longer than {MAX_LINE} characters", "use a job file")
        self._skip()
        self._read_expression()
        while self._skip():
            if directive := _DIRECTIVE.match(self.text, self.at):
                self._read_directive(directive)
            elif word := _FIELD.match(self.text, self.at):
                self._read_field(word)
            else:
                raise self._unexpected()
        self._name()
        return self

    def _skip(self) -> bool:
        """Skip blanks; return whether something follows that is not a comment."""
        self._skip_blanks()
        return self.at < len(self.text) and self.text[self.at] != "#"

    def _unexpected(self) -> _SyntaxError:
        word = _WORD.match(self.text, self.at)
        assert word is not None, "something follows"
        if word[0].startswith("@"):
            return _SyntaxError(self.at, word[0], "is no directive", f"use {', '.join(_usages())}")
        remedy = 'write word=value, and quote a value that has blanks: command="/opt/report --all"'
        return _SyntaxError(self.at, word[0], "is neither a directive nor a field", remedy)

    def _read_expression(self) -> None:
        start = end = self.at
        count = 0
        if macro := _MACRO.match(self.text, self.at):
            end = self.at = macro.end()
        else:
            while self._skip() and not self._starts_option():
                word = _WORD.match(self.text, self.at)
                assert word is not None, "something follows"
                end = self.at = word.end()
                count += 1
            if count not in COUNTS:
                reason = f"has {count} fields before its directives and options"
                remedy = "write five fields, six with seconds first, or a macro such as @daily"
                raise _SyntaxError(start, self.text[start:end], reason, remedy)
        self._put(("schedule",), self.text[start:end], start)

    def _starts_option(self) -> bool:
        return bool(_DIRECTIVE.match(self.text, self.at) or _FIELD.match(self.text, self.at))

    def _put(self, path: tuple[str, ...], value: object, start: int) -> None:
        """Set a field, or raise if it is set already."""
        holder = self.document
        for name in path[:-1]:
            inner = holder.setdefault(name, {})
            if not isinstance(inner, dict):
                raise _SyntaxError(start, ".".join(path), f"conflicts with {name}", "use one of the two")
            holder = inner
        if path[-1] in holder:
            raise _SyntaxError(start, ".".join(path), "is given twice", "leave one out")
        holder[path[-1]] = value
        self.places[".".join(path)] = start

    # --- fields

    def _read_field(self, match: "re.Match[str]") -> None:
        start, word = self.at, match[1]
        self.at = match.end()
        value = self._value(_WORD, _types_of(word))
        self._put(tuple(word.split(".")), value, start)

    def _value(self, bare: "re.Pattern[str]", types: frozenset[str]) -> object:
        """Return the value at this place: quoted, JSON, or a bare word."""
        start, first = self.at, self.text[self.at : self.at + 1]
        if first == '"':
            return self._string(start)
        if first == "'":
            raw = _RAW.match(self.text, start)
            if raw is None:
                raise _SyntaxError(start, self.text[start:], "has no end", "close it with '")
            self.at = raw.end()
            return raw[1]
        if first in ("[", "{"):
            return self._json(start)
        word = bare.match(self.text, start)
        if word is None or not word[0].strip(_BLANK):
            raise _SyntaxError(start, "", "has no value", 'write one, or "" for an empty text')
        self.at = word.end()
        return _scalar(word[0].strip(_BLANK), types)

    def _string(self, start: int) -> str:
        match = _STRING.match(self.text, start)
        if match is None:
            raise _SyntaxError(start, self.text[start:], "has no end", 'close it with "')
        try:
            value = json.loads(match[0], strict=False)
        except ValueError:
            remedy = r"write \\ for a backslash, or put the text in '...', which has no escapes"
            raise _SyntaxError(start, match[0], "has an unknown escape", remedy) from None
        self.at = match.end()
        return str(value)

    def _json(self, start: int) -> object:
        try:
            value, self.at = _JSON.raw_decode(self.text, start)
        except (ValueError, RecursionError) as error:
            reason = f"is not JSON: {getattr(error, 'msg', 'nested too deeply')}"
            raise _SyntaxError(start, self.text[start:], reason, 'write ["a", "b"] or {"a": 1}') from None
        result: object = value
        return result

    # --- directives

    def _read_directive(self, match: "re.Match[str]") -> None:
        start, name = self.at, match[1]
        directive = DIRECTIVES.get(name)
        if directive is None:
            remedy = f"use {', '.join(_usages())}"
            raise _SyntaxError(start, f"@{name}", "is no directive", remedy)
        self.at = match.end()
        arguments = list(self._arguments(start, directive))
        if not arguments:
            raise _SyntaxError(start, f"@{name}()", "is empty", f"write {directive.usage}")
        for path, value, place in _placed(arguments, directive):
            self._put(path, value, place)

    def _arguments(self, start: int, directive: "_Directive") -> Iterator["_Argument"]:
        """Yield the arguments up to the closing parenthesis."""
        while True:  # each turn passes a separator or ends
            self._skip_blanks()
            if self.text[self.at : self.at + 1] == ")":
                self.at += 1
                return
            place = self.at
            named = _ARGUMENT_NAME.match(self.text, self.at)
            self.at = place if named is None else named.end()
            name = None if named is None else named[1]
            value = self._value(_ARGUMENT, directive.types_of(name))
            yield _Argument(name, value, place)
            self._skip_blanks()
            mark = self.text[self.at : self.at + 1]
            if mark in (",", ";"):
                self.at += 1
            elif mark != ")":
                shown = self.text[start:]
                raise _SyntaxError(start, shown, "has no closing parenthesis", f"write {directive.usage}")

    def _skip_blanks(self) -> None:
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1

    def _name(self) -> None:
        """Make the identity of a job that has a name."""
        name = self.document.pop("name", None)
        start = self.places.pop("name", 0)
        if name is not None and "identity" in self.document:
            raise _SyntaxError(start, f"name={name}", "conflicts with identity", "use one of the two")
        if name is not None:
            self.named = True
            self._put(("identity",), f"{self.stem}/{name}", start)
        elif "identity" not in self.document:
            remedy = "add name=..., which makes the identity FILE/NAME, or identity=..."
            raise _SyntaxError(0, self.text.strip(_BLANK), "has no name", remedy)


class _Argument(NamedTuple):
    name: str | None
    value: object
    start: int


@dataclass(frozen=True, slots=True)
class _Directive:
    """One directive: where its arguments belong, and an example.

    `positional` are the names of arguments without a name; after these, one belongs to the name before it.
    """

    usage: str
    holder: tuple[str, ...]
    positional: tuple[str, ...] = ()
    table: FieldTable | None = None
    lists: bool = False

    def types_of(self, name: str | None) -> frozenset[str]:
        """Return the types of an argument's values: those of its field, texts for lists of values."""
        if self.lists:
            return frozenset({"string"})
        row = None if self.table is None or name is None else self.table.words.get(name)
        if name == "salt":
            return frozenset({"string"})
        return frozenset() if row is None else _types_in(row.type.schema)


DIRECTIVES: Mapping[str, _Directive] = {
    "tz": _Directive("@tz(Europe/Berlin)", (), ("timezone",)),
    "win": _Directive("@win(after,1h)", ("window",), ("mode", "duration")),
    "dist": _Directive("@dist(skewLate,shape=2.5)", ("distribution",), ("name",)),
    "seed": _Directive("@seed(daily,salt=x)", ("seed",), ("strategy",)),
    "policy": _Directive("@policy(concurrency=forbid,deadline=10m)", ("policy",), (), POLICY),
    "only": _Directive("@only(hours=9-17,dow=mon-fri)", ("constraints", "only"), (), RULE, lists=True),
    "avoid": _Directive(
        "@avoid(dates=2026-12-24..2026-12-26)", ("constraints", "avoid"), (), RULE, lists=True
    ),
}


def _usages() -> list[str]:
    return [directive.usage for directive in DIRECTIVES.values()]


def _placed(
    arguments: Sequence[_Argument], directive: _Directive
) -> Iterator[tuple[tuple[str, ...], object, int]]:
    """Yield the path, the value and the place of each argument of a directive."""
    lists: dict[str, tuple[list[object], int]] = {}
    for number, (name, value, start) in enumerate(arguments):
        if directive.lists:
            name = name or next(reversed(lists), None)
        elif name is None and number < len(directive.positional):
            name = directive.positional[number]
        if name is None:
            raise _SyntaxError(start, str(value), "has no name", f"write {directive.usage}")
        if directive.lists:
            lists.setdefault(name, ([], start))[0].append(value)
        else:
            yield (*directive.holder, name), value, start
    for name, (values, start) in lists.items():
        only = values[0] if len(values) == 1 and isinstance(values[0], dict) else values
        yield (*directive.holder, name), only, start


# --- types of bare words -------------------------------------------------------------------------


def _types_in(schema: Schema) -> frozenset[str]:
    """Return the JSON types that a schema allows."""
    types: set[str] = set()
    given = schema.get("type")
    types.update([given] if isinstance(given, str) else given if isinstance(given, list) else [])
    choices = schema.get("enum")
    if isinstance(choices, list):
        types.update("null" if choice is None else "string" for choice in choices)
    for kind in ("oneOf", "anyOf"):
        inner = schema.get(kind)
        for each in inner if isinstance(inner, list) else []:
            types |= _types_in(each)
    return frozenset(types)


def _types_of(word: str) -> frozenset[str]:
    """Return the types of the field that a word names; variables of a process are texts."""
    first, _, rest = word.partition(".")
    if first in ("name", "env"):
        return frozenset({"string"})
    row = JOB.words.get(first) if not rest else None
    if place := PLACES.get(word):
        row = JOB.words.get(place.words[0]) if place.holder is None else _row_in(place.holder, place.words[0])
    elif rest:
        row = _row_in(first, rest)
    return frozenset() if row is None else _types_in(row.type.schema)


def _row_in(holder: str, word: str) -> FieldSpec | None:
    return TABLES[holder].words.get(word) if holder in TABLES else None


_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}
_NOT_TEXT = {"boolean", "integer", "number"}


def _scalar(word: str, types: frozenset[str]) -> object:
    """Return a bare word as a value: as text where its field takes text only, else as JSON has it."""
    if "string" in types and types.isdisjoint(_NOT_TEXT):
        return None if word == "null" and "null" in types else word
    if word in _CONSTANTS:
        return _CONSTANTS[word]
    number: object = json.loads(word) if _NUMBER.fullmatch(word) and len(word) <= 40 else word
    return number


# --- writing -------------------------------------------------------------------------------------

# How each part of a definition that has a directive is written.
_WRITERS: Mapping[str, Callable[[object], str]] = {
    "timezone": lambda value: f"@tz({_argument(value)})",
    "window": lambda value: f"@win({_argument(_of(value, 'mode'))},{_argument(_of(value, 'duration'))})",
    "distribution": lambda value: f"@dist({_first_then(value, 'name')})",
    "seed": lambda value: f"@seed({_first_then(value, 'strategy')})",
    "policy": lambda value: f"@policy({_pairs(value)})",
    "constraints": lambda value: " ".join(_sides(value)),
}


def krontab_line(job: Job, *, stem: str | None = None) -> str:
    """Return a job as a krontab line, or raise InputError if no line can express it.

    With a `stem` that starts the identity, the rest of it is the job's name.
    """
    written = job.to_dict()
    defaults = Job.from_dict({"identity": job.identity, "schedule": "0 0 * * *"}).to_dict()
    parts = [str(written["schedule"])]
    prefix = None if stem is None else f"{stem}/"
    named = prefix is not None and job.identity.startswith(prefix)
    name = f"name={_text(job.identity[len(prefix or '') :])}" if named else f"identity={_text(job.identity)}"
    fields = [name]
    for word, value in _flattened(written).items():
        if word in ("identity", "schedule") or (word in defaults and defaults[word] == value):
            continue
        if word in _WRITERS:
            parts.append(_WRITERS[word](value))
        else:
            fields.append(f"{word}={_field_text(value)}")
    line = " ".join(part for part in (*parts, *fields) if part)
    if not _is_same(line, stem or "", job):
        raise InputError(f'Job "{job.identity}" cannot be written as a krontab line: use a job file')
    return line


def _flattened(written: Mapping[str, object]) -> dict[str, object]:
    """Return a definition with the fields of its process beside the others, where all have a word there."""
    launcher = written.get("launcher")
    if not isinstance(launcher, Mapping) or launcher.get("kind") != "process":
        return dict(written)
    words = {field: word for word, field in HOST_WORDS.items()}
    fields = {name: value for name, value in launcher.items() if name != "kind"}
    if not fields.keys() <= words.keys():
        return dict(written)
    flat = {words[name]: value for name, value in fields.items()}
    return {word: value for word, value in written.items() if word != "launcher"} | flat


def _is_same(line: str, stem: str, job: Job) -> bool:
    try:
        [document] = parse_krontab(line, stem=stem).content["jobs"]
        return Job.from_dict(document) == job
    except (InvalidKrontabError, InvalidJobError, ValueError):
        return False


def _of(value: object, name: str) -> object:
    assert isinstance(value, Mapping), "the part of a written definition is an object"
    return value[name]


def _first_then(value: object, first: str) -> str:
    assert isinstance(value, Mapping), "the part of a written definition is an object"
    rest = [f"{name}={_argument(each)}" for name, each in value.items() if name != first and each != ""]
    return ",".join([_argument(value[first]), *rest])


def _pairs(value: object) -> str:
    assert isinstance(value, Mapping), "the part of a written definition is an object"
    return ",".join(f"{name}={_argument(each)}" for name, each in value.items())


def _sides(value: object) -> Iterator[str]:
    assert isinstance(value, Mapping), "the part of a written definition is an object"
    for side, kinds in value.items():
        if kinds:
            listed = (f"{kind}={_listed(values)}" for kind, values in kinds.items())
            yield f"@{side}({','.join(listed)})"


def _listed(values: object) -> str:
    return ",".join(map(_argument, values)) if isinstance(values, list) else json.dumps(values)


def _argument(value: object) -> str:
    """Return the value of an argument, quoted where it must be."""
    if isinstance(value, str):
        return value if _PLAIN_ARGUMENT.fullmatch(value) else json.dumps(value)
    return json.dumps(value)


def _text(value: str) -> str:
    """Return a text of a field that takes texts only, quoted where it must be."""
    return value if _PLAIN.fullmatch(value) and value != "null" and value.isprintable() else json.dumps(value)


def _field_text(value: object) -> str:
    """Return the value of a field: a text in quotes unless it is plain and not read as something else."""
    if isinstance(value, str):
        is_text = (
            _PLAIN.fullmatch(value) and value.isprintable() and isinstance(_scalar(value, frozenset()), str)
        )
        return value if is_text else json.dumps(value)
    return json.dumps(value)
