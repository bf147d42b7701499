"""Launching: the launchers of a worker, as its settings want them."""

import logging
from collections.abc import Iterator, Mapping

from kron.core.errors import InputError
from kron.fronts.service.security import requires_authentication
from kron.fronts.service.settings import IN_STORE, Settings
from kron.launchers.callback import CallbackLauncher
from kron.launchers.celery.launcher import CeleryLauncher
from kron.launchers.celery.spec import CelerySettings
from kron.launchers.http.launcher import HttpLauncher
from kron.launchers.plugin.launcher import PluginKindLauncher
from kron.launchers.plugin.spec import plugin_kinds
from kron.launchers.process.env import unsafe_variables
from kron.launchers.process.launcher import ProcessLauncher
from kron.launchers.spec import (
    CallbackSettings,
    HttpSettings,
    ProcessSettings,
    launcher_kind_of,
    read_launcher,
)
from kron.launchers.workflow import Function, WorkflowLauncher, picker_of
from kron.ports import Clock, Launcher, WorkflowStore
from kron.stores.folder import FolderWorkflows
from kron.stores.url import WorkflowDatabase

_log = logging.getLogger("kron.service")


def workflows_of(settings: Settings, database: WorkflowDatabase) -> WorkflowStore:
    """Return where workflows are kept."""
    return database if settings.workflows == IN_STORE else FolderWorkflows(settings.workflows)


def launchers_of(
    clock: Clock,
    settings: Settings,
    *,
    calls: CallbackLauncher,
    workflows: WorkflowStore | None,
    functions: Mapping[str, Function],
) -> dict[str, Launcher]:
    """Return the launchers of a worker by kind; `calls` is the one for functions by schedule."""
    gate, secret = settings.gate, settings.secret()
    processes = ProcessLauncher(clock, settings.process_folder, secret=secret)
    processes.allow = lambda asked: _is_allowed(asked, settings)
    launchers: dict[str, Launcher] = {
        "callback": calls,
        "process": processes,
        "http": HttpLauncher(clock, gate=gate, secret=secret),
        "http:reports": HttpLauncher(clock, reports=True, gate=gate, secret=secret),
        "celery": _celery_launcher(clock, settings, reports=False),
        "celery:reports": _celery_launcher(clock, settings, reports=True),
        **dict(_own_launchers(clock)),
    }
    if workflows is not None:
        launchers["workflow"] = workflow_launcher(clock, settings, workflows, functions)
    return launchers


def workflow_launcher(
    clock: Clock, settings: Settings, workflows: WorkflowStore, functions: Mapping[str, Function]
) -> WorkflowLauncher:
    """Return what hands workflows to the executor of the settings, which is the operator's own choice."""
    executor = None if settings.executor is None else read_launcher(settings.executor)
    secret = settings.secret()
    inner: Launcher
    match executor:
        case ProcessSettings():
            inner = ProcessLauncher(clock, settings.process_folder, secret=secret)
        case HttpSettings(reports=reports):
            inner = HttpLauncher(clock, reports=reports, secret=secret)
        case CelerySettings(reports=reports):
            inner = CeleryLauncher(clock, settings.broker, reports=reports, secret=secret)
        case CallbackSettings() | None:
            inner = CallbackLauncher(clock, pick=picker_of(functions, secret=secret))
        case _:
            inner = PluginKindLauncher(clock, launcher_kind_of(executor))
    return WorkflowLauncher(clock, workflows, executor, inner, own_only=requires_authentication(settings))


def _celery_launcher(clock: Clock, settings: Settings, *, reports: bool) -> CeleryLauncher:
    launcher = CeleryLauncher(clock, settings.broker, reports=reports, secret=settings.secret())
    launcher.allow = lambda asked: _is_allowed_task(asked, settings)
    return launcher


def _is_allowed_task(asked: CelerySettings, settings: Settings) -> bool:
    """Say whether a task may be published: it is named in the settings, or the operator's own default."""
    default = settings.default_launcher
    usual = None if default is None else read_launcher(default)
    is_usual = isinstance(usual, CelerySettings) and usual.task == asked.task
    return is_usual or asked.task in settings.allowed_tasks


def _is_allowed(asked: ProcessSettings, settings: Settings) -> bool:
    """Say whether a process may be started: it is named in the settings, or the operator's own default."""
    is_listed = asked.command[0] in settings.allowed_commands and not unsafe_variables(asked.env)
    return is_listed or _is_usual(asked, settings.default_launcher)


def _is_usual(asked: ProcessSettings, default: Mapping[str, object] | None) -> bool:
    usual = None if default is None else read_launcher(default)
    return isinstance(usual, ProcessSettings) and usual.command == asked.command


def _own_launchers(clock: Clock) -> Iterator[tuple[str, Launcher]]:
    for kind in plugin_kinds():
        try:
            yield kind, PluginKindLauncher(clock, kind)
        except InputError as error:
            _log.warning("%s", error)
        except Exception:  # noqa: BLE001 - a package that is broken must not keep the others from working
            _log.exception("the launcher %r cannot be used", kind)
