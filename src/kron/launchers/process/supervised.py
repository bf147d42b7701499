"""Supervised processes: each has a supervisor, which outlives the launcher and records its end.

No run starts twice, whatever happened to its owner: the record of an attempt can be created once.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kron.core.errors import InputError
from kron.core.job.policy import OnOrphan
from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent
from kron.launchers.backoff import Backoff, sleep_for
from kron.launchers.launch import Attempt, report_of
from kron.launchers.process.host import (
    exit_code_of,
    is_alive,
    launcher_id_of,
    own_cgroup,
    processes_of,
    send_signal,
    sessions_of,
)
from kron.launchers.process.launcher import (
    DEFAULT_BACKOFF,
    GROUP_POLL_S,
    ProcessLauncher,
    Waiting,
    settings_of,
)
from kron.launchers.process.pool import SUPERVISOR_LOCK, SupervisorPool
from kron.launchers.process.process import Files, Process, argv_of, input_of
from kron.launchers.process.spec import OnOutput, ProcessSettings, Stream
from kron.launchers.process.supervisor.output import read_log, record_end
from kron.launchers.process.supervisor.record import (
    NEVER,
    RECORD,
    RUNNING,
    STARTING,
    Record,
    create_record,
    read_record,
    started_of,
)
from kron.ports import Clock, ReportSink

# How often the record of an ended process is read until its end is in it, in seconds.
RECORD_POLL_S = 0.02
# How often the processes of a killed run are looked for before its end is reported.
KILL_POLLS = 40
NEVER_STARTED = "never started: krond ended after it recorded the start, before the process existed"
# Settings that a supervisor applies as they are.
PASSED_ON = ("user", "group", "cwd", "env_file", "umask", "nice")
# Below the state folder: the records and the outputs of ended runs.
LOGS = "logs"


@dataclass(slots=True, eq=False)
class SupervisedProcess(Process):
    """A process that a supervisor waits for.

    `supervisor` is the number and the start time of the one that records its end, None once that was lost;
    `end` is the record, where a supervisor of this owner has sent it.
    """

    supervisor: tuple[int, int] | None = None
    end: Record | None = None

    @property
    def ended(self) -> bool:
        """Return whether its end is recorded, or whether it has ended and no supervisor will record it."""
        if self.has_exit_code():
            return True
        is_supervised = self.supervisor is not None and is_alive(*self.supervisor)
        return not is_supervised and not is_alive(self.pid, self.started)

    @property
    def is_trimmed(self) -> bool:
        """Return whether its owner bounds its output, because its supervisor was lost."""
        return self.supervisor is None

    def recorded_code(self) -> int | None:
        """Return the exit code that a supervisor recorded, or None."""
        code = (self.end or read_record(self.files.status) or {}).get("code")
        return code if isinstance(code, int) else None

    def exit_code(self) -> int | None:
        """Return its exit code, as it was recorded or as the kernel has it, or None."""
        code = self.recorded_code()
        # What did not become its command has an exit code too.
        if code is not None or not self.pid or self.recorded_fault() is not None:
            return code
        return exit_code_of(self.pid, self.started, self.pidfd)

    def has_exit_code(self) -> bool:
        """Return whether its exit code is recorded, or why it has none."""
        return self.recorded_code() is not None or self.recorded_fault() is not None

    def recorded_fault(self) -> str | None:
        """Return why its command could not be started; a supervisor records it once its krond has ended."""
        fault = None if self.end is not None else (read_record(self.files.status) or {}).get("error")
        return fault if isinstance(fault, str) else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the run."""
        for pid in self.members():
            send_signal(pid, number)

    def members(self) -> list[int]:
        """Return the running processes of the run, also those that left its session."""
        run, record = self.launch.run, read_record(self.files.status) or {}
        launcher = launcher_id_of(os.path.dirname(self.files.output))
        return processes_of(run.key, run.attempt, self.pid, record.get("cgroup"), launcher=launcher)

    def conclude(self, code: int | None) -> None:
        """Record the end of a process whose supervisor was lost; its exit code may be unknown."""
        record = None if self.has_exit_code() else read_record(self.files.status)
        if record is None:
            return
        request: Record = {
            "record": self.files.status,
            "output": self.files.output,
            "max_output": self.settings.max_output,
            "cgroup": record.get("cgroup"),
        }
        record_end(request, {**record, "state": "ended", "code": code})

    def remove_files(self) -> None:
        """Remove the control group of a run that was ended; its supervisor could not with processes in it."""
        cgroup = None if self.ending is None else (read_record(self.files.status) or {}).get("cgroup")
        if cgroup:
            with suppress(OSError):
                os.rmdir(str(cgroup))


class SupervisedLauncher(ProcessLauncher):
    """Starts every process through a supervisor, which may be asked for all that a job file can say."""

    def __init__(
        self,
        clock: Clock,
        state: str | Path,
        *,
        max_processes: int | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        on_output: OnOutput | None = None,
        secret: bytes | None = None,
    ) -> None:
        super().__init__(
            clock, state, max_processes=max_processes, backoff=backoff, on_output=on_output, secret=secret
        )
        self._logs = str(Path(state).absolute() / LOGS)
        self._supervisors = SupervisorPool(self._folder)
        # The control group in which runs have one each, where this process may make them.
        self.cgroup = own_cgroup()
        # Launches that are to end as soon as their supervisor has replied.
        self._unwanted: set[Attempt] = set()

    def _files_of(self, attempt: Attempt) -> Files:
        key, number = attempt
        return Files(f"{self._folder}/{key}.{number}.out", f"{self._logs}/{key[:2]}/{key}.{number}{RECORD}")

    # --- starting --------------------------------------------------------------------------------

    def _settings_of(self, launch: Launch) -> ProcessSettings:
        return settings_of(launch.job.launcher)

    def _spawn(self, attempt: Attempt, waiting: Waiting, settings: ProcessSettings) -> None:
        """Request a process from a supervisor, unless its run has started before."""
        request = self._request_of(attempt, waiting.launch, settings)
        self._starting[attempt] = waiting
        try:
            self._supervisors.env = self.env
            self._supervisors.start(
                request, partial(self._on_reply, attempt, settings), partial(self._on_recorded, attempt)
            )
        except OSError:
            self._starting.pop(attempt, None)
            raise

    def _request_of(self, attempt: Attempt, launch: Launch, settings: ProcessSettings) -> Record:
        files = self._files_of(attempt)
        return {
            "record": files.status,
            "output": files.output,
            "boot": self._boot,
            "identity": launch.run.identity,
            "nominal_time": launch.run.nominal_time,
            "argv": argv_of(settings),
            "env": self._env_of(launch, settings, {}),
            "stdin": input_of(settings),
            "max_output": settings.max_output,
            **{name: getattr(settings, name) for name in PASSED_ON},
            "stdout": _stream(settings.stdout),
            "stderr": _stream(settings.stderr),
            "cgroup": self.cgroup and f"{self.cgroup}/kron-{launch.run.key[:16]}.{launch.run.attempt}",
        }

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
            process = process_of(launch, sink, settings, self._files_of(attempt), reply)
            sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))
            self._admit(attempt, process)
        elif not self._adopt_recorded(attempt, launch, sink):
            sink(report_of(self._clock, launch.run, RunEvent.ORPHANED))
        if attempt not in self._running:
            self._free_slot(attempt)
        if attempt in self._unwanted:
            self._unwanted.discard(attempt)
            self.end(launch.run)
        self._schedule()
        self._note_idle()

    # --- ends ------------------------------------------------------------------------------------

    def _on_recorded(self, attempt: Attempt, end: Record | None) -> None:
        """Handle the end that a supervisor has recorded; a process whose supervisor was lost is watched."""
        process = self._running.get(attempt)
        if not isinstance(process, SupervisedProcess):
            # It was abandoned, or it has not started.
            return
        process.end = end
        if end is None:
            process.supervisor = None
            self._watch_again(attempt, process)
        else:
            self._on_exit(attempt, process)

    def _on_exit(self, attempt: Attempt, process: Process) -> None:
        is_watched = self._running.get(attempt) is process and not process.gone.is_set()
        if is_watched and not process.ended:
            # Its supervisor, which is an earlier owner's, is about to record its end.
            self._watched.remove(process.pidfd)
            process.poll = asyncio.create_task(self._poll(attempt, process, RECORD_POLL_S))
        else:
            super()._on_exit(attempt, process)

    def _outcome_of(self, process: Process, code: int | None) -> tuple[RunEvent, str | None]:
        fault = process.recorded_fault() if isinstance(process, SupervisedProcess) and code is None else None
        if fault is not None:
            return RunEvent.FAILED, f"the command cannot be started: {fault}"
        return super()._outcome_of(process, code)

    def _output_of(self, process: Process, code: int | None) -> bytes:
        """Return the output of an ended process; without a callback it is read for errors alone."""
        if code in process.settings.success_exit_codes and self._on_output is None:
            return b""
        return read_log(process.files.status)

    # --- ending ----------------------------------------------------------------------------------

    def end(self, run: RunRecord) -> None:
        """Send SIGTERM to every process of a run, and SIGKILL after the grace of its job."""
        super().end(run)
        if (run.key, run.attempt) in self._starting:
            self._unwanted.add((run.key, run.attempt))

    async def _wait_for_killed(self, process: Process) -> None:
        """Wait a moment until killed processes are gone; a kill is not immediate."""
        for _ in range(KILL_POLLS):
            if not process.members():
                return
            await sleep_for(self._clock, GROUP_POLL_S)

    def _grace_of(self, process: Process) -> float:
        """Return the grace of a job."""
        job = process.launch.job
        return compiled_job(job.definition, job.identity).policy.replace_grace.total_seconds()

    async def close(self, *, wait: bool = True) -> None:
        """Wait for the processes, or leave them with their supervisors for the next owner to adopt."""
        await super().close(wait=wait)
        self._supervisors.close()

    # --- adopting --------------------------------------------------------------------------------

    async def adopt(self, runs: Sequence[Launch], sink: ReportSink) -> frozenset[str]:
        """Find processes by their records, and report what never started."""
        # Every start that an earlier owner requested has its record from here on.
        self._supervisors.open()
        return frozenset(
            each.run.key
            for each in runs
            if self._resume((each.run.key, each.run.attempt), sink)
            or self._adopt_recorded((each.run.key, each.run.attempt), each, sink)
        )

    def _adopt_recorded(self, attempt: Attempt, launch: Launch, sink: ReportSink) -> bool:
        """Watch a process again, or report its recorded end; False where that is lost."""
        files = self._files_of(attempt)
        record = read_record(files.status) or self._claim(files, launch)
        if record is None:
            job = launch.job
            if compiled_job(job.definition, job.identity).policy.on_orphan is OnOrphan.RESTART:
                return False
            sink(report_of(self._clock, launch.run, RunEvent.LAUNCH_FAILED, NEVER_STARTED))
            return True
        try:
            settings = settings_of(launch.job.launcher)
        except InputError:
            settings = ProcessSettings(command=("",))
        process = process_of(launch, sink, settings, files, self._numbered(attempt, record))
        lives = record.get("boot") == self._boot and not process.ended
        if not lives and not process.has_exit_code():
            if record.get("state") in (STARTING, RUNNING):
                self._conclude_lost(process, str(record.get("boot")))
            return False
        if not launch.run.acked and process.pid:
            sink(report_of(self._clock, launch.run, RunEvent.ACCEPTED, run_id=process.run_id))
        self._watch_again(attempt, process)
        return True

    def _conclude_lost(self, process: SupervisedProcess, boot: str) -> None:
        """Record that a run was lost with its supervisor or its boot, with the output that it left."""
        folder = Path(self._folder).parent / boot
        process.files = process.files._replace(output=str(folder / Path(process.files.output).name))
        process.conclude(None)
        if boot != self._boot:
            with suppress(OSError):
                (folder / SUPERVISOR_LOCK).unlink(missing_ok=True)
                # Outputs of further runs may be in it.
                folder.rmdir()

    def _numbered(self, attempt: Attempt, record: Record) -> Record:
        """Return a record with the number of its process, which a killed supervisor may not have written."""
        if record.get("state") != STARTING or supervisor_of(record) is not None:
            return record
        pid = sessions_of({attempt[0]}, launcher_id_of(self._folder)).get(attempt)
        return record if pid is None else {**record, "pid": pid, "started": started_of(pid)}

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

    def _has_exited(self, process: Process) -> bool:
        return super()._has_exited(process) or process.ended


def process_of(
    launch: Launch, sink: ReportSink, settings: ProcessSettings, files: Files, record: Record
) -> SupervisedProcess:
    """Return the process of a record: the supervisor's reply, or its file."""
    pid, started = (number_in(record, name) for name in ("pid", "started"))
    return SupervisedProcess(launch, sink, settings, pid, started, files, supervisor=supervisor_of(record))


def supervisor_of(record: Record) -> tuple[int, int] | None:
    """Return the number and the start time of the supervisor of a record, or None if that has ended."""
    numbers = number_in(record, "supervisor"), number_in(record, "supervisor_started")
    return numbers if is_alive(*numbers) else None


def number_in(record: Record, name: str) -> int:
    """Return a number of a record; 0 where it has none."""
    value = record.get(name)
    return value if isinstance(value, int) else 0


def _stream(value: Stream) -> object:
    """Return where a stream goes, as a supervisor reads it."""
    return dict(value) if isinstance(value, tuple) else value
