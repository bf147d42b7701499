"""Launchers provided by installed packages, found by entry points of the group `kron.launchers`.

A package provides one class per kind; `docs/how-to/write-a-launcher.md` describes it.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, Protocol

from kron.core.errors import InputError, Problem
from kron.core.fields import NO_PARSERS, FieldReader, Parsers, text_problems
from kron.core.plan.report import Launch
from kron.launchers.backoff import Backoff
from kron.launchers.delivery import (
    DEFAULT_BACKOFF,
    MAX_RUN_ID,
    DeliveryResult,
    RemoteLauncher,
    delivery_traits,
)
from kron.launchers.launch import start_arguments, tidy
from kron.launchers.spec import (
    NO_LIMITS,
    WORKFLOW_FIELDS,
    WORKFLOW_TABLE,
    InvalidLauncherError,
    LauncherConfig,
    LauncherContext,
    LauncherKind,
)
from kron.ports import Clock

_log = logging.getLogger("kron.launchers")
GROUP = "kron.launchers"
NOT_ALLOWED = (
    "is not among the launchers the settings allow (allowed_launchers): add it to them, "
    'or name another launcher, such as {"kind": "log"}'
)


class PluginStart(NamedTuple):
    """One run to start: the launcher object, and spec 3's start arguments with attempt and token."""

    settings: Mapping[str, object]
    arguments: Mapping[str, object]


class Plugin(Protocol):
    """The class that a package provides: the fields of its launcher object, and how a run is started.

    `start` returns the run's name in the other system, or None. A ValueError is final; after any other
    exception the start is retried with the same idempotency key.
    """

    fields: tuple[str, ...]

    async def start(self, start: PluginStart) -> str | None:
        """Start a run in the other system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The job is started by a launcher of an installed package; `text` is its launcher object."""

    kind: str
    text: str

    @property
    def launcher_kind(self) -> str:
        """Return the text that selects launcher and traits; it is stored with the job."""
        return self.kind

    @property
    def workflow_id(self) -> object:
        """Return the workflow the job belongs to, or None."""
        return self.to_dict().get("workflow_id")

    @property
    def version(self) -> object:
        """Return the version of the workflow, or None."""
        return self.to_dict().get("version")

    @property
    def user_id(self) -> object:
        """Return the user the job runs for, or None."""
        return self.to_dict().get("user_id")

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        document: dict[str, object] = json.loads(self.text)
        return document

    def redacted(self) -> dict[str, object]:
        """Return the launcher object; its fields are the package's, and none is known to be secret."""
        return self.to_dict()

    def secrets(self) -> list[str]:
        """Return nothing, for the same reason."""
        return []

    def problems(self, config: LauncherConfig) -> list[Problem]:
        """Return why the operator does not allow the kind: an installed package may be there for others."""
        allowed = config.get(PluginOptions).allowed_launchers
        return (
            []
            if allowed is None or self.kind in allowed
            else [Problem("launcher.kind", self.kind, NOT_ALLOWED)]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """The kinds of installed packages that schedules may use; None allows all."""

    allowed_launchers: frozenset[str] | None = None


class PluginLauncher(RemoteLauncher):
    """Starts runs with one object of a package's class, of settings that the configuration allows."""

    def __init__(
        self,
        clock: Clock,
        kind: str,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        config: LauncherConfig = NO_LIMITS,
    ) -> None:
        self._kind = kind
        self._config = config
        self._plugin: Plugin = load_plugin(kind)()
        reports = bool(getattr(self._plugin, "reports", False))
        super().__init__(clock, self._deliver, reports=reports, backoff=backoff)

    async def _deliver(self, launch: Launch) -> DeliveryResult:
        settings = PluginSettings(kind=self._kind, text=launch.job.launcher)
        problems = [] if _is_default(settings, self._config) else settings.problems(self._config)
        if problems:
            return DeliveryResult(str(InvalidLauncherError(problems=problems)), retry=False)
        start = PluginStart(settings.to_dict(), start_arguments(launch, settings))
        try:
            run_id = await self._plugin.start(start)
        except Exception as cause:  # noqa: BLE001 - every exception of a package is a failed launch
            error = tidy(f"the launcher {self._kind} failed: {type(cause).__name__}: {cause}")
            return DeliveryResult(error, retry=not isinstance(cause, ValueError))
        return DeliveryResult(run_id=None if run_id is None else tidy(str(run_id), MAX_RUN_ID))


def _is_default(settings: PluginSettings, config: LauncherConfig) -> bool:
    """Return whether a launcher object is the operator's default one, for whatever workflow."""
    default = config.default
    return isinstance(default, PluginSettings) and _own_fields(default) == _own_fields(settings)


def _own_fields(settings: PluginSettings) -> dict[str, object]:
    return {name: value for name, value in settings.to_dict().items() if name not in WORKFLOW_FIELDS}


@cache
def plugin_kinds() -> Mapping[str, EntryPoint]:
    """Return the entry points of the installed launchers by kind; nothing is imported yet."""
    return {point.name: point for point in entry_points(group=GROUP)}


@cache
def load_plugin(kind: str) -> Callable[[], Plugin]:
    """Return the class of an installed launcher, or raise InputError where it cannot be used."""
    try:
        loaded = plugin_kinds()[kind].load()
    except Exception as cause:
        _log.warning("the launcher %r cannot be loaded", kind, exc_info=True)
        message = f'The launcher "{kind}" cannot be loaded: {type(cause).__name__}: {cause}'
        raise InputError(message, reason=message) from cause
    if not callable(getattr(loaded, "start", None)) or not isinstance(getattr(loaded, "fields", None), tuple):
        message = f'The launcher "{kind}" has no fields, or no start'
        raise InputError(message, reason=message)
    return loaded  # type: ignore[no-any-return]


def plugin_kind(name: str) -> LauncherKind:
    """Return the launcher kind of an installed package; it is imported when its traits are needed."""
    return LauncherKind(
        name=name,
        read=_read,
        schema={"type": "object", "properties": {"kind": {"const": name}}, "required": ["kind"]},
        traits={name: delivery_traits(reports=_reports(name))},
        build=_build,
    )


def _read(value: Mapping[str, object], path: str, parsers: Parsers = NO_PARSERS) -> PluginSettings:
    kind = str(value["kind"])
    problems: list[Problem] = []
    try:
        fields = load_plugin(kind).fields  # type: ignore[attr-defined]
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except InputError as error:
        problems = [Problem(f"{path}.kind", kind, str(error))]
    except (TypeError, ValueError, RecursionError):
        problems = [Problem(path, None, "must be a JSON document")]
    else:
        reader = FieldReader(
            value, path, problems, known=("kind", *WORKFLOW_FIELDS, *fields), hides_unknown=True
        )
        WORKFLOW_TABLE.read(reader, parsers)
        own = {name: each for name, each in value.items() if name not in WORKFLOW_FIELDS}
        problems += text_problems(own, path)
    if problems:
        raise InvalidLauncherError(problems=problems)
    return PluginSettings(kind=kind, text=text)


def _reports(kind: str) -> bool:
    """Return whether the ends of an installed kind's runs are reported."""
    try:
        return bool(getattr(load_plugin(kind), "reports", False))
    except InputError:
        return False


def _build(kind: str, context: LauncherContext) -> PluginLauncher | None:
    """Return the launcher, or None where the package is broken: it must not stop the others."""
    try:
        return PluginLauncher(context.clock, kind, config=context.config)
    except InputError as error:
        _log.warning("%s", error)
    except Exception:  # noqa: BLE001 - whatever its constructor raises
        _log.exception("the launcher %r cannot be used", kind)
    return None
