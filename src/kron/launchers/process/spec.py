"""The launcher object of the kind `process`: fields, limits and redaction."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from kron.core.errors import Problem
from kron.core.fields import ROW, FieldSpec, FieldTable, ValueType, invalid_value, optional, parse_text, row
from kron.core.job.host import CAPTURE, COMMAND_SCHEMA, HOST, OnRemove
from kron.core.plan.report import Launch
from kron.core.value_types import FLAG
from kron.launchers.spec import (
    MIN_LOGGED_SECRET,
    InvalidLauncherError,
    LauncherConfig,
    Pairs,
    TableSettings,
    launcher_table,
    pairs_type,
    parse_pairs,
    redact_pairs,
)

# Gets a run and the kept output of its process: the first and the last bytes.
OnOutput: TypeAlias = Callable[[Launch, bytes], None]
# How much of a process's output is kept: by default, at least, at most.
DEFAULT_OUTPUT, MIN_OUTPUT, MAX_OUTPUT = 65_536, 1_024, 16 * 1024 * 1024
# Variables with this prefix identify the run; settings cannot set them.
RESERVED_PREFIX = "KRON_"
NOT_ALLOWED = "is not among the commands the settings allow (allowed_commands)"
AMBIGUOUS = "is the name of several allowed commands; write the whole path"
# Fields that only a supervisor applies, with their defaults; in a service they would let a caller act as
# other users.
HOST_ONLY = {
    name: HOST[name].default
    for name in ("shell", "user", "group", "env_file", "umask", "nice", "stdout", "stderr", "on_remove")
}
# The fields that say what a process does, and as whom.
WORK = ("command", "env", "cwd", "stdin", "stdin_text", *HOST_ONLY)
ONLY_KROND = "is supported by krond only"
# Variables with this prefix are for schedules: Kron neither sets nor reads them.
FREE_PREFIX = "KRON_VAR_"
NO_VARIABLE = (
    f"is not a variable schedules may set: use a name that starts with {FREE_PREFIX}, "
    "or list it in the setting allowed_variables"
)
# Variables that a process inherits from a service: enough to find programs, files and a language.
INHERITED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"})
INHERITED_PREFIX = "LC_"
# Variables by which a program runs code of others: no list of an operator may name them. Loaders,
# interpreters and tools take every variable with one of these prefixes.
CODE_PREFIXES = (
    "LD_", "DYLD_", "PYTHON", "PERL", "RUBY", "BASH_FUNC_", "GIT_", "SSH_", "SUDO_", "XDG_", "NPM_CONFIG_",
    "npm_config_", "CARGO_", "RUST", "JAVA_", "MAVEN_", "GRADLE_", "DOTNET_", "LUA_", "PHP", "GEM_", "MAKE",
    "ERL_", "JULIA_", "COR_", "CORECLR_", "PIP_", "UV_",
)  # fmt: skip
CODE_VARIABLES = frozenset(
    {
        "PATH", "HOME", "SHELL", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4", "GCONV_PATH",
        "NODE_OPTIONS", "NODE_PATH", "CLASSPATH", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "ZDOTDIR", "EDITOR",
        "VISUAL", "PAGER", "LESSOPEN", "LESSCLOSE", "MANPAGER", "CC", "CXX", "OPENSSL_CONF", "CURL_HOME",
        "OPENSSL_MODULES", "WGETRC", "PGSERVICEFILE", "PGSYSCONFDIR", "PSQLRC", "GLIBC_TUNABLES", "LOCPATH",
        "TERMINFO", "TMPDIR", "R_PROFILE", "R_ENVIRON", "GOFLAGS", "GOROOT", "DOCKER_HOST", "DOCKER_CONFIG",
        "KUBECONFIG", "RSYNC_RSH", "TAR_OPTIONS", "GNUMAKEFLAGS", "PROMPT_COMMAND", "BROWSER", "CDPATH",
        "R_HOME", "OPENSSL_ENGINES", "GTK_MODULES", "QT_PLUGIN_PATH", "CVS_RSH", "ANT_OPTS",
        "AWS_CONFIG_FILE",
    }
)  # fmt: skip


def is_unsafe(variable: str) -> bool:
    """Return whether a variable decides which code a program runs."""
    return variable in CODE_VARIABLES or variable.startswith(CODE_PREFIXES)


def parse_variable(name: str) -> str:
    """Return the name of a variable that schedules may set, as an operator lists it."""
    if not name.replace("_", "a").isalnum() or name[0].isdigit() or not name.isascii():
        raise invalid_value(name, "must be the name of an environment variable")
    if is_unsafe(name) or name.startswith(RESERVED_PREFIX):
        raise invalid_value(name, "decides which code runs or which run it is, so no schedule may set it")
    return name


def parse_allowed_command(text: str) -> str:
    """Return an allowed command: a program's absolute path, or a text for /bin/sh that starts with one."""
    if not text.startswith("/"):
        place = shutil.which(text)
        example = "/usr/bin/backup" if place is None else os.path.abspath(place)
        raise invalid_value(text, f"must be an absolute path, such as {example}")
    return text


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
            raise invalid_value(name, f'"{name}" is not the name of an environment variable')
        if name.startswith(RESERVED_PREFIX) and not name.startswith(FREE_PREFIX):
            reason = f"{name} starts with {RESERVED_PREFIX}, which only Kron sets; use {FREE_PREFIX}..."
            raise invalid_value(name, reason)
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


_COMMAND = ValueType(schema=COMMAND_SCHEMA, parse=_parse_command, write=_write_command)
_FOLDER = ValueType(schema={"type": ["string", "null"]}, parse=optional(parse_text))
_DOCUMENT = ValueType(schema={}, parse=_parse_document, write=_write_document)
_SIZE = ValueType(
    schema={"type": "integer", "minimum": MIN_OUTPUT, "maximum": MAX_OUTPUT}, parse=_parse_max_output
)


# Where a stream goes: a word, or a file with its rotation.
Stream: TypeAlias = str | tuple[tuple[str, object], ...]


def _host(name: str) -> Mapping[str, FieldSpec]:
    """Return the row of a field that every job file knows."""
    return {ROW: HOST[name]}


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
        default=DEFAULT_OUTPUT,
        metadata=row(_SIZE, "how many bytes of its output are kept, a quarter from its start"),
    )
    survive: bool = field(
        default=False,
        metadata=row(FLAG, "whether its exit status is kept for another worker should this one die"),
    )
    shell: str | None = field(default=None, metadata=_host("shell"))
    user: str | None = field(default=None, metadata=_host("user"))
    group: str | None = field(default=None, metadata=_host("group"))
    env_file: str | None = field(default=None, metadata=_host("env_file"))
    umask: str | None = field(default=None, metadata=_host("umask"))
    nice: int | None = field(default=None, metadata=_host("nice"))
    stdin_text: str | None = field(default=None, metadata=_host("stdin_text"))
    stdout: Stream = field(default=CAPTURE, metadata=_host("stdout"))
    stderr: Stream = field(default=CAPTURE, metadata=_host("stderr"))
    success_exit_codes: tuple[int, ...] = field(default=(0,), metadata=_host("success_exit_codes"))
    on_remove: OnRemove = field(default=OnRemove.KEEP, metadata=_host("on_remove"))

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

    def host_fields(self) -> list[str]:
        """Return the fields in use that need a supervisor, and with it the rights of the host's operator."""
        return [name for name, default in HOST_ONLY.items() if getattr(self, name) != default]

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the operator does not allow the command or its variables; those of the default are."""
        options, default = config.get(ProcessOptions), config.default
        if options.supervised or self.has_same(WORK, default):
            return []
        needless = [Problem(f"launcher.{name}", None, ONLY_KROND) for name in self.host_fields()]
        if options.allowed_commands is None or needless:
            return needless
        fault = options.fault_of(self.command)
        problems = [] if fault is None else [Problem("launcher.command", self.program, fault)]
        for name, _ in self.env:
            if is_unsafe(name):
                problems.append(
                    Problem(f"launcher.env.{name}", None, "decides which code runs; leave it out")
                )
            elif not name.startswith(FREE_PREFIX) and name not in options.allowed_variables:
                problems.append(Problem(f"launcher.env.{name}", None, NO_VARIABLE))
        return problems


ProcessSettings.table = launcher_table(ProcessSettings, required=("command",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """Where the outputs of running processes are, and what schedules may start.

    With `supervised` each process has a supervisor, and every field of a job file is allowed: its operator
    writes the files.
    `allowed_commands` None allows all. `inherited` are the variables that processes get from the worker's
    environment besides INHERITED; None passes all of them on, except Kron's. Of one tenant at most
    `max_per_tenant` run at once. `on_output` gets the kept output of each process that wrote any.
    """

    folder: str = ".kron/processes"
    supervised: bool = False
    allowed_commands: frozenset[str] | None = None
    allowed_variables: frozenset[str] = frozenset()
    inherited: frozenset[str] | None = None
    max_per_tenant: int | None = None
    on_output: OnOutput | None = None

    def inherits(self, variable: str) -> bool:
        """Return whether processes get a variable of the worker's environment."""
        if variable.startswith(RESERVED_PREFIX):
            return False
        names = self.inherited
        is_usual = variable in INHERITED or variable.startswith(INHERITED_PREFIX)
        return names is None or is_usual or variable in names

    def fault_of(self, command: str | tuple[str, ...]) -> str | None:
        """Return why a command is not allowed, or None."""
        program = _program_of(command)
        if self.allowed_commands is None or program in self.allowed_commands:
            return None
        paths = [] if isinstance(command, str) else self._paths_of(program)
        return None if len(paths) == 1 else AMBIGUOUS if paths else NOT_ALLOWED

    def resolved(self, command: str | tuple[str, ...]) -> str | tuple[str, ...]:
        """Return an allowed command with the path of its program, whatever folder it will run in."""
        if isinstance(command, str) or self.allowed_commands is None or command[0] in self.allowed_commands:
            return command
        return (*self._paths_of(command[0]), *command[1:])

    def _paths_of(self, name: str) -> list[str]:
        if "/" in name:
            return []
        return sorted(path for path in self.allowed_commands or () if path.rpartition("/")[2] == name)


def check_start(config: LauncherConfig, settings: ProcessSettings) -> ProcessSettings:
    """Return what to start, or raise InvalidLauncherError unless the operator allows it now.

    The operator's default launcher is allowed as a whole: its command, in its folder, with its variables.
    """
    default = config.default
    if isinstance(default, ProcessSettings) and _work_of(default) == _work_of(settings):
        return settings
    problems = settings.problems(config)
    if problems:
        raise InvalidLauncherError(problems=problems)
    return replace(settings, command=config.get(ProcessOptions).resolved(settings.command))


def _work_of(settings: ProcessSettings) -> tuple[object, ...]:
    return settings.command, settings.env, settings.cwd
