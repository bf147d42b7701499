"""The process launcher: runs are processes on this host, which outlive their owner and can be adopted."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar, TypeVarTuple

from kron.core.errors import InputError, InvalidOptionError
from kron.core.plan.compiled import cached_by_text
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, LeaseStatus, RunEvent, Traits
from kron.core.redaction import hide_run_token
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.fair_queue import FairQueue, Share
from kron.launchers.launch import LAPSED_S, Attempt, lease_is_lost, report_of, tenant_of
from kron.launchers.process.host import LAUNCHER_ID, boot_of, launcher_id_of, sessions_of
from kron.launchers.process.process import (
    Files,
    PidfdWatcher,
    Process,
    describe_exit,
    env_of,
    inherited_env,
    is_longer,
    number_of,
    remove_files,
    spawn,
    trim_all,
)
from kron.launchers.process.spec import OnOutput, ProcessOptions, ProcessSettings
from kron.launchers.process.supervisor.output import joined, kept_parts
from kron.launchers.process.supervisor.record import started_of
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import MAX_CACHED, settings_parser
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")

GRACE = timedelta(seconds=10)
DEFAULT_BACKOFF = Backoff()
settings_of = settings_parser(ProcessSettings)


@cached_by_text(MAX_CACHED)
def _unsupervised(launcher: str) -> ProcessSettings:
    """Return settings, or raise ValueError if a field of theirs needs a supervisor."""
    settings = settings_of(launcher)
    if needless := settings.host_fields():
        raise ValueError(f"launcher.{needless[0]}: {NO_SUPERVISOR}")
    return settings


# How many processes start in one iteration of the event loop; each takes about half a millisecond.
SPAWNS_PER_ITERATION = 4
# How many processes run in all, as a multiple of one tenant's, and which part of a tenant's own limit it has
# whatever the others run.
TOTAL_FACTOR, RESERVED_PART = 10, 4
# How often outputs are trimmed, and how often an ending process group is polled, in seconds.
TRIM_S, GROUP_POLL_S = 0.25, 0.05
# An output that takes long to read and to remove, in bytes, and how many threads do that.
LARGE_OUTPUT, FILE_THREADS = 256 * 1024, 4
# How often an adopted process is polled on hosts without pidfd, in seconds.
POLL_S = 0.2
# How many processes are requested and have not started yet; the others can still be ended without one.
MAX_STARTING = 1_024
LOST = "its exit status was lost with its worker"
NO_SUPERVISOR = "needs krond: this worker runs processes without a supervisor"


Args = TypeVarTuple("Args")
Value = TypeVar("Value")
# How a process ended: the event, and the error if it failed.
Outcome: TypeAlias = tuple[RunEvent, str | None]


class Waiting(NamedTuple):
    """A launch whose process has not started yet, and its failed attempts to start it."""

    launch: Launch
    sink: ReportSink
    failures: int = 0


def length_of(settings: ProcessSettings) -> int:
    """Return about how many characters the settings have; few programs are given many."""
    command = (settings.command,) if isinstance(settings.command, str) else settings.command
    variables = (part for pair in settings.env for part in pair)
    return sum(map(len, (*command, *variables, settings.stdin or "", settings.stdin_text or "")))


class ProcessLauncher:
    """Starts a process in a new session for each run, and reports its end.

    `state` is the folder of the outputs of running processes; workers that adopt each other's processes
    share it. With `max_processes` at most that many run at once; the others wait in order. `on_output` gets
    the first and the last bytes that each process wrote, if any. With a `secret` each process has the token
    of its run. `env` are the variables that they inherit.
    """

    traits = Traits(reports=True, idempotent=False)
    has_pidfd = hasattr(os, "pidfd_open")

    def __init__(
        self,
        clock: Clock,
        state: str | Path,
        *,
        grace: timedelta = GRACE,
        max_processes: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        on_output: OnOutput | None = None,
        secret: bytes | None = None,
    ) -> None:
        _check_bound("max_processes", max_processes)
        self._clock = clock
        self._boot = boot_of()
        self._folder = str(Path(state).absolute() / self._boot)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._grace_s = grace.total_seconds()
        self._backoff = backoff
        self._on_output = on_output
        self._secret = secret
        # Called before each start, because the allowed commands may have changed since the registration.
        self.check: Callable[[ProcessSettings], ProcessSettings] = lambda settings: settings
        # The worker's own settings, perhaps passwords, are not inherited.
        self.env = inherited_env(ProcessOptions())
        self._waiting: dict[Attempt, Waiting] = {}
        self._queue: FairQueue[Attempt] = FairQueue(
            most=max_processes, per_tenant=sys.maxsize, per_target=sys.maxsize
        )
        # The slots of running processes, and whether the queue may have an item with a slot.
        self._slots: dict[Attempt, Share] = {}
        self._may_take = False
        self._retries: dict[Attempt, tuple[asyncio.Task[None], Waiting]] = {}
        # Launches whose process was requested and has not started yet.
        self._starting: dict[Attempt, Waiting] = {}
        self._running: dict[Attempt, Process] = {}
        self._work: AbstractContextManager[None] | None = None
        self._trimmer: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(FILE_THREADS, "kron-outputs")
        self._watched = PidfdWatcher()
        self._idle = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Return whether processes run or wait to start."""
        return bool(self._waiting or self._retries or self._starting or self._running)

    def limit_tenants(self, most: int) -> None:
        """Run at most this many processes of one tenant, and ten times as many in all, in turn.

        It is called before the first start.
        """
        _check_bound("max_per_tenant", most)
        self._queue = FairQueue(
            most=TOTAL_FACTOR * most,
            per_tenant=most,
            per_target=sys.maxsize,
            reserved=max(1, most // RESERVED_PART),
        )

    # --- starting --------------------------------------------------------------------------------

    def start(self, launch: Launch, sink: ReportSink) -> None:
        """Start a process in one of the next iterations of the event loop, or when a slot is free."""
        self._enqueue((launch.run.key, launch.run.attempt), Waiting(launch, sink))

    def _enqueue(self, attempt: Attempt, waiting: Waiting) -> None:
        self._waiting[attempt] = waiting
        self._queue.put(attempt, Share(tenant_of(waiting.launch)))
        self._may_take = True
        self._schedule()

    def _schedule(self) -> None:
        """Schedule the next starts if a slot may be free; a simulated clock does not advance until then."""
        has_room = len(self._starting) < MAX_STARTING
        if self._work is None and self._waiting and self._may_take and has_room:
            self._work = self._clock.working()
            self._work.__enter__()
            asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        work, self._work = self._work, None
        try:
            for _ in range(min(SPAWNS_PER_ITERATION, MAX_STARTING - len(self._starting))):
                taken = self._queue.take()
                if taken is None:
                    self._may_take = False
                    break
                self._start_next(*taken)
            self._schedule()
        finally:
            if work is not None:
                work.__exit__(None, None, None)
            self._note_idle()

    def _start_next(self, attempt: Attempt, share: Share) -> None:
        waiting = self._waiting.pop(attempt, None)
        if waiting is None:
            # It was ended, or it was queued twice because it was adopted while it waited.
            self._queue.release(share)
            return
        self._slots[attempt] = share
        if self._may_start(attempt, waiting):
            self._start(attempt, waiting)
        if attempt not in self._running and attempt not in self._starting:
            self._free_slot(attempt)

    def _free_slot(self, attempt: Attempt) -> None:
        self._queue.release(self._slots.pop(attempt))
        self._may_take = True

    def _may_start(self, attempt: Attempt, waiting: Waiting) -> bool:
        """Return whether the lease is held; a launch whose lease was lost is dropped."""
        lease_status = waiting.launch.lease_status
        status = LeaseStatus.HELD if lease_status is None else lease_status()
        if status is LeaseStatus.LAPSED:
            self._start_later(attempt, waiting, LAPSED_S)
        return status is LeaseStatus.HELD

    def _start(self, attempt: Attempt, waiting: Waiting) -> None:
        launch, sink, failures = waiting
        try:
            settings = self.check(self._settings_of(launch))
            if launch.payload is not None:
                settings = replace(settings, stdin=launch.payload.document)
            self._spawn(attempt, waiting, settings)
        except (InputError, ValueError) as error:
            self._refuse(launch, sink, str(error))
        except OSError as error:
            self._retry(attempt, Waiting(launch, sink, failures + 1), error)
        except Exception as error:  # noqa: BLE001 - every error is reported to the engine
            # One launch that cannot be prepared must not stop those that wait behind it.
            _log.exception("the launch of %r could not be prepared", launch.run.identity)
            self._refuse(launch, sink, f"the launch could not be prepared: {type(error).__name__}")

    def _settings_of(self, launch: Launch) -> ProcessSettings:
        return _unsupervised(launch.job.launcher)

    def _spawn(self, attempt: Attempt, waiting: Waiting, settings: ProcessSettings) -> None:
        launch, files = waiting.launch, self._files_of(attempt)
        child = spawn(settings, self._env_of(launch, settings, self.env), files)
        process = Process(launch, waiting.sink, settings, child.pid, started_of(child.pid), files, child)
        self._watch(attempt, process)
        waiting.sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))

    def _env_of(
        self, launch: Launch, settings: ProcessSettings, inherited: Mapping[str, str]
    ) -> dict[str, str]:
        env = env_of(inherited, launch, settings, secret=self._secret)
        env[LAUNCHER_ID] = launcher_id_of(self._folder)
        return env

    def _retry(self, attempt: Attempt, waiting: Waiting, error: OSError) -> None:
        delay_s = self._backoff.delay_after(waiting.launch.run.key, waiting.failures)
        if delay_s is None:
            remove_files(self._files_of(attempt), survive=True)
            self._refuse(waiting.launch, waiting.sink, f"the command cannot be started: {error}")
            return
        self._start_later(attempt, waiting, delay_s)

    def _start_later(self, attempt: Attempt, waiting: Waiting, delay_s: float) -> None:
        task = asyncio.create_task(self._wait_again(attempt, waiting, delay_s))
        self._retries[attempt] = task, waiting

    async def _wait_again(self, attempt: Attempt, waiting: Waiting, delay_s: float) -> None:
        await sleep_for(self._clock, delay_s)
        del self._retries[attempt]
        self._enqueue(attempt, waiting)

    def _refuse(self, launch: Launch, sink: ReportSink, error: str) -> None:
        sink(report_of(self._clock, launch.run, RunEvent.LAUNCH_FAILED, error))

    def _files_of(self, attempt: Attempt) -> Files:
        key, number = attempt
        return Files(f"{self._folder}/{key}.{number}.out", f"{self._folder}/{key}.{number}.status")

    # --- ends ------------------------------------------------------------------------------------

    def _admit(self, attempt: Attempt, process: Process) -> None:
        """Count a process as running."""
        self._running[attempt] = process
        if attempt not in self._slots:
            self._slots[attempt] = self._queue.admit(Share(tenant_of(process.launch)))
        self._idle.clear()

    def _watch(self, attempt: Attempt, process: Process) -> None:
        """Watch a process until it ends: by pidfd, else a child by a thread, else by polling."""
        loop = asyncio.get_running_loop()
        self._admit(attempt, process)
        if self._trimmer is None and process.is_trimmed:
            self._trimmer = loop.call_later(TRIM_S, self._trim)
        if self.has_pidfd:
            with suppress(OSError):
                process.pidfd = os.pidfd_open(process.pid)
                self._watched.add(process.pidfd, partial(self._on_exit, attempt, process))
                return
        if process.child is not None:
            with suppress(RuntimeError):
                threading.Thread(target=self._wait_for, args=(loop, attempt, process), daemon=True).start()
                return
        process.poll = asyncio.create_task(self._poll(attempt, process))

    async def _poll(self, attempt: Attempt, process: Process, interval_s: float = POLL_S) -> None:
        while not process.ended:  # noqa: ASYNC110 - nothing signals its end
            await asyncio.sleep(interval_s)
        self._on_exit(attempt, process)

    def _wait_for(self, loop: asyncio.AbstractEventLoop, attempt: Attempt, process: Process) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # The event loop may be closed by then.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._on_exit, attempt, process)

    def _on_exit(self, attempt: Attempt, process: Process) -> None:
        """Handle the end of a process; after `end`, the rest of its group is waited for first."""
        if self._running.get(attempt) is not process or process.gone.is_set():
            return
        self._watched.remove(process.pidfd)
        process.gone.set()
        if process.ending is None:
            self._finish(attempt, process)

    def _finish(self, attempt: Attempt, process: Process) -> None:
        """Report the end of a process; a large output is read and removed beside the event loop before."""
        code = process.exit_code()
        process.release()
        if process.is_trimmed and is_longer(process.files.output, LARGE_OUTPUT):
            outcome = self._beside(self._conclude, process, code)
            outcome.add_done_callback(lambda done: self._report_end(attempt, process, done.result()))
        else:
            self._report_end(attempt, process, self._conclude(process, code))

    def _conclude(self, process: Process, code: int | None) -> Outcome:
        """Return how a process ended, and remove its files."""
        process.conclude(code)
        outcome = self._outcome_of(process, code)
        process.remove_files()
        return outcome

    def _report_end(self, attempt: Attempt, process: Process, outcome: Outcome) -> None:
        """Report the end of a process, and start the next one."""
        if self._running.get(attempt) is not process:
            # The launcher was closed meanwhile.
            return
        del self._running[attempt]
        self._free_slot(attempt)
        run_id = process.run_id if process.pid else None
        process.sink(report_of(self._clock, process.launch.run, *outcome, run_id))
        self._schedule()
        self._note_idle()

    def _outcome_of(self, process: Process, code: int | None) -> Outcome:
        output = self._output_of(process, code)
        if self._on_output is not None and output:
            try:
                self._on_output(process.launch, output)
            except Exception:  # noqa: BLE001 - the end of the run is reported in any case
                _log.exception("the callback for the output of %r failed", process.launch.run.identity)
        status = LOST if code is None else describe_exit(code, output)
        if process.ending is not None:
            return RunEvent.CANCELLED, f"ended on request: {status}"
        if code in process.settings.success_exit_codes:
            return RunEvent.SUCCESS, None
        return RunEvent.FAILED, status

    def _output_of(self, process: Process, code: int | None) -> bytes:
        """Return the output of a process that ended with a code."""
        if not is_longer(process.files.output, 0):
            return b""
        first, last, size = kept_parts(process.files.output, process.settings.max_output)
        return joined(self._without_token(process, first), self._without_token(process, last), size)

    def _without_token(self, process: Process, part: bytes) -> bytes:
        secret = self._secret
        return part if secret is None else hide_run_token(part, run_token_of(secret, process.launch.run.key))

    def _trim(self) -> None:
        """Trim long outputs beside the event loop: a program that writes fast keeps its file locked."""
        self._trimmer = None
        if long := [each for each in self._running.values() if each.is_trimmed and each.is_long]:
            self._beside(trim_all, long).add_done_callback(self._trim_later)
        elif self._running:
            self._trim_later()

    def _trim_later(self, _: object = None) -> None:
        if self._running:
            self._trimmer = asyncio.get_running_loop().call_later(TRIM_S, self._trim)

    def _beside(self, work: Callable[[*Args], Value], *args: *Args) -> "asyncio.Future[Value]":
        """Do work with files beside the event loop: a disk that programs write to can take seconds."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    # --- ending ----------------------------------------------------------------------------------

    def end(self, run: RunRecord) -> None:
        """Send SIGTERM to the process group, and SIGKILL after the grace period."""
        attempt = (run.key, run.attempt)
        waiting = self._take_back(attempt)
        if waiting is not None:
            error = "ended on request before it started"
            waiting.sink(report_of(self._clock, run, RunEvent.CANCELLED, error))
            self._note_idle()
        process = self._running.get(attempt)
        # A process that has exited already is reported as such, not as ended on request.
        if process is not None and process.ending is None and not process.ended:
            process.ending = asyncio.create_task(self._end(attempt, process))

    def _take_back(self, attempt: Attempt) -> Waiting | None:
        """Remove and return a launch that has not started, or None."""
        if attempt not in self._retries:
            return self._waiting.pop(attempt, None)
        task, waiting = self._retries.pop(attempt)
        task.cancel()
        return waiting

    async def _end(self, attempt: Attempt, process: Process) -> None:
        process.signal(signal.SIGTERM)
        if not await self._exits_in_time(process):
            process.signal(signal.SIGKILL)
            await process.gone.wait()
            await self._wait_for_killed(process)
        self._finish(attempt, process)

    async def _wait_for_killed(self, process: Process) -> None:
        """Wait for the processes of a killed run; those of one session end with the kill."""

    async def _exits_in_time(self, process: Process) -> bool:
        """Return whether a process and its group exited within the grace period."""
        grace_s = self._grace_of(process)
        until = self._clock.monotonic() + grace_s
        grace = asyncio.create_task(sleep_for(self._clock, grace_s))
        gone = asyncio.create_task(process.gone.wait())
        try:
            await asyncio.wait({grace, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            grace.cancel()
            gone.cancel()
        while process.gone.is_set() and self._clock.monotonic() < until:
            if not process.members():
                return True
            await sleep_for(self._clock, GROUP_POLL_S)
        return False

    def _grace_of(self, process: Process) -> float:
        """Return how many seconds a process has between SIGTERM and SIGKILL."""
        return self._grace_s

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the processes, or leave them running for the next owner to adopt."""
        if not wait:
            self._abandon()
        while self.busy:
            self._idle.clear()
            await self._idle.wait()
        if self._trimmer is not None:
            self._trimmer.cancel()
            self._trimmer = None
        self._threads.shutdown(wait=False)
        self._watched.close()

    def _abandon(self) -> None:
        left = [*self._waiting.values(), *(waiting for _, waiting in self._retries.values())]
        for task, _ in self._retries.values():
            task.cancel()
        processes = list(self._running.values())
        for attempt in list(self._slots):
            self._free_slot(attempt)
        for held in (self._waiting, self._retries, self._starting, self._running):
            held.clear()
        self._queue.clear()
        for launch, sink, _ in left:
            self._refuse(launch, sink, "the worker stopped before it started")
        for process in processes:
            for work in (process.ending, process.poll):
                if work is not None:
                    work.cancel()
            self._watched.remove(process.pidfd)
            process.release()

    def _note_idle(self) -> None:
        if not self.busy:
            self._idle.set()

    # --- adopting --------------------------------------------------------------------------------

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Find processes by number and start time, or by their environment where no number is recorded."""
        unnumbered = {each.run.key for each in runs if each.run.run_id is None}
        unnamed = sessions_of(unnumbered, launcher_id_of(self._folder))
        adopted = set()
        for launch in runs:
            attempt = (launch.run.key, launch.run.attempt)
            if self._resume(attempt, sink) or self._adopt_one(attempt, launch, sink, unnamed.get(attempt)):
                adopted.add(launch.run.key)
            else:
                remove_files(self._files_of(attempt), survive=True)
        return frozenset(adopted)

    def _resume(self, attempt: Attempt, sink: ReportSink) -> bool:
        """Resume a run of this launcher, unless another worker has owned it since."""
        waiting = self._take_back(attempt)
        if waiting is not None and not lease_is_lost(waiting.launch):
            self._enqueue(attempt, waiting._replace(sink=sink))
            return True
        if attempt in self._starting:
            self._starting[attempt] = self._starting[attempt]._replace(sink=sink)
            return True
        if attempt in self._running:
            self._running[attempt].sink = sink
        return attempt in self._running

    def _adopt_one(self, attempt: Attempt, launch: Launch, sink: ReportSink, pid: int | None) -> bool:
        """Watch a process again, or report its end; return False where it is unknown."""
        files = self._files_of(attempt)
        if not os.path.exists(files.output):
            return False
        try:
            settings = settings_of(launch.job.launcher)
        except InputError:
            # The job has another launcher by now; the process is still the one that was started.
            settings = ProcessSettings(command=("",))
        process = Process(launch, sink, settings, *number_of(launch.run, pid), files)
        if process.ended and not process.has_exit_code():
            return False
        if not launch.run.acked and process.pid:
            sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))
        self._watch_again(attempt, process)
        return True

    def _watch_again(self, attempt: Attempt, process: Process) -> None:
        self._watch(attempt, process)
        if self._has_exited(process):
            # It exited before the pidfd was opened, which therefore refers to another process.
            self._watched.remove(process.pidfd)
            process.release()
            asyncio.get_running_loop().call_soon(self._on_exit, attempt, process)

    def _has_exited(self, process: Process) -> bool:
        return not process.exists


def _check_bound(name: str, most: int | None) -> None:
    if most is not None and most < 1:
        raise InvalidOptionError(option=name, value=most, reason="must be at least 1")
