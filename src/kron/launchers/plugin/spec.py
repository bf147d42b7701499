"""Launchers of other packages: one small class each, found by entry points of the group `kron.launchers`."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple, Protocol

from kron.core.errors import InputError, Problem
from kron.core.job.fields import suggestion

_log = logging.getLogger("kron.launchers")
GROUP = "kron.launchers"
# What every launcher object may say beside the fields of its kind: whose work it is.
ALWAYS = ("kind", "workflow_id", "version", "user_id")


class OwnStart(NamedTuple):
    """One execution to start: the launcher object, and spec 3's start arguments with attempt and token."""

    settings: Mapping[str, object]
    arguments: Mapping[str, object]


class OwnLauncher(Protocol):
    """What a package brings: which fields its launcher object has, and how an execution is started.

    `start` returns the run's name elsewhere, or None. A ValueError is final; after any other exception the
    same start is made again, with the same idempotency key, a few times.
    """

    fields: tuple[str, ...]

    async def start(self, start: OwnStart) -> str | None:
        """Have an execution started elsewhere."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The job is started by a launcher of another package; `text` is its launcher object."""

    kind: str
    text: str

    def to_dict(self) -> dict[str, object]:
        """Return the launcher object."""
        said: dict[str, object] = json.loads(self.text)
        return said


@cache
def plugin_kinds() -> Mapping[str, EntryPoint]:
    """Return the entry points of the installed launchers by their kind; nothing is loaded yet."""
    return {point.name: point for point in entry_points(group=GROUP)}


@cache
def load_plugin(kind: str) -> Callable[[], OwnLauncher]:
    """Return the class of an installed launcher, or raise InputError where it cannot be used."""
    try:
        found = plugin_kinds()[kind].load()
    except Exception as cause:
        _log.warning("the launcher %r cannot be loaded", kind, exc_info=True)
        message = f'The launcher "{kind}" cannot be loaded: {type(cause).__name__}: {cause}'
        raise InputError(message, reason=message) from cause
    fields = getattr(found, "fields", None)
    if not callable(getattr(found, "start", None)) or not isinstance(fields, tuple):
        message = f'The launcher "{kind}" has no fields, or no start'
        raise InputError(message, reason=message)
    return found  # type: ignore[no-any-return]


def reports_of(kind: str) -> bool:
    """Say whether the ends of an installed kind's executions will be reported."""
    try:
        return bool(getattr(load_plugin(kind), "reports", False))
    except InputError:
        return False


def read_plugin(
    kind: str, value: Mapping[str, object], path: str, problems: list[Problem]
) -> PluginSettings | None:
    """Return the settings of another package's launcher, or note what is wrong."""
    try:
        known = (*ALWAYS, *load_plugin(kind).fields)  # type: ignore[attr-defined]
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except InputError as error:
        problems.append(Problem(f"{path}.kind", kind, str(error)))
        return None
    except (TypeError, ValueError, RecursionError):
        problems.append(Problem(path, None, "must be a JSON document"))
        return None
    problems += [
        Problem(f"{path}.{name}", value[name], f"unknown field; {suggestion(name, known)}")
        for name in value
        if name not in known
    ]
    return PluginSettings(kind=kind, text=text)
