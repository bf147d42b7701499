"""A schedule's launcher object: which kind of launcher starts the job, and with which settings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

from kron.core.errors import InputError, Problem
from kron.core.job.fields import FieldReader, optional, parse_bool, parse_text, parse_utf8, refuse, suggestion
from kron.core.time.duration import format_duration, parse_duration
from kron.launchers.celery.spec import CELERY_FIELDS, CelerySettings, read_celery
from kron.launchers.plugin.spec import PluginSettings, plugin_kinds, read_plugin

# What is kept of a process's output: by default, and the bounds of what may be asked for.
MAX_OUTPUT, LEAST_OUTPUT, MOST_OUTPUT = 65_536, 1_024, 16 * 1024 * 1024
# The bounds of how long one request may take.
LEAST_TIMEOUT, MOST_TIMEOUT = timedelta(milliseconds=10), timedelta(hours=1)
# The largest launcher object, as text: it is read from the store with every job that is due.
MAX_TEXT = 65_536
# How many different launcher objects are remembered in their checked form.
MAX_REMEMBERED = 4_096
# Variables and headers that say which execution it is; nobody else may set them.
OWN_PREFIX = "KRON_"
OWN_HEADERS = frozenset(
    {
        "idempotency-key",
        "kron-attempt",
        "kron-fencing-token",
        "kron-timestamp",
        "kron-signature",
        "content-type",
        "content-length",
        "host",
        "accept-encoding",
        "transfer-encoding",
        "connection",
    }
)
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class InvalidLauncherError(InputError):
    """A launcher object is wrong in one or more places, each with its path."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackSettings:
    """The job is a function of the program that runs the engine; one for workflows has a name."""

    name: str | None = None
    workflow_id: str | None = None
    version: int | None = None
    user_id: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        named = {} if self.name is None else {"name": self.name}
        return {"kind": "callback", **named, **_workflow_of(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSettings:
    """The job is a workflow: its DAG is loaded and handed to the executor of whoever runs the engine."""

    workflow_id: str
    version: int
    user_id: str

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        return {"kind": "workflow", **_workflow_of(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The job is a process on this host; `stdin` is the text of the JSON document it reads."""

    command: tuple[str, ...]
    shell: bool = False
    env: Pairs = ()
    cwd: str | None = None
    stdin: str | None = None
    max_output: int = MAX_OUTPUT
    survive: bool = False
    workflow_id: str | None = None
    version: int | None = None
    user_id: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        return {
            "kind": "process",
            "command": self.command[0] if self.shell else list(self.command),
            "env": dict(self.env),
            "cwd": self.cwd,
            "stdin": None if self.stdin is None else json.loads(self.stdin),
            "max_output": self.max_output,
            "survive": self.survive,
            **_workflow_of(self),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The job is started by a request; with `reports` its end will be reported by whoever runs it."""

    url: str
    headers: Pairs = ()
    timeout: timedelta = timedelta(seconds=30)
    connect_timeout: timedelta = timedelta(seconds=5)
    reports: bool = False
    workflow_id: str | None = None
    version: int | None = None
    user_id: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        return {
            "kind": "http",
            "url": self.url,
            "headers": dict(self.headers),
            "timeout": format_duration(self.timeout),
            "connect_timeout": format_duration(self.connect_timeout),
            "reports": self.reports,
            "workflow_id": self.workflow_id,
            "version": self.version,
            "user_id": self.user_id,
        }


def _workflow_of(settings: CallbackSettings | ProcessSettings | WorkflowSettings) -> dict[str, object]:
    """Return the workflow a job belongs to, if it says so."""
    said = {
        "workflow_id": settings.workflow_id,
        "version": settings.version,
        "user_id": settings.user_id,
    }
    return {name: value for name, value in said.items() if value is not None}


Settings: TypeAlias = (
    CallbackSettings | ProcessSettings | HttpSettings | CelerySettings | WorkflowSettings | PluginSettings
)


def read_launcher(value: object, *, path: str = "launcher") -> Settings:
    """Return checked settings from a launcher object, or raise with every problem and its path."""
    problems: list[Problem] = []
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping):
        problems.append(Problem(path, value, f"must be an object with kind, one of {', '.join(_READERS)}"))
    elif isinstance(kind, str) and kind not in _READERS and kind in plugin_kinds():
        own = read_plugin(kind, value, path, problems)
        if own is not None:
            _check_size(own, path, problems)
        if own is not None and not problems:
            return own
    elif not isinstance(kind, str) or kind not in _READERS:
        problems.append(Problem(f"{path}.kind", kind, "is missing" if kind is None else _known(kind)))
    else:
        known, read = _READERS[kind]
        fields = FieldReader(value, path, problems, known=("kind", *known))
        settings = read(fields)
        if not problems:
            _check_size(settings, path, problems)
        if not problems:
            return settings
    raise InvalidLauncherError(problems=problems)


def launcher_kind_of(settings: Settings) -> str:
    """Return the text that selects launcher and traits; it is stored with the job."""
    match settings:
        case CallbackSettings():
            return "callback"
        case ProcessSettings():
            return "process"
        case HttpSettings():
            return "http:reports" if settings.reports else "http"
        case CelerySettings():
            return "celery:reports" if settings.reports else "celery"
        case WorkflowSettings():
            return "workflow"
        case PluginSettings():
            return settings.kind


def launcher_text_of(settings: Settings) -> str:
    """Return settings as the text that is stored with the job."""
    return json.dumps(settings.to_dict(), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=MAX_REMEMBERED)
def settings_of(text: str) -> Settings:
    """Return the settings that are stored with a job, or raise InputError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as cause:
        problem = Problem("launcher", None, f"is not JSON: {cause}")
        raise InvalidLauncherError(problems=[problem]) from cause
    return read_launcher(value)


def _known(kind: object) -> str:
    return f"unknown kind; {suggestion(kind, (*_READERS, *plugin_kinds()))}"


def _check_size(settings: Settings, path: str, problems: list[Problem]) -> None:
    size = len(launcher_text_of(settings).encode())
    if size > MAX_TEXT:
        problems.append(Problem(path, None, f"has {size} bytes as text; at most {MAX_TEXT} are allowed"))


def _read_callback(fields: FieldReader) -> Settings:
    return CallbackSettings(
        name=fields.read("name", optional(parse_utf8), None),
        workflow_id=fields.read("workflow_id", optional(parse_utf8), None),
        version=fields.read("version", optional(_parse_version), None),
        user_id=fields.read("user_id", optional(parse_utf8), None),
    )


def _read_workflow(fields: FieldReader) -> Settings:
    for name in _WORKFLOW:
        if fields.get(name) is None:
            fields.problem(name, None, "is missing")
    return WorkflowSettings(
        workflow_id=fields.read("workflow_id", optional(parse_utf8), None) or "",
        version=fields.read("version", optional(_parse_version), None) or 0,
        user_id=fields.read("user_id", optional(parse_utf8), None) or "",
    )


def _read_process(fields: FieldReader) -> Settings:
    if fields.get("command") is None:
        fields.problem("command", None, "is missing")
    return ProcessSettings(
        command=fields.read("command", _parse_command, ("",)),
        shell=isinstance(fields.get("command"), str),
        env=fields.read("env", _parse_env, ()),
        cwd=fields.read("cwd", optional(_parse_word), None),
        stdin=fields.read("stdin", _parse_document, None),
        max_output=fields.read("max_output", _parse_max_output, MAX_OUTPUT),
        survive=fields.read("survive", parse_bool, False),
        workflow_id=fields.read("workflow_id", optional(parse_utf8), None),
        version=fields.read("version", optional(_parse_version), None),
        user_id=fields.read("user_id", optional(parse_utf8), None),
    )


def _read_http(fields: FieldReader) -> Settings:
    if fields.get("url") is None:
        fields.problem("url", None, "is missing")
    usual = HttpSettings(url="")
    return HttpSettings(
        # What stands in a URL may be a password, so a wrong one is not quoted.
        url=_read_url(fields),
        headers=fields.read("headers", _parse_headers, ()),
        timeout=fields.read("timeout", _parse_timeout, usual.timeout),
        connect_timeout=fields.read("connect_timeout", _parse_timeout, usual.connect_timeout),
        reports=fields.read("reports", parse_bool, usual.reports),
        workflow_id=fields.read("workflow_id", optional(parse_utf8), None),
        version=fields.read("version", optional(_parse_version), None),
        user_id=fields.read("user_id", optional(parse_utf8), None),
    )


def _read_celery(fields: FieldReader) -> Settings:
    return read_celery(fields, version=fields.read("version", optional(_parse_version), None))


def _parse_word(value: object) -> str:
    """Return a text that an operating system takes as a word: without a NUL."""
    word = parse_utf8(value)
    if "\0" in word:
        raise refuse(ascii(word), "must not contain a NUL character")
    return word


def _parse_command(value: object) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not words:
        raise refuse(value, "must be a list of words, or one text for /bin/sh")
    command = tuple(map(_parse_word, words))
    if not command[0].strip():
        raise refuse(value, "must not be empty")
    return command


def _parse_pairs(value: object) -> Pairs:
    if not isinstance(value, Mapping):
        raise refuse(value, "must be an object of texts")
    return tuple(sorted((_parse_word(name), _parse_word(text)) for name, text in value.items()))


def _parse_env(value: object) -> Pairs:
    pairs = _parse_pairs(value)
    for name, _ in pairs:
        if not name or "=" in name:
            raise refuse(name, f'"{name}" is no name of a variable')
        if name.startswith(OWN_PREFIX):
            raise refuse(name, f"{name} begins with {OWN_PREFIX}, which only Kron sets")
    return pairs


def _parse_headers(value: object) -> Pairs:
    pairs = _parse_pairs(value)
    for name, text in pairs:
        if not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            raise refuse(name, f'"{name}" is no name of a header')
        if name.lower() in OWN_HEADERS:
            raise refuse(name, f"{name} is set by Kron")
        if not text.isascii() or not text.isprintable():
            raise refuse(name, f"the value of {name} must be printable ASCII")
    if len({name.lower() for name, _ in pairs}) < len(pairs):
        raise refuse(", ".join(name for name, _ in pairs), "a header stands there twice")
    return pairs


def _parse_document(value: object) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise refuse(value, "must be a JSON document") from None


def _parse_max_output(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(value, "must be a whole number of bytes")
    if not LEAST_OUTPUT <= value <= MOST_OUTPUT:
        raise refuse(value, f"outside {LEAST_OUTPUT}-{MOST_OUTPUT}")
    return value


def _parse_version(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise refuse(value, "must be a whole number")
    return value


def _parse_timeout(value: object) -> timedelta:
    timeout = parse_duration(value)
    if not LEAST_TIMEOUT <= timeout <= MOST_TIMEOUT:
        raise refuse(value, "must lie between 10ms and 1h")
    return timeout


def _read_url(fields: FieldReader) -> str:
    url = fields.get("url")
    if url is None:
        return ""
    reason = _fault_of_url(url)
    if reason:
        fields.problem("url", None, reason)
        return ""
    return str(url)


def _fault_of_url(value: object) -> str | None:
    try:
        url = urlsplit(parse_text(value))
        fine = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except (InputError, ValueError):
        fine = False
    if not fine:
        return "must be an address such as https://example.com/start"
    text = str(value)
    if not text.isascii() or not text.isprintable() or " " in text:
        return "must be printable ASCII without spaces; encode what is not"
    return "must not have a fragment" if url.fragment else None


# Whose work it is (SPEC 3: 3): every kind may say so.
_WORKFLOW = ("workflow_id", "version", "user_id")
_READERS: dict[str, tuple[tuple[str, ...], Callable[[FieldReader], Settings]]] = {
    "callback": (("name", *_WORKFLOW), _read_callback),
    "process": (("command", "env", "cwd", "stdin", "max_output", "survive", *_WORKFLOW), _read_process),
    "http": (("url", "headers", "timeout", "connect_timeout", "reports", *_WORKFLOW), _read_http),
    "celery": ((*CELERY_FIELDS, *_WORKFLOW), _read_celery),
    "workflow": (_WORKFLOW, _read_workflow),
}
