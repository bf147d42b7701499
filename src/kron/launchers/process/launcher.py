"""Executions that are processes on this host. They outlive their owner, and the next one finds them again."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

from kron.core.errors import InputError, InvalidOptionError
from kron.core.plan.record import RunRecord
from kron.core.plan.report import LeaseStatus, RunEvent, Traits
from kron.core.redaction import hide_run_token
from kron.launchers.backoff import Backoff, pause
from kron.launchers.lease import LAPSED_S, is_lost
from kron.launchers.process.host import (
    Files,
    boot_of,
    forget,
    members_of,
    said_of,
    sessions_of,
    spawn,
    started_of,
    tail_of,
    trim,
)
from kron.launchers.process.pidfd import PidfdWatcher
from kron.launchers.process.process import Process, Waiting, env_of, number_of, process_settings
from kron.launchers.report import report_of
from kron.launchers.run_token import run_token_of
from kron.launchers.spec import OWN_PREFIX, ProcessSettings
from kron.ports import Clock, Launch, ReportSink

_log = logging.getLogger("kron.launchers")

Attempt: TypeAlias = tuple[str, int]
OnOutput: TypeAlias = Callable[[RunRecord, bytes], None]
GRACE = timedelta(seconds=10)
USUAL_BACKOFF = Backoff()
# How many processes begin before others get their turn; each takes about half a millisecond.
SPAWNS_PER_TURN = 4
# How often the length of the outputs is looked at, and how often a group that is to end.
TRIM_S, LOOK_S = 0.25, 0.05
# How often a process is looked at whose end nobody tells us, on hosts without pidfd.
POLL_S = 0.2
LOST = "its exit status was lost with its owner"


class ProcessLauncher:
    """Starts a process for each execution, in a session of its own, and notices its end.

    `state` is a folder where the outputs are while processes run; owners that are to find each other's
    processes share it. With `max_processes` at most so many run at once; the others wait in order.
    `on_output` is given the last bytes of what each process wrote. With a `secret` each process has the
    token of its run.
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
        backoff: Backoff = USUAL_BACKOFF,
        on_output: OnOutput | None = None,
        secret: bytes | None = None,
    ) -> None:
        if max_processes is not None and max_processes < 1:
            raise InvalidOptionError(option="max_processes", value=max_processes, reason="must be at least 1")
        self._clock = clock
        self._folder = str(Path(state).absolute() / boot_of())
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._grace_s = grace.total_seconds()
        self._max = max_processes
        self._backoff = backoff
        self._on_output = on_output
        self._secret = secret
        # Asked before each start, because what is allowed may have changed since a job was registered.
        self.allow: Callable[[ProcessSettings], bool] | None = None
        # What the owner is told by its own variables, a password perhaps, is not the processes' business.
        self._env = {
            name: value for name, value in os.environb.items() if not name.startswith(OWN_PREFIX.encode())
        }
        self._waiting: dict[Attempt, Waiting] = {}
        self._retries: dict[Attempt, tuple[asyncio.Task[None], Waiting]] = {}
        self._running: dict[Attempt, Process] = {}
        self._work: AbstractContextManager[None] | None = None
        self._trimmer: asyncio.TimerHandle | None = None
        self._watched = PidfdWatcher()
        self._idle = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Say whether processes are under way or wait for their turn."""
        return bool(self._waiting or self._retries or self._running)

    # --- starting --------------------------------------------------------------------------------

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Begin a process in one of the next turns of the event loop, or when there is room."""
        self._waiting[launch.run.key, launch.run.attempt] = Waiting(launch, hear)
        self._call()

    def _call(self) -> None:
        """Have those that wait begin, if there is room; simulated time stands still meanwhile."""
        if self._work is None and self._waiting and self._has_room():
            self._work = self._clock.working()
            self._work.__enter__()
            asyncio.get_running_loop().call_soon(self._begin_some)

    def _has_room(self) -> bool:
        return self._max is None or len(self._running) < self._max

    def _begin_some(self) -> None:
        work, self._work = self._work, None
        try:
            for _ in range(SPAWNS_PER_TURN):
                if not self._waiting or not self._has_room():
                    break
                attempt = next(iter(self._waiting))
                waiting = self._waiting.pop(attempt)
                if self._may_begin(attempt, waiting):
                    self._begin(attempt, waiting)
            self._call()
        finally:
            if work is not None:
                work.__exit__(None, None, None)
            self._note_idle()

    def _may_begin(self, attempt: Attempt, waiting: Waiting) -> bool:
        """Say whether the lease holds; what waits is dropped once it was lost."""
        hold = LeaseStatus.HELD if waiting.launch.lease_status is None else waiting.launch.lease_status()
        if hold is LeaseStatus.LAPSED:
            self._begin_later(attempt, waiting, LAPSED_S)
        return hold is LeaseStatus.HELD

    def _begin(self, attempt: Attempt, waiting: Waiting) -> None:
        launch, hear, failed = waiting
        try:
            settings = process_settings(launch)
            files = self._files_of(attempt)
            self._check(settings)
            stdin = settings.stdin if launch.payload is None else launch.payload.document
            env = env_of(self._env, launch, settings, secret=self._secret)
            child = spawn(replace(settings, stdin=stdin), env, files)
        except (InputError, ValueError) as error:
            self._refuse(launch, hear, str(error))
            return
        except OSError as error:
            self._try_again(attempt, Waiting(launch, hear, failed + 1), error)
            return
        process = Process(launch, hear, settings, child.pid, started_of(child.pid), files, child)
        self._watch(attempt, process)
        hear(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))

    def _try_again(self, attempt: Attempt, waiting: Waiting, error: OSError) -> None:
        wait_s = self._backoff.wait_of(waiting.launch.run.key, waiting.failed)
        if wait_s is None:
            forget(self._files_of(attempt), survive=True)
            self._refuse(waiting.launch, waiting.hear, f"the command cannot be started: {error}")
            return
        self._begin_later(attempt, waiting, wait_s)

    def _begin_later(self, attempt: Attempt, waiting: Waiting, wait_s: float) -> None:
        task = asyncio.create_task(self._wait_again(attempt, waiting, wait_s))
        self._retries[attempt] = task, waiting

    async def _wait_again(self, attempt: Attempt, waiting: Waiting, wait_s: float) -> None:
        await pause(self._clock, wait_s)
        del self._retries[attempt]
        self._waiting = {attempt: waiting, **self._waiting}
        self._call()

    def _refuse(self, launch: Launch, hear: ReportSink, error: str) -> None:
        hear(report_of(self._clock, launch.run, RunEvent.LAUNCH_FAILED, error))

    def _check(self, settings: ProcessSettings) -> None:
        """Refuse a command that is not, or no longer, allowed."""
        if self.allow is not None and not self.allow(settings):
            reason = "is not among the commands the settings allow (allowed_commands)"
            raise InvalidOptionError(option="command", value=settings.command[0], reason=reason)

    def _files_of(self, attempt: Attempt) -> Files:
        key, number = attempt
        return Files(f"{self._folder}/{key}.{number}.out", f"{self._folder}/{key}.{number}.status")

    # --- noticing ends ---------------------------------------------------------------------------

    def _watch(self, attempt: Attempt, process: Process) -> None:
        """Look after a process until it ends; a host that runs short of pidfds has other ways."""
        loop = asyncio.get_running_loop()
        self._running[attempt] = process
        self._idle.clear()
        if self._trimmer is None:
            self._trimmer = loop.call_later(TRIM_S, self._trim)
        if self.has_pidfd:
            with suppress(OSError):
                process.pidfd = os.pidfd_open(process.pid)
                self._watched.add(process.pidfd, partial(self._noticed, attempt, process))
                return
        if process.child is not None:
            with suppress(RuntimeError):
                threading.Thread(target=self._wait_for, args=(loop, attempt, process), daemon=True).start()
                return
        process.look = asyncio.create_task(self._look_at(attempt, process))

    async def _look_at(self, attempt: Attempt, process: Process) -> None:
        while not process.ended:  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(POLL_S)
        self._noticed(attempt, process)

    def _wait_for(self, loop: asyncio.AbstractEventLoop, attempt: Attempt, process: Process) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        # The program may be over by then.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._noticed, attempt, process)

    def _noticed(self, attempt: Attempt, process: Process) -> None:
        """A process has ended; if it was asked to, the rest of its group is waited for."""
        if self._running.get(attempt) is not process or process.gone.is_set():
            return
        self._watched.remove(process.pidfd)
        process.gone.set()
        if process.ending is None:
            self._finish(attempt, process)

    def _finish(self, attempt: Attempt, process: Process) -> None:
        """Report how a process ended, and let the next one begin."""
        del self._running[attempt]
        code = process.exit_code()
        process.release()
        happened, error = self._said(process, code)
        forget(process.files, survive=process.settings.survive or process.child is None)
        run_id = process.run_id if process.pid else None
        process.hear(report_of(self._clock, process.launch.run, happened, error, run_id))
        self._call()
        self._note_idle()

    def _said(self, process: Process, code: int | None) -> tuple[RunEvent, str | None]:
        output = tail_of(process.files.output, process.settings.max_output)
        if self._secret is not None:
            output = hide_run_token(output, run_token_of(self._secret, process.launch.run.key))
        if self._on_output is not None:
            try:
                self._on_output(process.launch.run, output)
            except Exception:  # noqa: BLE001 - whoever wants the output must not cost the run its end
                _log.exception("the output of %r was not taken", process.launch.run.identity)
        said = LOST if code is None else said_of(code, output)
        if process.ending is not None:
            return RunEvent.CANCELLED, f"ended on request: {said}"
        return (RunEvent.SUCCESS, None) if code == 0 else (RunEvent.FAILED, said)

    def _trim(self) -> None:
        self._trimmer = None
        for process in self._running.values():
            process.trimmed = trim(process.files.output, process.settings.max_output, process.trimmed)
        if self._running:
            self._trimmer = asyncio.get_running_loop().call_later(TRIM_S, self._trim)

    # --- ending ----------------------------------------------------------------------------------

    def end(self, run: RunRecord) -> None:
        """Ask a process and all it started to end; kill what is left of them after the grace."""
        attempt = (run.key, run.attempt)
        waiting = self._taken_back(attempt)
        if waiting is not None:
            error = "ended on request before it began"
            waiting.hear(report_of(self._clock, run, RunEvent.CANCELLED, error))
            self._note_idle()
        process = self._running.get(attempt)
        # One that has already ended by itself is noticed in a moment, and was not ended by us.
        if process is not None and process.ending is None and not process.ended:
            process.ending = asyncio.create_task(self._end(attempt, process))

    def _taken_back(self, attempt: Attempt) -> Waiting | None:
        """Take out a launch that has not begun, if it has not."""
        if attempt not in self._retries:
            return self._waiting.pop(attempt, None)
        task, waiting = self._retries.pop(attempt)
        task.cancel()
        return waiting

    async def _end(self, attempt: Attempt, process: Process) -> None:
        process.signal(signal.SIGTERM)
        if not await self._ended_in_time(process):
            process.signal(signal.SIGKILL)
            await process.gone.wait()
        self._finish(attempt, process)

    async def _ended_in_time(self, process: Process) -> bool:
        """Say whether a process and its group ended within the grace."""
        until = self._clock.monotonic() + self._grace_s
        grace = asyncio.create_task(pause(self._clock, self._grace_s))
        gone = asyncio.create_task(process.gone.wait())
        try:
            await asyncio.wait({grace, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            grace.cancel()
            gone.cancel()
        while process.gone.is_set() and self._clock.monotonic() < until:
            if not members_of(process.pid):
                return True
            await pause(self._clock, LOOK_S)
        return False

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the processes, or leave them running for the next owner to adopt."""
        if not wait:
            self._let_go()
        while self.busy:
            self._idle.clear()
            await self._idle.wait()
        if self._trimmer is not None:
            self._trimmer.cancel()
            self._trimmer = None
        self._watched.close()

    def _let_go(self) -> None:
        left = [*self._waiting.values(), *(waiting for _, waiting in self._retries.values())]
        for task, _ in self._retries.values():
            task.cancel()
        processes = list(self._running.values())
        for held in (self._waiting, self._retries, self._running):
            held.clear()
        for launch, hear, _ in left:
            self._refuse(launch, hear, "the owner stopped before it began")
        for process in processes:
            for work in (process.ending, process.look):
                if work is not None:
                    work.cancel()
            self._watched.remove(process.pidfd)
            process.release()

    def _note_idle(self) -> None:
        if not self.busy:
            self._idle.set()

    # --- adopting --------------------------------------------------------------------------------

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Find processes by number and start, or by their environment where no number is on record."""
        unnamed = sessions_of({each.run.key for each in runs if each.run.run_id is None})
        found = set()
        for launch in runs:
            attempt = (launch.run.key, launch.run.attempt)
            if self._resume(attempt, hear) or self._adopt_one(attempt, launch, hear, unnamed.get(attempt)):
                found.add(launch.run.key)
            else:
                forget(self._files_of(attempt), survive=True)
        return frozenset(found)

    def _resume(self, attempt: Attempt, hear: ReportSink) -> bool:
        """Go on with what this launcher itself has in hand, unless others have begun it since."""
        waiting = self._taken_back(attempt)
        if waiting is not None and not is_lost(waiting.launch):
            self._waiting[attempt] = waiting._replace(hear=hear)
            self._call()
            return True
        if attempt in self._running:
            self._running[attempt].hear = hear
        return attempt in self._running

    def _adopt_one(self, attempt: Attempt, launch: Launch, hear: ReportSink, pid: int | None) -> bool:
        """Look after a process again, or say how it ended; False when nothing is known of it."""
        files = self._files_of(attempt)
        if not os.path.exists(files.output):
            return False
        try:
            settings = process_settings(launch)
        except InputError:
            # The job was changed into something else; the process is still the one that was started.
            settings = ProcessSettings(command=("",))
        process = Process(launch, hear, settings, *number_of(launch.run, pid), files)
        if process.ended and not process.is_told():
            return False
        if not launch.run.acked and process.pid:
            hear(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))
        self._watch_again(attempt, process)
        return True

    def _watch_again(self, attempt: Attempt, process: Process) -> None:
        self._watch(attempt, process)
        if not process.there:
            # It ended before, or between the two looks; what the pidfd names is another process.
            self._watched.remove(process.pidfd)
            process.release()
            asyncio.get_running_loop().call_soon(self._noticed, attempt, process)
