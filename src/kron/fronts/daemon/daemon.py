"""The daemon: a worker over SQLite with supervised processes, job files that are reloaded, and control."""

import asyncio
import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kron.app.catalog import Catalog
from kron.app.launchers import build_launchers, traits_by_kind
from kron.app.notify.sender import NotifyOptions, Sender
from kron.app.output import RunOutputs
from kron.app.signals import on_reload, on_stop
from kron.app.worker import Worker, WorkerOptions
from kron.clocks.system import SystemClock
from kron.core.errors import ConflictError, InputError, KronError, StoreError
from kron.core.plan.step import Change, WriteResult
from kron.core.time.instant import EPOCH, MILLISECOND
from kron.core.wording import counted
from kron.fronts.daemon.control import ControlServer, Handler
from kron.fronts.daemon.job_set import Reloaded, log_reload
from kron.fronts.daemon.place import StateFolder
from kron.fronts.daemon.systemd import Notifier
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import LauncherConfig, LauncherContext
from kron.ports import Clock, Journal, Launcher, Store
from kron.stores.sqlite.store import SqliteStore
from kron.telemetry.decision_log import DecisionLog

if TYPE_CHECKING:
    from kron.fronts.daemon.metrics_file import MetricsFile
    from kron.telemetry.metrics import Metrics

_log = logging.getLogger("kron.krond")
NAMESPACE = "krond"
# How often the job files are compared with those that were loaded, and at least while they cannot be applied
# (a full disk, no room for a process), in seconds.
LOOK_S, MAX_LOOK_S = 2.0, 60.0
# How long a stop waits for running processes before it leaves them to the next krond.
DRAIN_MS = 100
# All outputs of ended runs together.
MAX_OUTPUT_BYTES = 256 << 20
PROCESS = "process"
# The operating system has the pages of the database in memory: a daemon that waits does without a copy.
CACHE_KIB = 512
# The option of the first load of a krond. All jobs are read for it, in memory that ends with the loader.
FIRST_LOAD = "--boot"
# Runs read at once.
PAGE = 1_000


class AlreadyRunningError(ConflictError):
    """Another krond uses the state folder."""

    code = "already_running"

    def __init__(self, *, folder: str, pid: str) -> None:
        other = f" (process {pid})" if pid else ""
        super().__init__(
            f"Another krond{other} uses {folder}; name another folder with --state", folder=folder
        )


class NotLoadedError(KronError):
    """The job files could not be applied."""

    code = "not_loaded"

    def __init__(self, *, code: int | None) -> None:
        super().__init__(
            f"The job files were not applied (exit code {code}): the earlier jobs stay", code=code
        )


NO_NOTIFIER = Notifier(None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonOptions:
    """What a krond needs beside its jobs: its place, and a stamp of its files that changes with them.

    `loader` is the command that applies the files to the database, and prints a `Reloaded` as JSON; with
    `FIRST_LOAD` it also requests the runs of this boot.
    """

    place: StateFolder
    loader: Sequence[str]
    stamp: Callable[[], object]
    notifier: Notifier = NO_NOTIFIER
    # Writes metrics to a file; without one they are counted where `is_measured`.
    metrics_file: Path | None = None
    is_measured: bool = False
    # Further work beside the worker, such as the process of the pages.
    beside: Sequence[Callable[[], Coroutine[None, None, None]]] = ()
    notify: NotifyOptions = field(default_factory=NotifyOptions)
    clock: Clock = field(default_factory=SystemClock)
    max_output_bytes: int = MAX_OUTPUT_BYTES


class Daemon:
    """One krond: it loads its files, runs their jobs, reloads them when they change, and takes commands.

    `handler_of` returns what answers control requests, for this daemon.
    """

    def __init__(self, options: DaemonOptions, handler_of: Callable[["Daemon"], Handler]) -> None:
        self.options = options
        self.clock = options.clock
        self.store: Store = SqliteStore(str(options.place.database), cache_kib=CACHE_KIB)
        self._metrics_file: MetricsFile | None = None
        self.metrics = self._build_metrics()
        journal = DaemonJournal(DecisionLog(), self._prune_outputs)
        if self.metrics is not None:
            # Every call of the store is measured; decisions are logged and counted by the same object.
            self.store, journal = self.metrics.store, DaemonJournal(self.metrics, self._prune_outputs)
        self.outputs = RunOutputs(options.place.processes, max_bytes=options.max_output_bytes)
        self._handler_of = handler_of
        self._reloading = asyncio.Lock()
        self._loaded: object = None
        # The runs of this boot are requested with the first load that succeeds.
        self._first_load: Sequence[str] = (FIRST_LOAD,)
        self._jobs = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.launchers = self._build_launchers()
        sender = Sender(self.store, self.clock, namespace=NAMESPACE, options=options.notify, journal=journal)
        self.worker = Worker(
            self.store,
            self.clock,
            self.launchers,
            namespace=NAMESPACE,
            options=WorkerOptions(drain_ms=DRAIN_MS),
            journal=journal,
            sender=sender,
        )
        self.catalog = Catalog(
            self.store, NAMESPACE, now=self.now, wake=self.worker.call, traits=traits_by_kind()
        )
        if self.metrics is not None:
            self.metrics.observe(self.worker)

    def _build_metrics(self) -> "Metrics | None":
        path = self.options.metrics_file
        if path is None and not self.options.is_measured:
            return None
        # Imported only where it is needed: the client of Prometheus takes memory.
        try:
            from kron.fronts.daemon.metrics_file import MetricsFile
            from kron.telemetry.metrics import Metrics
        except ModuleNotFoundError as cause:
            if cause.name != "prometheus_client":
                raise
            raise InputError("--metrics-file needs the package prometheus-client") from cause
        # The exporter that reads the file has metrics of its own process, under the same names.
        metrics = Metrics(self.store, self.clock, namespace=NAMESPACE, kind="sqlite", with_process=False)
        self._metrics_file = None if path is None else MetricsFile(path, metrics)
        return metrics

    def _build_launchers(self) -> dict[str, Launcher]:
        options = ProcessOptions(folder=str(self.options.place.processes), supervised=True)
        launchers = build_launchers(LauncherContext(self.clock, LauncherConfig((options,))))
        if self.metrics is None:
            return launchers
        measured = self.metrics.measured
        return {kind: measured(kind, launcher) for kind, launcher in launchers.items()}

    def now(self) -> int:
        """Return the present instant in milliseconds."""
        return (self.clock.now() - EPOCH) // MILLISECOND

    # --- the life of a daemon ----------------------------------------------------------------------

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT; SIGHUP and changed files reload the jobs."""
        control = ControlServer(self.options.place.socket, self._handler_of(self))
        try:
            await self._reload_safely()
            on_stop(self.worker.leave)
            on_reload(self._reload_soon)
            await control.start()
            beside = [
                asyncio.create_task(self._watch_files(), name="krond files"),
                asyncio.create_task(self._feed_watchdog(), name="krond watchdog"),
            ]
            beside += [asyncio.create_task(work(), name="krond beside") for work in self.options.beside]
            if self._metrics_file is not None:
                beside.append(asyncio.create_task(self._metrics_file.run(), name="krond metrics"))
            _log.info("krond is running; state in %s", self.options.place.folder)
            self.options.notifier.send("READY=1", self._status())
            try:
                await self.worker.run()
            finally:
                self.options.notifier.send("STOPPING=1")
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                await control.close()
                if self._metrics_file is not None:
                    await self._metrics_file.write()
        finally:
            await self.store.close()

    async def reload(self) -> None:
        """Load the job files and apply them; running processes of removed jobs end if their job says so."""
        async with self._reloading:
            stamp = await asyncio.to_thread(self.options.stamp)
            reloaded = await self._load(self._first_load)
            self._loaded, self._first_load = stamp, ()
        log_reload(reloaded)
        self.worker.call()
        self._jobs = reloaded.jobs
        self.options.notifier.send(self._status())
        if reloaded.ends:
            await self._end_runs(reloaded.ends)

    async def _load(self, words: Sequence[str]) -> Reloaded:
        """Read and apply the files in another process: parsing takes time and memory, which end with it."""
        loader = await asyncio.create_subprocess_exec(
            *self.options.loader, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
        text, _ = await loader.communicate()
        try:
            return Reloaded(**json.loads(text))
        except (ValueError, TypeError) as cause:
            raise NotLoadedError(code=loader.returncode) from cause

    async def _end_runs(self, identities: Sequence[str]) -> None:
        for state in await self.catalog.states(identities):
            for run in state.runs:
                if run.in_flight:
                    _log.info("ending the process of the removed job %s", run.identity)
                    self.launchers[PROCESS].end(run)

    def _status(self) -> str:
        return f"STATUS={counted(self._jobs, 'job')}, worker {self.worker.state}"

    async def _feed_watchdog(self) -> None:
        """Show the service manager that the event loop works; one that hangs is restarted."""
        interval = self.options.notifier.watchdog_s
        while interval is not None:
            self.options.notifier.send("WATCHDOG=1", self._status())
            await asyncio.sleep(interval)

    def _reload_soon(self) -> None:
        async def reload() -> None:
            await self._reload_safely()

        self._spawn(reload())

    async def _reload_safely(self) -> bool:
        """Reload; a load that fails is logged, and tried again. Return whether it succeeded."""
        try:
            await self.reload()
        except (KronError, OSError) as error:
            _log.error("%s", error)
            return False
        return True

    async def _watch_files(self) -> None:
        """Reload when the files have changed and have been still for one look, and until they are applied."""
        before, pause_s = self._loaded, LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            now = await asyncio.to_thread(self.options.stamp)
            if now == self._loaded:
                pause_s = LOOK_S
            elif now == before:
                _log.info("job files have changed")
                pause_s = LOOK_S if await self._reload_safely() else min(2 * pause_s, MAX_LOOK_S)
            before = now

    def _prune_outputs(self) -> None:
        self._spawn(self._prune())

    async def _prune(self) -> None:
        with suppress(StoreError, OSError):
            removed = await self.outputs.prune(self._known)
            if removed:
                _log.info("removed %d old outputs", removed)

    async def _known(self, identity: str, since: int) -> set[str]:
        """Return the keys of a job's runs since a nominal time."""
        keys: set[str] = set()
        before: int | None = None
        while True:  # each page ends earlier
            page = await self.store.runs(NAMESPACE, identity, before=before, limit=PAGE)
            keys.update(run.key for run in page)
            if len(page) < PAGE or page[-1].nominal_time < since:
                return keys
            # Further runs of the same instant are read again.
            before = page[-1].nominal_time + (page[0].nominal_time != page[-1].nominal_time)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class DaemonJournal:
    """Passes decisions and events on to a journal, and calls a function when old records were pruned."""

    def __init__(self, journal: Journal, on_pruned: Callable[[], None]) -> None:
        self._journal = journal
        self._on_pruned = on_pruned

    def settled(self, changes: Sequence[Change], settled: WriteResult, now: int) -> None:
        """Record a commit of the engine."""
        self._journal.settled(changes, settled, now)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record one event of the engine."""
        self._journal.note(event, fields)
        if event == "pruned":
            self._on_pruned()


@contextmanager
def only_instance(place: StateFolder) -> Iterator[None]:
    """Hold the lock of a state folder, or raise AlreadyRunningError; the folder is private."""
    try:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.folder.chmod(0o700)
        lock = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as cause:
        raise InputError(
            f"The state folder {place.folder} cannot be used: {cause.strerror or cause}"
        ) from cause
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            if cause.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            pid = os.pread(lock, 20, 0).decode(errors="replace").strip()
            raise AlreadyRunningError(folder=str(place.folder), pid=pid) from cause
        os.truncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        # SQLite gives its journals the permissions of the database.
        os.close(os.open(place.database, os.O_RDWR | os.O_CREAT, 0o600))
        yield
    finally:
        os.close(lock)
