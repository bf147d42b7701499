"""The processes of the service: the API beside a worker, or a worker alone, until a signal stops them."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from fastapi import FastAPI

from kron.app.dag.orchestrator import RunOrchestrator
from kron.app.dag.worker import DagWorker, DagWorkerOptions
from kron.app.notify.sender import Sender
from kron.app.process import freeze_heap, prepare_process, raise_file_limit
from kron.app.signals import on_reload, on_stop
from kron.app.worker import Worker, WorkerFailedError, WorkerOptions
from kron.clocks.system import SystemClock
from kron.core.errors import InputError, InvalidOptionError, StoreError
from kron.core.plan.query import JobFilter
from kron.core.plan.report import Launch
from kron.core.plan.step import Limits
from kron.dag_ports import DagStore, WorkflowStore
from kron.fronts.service.api.admin import health_routes, metrics_routes
from kron.fronts.service.app import app_of
from kron.fronts.service.auth.middleware import is_loopback
from kron.fronts.service.auth.principal import current_request_id
from kron.fronts.service.client import LocalClient, no_worker
from kron.fronts.service.compute_pool import yield_quickly
from kron.fronts.service.http_server import listen, server_of, url_of
from kron.fronts.service.launchers import (
    launchers_of,
    runs_dags,
    unavailable_kinds,
    workflow_launcher,
    workflows_of,
)
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.run_launcher import RunLauncher, reporter_of
from kron.fronts.service.security import (
    authenticator_of,
    check_security,
    requires_authentication,
    server_options,
    weaknesses,
)
from kron.fronts.service.settings import SHARED, Settings, secrets_of
from kron.fronts.service.worker_process import Status, WorkerProcess, fork_worker, run_attended
from kron.launchers.callback import Callback, CallbackLauncher
from kron.launchers.launch import tenant_of, user_of
from kron.launchers.secret import SecretLauncher, Vault
from kron.launchers.workflow import Function
from kron.ports import Clock, Journal, Launcher, Store
from kron.runtime.journal import LogJournal
from kron.stores.url import WorkflowDatabase, open_dags, open_store, open_workflows, store_kind_of
from kron.telemetry.log_format import set_log_level, start_logging
from kron.telemetry.metrics import Metrics

_log = logging.getLogger("kron.service")
# Reads the settings again.
Reread = Callable[[], Settings]
# Wraps the launcher of a kind, e.g. to measure it.
Wrap = Callable[[str, Launcher], Launcher]
# Threads for name lookups and other calls that block; they are started when needed.
MAX_THREADS = 256
# How often old outputs of processes are removed, and how often they are checked for their size, in seconds.
PRUNE_OUTPUTS_S, LOOK_OUTPUTS_S = 3_600, 10
# The kind of a store that belongs to one process.
MEMORY_KIND = "memory"


# --- the worker ----------------------------------------------------------------------------------------


class ServiceWorker(Worker):
    """A worker of the namespace `service`, with the launchers and options of the settings.

    `callbacks` are functions by schedule, `functions` those an executor of the kind `callback` names.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        workflows: WorkflowStore | None = None,
        dags: DagStore | None = None,
        journal: Journal | None = None,
        wrap: Wrap = lambda _, launcher: launcher,
    ) -> None:
        self._outputs, self._keep = settings.outputs(), settings.retention.keep
        calls = CallbackLauncher(clock)
        self.callbacks = calls.callbacks
        self.functions: dict[str, Function] = {}
        self._dag_worker = None if dags is None else _dag_worker(dags, clock, settings)
        runs = _orchestrator(dags, workflows, clock, settings)
        if runs is not None and self._dag_worker is not None:
            runs.on_change = self._dag_worker.wake
        launchers = launchers_of(
            clock,
            settings,
            calls=calls,
            workflows=workflows,
            functions=self.functions,
            dags=runs,
            on_output=self._keep_output,
        )
        vault = settings.vault()
        if vault is not None:
            launchers = {kind: SecretLauncher(each, vault, clock) for kind, each in launchers.items()}
        wrapped = {kind: wrap(kind, launcher) for kind, launcher in launchers.items()}
        options = WorkerOptions(
            tick_ms=settings.tick_ms,
            balance=settings.workers == SHARED,
            drain_ms=settings.drain_ms,
            limits=Limits(
                settings.lookahead_ms,
                settings.max_catchup_per_tick,
                open_per_tenant=settings.max_open_runs or None,
            ),
            retention=settings.retention,
            tenant_of=user_of,
        )
        journal = journal or LogJournal()
        notify = settings.notify_options()
        sender = Sender(store, clock, namespace=NAMESPACE, options=notify, journal=journal)
        super().__init__(
            store, clock, wrapped, namespace=NAMESPACE, options=options, journal=journal, sender=sender
        )

    def _keep_output(self, launch: Launch, output: bytes) -> None:
        self._outputs.keep(launch.run, output, tenant_of(launch))

    async def run(self) -> None:
        """Run schedules and, where there is a runtime of DAGs, the tasks of their runs."""
        pruning = asyncio.create_task(self._prune_outputs(), name="kron outputs")
        try:
            await self._run()
        finally:
            pruning.cancel()

    def on_drain(self, *, is_drained: bool) -> None:
        """Claim no tasks of DAGs while the worker is drained."""
        if self._dag_worker is not None:
            self._dag_worker.drain(is_drained=is_drained)

    async def _prune_outputs(self) -> None:
        """Remove the outputs of processes that are older than any run, and those above the limit."""
        waited_s = PRUNE_OUTPUTS_S
        while True:
            if waited_s >= PRUNE_OUTPUTS_S or self._outputs.is_filling:
                before = None if self._keep is None else (self.clock.now() - self._keep).timestamp()
                await asyncio.to_thread(self._outputs.prune_older, before)
                waited_s = 0
            await asyncio.sleep(LOOK_OUTPUTS_S)
            waited_s += LOOK_OUTPUTS_S

    async def _run(self) -> None:
        if self._dag_worker is None:
            await super().run()
            return
        executing = asyncio.create_task(self._dag_worker.run(), name="kron dag worker")
        try:
            await super().run()
        finally:
            self._dag_worker.stop()
            drain_ms = self.options.drain_ms
            await asyncio.wait({executing}, timeout=None if drain_ms is None else drain_ms / 1000)
            # What still executes is left to the next worker.
            executing.cancel()
            with suppress(asyncio.CancelledError):
                await executing


def _orchestrator(
    dags: DagStore | None, workflows: WorkflowStore | None, clock: Clock, settings: Settings
) -> RunOrchestrator | None:
    """Return what starts the runs of DAGs, within the limits of the settings, or None."""
    if dags is None or workflows is None:
        return None
    return RunOrchestrator(dags, workflows, clock, max_open=settings.max_open_runs or None)


def _dag_worker(dags: DagStore, clock: Clock, settings: Settings) -> DagWorker:
    options = DagWorkerOptions(
        name=f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}",
        lease=timedelta(milliseconds=settings.lease_ms),
        config=settings.worker_launchers(),
        secret=settings.secret(),
        vault=settings.vault() or Vault(),
    )
    return DagWorker(dags, options, clock)


class LocalWorker:
    """A worker in the process of the API, with the verbs of one in another process."""

    def __init__(self, worker: ServiceWorker) -> None:
        self._worker = worker
        self.call = worker.call
        self.leave = worker.leave

    async def status(self) -> Status:
        """Return the worker's state and its error."""
        return self._worker.state, self._worker.error

    def set_log_level(self, level: str) -> None:
        """Do nothing: the process has one log level."""


class NoWorker:
    """The verbs of a worker where none runs: records of another front are shown."""

    status = staticmethod(no_worker)

    def call(self, at: int | None = None) -> None:
        """Do nothing."""

    def leave(self) -> None:
        """Do nothing."""

    def set_log_level(self, level: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that every process of the service has; the store is measured."""

    clock: Clock
    store: Store
    metrics: Metrics
    database: WorkflowDatabase
    workflows: WorkflowStore
    dags: DagStore | None

    def worker(self, settings: Settings) -> ServiceWorker:
        """Return a worker over these parts, which they measure."""
        metrics = self.metrics
        worker = ServiceWorker(
            self.store,
            self.clock,
            settings,
            workflows=self.workflows,
            dags=self.dags,
            journal=metrics,
            wrap=metrics.measured,
        )
        metrics.observe(worker)
        return worker


@asynccontextmanager
async def assembled(settings: Settings, namespace: str = NAMESPACE) -> AsyncIterator[Parts]:
    """Build the parts of a process, and close its stores at the end."""
    # Name lookups have a thread each; with a few, slow name servers of one tenant would delay all others.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MAX_THREADS, "kron"))
    clock, url = SystemClock(), settings.store_url
    store = open_store(url, lease_ms=settings.lease_ms)
    kind = store_kind_of(url)
    metrics = Metrics(store, clock, namespace=namespace, kind=kind, current_request=current_request_id)
    database = open_workflows(url)
    workflows = workflows_of(settings, database)
    dags = open_dags(url) if runs_dags(settings) else None
    try:
        yield Parts(
            clock=clock,
            store=metrics.store,
            metrics=metrics,
            database=database,
            workflows=workflows,
            dags=dags,
        )
    finally:
        if dags is not None:
            await dags.close()
        await database.close()
        await store.close()


def begin_logging(settings: Settings) -> None:
    """Log to standard error, with the level and format of the settings, without their secrets."""
    start_logging(
        level=settings.log_level,
        log_format=settings.log_format,
        secrets=secrets_of(settings),
        current_request=current_request_id,
    )


def _reload_at_hangup(reread: Reread | None, set_level: Callable[[str], None] = set_log_level) -> None:
    """Read the settings again at SIGHUP; of them, the log level changes in a running process."""
    if reread is not None:
        on_reload(partial(_reload, reread, set_level))


def _reload(reread: Reread, set_level: Callable[[str], None]) -> None:
    try:
        set_level(reread().log_level)
    except InputError as error:
        _log.warning("settings not reloaded: %s", error)


# --- a worker alone ------------------------------------------------------------------------------------


def run_worker(settings: Settings, *, reread: Reread | None = None) -> None:
    """Run a worker until SIGTERM or SIGINT; SIGHUP reads the settings again."""
    _warn(settings)
    prepare_process()
    asyncio.run(_run_worker(settings, reread))


async def _run_worker(settings: Settings, reread: Reread | None) -> None:
    async with assembled(settings) as parts:
        worker = parts.worker(settings)
        on_stop(worker.leave)
        _reload_at_hangup(reread)
        async with _metrics_endpoint(parts, worker, settings):
            await worker.run()


@asynccontextmanager
async def _metrics_endpoint(parts: Parts, worker: ServiceWorker, settings: Settings) -> AsyncIterator[None]:
    """Serve the metrics and the health of a worker, if the settings name a port."""
    if settings.metrics_port is None:
        yield
        return
    app = FastAPI(title="Kron worker", openapi_url=None, redirect_slashes=False)
    app.include_router(metrics_routes(parts.metrics))
    registrar = Registrar(parts.store, parts.clock)
    client = LocalClient(registrar, settings, worker_status=LocalWorker(worker).status)
    app.include_router(health_routes(client))
    with listen(settings.metrics_host, settings.metrics_port) as listening:
        server = server_of(app)
        serving = asyncio.create_task(server.serve(sockets=[listening]), name="kron metrics")
        _log.info("metrics on %s/metrics", url_of(settings.metrics_host, listening))
        try:
            yield
        finally:
            server.should_exit = True
            await serving


# --- the API with a worker -----------------------------------------------------------------------------


class ServeHooks(Protocol):
    """Extensions of a service, such as the demo: it prepares the store and provides callbacks."""

    async def prepare(self, store: Store, clock: Clock) -> None:
        """Prepare the store before anything runs."""
        ...

    def callbacks(self, clock: Clock) -> Mapping[str, Callback]:
        """Return functions by schedule."""
        ...

    def announce(self, url: str) -> None:
        """Announce the URL of the service once it listens."""
        ...


class _Service(NamedTuple):
    settings: Settings
    listening: socket.socket
    hooks: ServeHooks | None
    reread: Reread | None
    namespace: str = NAMESPACE


def serve_records(settings: Settings, namespace: str, *, reread: Reread | None = None) -> None:
    """Serve the records of another front in a store, read-only, without a worker, until SIGTERM or SIGINT."""
    _check_host(settings)
    _warn(settings)
    raise_file_limit()
    with listen(settings.host, settings.port) as listening:
        asyncio.run(_serve_records(_Service(settings, listening, None, reread, namespace)))


async def _serve_records(service: _Service) -> None:
    async with assembled(service.settings, service.namespace) as parts:
        with suppress(StoreError):
            known = await parts.store.namespaces()
            if service.namespace not in known:
                _log.warning(
                    "the store has no records of %s yet; it has %s",
                    service.namespace,
                    ", ".join(known) or "none",
                )
        await _serve(service, parts, NoWorker(), asyncio.get_running_loop().create_future())


def serve(settings: Settings, hooks: ServeHooks | None = None, *, reread: Reread | None = None) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the settings again.

    The worker runs in a process of its own, so that no request delays a start; a store in memory belongs to
    one process, where both share an event loop.
    """
    _check_host(settings)
    _warn(settings)
    raise_file_limit()
    with listen(settings.host, settings.port) as listening:
        service = _Service(settings, listening, hooks, reread)
        if store_kind_of(settings.store_url) == MEMORY_KIND:
            asyncio.run(_serve_together(service))
            return
        if hooks is not None:
            asyncio.run(_prepare(settings, hooks))
        # Before the fork: the worker's collections would copy all pages of memory.
        prepare_process()
        process = fork_worker(partial(_work_apart, settings, hooks), close=[listening])
        try:
            asyncio.run(_serve_apart(service, process))
        finally:
            process.close()


async def _prepare(settings: Settings, hooks: ServeHooks) -> None:
    async with assembled(settings) as parts:
        await hooks.prepare(parts.store, parts.clock)


def _work_apart(settings: Settings, hooks: ServeHooks | None, channel: socket.socket) -> None:
    """Run the worker in its process."""
    # A fork keeps no more of the table of open files than it needs.
    prepare_process()

    async def work() -> None:
        async with assembled(settings) as parts:
            worker = parts.worker(settings)
            if hooks is not None:
                worker.callbacks.update(hooks.callbacks(parts.clock))
            await run_attended(channel, worker, parts.metrics.scrape)

    asyncio.run(work())


async def _serve_apart(service: _Service, process: WorkerProcess) -> None:
    """Serve the API, and end when the worker's process does: a supervisor sees that, and restarts both."""
    await process.open()
    # Before the worker starts: a signal that ended the API would kill a worker that has sent starts.
    on_stop(process.leave)
    async with assembled(service.settings) as parts:
        parts.metrics.other = process.metrics
        with suppress(StoreError):
            # The database is created and migrated by one process.
            await parts.store.find_jobs(NAMESPACE, JobFilter(), limit=1)
        process.start()
        ending = asyncio.create_task(process.ended(), name="kron worker process")
        await _serve(service, parts, process, ending)
        code = await ending
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise WorkerFailedError(process.error or f"The worker's process ended with {how}")


async def _serve_together(service: _Service) -> None:
    """Serve the API and run the worker in one event loop."""
    settings, hooks = service.settings, service.hooks
    async with assembled(settings) as parts:
        worker = parts.worker(settings)
        if hooks is not None:
            await hooks.prepare(parts.store, parts.clock)
            worker.callbacks.update(hooks.callbacks(parts.clock))
        working = asyncio.create_task(worker.run(), name="kron worker")
        await _serve(service, parts, LocalWorker(worker), working)
        await working


async def _serve(
    service: _Service,
    parts: Parts,
    worker: WorkerProcess | LocalWorker | NoWorker,
    working: asyncio.Future[Any],
) -> None:
    """Serve the API until a signal, or until the worker ends."""
    yield_quickly()
    settings = service.settings
    authenticator = authenticator_of(settings, SystemClock())
    authenticator.is_read_only = service.namespace != NAMESPACE
    await authenticator.start()
    clock, workflows = parts.clock, parts.workflows
    registrar = _registrar_of(service, parts, worker.call)
    runs = _orchestrator(parts.dags, workflows, clock, settings)
    delivery = workflow_launcher(clock, settings, workflows, {}, runs)
    launcher = RunLauncher(clock, delivery, parts.database, on_end=reporter_of(registrar))

    def set_level(level: str) -> None:
        set_log_level(level)
        worker.set_log_level(level)

    app = app_of(
        registrar,
        settings,
        authenticator=authenticator,
        worker_status=worker.status,
        launcher=launcher,
        metrics=parts.metrics,
        set_level=set_level,
    )
    server = server_of(app, server_options(settings))
    server.on_shutdown = app.state.live.close

    def leave(_: object = None) -> None:
        server.should_exit = True
        worker.leave()

    on_stop(leave)
    _reload_at_hangup(service.reread, set_level)
    working.add_done_callback(leave)
    freeze_heap()
    _announce(service)
    try:
        await server.serve(sockets=[service.listening])
    finally:
        await launcher.close()


def _registrar_of(service: _Service, parts: Parts, wake: Callable[[int | None], None]) -> Registrar:
    settings, clock = service.settings, parts.clock
    functions = frozenset() if service.hooks is None else frozenset(service.hooks.callbacks(clock))
    rules = replace(settings.rules, unavailable=unavailable_kinds(settings), functions=functions)
    registrar = Registrar(
        parts.store, clock, rules=rules, wake=wake, workflows=parts.workflows, namespace=service.namespace
    )
    registrar.dags = parts.dags
    return registrar


def _announce(service: _Service) -> None:
    """Log the URL, and pass it to the hooks."""
    scheme = "http" if service.settings.tls_certificate is None else "https"
    url = url_of(service.settings.host, service.listening, scheme=scheme)
    _log.info("serving on %s", url)
    if service.hooks is not None:
        service.hooks.announce(url)


def _warn(settings: Settings) -> None:
    """Log what the settings weaken, one line each."""
    for sentence in weaknesses(settings):
        _log.warning("%s", sentence)


def _check_host(settings: Settings) -> None:
    """Refuse to listen on a public address without authentication."""
    check_security(settings)
    if settings.insecure or requires_authentication(settings) or is_loopback(settings.host):
        return
    reason = (
        "a public address without authentication would make every caller admin; "
        "set jwt_keys or jwt_secret_file (see kron token), use 127.0.0.1, or --insecure"
    )
    raise InvalidOptionError(option="host", value=settings.host, reason=reason)
