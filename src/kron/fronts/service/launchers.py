"""The launchers of the service: built from its settings, and the store of workflows beside them."""

from collections.abc import Mapping
from dataclasses import replace

from kron.app.launchers import build_launcher, build_launchers, read_launcher
from kron.dag_ports import DagRuns, WorkflowStore
from kron.fronts.service.security import requires_authentication
from kron.fronts.service.settings import IN_STORE, Settings
from kron.launchers.callback import CallbackLauncher, CallbackOptions, CallbackSettings
from kron.launchers.celery.spec import CelerySettings
from kron.launchers.dag import NOT_HERE, DagOptions, DagSettings
from kron.launchers.http.spec import HttpOptions
from kron.launchers.kubernetes.spec import KubernetesOptions, KubernetesSettings
from kron.launchers.process.spec import OnOutput, ProcessOptions
from kron.launchers.spec import LauncherConfig, LauncherContext
from kron.launchers.workflow import Function, WorkflowLauncher, WorkflowSettings, picker_of
from kron.ports import Clock, Launcher
from kron.stores.folder import FolderWorkflows
from kron.stores.url import WorkflowDatabase

# Why this service cannot run a kind of launcher, with the remedy.
NO_EXECUTOR = (
    "this service has no executor for workflows: set executor (KRON_EXECUTOR), "
    'or name another launcher, such as {"kind": "log"}'
)
NO_BROKER = (
    "this service has no broker for Celery tasks: set celery_broker (KRON_CELERY_BROKER), "
    'or name another launcher, such as {"kind": "log"}'
)
NO_CLUSTER = (
    "this service has no cluster for Jobs: set kubernetes (KRON_KUBERNETES) to in-cluster or a kubeconfig, "
    'or name another launcher, such as {"kind": "log"}'
)
NO_FUNCTION = (
    "kron serve has no functions to call: run the worker in a program that registers them, "
    'or name another launcher, such as {"kind": "http", "url": "https://..."} or {"kind": "log"}'
)


def workflows_of(settings: Settings, database: WorkflowDatabase) -> WorkflowStore:
    """Return the store of workflows."""
    return database if settings.workflows == IN_STORE else FolderWorkflows(settings.workflows)


def unavailable_kinds(settings: Settings) -> dict[str, str]:
    """Return the kinds of launchers that `kron serve` cannot run with these settings, with the remedy.

    A function is registered by the program around a worker, and `kron serve` has no such program.
    """
    kinds = {CallbackSettings.kind: NO_FUNCTION}
    if settings.broker is None:
        kinds[CelerySettings.kind] = NO_BROKER
    if settings.kubernetes is None:
        kinds[KubernetesSettings.kind] = NO_CLUSTER
    executor = None if settings.executor is None else read_launcher(settings.executor).kind
    if executor is None:
        kinds[WorkflowSettings.kind] = NO_EXECUTOR
    elif executor in kinds:
        kinds[WorkflowSettings.kind] = f"the executor is of the kind {executor}, and {kinds[executor]}"
    kinds[DagSettings.kind] = NOT_HERE
    return kinds


def launchers_of(
    clock: Clock,
    settings: Settings,
    *,
    calls: CallbackLauncher,
    workflows: WorkflowStore | None,
    functions: Mapping[str, Function],
    dags: DagRuns | None = None,
    on_output: OnOutput | None = None,
) -> dict[str, Launcher]:
    """Return the launchers of a worker by kind; `calls` is the one for functions by schedule.

    `on_output` gets the output of each process that has ended.
    """
    config = settings.worker_launchers()
    processes = replace(config.get(ProcessOptions), on_output=on_output)
    config = LauncherConfig((processes, *config.options, CallbackOptions(launcher=calls)), config.default)
    launchers = build_launchers(LauncherContext(clock, config, settings.secret()))
    if workflows is not None:
        launchers["workflow"] = workflow_launcher(clock, settings, workflows, functions, dags, on_output)
    return launchers


def workflow_launcher(
    clock: Clock,
    settings: Settings,
    workflows: WorkflowStore,
    functions: Mapping[str, Function],
    dags: DagRuns | None = None,
    on_output: OnOutput | None = None,
) -> WorkflowLauncher:
    """Return the launcher of workflows; its executor is the operator's choice, so no limits apply to it."""
    executor = None if settings.executor is None else read_launcher(settings.executor)
    secret = settings.secret()
    config = LauncherConfig(
        (
            ProcessOptions(
                folder=settings.process_folder,
                inherited=settings.inherited_variables,
                max_per_tenant=settings.max_running,
                on_output=on_output,
            ),
            HttpOptions(max_per_tenant=settings.max_running),
            settings.celery,
            KubernetesOptions(access=settings.cluster()),
            CallbackOptions(pick=picker_of(functions, secret=secret)),
            DagOptions(runs=dags),
        )
    )
    inner = build_launcher(executor or CallbackSettings(), LauncherContext(clock, config, secret))
    return WorkflowLauncher(clock, workflows, executor, inner, own_only=requires_authentication(settings))


def runs_dags(settings: Settings) -> bool:
    """Return whether workflows are executed by Kron's DAG runtime."""
    return settings.executor is not None and read_launcher(settings.executor).kind == DagSettings.kind
