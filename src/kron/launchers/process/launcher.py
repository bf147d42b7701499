"""The process launcher: runs are processes on this host, which outlive their owner and can be adopted."""

import asyncio
import errno
import gzip
import logging
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kron.core.errors import InputError, InvalidOptionError
from kron.core.job.policy import OnOrphan
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, LeaseStatus, RunEvent, Traits
from kron.core.redaction import hide_run_token
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.fair_queue import FairQueue, Share
from kron.launchers.launch import LAPSED_S, lease_is_lost, plain_request_of, report_of, tenant_of
from kron.launchers.process.host import (
    LAUNCHER_ID,
    RECORD,
    Files,
    PidfdWatcher,
    Process,
    Supervisors,
    argv_of,
    boot_of,
    describe_exit,
    input_of,
    is_empty,
    launcher_id_of,
    own_cgroup,
    read_variables,
    remove_files,
    sessions_of,
    spawn,
    started_of,
    stat_of,
)
from kron.launchers.process.spec import (
    RESERVED_PREFIX,
    OnOutput,
    ProcessOptions,
    ProcessSettings,
    Stream,
    check_start,
)
from kron.launchers.process.supervisor import (
    NEVER,
    Record,
    create_record,
    joined,
    kept_parts,
    read_record,
    size_of,
    trim,
)
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import MAX_CACHED, LauncherContext, LauncherKind, settings_parser
from kron.ports import Clock, ReportSink

_log = logging.getLogger("kron.launchers")

Attempt: TypeAlias = tuple[str, int]
GRACE = timedelta(seconds=10)
DEFAULT_BACKOFF = Backoff()
_settings_of = settings_parser(ProcessSettings)


@lru_cache(maxsize=MAX_CACHED)
def _unsupervised(launcher: str) -> ProcessSettings:
    """Return settings, or raise ValueError if a field of theirs needs a supervisor."""
    settings = _settings_of(launcher)
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
# How often the processes of a killed run are looked for before its end is reported.
KILL_POLLS = 40
# How often an adopted process is polled on hosts without pidfd, in seconds.
POLL_S = 0.2
# How often the record of an ended process is read until its end is in it, in seconds.
RECORD_POLL_S = 0.02
# How many starts a supervisor has in hand; the others can still be ended without one.
MAX_STARTING = 1_024
LOST = "its exit status was lost with its owner"
NEVER_STARTED = "never started: krond ended after it recorded the start, before the process existed"
NO_SUPERVISOR = "needs krond: this worker runs processes without a supervisor"
# Below the state folder: the records and the outputs of ended runs.
LOGS = "logs"


class Waiting(NamedTuple):
    """A launch whose process has not started yet, and its failed attempts to start it."""

    launch: Launch
    sink: ReportSink
    failures: int = 0


class ProcessLauncher:
    """Starts a process in a new session for each run, and reports its end.

    `state` is the folder of the outputs of running processes; workers that adopt each other's processes
    share it. With `max_processes` at most that many run at once; the others wait in order. `on_output` gets
    the first and the last bytes that each process wrote, if any. With a `secret` each process has the token
    of its run. `env` are the variables that they inherit.

    After `supervise` each process has a supervisor, which outlives this worker and records the end; no run
    starts twice then, whatever happened to its owner.
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
        self._logs = str(Path(state).absolute() / LOGS)
        self._supervisors: Supervisors | None = None
        # The control group in which supervised runs have one each, where this process may make them.
        self.cgroup: str | None = None
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
        # Launches whose supervisor has not replied yet, and those of them that are to end.
        self._starting: dict[Attempt, Waiting] = {}
        self._unwanted: set[Attempt] = set()
        self._running: dict[Attempt, Process] = {}
        self._work: AbstractContextManager[None] | None = None
        self._trimmer: asyncio.TimerHandle | None = None
        self._watched = PidfdWatcher()
        self._idle = asyncio.Event()

    def supervise(self) -> None:
        """Start every process under a supervisor from now on."""
        self._supervisors = Supervisors(self._folder)
        self.cgroup = own_cgroup()

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
            read = _unsupervised if self._supervisors is None else _settings_of
            settings = self.check(read(launch.job.launcher))
            files = self._files_of(attempt)
            if launch.payload is not None:
                settings = replace(settings, stdin=launch.payload.document)
            if self._supervisors is not None:
                self._start_supervised(self._supervisors, attempt, waiting, settings)
                return
            env = self._env_of(launch, settings, self.env)
            child = spawn(settings, env, files)
        except (InputError, ValueError) as error:
            self._refuse(launch, sink, str(error))
            return
        except OSError as error:
            self._retry(attempt, Waiting(launch, sink, failures + 1), error)
            return
        except Exception as error:  # noqa: BLE001 - every error is reported to the engine
            # One launch that cannot be prepared must not stop those that wait behind it.
            _log.exception("the launch of %r could not be prepared", launch.run.identity)
            self._refuse(launch, sink, f"the launch could not be prepared: {type(error).__name__}")
            return
        process = Process(launch, sink, settings, child.pid, started_of(child.pid), files, child)
        self._watch(attempt, process)
        sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))

    def _start_supervised(
        self, supervisors: Supervisors, attempt: Attempt, waiting: Waiting, settings: ProcessSettings
    ) -> None:
        """Start a process under a supervisor, unless its run has started before."""
        launch = waiting.launch
        files = self._files_of(attempt)
        from_file = {} if settings.env_file is None else read_variables(settings.env_file)
        env = self._env_of(launch, settings, _encoded(from_file))
        request: Record = {
            "record": files.status,
            "output": files.output,
            "boot": self._boot,
            "identity": launch.run.identity,
            "nominal_time": launch.run.nominal_time,
            "argv": argv_of(settings),
            "env": {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()},
            "stdin": input_of(settings),
            "max_output": settings.max_output,
            **{name: getattr(settings, name) for name in ("user", "group", "cwd", "umask", "nice")},
            "stdout": _stream(settings.stdout),
            "stderr": _stream(settings.stderr),
            "cgroup": self.cgroup and f"{self.cgroup}/kron-{launch.run.key[:16]}.{launch.run.attempt}",
        }
        self._starting[attempt] = waiting
        try:
            supervisors.env = self.env
            supervisors.start(
                request, partial(self._on_reply, attempt, settings), partial(self._on_recorded, attempt)
            )
        except OSError:
            self._starting.pop(attempt, None)
            raise

    def _env_of(
        self, launch: Launch, settings: ProcessSettings, inherited: Mapping[bytes, bytes]
    ) -> Mapping[bytes, bytes]:
        env = env_of(inherited, launch, settings, secret=self._secret)
        return {**env, LAUNCHER_ID: launcher_id_of(self._folder)}

    def _on_reply(self, attempt: Attempt, settings: ProcessSettings, reply: Record | None) -> None:
        """Watch a process that a supervisor has started, or handle why it has not."""
        waiting = self._starting.pop(attempt, None)
        if waiting is None:
            # It was abandoned: its next owner adopts it.
            return
        launch, sink, failures = waiting
        if reply is None or "errno" in reply:
            lost = {"errno": errno.ECONNRESET, "error": "the supervisor has ended"}
            number, text = (str((reply or lost)[name]) for name in ("errno", "error"))
            self._retry(attempt, Waiting(launch, sink, failures + 1), OSError(int(number), text))
        elif "error" in reply:
            self._refuse(launch, sink, str(reply["error"]))
        elif not reply.get("exists"):
            process = supervised_process(launch, sink, settings, self._files_of(attempt), reply)
            sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))
            self._admit(attempt, process)
        elif not self._adopt_supervised(attempt, launch, sink):
            sink(report_of(self._clock, launch.run, RunEvent.ORPHANED))
        if attempt not in self._running:
            self._free_slot(attempt)
        if attempt in self._unwanted:
            self._unwanted.discard(attempt)
            self.end(launch.run)
        self._schedule()
        self._note_idle()

    def _on_recorded(self, attempt: Attempt, end: Record | None) -> None:
        """Handle the end that a supervisor has recorded; a process whose supervisor was lost is watched."""
        process = self._running.get(attempt)
        if process is None:
            # It was abandoned, or it has not started.
            return
        process.end = end
        if end is None:
            process.supervisor = None
            self._watch_again(attempt, process)
        else:
            self._on_exit(attempt, process)

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
        if self._supervisors is not None:
            record = f"{self._logs}/{key[:2]}/{key}.{number}{RECORD}"
            return Files(f"{self._folder}/{key}.{number}.out", record)
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
        if self._trimmer is None and process.supervisor is None:
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
        if process.is_supervised and not process.ended:
            # Its supervisor, which is an earlier owner's, is about to record its end.
            process.poll = asyncio.create_task(self._poll(attempt, process, RECORD_POLL_S))
            return
        process.gone.set()
        if process.ending is None:
            self._finish(attempt, process)

    def _finish(self, attempt: Attempt, process: Process) -> None:
        """Report the end of a process, and start the next one."""
        del self._running[attempt]
        self._free_slot(attempt)
        code = process.exit_code()
        process.release()
        if process.is_supervised and process.recorded_code() is None:
            process.record_end(code)
        event, error = self._outcome_of(process, code)
        if not process.is_supervised:
            remove_files(process.files, survive=process.settings.survive or process.child is None)
        run_id = process.run_id if process.pid else None
        process.sink(report_of(self._clock, process.launch.run, event, error, run_id))
        self._schedule()
        self._note_idle()

    def _outcome_of(self, process: Process, code: int | None) -> tuple[RunEvent, str | None]:
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
        """Return the output of an ended process; that of a supervised one is read for errors alone."""
        if not process.is_supervised and is_empty(process.files.output):
            return b""
        if not process.is_supervised:
            first, last, size = kept_parts(process.files.output, process.settings.max_output)
            return joined(self._without_token(process, first), self._without_token(process, last), size)
        if code in process.settings.success_exit_codes and self._on_output is None:
            return b""
        return read_log(process.files.status)

    def _without_token(self, process: Process, part: bytes) -> bytes:
        secret = self._secret
        return part if secret is None else hide_run_token(part, run_token_of(secret, process.launch.run.key))

    def _trim(self) -> None:
        self._trimmer = None
        for process in (each for each in self._running.values() if each.supervisor is None):
            output, trimmed = process.files.output, process.trimmed
            process.trimmed = trim(output, process.settings.max_output, trimmed, size_of(output))
        if self._running:
            self._trimmer = asyncio.get_running_loop().call_later(TRIM_S, self._trim)

    # --- ending ----------------------------------------------------------------------------------

    def end(self, run: RunRecord) -> None:
        """Send SIGTERM to the process group, and SIGKILL after the grace period."""
        attempt = (run.key, run.attempt)
        waiting = self._take_back(attempt)
        if waiting is not None:
            error = "ended on request before it started"
            waiting.sink(report_of(self._clock, run, RunEvent.CANCELLED, error))
            self._note_idle()
        if attempt in self._starting:
            self._unwanted.add(attempt)
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
            await self._wait_for_members(process)
        process.remove_cgroup()
        self._finish(attempt, process)

    async def _wait_for_members(self, process: Process) -> None:
        """Wait a moment until killed processes are gone; a kill is not immediate."""
        for _ in range(KILL_POLLS):
            if not process.is_supervised or not process.members():
                return
            await sleep_for(self._clock, GROUP_POLL_S)

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
        """Return how long a process has between SIGTERM and SIGKILL; a supervised one as its job says."""
        if not process.is_supervised:
            return self._grace_s
        job = process.launch.job
        return compiled_job(job.definition, job.identity).policy.replace_grace.total_seconds()

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
        self._watched.close()
        if self._supervisors is not None:
            self._supervisors.close()

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
        if self._supervisors is not None:
            # Every start that an earlier owner requested has its record from here on.
            self._supervisors.open()
            return frozenset(
                each.run.key
                for each in runs
                if self._resume((each.run.key, each.run.attempt), sink)
                or self._adopt_supervised((each.run.key, each.run.attempt), each, sink)
            )
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
            settings = _settings_of(launch.job.launcher)
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

    def _adopt_supervised(self, attempt: Attempt, launch: Launch, sink: ReportSink) -> bool:
        """Watch a supervised process again, or report its recorded end; False where that is lost."""
        files = self._files_of(attempt)
        record = read_record(files.status) or self._claim(files, launch)
        if record is None:
            job = launch.job
            if compiled_job(job.definition, job.identity).policy.on_orphan is OnOrphan.RESTART:
                return False
            sink(report_of(self._clock, launch.run, RunEvent.LAUNCH_FAILED, NEVER_STARTED))
            return True
        try:
            settings = _settings_of(launch.job.launcher)
        except InputError:
            settings = ProcessSettings(command=("",))
        process = supervised_process(launch, sink, settings, files, record)
        is_this_boot = record.get("boot") == self._boot
        lives = is_this_boot and not process.ended
        if not lives and not process.has_exit_code():
            return False
        if not launch.run.acked and process.pid:
            sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))
        self._watch_again(attempt, process)
        return True

    def _claim(self, files: Files, launch: Launch) -> Record | None:
        """Create the record of a run that was never started, so that no late supervisor starts it.

        Return the record of one that has just started it, or None.
        """
        run = launch.run
        never: Record = {"state": NEVER, "identity": run.identity, "nominal_time": run.nominal_time}
        try:
            os.close(create_record(files.status, never))
        except FileExistsError:
            return read_record(files.status)
        return None

    def _watch_again(self, attempt: Attempt, process: Process) -> None:
        self._watch(attempt, process)
        if not process.exists or (process.is_supervised and process.ended):
            # It exited before the pidfd was opened, which therefore refers to another process.
            self._watched.remove(process.pidfd)
            process.release()
            asyncio.get_running_loop().call_soon(self._on_exit, attempt, process)


def _check_bound(name: str, most: int | None) -> None:
    if most is not None and most < 1:
        raise InvalidOptionError(option=name, value=most, reason="must be at least 1")


def supervised_process(
    launch: Launch, sink: ReportSink, settings: ProcessSettings, files: Files, record: Record
) -> Process:
    """Return the process of a record: the supervisor's reply, or its file."""

    def number(name: str) -> int:
        value = record.get(name)
        return value if isinstance(value, int) else 0

    supervisor = number("supervisor"), number("supervisor_started")
    return Process(launch, sink, settings, number("pid"), number("started"), files, supervisor=supervisor)


def read_log(record: str) -> bytes:
    """Return the kept output of an ended run, by the path of its record; nothing where there is none."""
    try:
        return gzip.decompress(Path(f"{record.removesuffix(RECORD)}.log").read_bytes())
    except (OSError, EOFError, zlib.error):
        return b""


def _encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


def _stream(value: Stream) -> object:
    """Return where a stream goes, as a supervisor reads it."""
    return dict(value) if isinstance(value, tuple) else value


def inherited_env(options: ProcessOptions) -> Mapping[bytes, bytes]:
    """Return the variables of this process's environment that its processes inherit."""
    return {name: value for name, value in os.environb.items() if options.inherits(os.fsdecode(name))}


def env_of(
    inherited: Mapping[bytes, bytes],
    launch: Launch,
    settings: ProcessSettings,
    *,
    secret: bytes | None = None,
) -> Mapping[bytes, bytes]:
    """Return the environment of a process: inherited variables, those of the settings, and the run's.

    With a `secret` it has the run's token.
    """
    run, facts = launch.run, {} if launch.payload is None else launch.payload.facts
    interval = launch.data_interval
    token = None if secret is None else run_token_of(secret, run.key)
    chosen = _chosen_time(launch)
    optional = {
        b"KRON_RUN_TOKEN": token,
        b"KRON_REQUEST_ID": plain_request_of(launch),
        b"KRON_CHOSEN_TIME": None if chosen is None else rfc3339(chosen),
    }
    return {
        **inherited,
        **_encoded(dict(settings.env)),
        **{f"{RESERVED_PREFIX}{name.upper()}".encode(): value.encode() for name, value in facts.items()},
        b"KRON_IDENTITY": run.identity.encode(),
        b"KRON_PERIOD_ID": rfc3339(run.nominal_time).encode(),
        b"KRON_NOMINAL_TIME": rfc3339(run.nominal_time).encode(),
        b"KRON_IDEMPOTENCY_KEY": run.key.encode(),
        b"KRON_ATTEMPT": b"%d" % run.attempt,
        b"KRON_FENCING_TOKEN": b"%d" % run.token,
        b"KRON_DATA_INTERVAL_START": rfc3339(interval.start).encode(),
        b"KRON_DATA_INTERVAL_END": rfc3339(interval.end).encode(),
        **{name: text.encode() for name, text in optional.items() if text is not None},
    }


def _chosen_time(launch: Launch) -> EpochSeconds | None:
    """Return the time that was chosen in the window; None if the job has no schedule, as a task of a DAG."""
    if launch.interval is not None:
        return None
    run = launch.run
    return compiled_job(launch.job.definition, run.identity).chosen_time(run.identity, run.nominal_time)


def number_of(run: RunRecord, pid: int | None) -> tuple[int, int]:
    """Return the number of a process and when it started; 0 and 0 where neither is known."""
    if run.run_id is not None:
        number, _, started = run.run_id.partition(":")
        if number.isdigit() and started.isdigit():
            return int(number), int(started)
    stat = None if pid is None else stat_of(pid)
    return (0, 0) if pid is None or stat is None else (pid, stat.started)


def _build(_: str, context: LauncherContext) -> ProcessLauncher:
    options = context.config.get(ProcessOptions)
    launcher = ProcessLauncher(
        context.clock, options.folder, on_output=options.on_output, secret=context.secret
    )
    if options.max_per_tenant is not None:
        launcher.limit_tenants(options.max_per_tenant)
    if options.supervised:
        launcher.supervise()
    launcher.env = inherited_env(options)
    # The configuration of a worker does not change, so each launcher object is checked once.
    launcher.check = lru_cache(maxsize=MAX_CACHED)(partial(check_start, context.config))
    return launcher


PROCESS = LauncherKind(
    name=ProcessSettings.kind,
    read=ProcessSettings.read,
    schema=ProcessSettings.schema(),
    traits={ProcessSettings.kind: ProcessLauncher.traits},
    build=_build,
)
