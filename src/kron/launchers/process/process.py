"""A run as a process: its arguments, variables and input, its start, and its state until it has ended."""

import asyncio
import logging
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kron.core.plan.compiled import compiled_job
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.launchers.launch import plain_request_of
from kron.launchers.process.host import exit_code_of, is_alive, members_of, stat_of
from kron.launchers.process.spec import RESERVED_PREFIX, ProcessOptions, ProcessSettings
from kron.launchers.process.supervisor.output import is_long, size_of, trim
from kron.launchers.run_token import run_token_of
from kron.ports import ReportSink

_log = logging.getLogger("kron.launchers")
# Runs a command and writes its exit status to a file, for an owner that is not its parent. The traps keep the
# shell alive until the command has ended; the command gets every signal as if there were no shell.
WRAPPER = 'f=$1; shift; trap : HUP INT QUIT TERM USR1 USR2; "$@"; s=$?; echo $s >"$f"; exit $s'
# How much of an output an error quotes.
MAX_LINES, MAX_TAIL = 10, 1_000
# How many bytes of an output are searched for its last lines.
MAX_SEARCHED = 65_536
# Colours and other sequences for a terminal, which an error does not quote.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SIGNALS = frozenset(map(int, signal.Signals))


class Files(NamedTuple):
    """The files of a process: its output, and its exit status where a wrapper writes it."""

    output: str
    status: str


# --- starting ------------------------------------------------------------------------------------------


def spawn(settings: ProcessSettings, env: Mapping[str, str], files: Files) -> subprocess.Popen[bytes]:
    """Start a process in a new session; of our files it has only its input and its output.

    `Popen` uses vfork, which costs the same however large this process is, and closes all other files in the
    child; `posix_spawn` is not faster and supports neither that nor `cwd`.
    """
    argv = argv_of(settings)
    if settings.survive:
        _check_command(argv[0], env, settings.cwd)
        argv = ["/bin/sh", "-c", WRAPPER, "kron", files.status, *argv]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    written = os.open(files.output, flags, 0o600)
    try:
        read = _input_of(settings, os.path.dirname(files.output))
        try:
            # The launcher has checked the command against the allowed ones.
            return subprocess.Popen(  # noqa: S603
                argv, stdin=read, stdout=written, stderr=written, env=env, cwd=settings.cwd,
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(read)
    finally:
        os.close(written)


def argv_of(settings: ProcessSettings) -> list[str]:
    """Return the words of a command; a text, or with `shell` also a list, is for a shell."""
    command = settings.command
    if settings.shell is None and not isinstance(command, str):
        return list(command)
    text = command if isinstance(command, str) else " ".join(command)
    return [settings.shell or "/bin/sh", "-c", text]


def input_of(settings: ProcessSettings) -> str | None:
    """Return the text of the standard input of a process, or None."""
    return settings.stdin_text if settings.stdin is None else settings.stdin


def _input_of(settings: ProcessSettings, folder: str) -> int:
    """Return an open file with the standard input of a process."""
    text = input_of(settings)
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile(dir=folder) as document:
        document.write(text.encode())
        document.seek(0)
        return os.dup(document.fileno())


def _check_command(name: str, env: Mapping[str, str], cwd: str | None) -> None:
    """Raise FileNotFoundError where only the wrapper's shell would notice, after the start was reported."""
    place = os.path.join(cwd or "", name) if os.sep in name else name
    if shutil.which(place, path=env.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(2, "No such command", name)


def inherited_env(options: ProcessOptions) -> Mapping[str, str]:
    """Return the variables of this process's environment that its processes inherit."""
    return {name: value for name, value in os.environ.items() if options.inherits(name)}


def env_of(
    inherited: Mapping[str, str],
    launch: Launch,
    settings: ProcessSettings,
    *,
    secret: bytes | None = None,
) -> dict[str, str]:
    """Return the environment of a process: inherited variables, those of the settings, and the run's.

    With a `secret` it has the run's token.
    """
    run, facts = launch.run, {} if launch.payload is None else launch.payload.facts
    interval = launch.data_interval
    token = None if secret is None else run_token_of(secret, run.key)
    chosen = _chosen_time(launch)
    nominal_time = rfc3339(run.nominal_time)
    optional = {
        "KRON_RUN_TOKEN": token,
        "KRON_REQUEST_ID": plain_request_of(launch),
        "KRON_CHOSEN_TIME": None if chosen is None else rfc3339(chosen),
    }
    return {
        **inherited,
        **dict(settings.env),
        **{f"{RESERVED_PREFIX}{name.upper()}": _utf8(value) for name, value in facts.items()},
        "KRON_IDENTITY": _utf8(run.identity),
        "KRON_PERIOD_ID": nominal_time,
        "KRON_NOMINAL_TIME": nominal_time,
        "KRON_IDEMPOTENCY_KEY": run.key,
        "KRON_ATTEMPT": str(run.attempt),
        "KRON_FENCING_TOKEN": str(run.token),
        "KRON_DATA_INTERVAL_START": rfc3339(interval.start),
        "KRON_DATA_INTERVAL_END": rfc3339(interval.end),
        **{name: _utf8(text) for name, text in optional.items() if text is not None},
    }


def _utf8(text: str) -> str:
    """Return a text that a process gets as UTF-8, whatever the encoding of this host is."""
    return text if text.isascii() else os.fsdecode(text.encode())


def _chosen_time(launch: Launch) -> EpochSeconds | None:
    """Return the time that was chosen in the window; None if the job has no schedule, as a task of a DAG."""
    if launch.interval is not None:
        return None
    run = launch.run
    return compiled_job(launch.job.definition, run.identity).chosen_time(run.identity, run.nominal_time)


# --- a process -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Process:
    """A running process of a launch; an adopted one has no `child`."""

    launch: Launch
    sink: ReportSink
    settings: ProcessSettings
    pid: int
    started: int
    files: Files
    child: subprocess.Popen[bytes] | None = None
    pidfd: int | None = None
    trimmed: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    poll: asyncio.Task[None] | None = None
    ending: asyncio.Task[None] | None = None

    @property
    def run_id(self) -> str:
        """Return the recorded name of the process: its number, and when it started."""
        return f"{self.pid}:{self.started}"

    @property
    def exists(self) -> bool:
        """Return whether its number still belongs to it."""
        return is_alive(self.pid, self.started, or_zombie=True)

    @property
    def ended(self) -> bool:
        """Return whether it has ended, perhaps as a zombie."""
        if self.child is not None:
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
            except ChildProcessError:
                return True
        return not is_alive(self.pid, self.started)

    @property
    def is_trimmed(self) -> bool:
        """Return whether its owner bounds its output."""
        return True

    @property
    def is_long(self) -> bool:
        """Return whether its output has grown enough to be trimmed."""
        return is_long(self.settings.max_output, self.trimmed, size_of(self.files.output))

    def trim(self) -> None:
        """Free the middle of its output."""
        path = self.files.output
        self.trimmed = trim(path, self.settings.max_output, self.trimmed, size_of(path))

    def exit_code(self) -> int | None:
        """Return its exit code as `Popen` has it, from the first source that knows it, or None."""
        code = self._waited_for()
        if code is None and self.pid:
            # An adopted process is not our child, and a child may have been waited for already.
            code = exit_code_of(self.pid, self.started, self.pidfd)
        return written_status(self.files.status) if code is None else code

    def _waited_for(self) -> int | None:
        if self.child is None and not self.exists:
            return None
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status) if pid else None

    def has_exit_code(self) -> bool:
        """Return whether its exit code can be found, without consuming it."""
        if written_status(self.files.status) is not None:
            return True
        if not self.exists:
            return False
        if exit_code_of(self.pid, self.started, None) is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        if self.child is None and not self.exists:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            _log.warning("%s cannot be sent %s: %s", self.run_id, number.name, error)

    def members(self) -> list[int]:
        """Return the running processes of the run."""
        return members_of(self.pid)

    def conclude(self, code: int | None) -> None:
        """Record its end for others, where it has a record."""

    def remove_files(self) -> None:
        """Remove its files; only one that survives its owner has a status file."""
        remove_files(self.files, survive=self.settings.survive or self.child is None)

    def release(self) -> None:
        """Release the pidfd and the child."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.child is not None:
            # `Popen` would otherwise warn that it was never waited for.
            self.child.returncode = 0


def trim_all(processes: Iterable[Process]) -> None:
    """Trim the outputs of processes, which may end meanwhile."""
    for process in processes:
        process.trim()


class PidfdWatcher:
    """Watches the pidfds of all processes in one epoll, which is cheaper than one reader for each."""

    def __init__(self) -> None:
        self._poll: select.epoll | None = None
        self._calls: dict[int, Callable[[], None]] = {}

    def add(self, pidfd: int, call: Callable[[], None]) -> None:
        """Call a function when a process has ended, repeatedly until it is removed."""
        if self._poll is None:
            self._poll = select.epoll()
            asyncio.get_running_loop().add_reader(self._poll.fileno(), self._on_readable)
        self._poll.register(pidfd, select.EPOLLIN)
        self._calls[pidfd] = call

    def _on_readable(self) -> None:
        for pidfd, _ in [] if self._poll is None else self._poll.poll(0):
            call = self._calls.get(pidfd)
            # The call before may have removed it.
            if call is not None:
                call()

    def remove(self, pidfd: int | None) -> None:
        """Stop watching a process; it has to happen before its pidfd is closed."""
        if self._poll is not None and pidfd is not None and self._calls.pop(pidfd, None) is not None:
            self._poll.unregister(pidfd)

    def close(self) -> None:
        """Leave the event loop when nothing is watched."""
        if self._poll is not None and not self._calls:
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None


def number_of(run: RunRecord, pid: int | None) -> tuple[int, int]:
    """Return the number of a process and when it started; 0 and 0 where neither is known."""
    if run.run_id is not None:
        number, _, started = run.run_id.partition(":")
        if number.isdigit() and started.isdigit():
            return int(number), int(started)
    stat = None if pid is None else stat_of(pid)
    return (0, 0) if pid is None or stat is None else (pid, stat.started)


# --- its end -------------------------------------------------------------------------------------------


def written_status(path: str) -> int | None:
    """Return the exit status a wrapper wrote, or None; death by a signal is 128 and more."""
    with suppress(OSError, ValueError):
        text = Path(path).read_text()
        return int(text) if text.endswith("\n") else None
    return None


def is_longer(path: str, most: int) -> bool:
    """Return whether a file has more bytes; one that cannot be read has none."""
    try:
        return os.stat(path).st_size > most
    except OSError:
        return False


def describe_exit(code: int, tail: bytes) -> str:
    """Return an exit code in words, with the last lines of the output."""
    if code < 0:
        name = signal.Signals(-code).name if -code in _SIGNALS else f"signal {-code}"
        status = f"killed by {name}"
    else:
        status = f"exit status {code}"
        if code - 128 in _SIGNALS:
            status += f" ({signal.Signals(code - 128).name})"
    # Of a long output a part that has the last lines in any case.
    lines = _ESCAPES.sub("", tail[-MAX_SEARCHED:].decode(errors="replace")).strip().splitlines()[-MAX_LINES:]
    text = "\n".join(lines)[-MAX_TAIL:]
    return f"{status}: {text}" if text else status


def remove_files(files: Files, *, survive: bool) -> None:
    """Remove the files of a process; only one that survives its owner has a status file."""
    for path in files if survive else files[:1]:
        with suppress(OSError):
            os.unlink(path)
