"""The registry of launcher kinds: reading, describing and building launchers without knowing their kinds.

A new kind is a folder in `kron.launchers` that ends in a `LauncherKind`, and one line here.
"""

import json
from collections.abc import Iterator, Mapping

from kron.core.errors import Problem
from kron.core.fields import NO_PARSERS, Parsers, Schema, suggestion
from kron.core.plan.compiled import cached_by_text
from kron.core.plan.report import Traits
from kron.launchers.callback import CALLBACK
from kron.launchers.celery.awaiting import CELERY
from kron.launchers.dag import DAG
from kron.launchers.http.launcher import HTTP
from kron.launchers.kubernetes.kind import KUBERNETES
from kron.launchers.log import LOG
from kron.launchers.plugin import plugin_kind, plugin_kinds
from kron.launchers.process.kind import PROCESS
from kron.launchers.spec import (
    MAX_CACHED,
    MAX_TEXT,
    SEALED,
    STORED,
    InvalidLauncherError,
    LauncherContext,
    LauncherKind,
    LauncherSettings,
    launcher_document,
    launcher_text_of,
)
from kron.launchers.workflow import WORKFLOW
from kron.ports import Launcher

KINDS: dict[str, LauncherKind] = {
    kind.name: kind for kind in (CALLBACK, PROCESS, HTTP, CELERY, KUBERNETES, LOG, WORKFLOW, DAG)
}


def _kind_named(name: object) -> LauncherKind | None:
    """Return a built-in kind, or one of an installed package."""
    if not isinstance(name, str):
        return None
    return KINDS.get(name) or (plugin_kind(name) if name in plugin_kinds() else None)


def _all_kinds() -> Iterator[LauncherKind]:
    yield from KINDS.values()
    yield from (plugin_kind(name) for name in plugin_kinds() if name not in KINDS)


# --- launcher objects ------------------------------------------------------------------------------


def read_launcher(
    value: object, *, path: str = "launcher", parsers: Parsers = NO_PARSERS
) -> LauncherSettings:
    """Return the settings of a launcher object, or raise InvalidLauncherError with every problem."""
    if not isinstance(value, Mapping):
        reason = f"must be an object with kind, one of {', '.join(KINDS)}"
        raise InvalidLauncherError(problems=[Problem(path, None, reason)])
    name = value.get("kind")
    kind = _kind_named(name)
    if kind is None:
        known = suggestion(name, (*KINDS, *plugin_kinds()))
        reason = "is missing" if name is None else f"unknown kind; {known}"
        shown = name if isinstance(name, str) else None
        raise InvalidLauncherError(problems=[Problem(f"{path}.kind", shown, reason)])
    settings = kind.read(value, path, parsers)
    size = len(launcher_text_of(settings).encode())
    if size > MAX_TEXT:
        reason = f"has {size} bytes as text; at most {MAX_TEXT} are allowed"
        raise InvalidLauncherError(problems=[Problem(path, None, reason)])
    return settings


def read_common_launcher(value: Mapping[str, object]) -> LauncherSettings:
    """Return the settings of a launcher object that many schedules have: equal ones are read once.

    A value that is not JSON, as a program may pass it, is read as it is.
    """
    kind = _kind_named(value.get("kind"))
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return read_launcher(value)
    # A kind that was registered again under its name reads it again.
    return _read_text(text, None if kind is None else kind.read)


@cached_by_text(MAX_CACHED)
def _read_text(text: str, _: object) -> LauncherSettings:
    return read_launcher(json.loads(text))


@cached_by_text(MAX_CACHED)
def settings_of(text: str) -> LauncherSettings:
    """Return the settings that are stored with a job, or raise InvalidLauncherError.

    Encrypted secrets are those that redaction hides, and stay hidden.
    """
    document = launcher_document(text)
    shown = (
        {name: value for name, value in document.items() if name != SEALED}
        if SEALED in document
        else document
    )
    return read_launcher(shown, parsers=STORED)


def launcher_schema() -> Schema:
    """Return the JSON Schema of a launcher object; of kinds from packages it knows only the names."""
    packages = [{"properties": {"kind": {"const": name}}, "required": ["kind"]} for name in plugin_kinds()]
    return {"type": "object", "oneOf": [*(kind.schema for kind in KINDS.values()), *packages]}


# --- redaction -------------------------------------------------------------------------------------


def redact_launcher(text: str) -> dict[str, object]:
    """Return a stored launcher object without its secrets."""
    try:
        return dict(_redacted(text))
    except InvalidLauncherError:
        return {"kind": "callback"}


@cached_by_text(MAX_CACHED)
def _redacted(text: str) -> Mapping[str, object]:
    return settings_of(text).redacted()


def secrets_in_launcher(document: Mapping[str, object]) -> list[str]:
    """Return the secrets in a launcher object of the settings."""
    return read_launcher(document).secrets()


# --- traits and launchers --------------------------------------------------------------------------


def traits_by_kind(executor: Mapping[str, object] | None = None) -> dict[str, Traits]:
    """Return the traits of every kind; a workflow has those of the executor's launcher."""
    traits = {name: each for kind in _all_kinds() for name, each in kind.traits.items()}
    if executor is not None:
        traits[WORKFLOW.name] = traits[read_launcher(executor).launcher_kind]
    return traits


def build_launchers(context: LauncherContext) -> dict[str, Launcher]:
    """Return the launchers of a worker, by the text stored with jobs."""
    built = {name: kind.build(name, context) for kind in _all_kinds() for name in kind.traits}
    return {name: launcher for name, launcher in built.items() if launcher is not None}


def build_launcher(settings: LauncherSettings, context: LauncherContext) -> Launcher:
    """Return the launcher for one launcher object, or raise InvalidLauncherError where it cannot be used."""
    kind = _kind_named(settings.kind)
    assert kind is not None, "settings that exist were read by their kind"
    launcher = kind.build(settings.launcher_kind, context)
    if launcher is None:
        raise InvalidLauncherError(problems=[Problem("launcher.kind", settings.kind, "cannot be used here")])
    return launcher
