"""The launcher object of the kind `process`: fields, limits and redaction."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from kron.core.errors import Problem
from kron.core.fields import FieldTable, Schema, ValueType, invalid_value, optional, parse_text, row
from kron.core.value_types import FLAG
from kron.launchers.spec import (
    InvalidLauncherError,
    LauncherConfig,
    Pairs,
    TableSettings,
    launcher_table,
    pairs_type,
    parse_pairs,
    redact_pairs,
)

# How much of a process's output is kept: by default, at least, at most.
DEFAULT_OUTPUT, MIN_OUTPUT, MAX_OUTPUT = 65_536, 1_024, 16 * 1024 * 1024
# Variables with this prefix identify the run; settings cannot set them.
RESERVED_PREFIX = "KRON_"
# Shorter values of variables are too common to be replaced in every log line.
MIN_LOGGED_SECRET = 8
NOT_ALLOWED = "is not among the commands the settings allow (allowed_commands)"
# Variables by which a program runs code of others: an allowed command must not be given them. Loaders and
# interpreters take every variable with one of these prefixes.
CODE_PREFIXES = ("LD_", "DYLD_", "PYTHON", "PERL", "RUBY", "BASH_FUNC_")
CODE_VARIABLES = frozenset(
    {
        "PATH", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4", "GCONV_PATH",
        "NODE_OPTIONS", "NODE_PATH", "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
    }
)  # fmt: skip


def unsafe_variables(env: Iterable[tuple[str, str]]) -> list[str]:
    """Return the variables that decide which code a program runs."""
    return [name for name, _ in env if name in CODE_VARIABLES or name.startswith(CODE_PREFIXES)]


def _parse_command(value: object) -> str | tuple[str, ...]:
    if not isinstance(value, str | list | tuple) or value in ([], ()):
        raise invalid_value(value, "must be a list of words, or one string for /bin/sh")
    command = parse_text(value) if isinstance(value, str) else tuple(map(parse_text, value))
    if not _program_of(command).strip():
        raise invalid_value(value, "must not be empty")
    return command


def _program_of(command: str | tuple[str, ...]) -> str:
    return command if isinstance(command, str) else command[0]


def _write_command(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _parse_env(value: object) -> Pairs:
    pairs = parse_pairs(value)
    for name, _ in pairs:
        if not name or "=" in name:
            raise invalid_value(name, f'"{name}" is not the name of a variable')
        if name.startswith(RESERVED_PREFIX):
            raise invalid_value(name, f"{name} starts with {RESERVED_PREFIX}, which only Kron sets")
    return pairs


def _parse_document(value: object) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise invalid_value(value, "must be a JSON document") from None


def _write_document(value: object) -> object:
    return json.loads(value) if isinstance(value, str) else None


def _parse_max_output(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid_value(value, "must be a whole number of bytes")
    if not MIN_OUTPUT <= value <= MAX_OUTPUT:
        raise invalid_value(value, f"outside {MIN_OUTPUT}-{MAX_OUTPUT}")
    return value


_WORDS: Schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_COMMAND = ValueType(
    schema={"oneOf": [{"type": "string", "minLength": 1}, _WORDS]}, parse=_parse_command, write=_write_command
)
_FOLDER = ValueType(schema={"type": ["string", "null"]}, parse=optional(parse_text))
_DOCUMENT = ValueType(schema={}, parse=_parse_document, write=_write_document)
_SIZE = ValueType(
    schema={"type": "integer", "minimum": MIN_OUTPUT, "maximum": MAX_OUTPUT}, parse=_parse_max_output
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings(TableSettings):
    """The job is a process on the worker's host; `stdin` is the text of a JSON document."""

    kind: ClassVar[str] = "process"
    table: ClassVar[FieldTable]
    unquoted: ClassVar[tuple[str, ...]] = ("env",)

    command: str | tuple[str, ...] = field(
        metadata=row(_COMMAND, "a list of words, or one string for /bin/sh")
    )
    env: Pairs = field(
        default=(), metadata=row(pairs_type(_parse_env), "further variables; their values are never shown")
    )
    cwd: str | None = field(default=None, metadata=row(_FOLDER, "the folder it runs in"))
    stdin: str | None = field(default=None, metadata=row(_DOCUMENT, "a JSON document for standard input"))
    max_output: int = field(
        default=DEFAULT_OUTPUT, metadata=row(_SIZE, "how many bytes of its output are kept, the last ones")
    )
    survive: bool = field(
        default=False,
        metadata=row(FLAG, "whether its exit status is kept for another worker should this one die"),
    )

    @property
    def program(self) -> str:
        """Return what the operator allows: the program, or the whole text for the shell."""
        return _program_of(self.command)

    def redacted(self) -> dict[str, object]:
        """Return the launcher object without the values of its variables."""
        return {**self.to_dict(), "env": redact_pairs(self.env)}

    def secrets(self) -> list[str]:
        """Return the values of its variables."""
        return [value for _, value in self.env if len(value) >= MIN_LOGGED_SECRET]

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the operator does not allow the command or its variables."""
        allowed = config.get(ProcessOptions).allowed_commands
        if allowed is None:
            return []
        unsafe = [
            Problem(f"launcher.env.{name}", None, "decides which code runs; leave it out")
            for name in unsafe_variables(self.env)
        ]
        is_listed = self.program in allowed
        return unsafe if is_listed else [Problem("launcher.command", self.program, NOT_ALLOWED), *unsafe]


ProcessSettings.table = launcher_table(ProcessSettings, required=("command",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Where the outputs of running processes are, and which commands schedules may start; None allows all."""

    folder: str = ".kron/processes"
    allowed_commands: frozenset[str] | None = None


def check_start(config: LauncherConfig, settings: ProcessSettings) -> None:
    """Raise InvalidLauncherError unless the operator allows the command now, or has it as the default."""
    default = config.default
    if isinstance(default, ProcessSettings) and default.command == settings.command:
        return
    problems = settings.problems(config)
    if problems:
        raise InvalidLauncherError(problems=problems)
