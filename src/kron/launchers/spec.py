"""Launcher kinds and their settings: the types every kind of launcher is made of.

A schedule's launcher object has a `kind` and the fields of that kind. Each kind declares them once, as a
frozen dataclass with a field table, in its own folder; `kron.app.launchers` is the registry of all kinds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from kron.core.errors import InputError, Problem
from kron.core.fields import (
    NO_PARSERS,
    FieldReader,
    FieldTable,
    Parsers,
    Schema,
    ValueType,
    invalid_value,
    object_schema,
    parse_text,
    row,
    table_of,
    unchanged,
)
from kron.core.plan.compiled import cached_by_text
from kron.core.plan.report import Traits
from kron.core.redaction import HIDDEN
from kron.core.value_types import NAME_TEXT, VERSION, nullable
from kron.ports import Clock, Launcher

# The largest launcher object, as text: the store returns it with every due job.
MAX_TEXT = 65_536
# Shorter values of variables and headers are too common to be replaced in every log line.
MIN_LOGGED_SECRET = 8
# The field of a stored launcher object that has its secrets, encrypted (`kron.launchers.secret`).
SEALED = "sealed"
NO_KEYS = "the setting secret_keys is not set"
# How many parsed launcher objects are cached.
MAX_CACHED = 4_096
Options = TypeVar("Options")
Pairs: TypeAlias = tuple[tuple[str, str], ...]
# The fields that say whose work a job is (SPEC 3: 3); every kind has them.
WORKFLOW_FIELDS = ("workflow_id", "version", "user_id")


class InvalidLauncherError(InputError):
    """A launcher object has one or more problems, each with its path."""

    code = "invalid_launcher"

    def __init__(self, *, problems: Sequence[Problem]) -> None:
        super().__init__(
            f"Invalid launcher: {'; '.join(map(str, problems))}",
            problems=tuple(problems),
            reason="; ".join(map(str, problems)),
        )
        self.problems = tuple(problems)

    def lines(self) -> list[str]:
        """Return one line for each problem."""
        return [str(problem) for problem in self.problems]


class LauncherSettings(Protocol):
    """The checked settings of a launcher object."""

    @property
    def kind(self) -> str:
        """Return the kind of the launcher object."""

    @property
    def launcher_kind(self) -> str:
        """Return the text that selects launcher and traits; it is stored with the job."""

    @property
    def workflow_id(self) -> object:
        """Return the workflow the job belongs to, or None."""

    @property
    def version(self) -> object:
        """Return the version of the workflow, or None."""

    @property
    def user_id(self) -> object:
        """Return the user the job runs for, or None."""

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""

    def redacted(self) -> dict[str, object]:
        """Return the launcher object without its secrets."""

    def secrets(self) -> list[str]:
        """Return the texts in it that must not appear in a log."""

    def problems(self, config: "LauncherConfig") -> list[Problem]:
        """Return why the operator does not allow it; an empty list allows it."""


@dataclass(frozen=True, slots=True)
class LauncherConfig:
    """The operator's configuration of launchers: an options value for each kind that has any.

    `default` is the launcher of schedules that have none. It is the operator's choice, so it is allowed.
    """

    options: tuple[object, ...] = ()
    default: LauncherSettings | None = None

    def get(self, kind: type[Options]) -> Options:
        """Return the options of a type, or its defaults, which restrict nothing."""
        return next((value for value in self.options if isinstance(value, kind)), None) or kind()


# A configuration that restricts nothing.
NO_LIMITS = LauncherConfig()


class LauncherContext(NamedTuple):
    """The parts of a worker that its launchers are built from; `secret` signs requests and run tokens."""

    clock: Clock
    config: LauncherConfig
    secret: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherKind:
    """One kind of launcher: how its launcher objects are read and described, and how it is built.

    `traits` are by the text stored with jobs, for a kind may have variants. `build` gets one of these texts;
    it returns None where the worker lacks something the launcher needs.
    """

    name: str
    read: Callable[[Mapping[str, object], str, Parsers], LauncherSettings]
    schema: Schema
    traits: Mapping[str, Traits]
    build: Callable[[str, LauncherContext], Launcher | None]


def launcher_kind_of(settings: LauncherSettings) -> str:
    """Return the text that selects launcher and traits; it is stored with the job."""
    return settings.launcher_kind


def launcher_text_of(settings: LauncherSettings) -> str:
    """Return settings as the text that is stored with the job."""
    return json.dumps(settings.to_dict(), ensure_ascii=False, separators=(",", ":"))


# --- settings with a field table -------------------------------------------------------------------


def parse_pairs(value: object) -> Pairs:
    """Return an object of strings as sorted pairs."""
    if not isinstance(value, Mapping):
        raise invalid_value(value, "must be an object of strings")
    return tuple(sorted((parse_text(name), parse_text(text)) for name, text in value.items()))


def pairs_type(parse: Callable[[object], Pairs]) -> ValueType:
    """Return the type of an object of strings that is kept as pairs."""
    schema: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
    return ValueType(schema=schema, parse=parse, write=_write_pairs)


def redact_pairs(pairs: Pairs) -> dict[str, str]:
    """Return pairs as an object with every value hidden, as for headers and variables."""
    return {name: HIDDEN for name, _ in pairs}


def _write_pairs(value: object) -> object:
    assert isinstance(value, tuple)
    return dict(value)


TEXT = ValueType(schema={"type": "string"}, parse=parse_text)
# The workflow fields of a stored launcher object were checked when it was written, perhaps by an older Kron.
STORED: Parsers = dict.fromkeys(WORKFLOW_FIELDS, unchanged)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The base of settings whose fields are declared in a table; all have the workflow a job belongs to."""

    kind: ClassVar[str]
    table: ClassVar[FieldTable]
    # Fields that may hold a secret: an error does not quote them.
    unquoted: ClassVar[tuple[str, ...]] = ()

    workflow_id: str | None = field(
        default=None,
        metadata=row(nullable(NAME_TEXT), "the workflow the job belongs to; sent with every start"),
    )
    version: int | None = field(default=None, metadata=row(nullable(VERSION), "its version"))
    user_id: str | None = field(
        default=None, metadata=row(nullable(NAME_TEXT), "the user the job runs for; sent with every start")
    )

    @property
    def launcher_kind(self) -> str:
        """Return the text that selects launcher and traits; it is stored with the job."""
        return self.kind

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        return {"kind": self.kind, **self.table.write(self)}

    def redacted(self) -> dict[str, object]:
        """Return the launcher object without its secrets."""
        return self.to_dict()

    def secrets(self) -> list[str]:
        """Return the texts in it that must not appear in a log."""
        return []

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the operator does not allow it; an empty list allows it."""
        return []

    def has_same(self, names: Sequence[str], other: object) -> bool:
        """Return whether other settings are of the same kind and have the same values of some fields."""
        return type(other) is type(self) and all(
            getattr(other, name) == getattr(self, name) for name in names
        )

    @classmethod
    def read(cls, value: Mapping[str, object], path: str = "launcher", parsers: Parsers = NO_PARSERS) -> Self:
        """Return the settings of a launcher object, or raise InvalidLauncherError with every problem."""
        if value.get("kind") != cls.kind:
            problem = Problem(f"{path}.kind", value.get("kind"), f'must be "{cls.kind}" here')
            raise InvalidLauncherError(problems=[problem])
        problems: list[Problem] = []
        required = cls.table.required
        given = {name: each for name, each in value.items() if each is not None or name not in required}
        reader = FieldReader(given, path, problems, known=("kind", *cls.table.words), hides_unknown=True)
        for name in required:
            if not reader.has(name):
                reader.problem(name, None, "is missing")
        values = cls.table.read(reader, parsers)
        if problems:
            secret = [reader.path_of(name) for name in cls.unquoted]
            raise InvalidLauncherError(
                problems=[replace(each, value=None) if each.path in secret else each for each in problems]
            )
        return cls(**values)  # type: ignore[arg-type]  # the table's rows have the types of the fields

    @classmethod
    def schema(cls) -> Schema:
        """Return the JSON Schema of the launcher object."""
        rows = {spec.word: spec.schema_of(spec.word) for spec in cls.table.rows}
        return object_schema({"kind": {"const": cls.kind}, **rows}, required=("kind", *cls.table.required))


def launcher_table(
    settings: type, *, required: tuple[str, ...] = (), always_workflow: bool = False
) -> FieldTable:
    """Return the table of a kind's settings: its own fields, then the workflow.

    Workflow fields that are None are left out of the stored text, except with `always_workflow`.
    """
    rows = table_of(settings).rows
    own = [spec for spec in rows if spec.name not in WORKFLOW_FIELDS]
    workflow = [replace(spec, sparse=not always_workflow) for spec in rows if spec.name in WORKFLOW_FIELDS]
    return FieldTable((*own, *workflow), required)


# The workflow alone, for kinds whose own fields are not declared here.
WORKFLOW_TABLE = launcher_table(TableSettings)
Read = TypeVar("Read", bound=TableSettings)


def settings_parser(kind: type[Read]) -> Callable[[str], Read]:
    """Return the parser of the texts stored with jobs of a kind; it is cached, for every start uses it."""

    @cached_by_text(MAX_CACHED)
    def parse(text: str) -> Read:
        document = launcher_document(text)
        if SEALED in document:
            raise InvalidLauncherError(problems=[Problem("launcher", None, f"is encrypted, and {NO_KEYS}")])
        return kind.read(document, parsers=STORED)

    return parse


def launcher_document(text: str) -> Mapping[str, object]:
    """Return the launcher object that a text is, or raise InvalidLauncherError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as cause:
        problem = Problem("launcher", None, f"is not JSON: {cause}")
        raise InvalidLauncherError(problems=[problem]) from cause
    if not isinstance(value, Mapping):
        raise InvalidLauncherError(problems=[Problem("launcher", None, "must be an object with kind")])
    return value
