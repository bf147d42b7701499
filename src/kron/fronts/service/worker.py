"""The service's worker: the shared life cycle with the launchers and options of the settings."""

from collections.abc import Callable

from kron.app.worker import Worker, WorkerOptions
from kron.core.plan.step import Limits
from kron.fronts.service.launchers import launchers_of
from kron.fronts.service.registrar import NAMESPACE
from kron.fronts.service.settings import SHARED, Settings
from kron.launchers.callback import CallbackLauncher
from kron.launchers.workflow import Function
from kron.ports import Clock, Journal, Launcher, Store, WorkflowStore

# Wraps the launcher of a kind, e.g. to measure it.
Wrap = Callable[[str, Launcher], Launcher]


class ServiceWorker(Worker):
    """A worker of the namespace `service`.

    `callbacks` are functions by schedule, `functions` those an executor of the kind `callback` names.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        workflows: WorkflowStore | None = None,
        journal: Journal | None = None,
        wrap: Wrap = lambda _, launcher: launcher,
    ) -> None:
        calls = CallbackLauncher(clock)
        self.callbacks = calls.callbacks
        self.functions: dict[str, Function] = {}
        launchers = launchers_of(clock, settings, calls=calls, workflows=workflows, functions=self.functions)
        wrapped = {kind: wrap(kind, launcher) for kind, launcher in launchers.items()}
        options = options_of(settings)
        super().__init__(store, clock, wrapped, namespace=NAMESPACE, options=options, journal=journal)


def options_of(settings: Settings) -> WorkerOptions:
    """Return how the settings want a worker to behave."""
    return WorkerOptions(
        tick_ms=settings.tick_ms,
        balance=settings.workers == SHARED,
        drain_ms=settings.drain_ms,
        limits=Limits(settings.lookahead_ms, settings.max_catchup_per_tick),
    )
