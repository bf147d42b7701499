"""Processes of this host: starting, watching, finding again, signals, exit status and output.

A process is identified by its number and its start time, because numbers are reused. Where there is no /proc,
no process is found again.
"""

import asyncio
import fcntl
import logging
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from time import sleep
from typing import NamedTuple

from kron.core.plan.report import Launch
from kron.launchers.process import supervisor
from kron.launchers.process.spec import ProcessSettings
from kron.launchers.process.supervisor import Record, read_record
from kron.ports import ReportSink

_log = logging.getLogger("kron.launchers")
# Runs a command and writes its exit status to a file, for an owner that is not its parent. The traps keep the
# shell alive until the command has ended; the command gets every signal as if there were no shell.
WRAPPER = 'f=$1; shift; trap : HUP INT QUIT TERM USR1 USR2; "$@"; s=$?; echo $s >"$f"; exit $s'
# Linux 6.15 and later give the exit status of a process that is not a child: request, mask, size and offset.
_GET_INFO, _INFO_EXIT, _INFO_SIZE, _INFO_CODE_AT = 0xC040FF0B, 1 << 3, 64, 60
# How much of an output an error quotes.
MAX_LINES, MAX_TAIL = 10, 1_000
# Colours and other sequences for a terminal, which an error does not quote.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SIGNALS = frozenset(map(int, signal.Signals))


# Where control groups of version 2 are, alone or beside those of version 1.
CGROUP_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
# The suffix of the records that supervisors write.
RECORD = ".run"
# The variable that tells the processes of one launcher from those of others on the same host, which may have
# jobs of the same names and so the same keys.
LAUNCHER_ID = b"KRON_LAUNCHER_ID"


class Files(NamedTuple):
    """The files of a process: its output, and its exit status where a wrapper writes it."""

    output: str
    status: str


class Stat(NamedTuple):
    """The state of a process in /proc; `started` counts clock ticks since the host booted."""

    state: str
    group: int
    session: int
    started: int
    exit_code: int

    @property
    def ended(self) -> bool:
        """Return whether it has ended, perhaps as a zombie."""
        return self.state in "ZX"


def spawn(settings: ProcessSettings, env: Mapping[bytes, bytes], files: Files) -> subprocess.Popen[bytes]:
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


def _check_command(name: str, env: Mapping[bytes, bytes], cwd: str | None) -> None:
    """Raise FileNotFoundError where only the wrapper's shell would notice, after the start was reported."""
    place = os.path.join(cwd or "", name) if os.sep in name else name
    if shutil.which(place, path=os.fsdecode(env.get(b"PATH", os.defpath))) is None:
        raise FileNotFoundError(2, "No such command", name)


@dataclass(slots=True, eq=False)
class Process:
    """A running process of a launch; an adopted one has no `child`.

    `supervisor` is the number and the start time of the process that waits for it and records its end;
    `end` is that record, where a supervisor of this owner has sent it.
    """

    launch: Launch
    sink: ReportSink
    settings: ProcessSettings
    pid: int
    started: int
    files: Files
    child: subprocess.Popen[bytes] | None = None
    supervisor: tuple[int, int] | None = None
    end: Record | None = None
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
        """Return whether it has ended, perhaps as a zombie; a supervised one when that is recorded.

        Where its supervisor was lost, nobody will record it.
        """
        if self.is_supervised:
            if self.recorded_code() is not None:
                return True
            return not (self.supervisor and is_alive(*self.supervisor)) and not is_alive(
                self.pid, self.started
            )
        if self.child is not None:
            try:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
            except ChildProcessError:
                return True
        return not is_alive(self.pid, self.started)

    def recorded_code(self) -> int | None:
        """Return the exit code that a supervisor recorded, or None."""
        code = (self.end or read_record(self.files.status) or {}).get("code")
        return code if isinstance(code, int) else None

    def exit_code(self) -> int | None:
        """Return its exit code as `Popen` has it, from the first source that knows it, or None."""
        if self.is_supervised:
            code = self.recorded_code()
            return exit_code_of(self.pid, self.started, self.pidfd) if code is None and self.pid else code
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

    @property
    def is_supervised(self) -> bool:
        """Return whether a supervisor records its end, or has."""
        return self.files.status.endswith(RECORD)

    def has_exit_code(self) -> bool:
        """Return whether its exit code can be found, without consuming it."""
        if self.is_supervised:
            return self.recorded_code() is not None
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
        """Send a signal to its process group; a supervised one has further processes."""
        if self.is_supervised:
            for pid in self.members():
                _send(pid, number)
            return
        if self.child is None and not self.exists:
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            _log.warning("%s cannot be sent %s: %s", self.run_id, number.name, error)

    def members(self) -> list[int]:
        """Return the running processes of the run; of a supervised one, also those that left its session."""
        if not self.is_supervised:
            return members_of(self.pid)
        run, record = self.launch.run, read_record(self.files.status) or {}
        launcher = launcher_id_of(os.path.dirname(self.files.output))
        return processes_of(run.key, run.attempt, self.pid, record.get("cgroup"), launcher=launcher)

    def record_end(self, code: int | None) -> None:
        """Record the end of a process whose supervisor was lost; its exit code may be unknown."""
        record = read_record(self.files.status)
        if record is None:
            return
        request: Record = {
            "record": self.files.status,
            "output": self.files.output,
            "max_output": self.settings.max_output,
            "cgroup": record.get("cgroup"),
        }
        supervisor.record_end(request, {**record, "state": "ended", "code": code})

    def remove_cgroup(self) -> None:
        """Remove the control group of an ended run; its supervisor could not while processes were left."""
        cgroup = (read_record(self.files.status) or {}).get("cgroup") if self.is_supervised else None
        if cgroup:
            with suppress(OSError):
                os.rmdir(str(cgroup))

    def release(self) -> None:
        """Release the pidfd and the child."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.child is not None:
            # `Popen` would otherwise warn that it was never waited for.
            self.child.returncode = 0


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


# --- /proc ---------------------------------------------------------------------------------------------


def stat_of(pid: int) -> Stat | None:
    """Return the state of a process, or None if no process has this number."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(file, 4_096)
    except OSError:
        return None
    finally:
        os.close(file)
    # The name is in parentheses and may contain some.
    words = text.rpartition(b")")[2].split()
    return Stat(words[0].decode(), int(words[2]), int(words[3]), int(words[19]), int(words[49]))


def started_of(pid: int) -> int:
    """Return when a process started, in clock ticks since the host booted; 0 where unknown."""
    stat = stat_of(pid)
    return 0 if stat is None else stat.started


def exit_code_of(pid: int, started: int, pidfd: int | None) -> int | None:
    """Return the exit code of a process that is not our child, as `Popen` has it, if the kernel gives it."""
    status = None if pidfd is None else _status_from(pidfd)
    if status is None:
        stat = stat_of(pid)
        if stat is not None and stat.ended and stat.started == started and _is_ours(pid):
            status = stat.exit_code
    return None if status is None else os.waitstatus_to_exitcode(status)


def _status_from(pidfd: int) -> int | None:
    info = bytearray(_INFO_SIZE)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", info, 0)
    (code,) = struct.unpack_from("=i", info, _INFO_CODE_AT)
    return code if mask & _INFO_EXIT else None


def _is_ours(pid: int) -> bool:
    """Return whether a process has our user and group; of others, /proc gives the exit status 0."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    ids = {line.partition(":")[0]: line.split()[1:] for line in lines}
    return set(ids["Uid"]) == {str(os.geteuid())} and set(ids["Gid"]) == {str(os.getegid())}


def members_of(group: int) -> list[int]:
    """Return the running processes of a group."""
    return [pid for pid in _all() if (stat := stat_of(pid)) and stat.group == group and not stat.ended]


def is_alive(pid: int, started: int, *, or_zombie: bool = False) -> bool:
    """Return whether a number still belongs to the process that started then, and it has not ended."""
    stat = stat_of(pid) if pid else None
    return stat is not None and stat.started == started and (or_zombie or not stat.ended)


def own_cgroup() -> str | None:
    """Return the folder of this process's control group, if groups of runs can be made in it.

    The root group is not one that was delegated to this process.
    """
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next((line[3:] for line in lines if line.startswith("0::/")), "/")
        folders = [f"{mount}{path}" for mount in CGROUP_MOUNTS if path != "/"]
        return next((each for each in folders if os.access(f"{each}/cgroup.procs", os.W_OK)), None)
    return None


@lru_cache(maxsize=16)
def launcher_id_of(folder: str) -> bytes:
    """Return what tells a launcher from others on this host, from the folder of its running processes."""
    return sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16].encode()


def processes_of(
    key: str, attempt: int, group: int, cgroup: object = None, *, launcher: bytes | None = None
) -> list[int]:
    """Return the running processes of a run: of its group, with its environment, or in its control group."""
    members: set[int] = set()
    with suppress(OSError):
        members = set(map(int, Path(f"{cgroup}/cgroup.procs").read_text().split())) if cgroup else members
    running = []
    for pid in _all():
        stat = stat_of(pid)
        if stat is None or stat.ended:
            continue
        if pid in members or group in (stat.group, stat.session) or _run_of(pid, launcher) == (key, attempt):
            running.append(pid)
    return running


def _run_of(pid: int, launcher: bytes | None) -> tuple[str, int] | None:
    """Return the key and the attempt in the environment of a process that a launcher started, or None.

    None stands for every launcher. A process without the id of one was started by an earlier version.
    """
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = dict(pair.partition(b"=")[::2] for pair in pairs)
    key, attempt = named.get(b"KRON_IDEMPOTENCY_KEY", b""), named.get(b"KRON_ATTEMPT", b"")
    is_other = launcher is not None and named.get(LAUNCHER_ID, launcher) != launcher
    if is_other or not attempt.isdigit():
        return None
    return key.decode(errors="replace"), int(attempt)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        _log.warning("process %d cannot be sent %s: %s", pid, number.name, error)


def sessions_of(keys: Collection[str], launcher: bytes) -> dict[tuple[str, int], int]:
    """Return the processes that a launcher started with one of these keys, by key and attempt.

    Their children have the same environment, but lead no session.
    """
    leaders: dict[tuple[str, int], int] = {}
    for pid in _all() if keys else ():
        run = _run_of(pid, launcher)
        stat = stat_of(pid) if run is not None and run[0] in keys else None
        if run is not None and stat is not None and stat.session == pid:
            leaders[run] = pid
    return leaders


def _all() -> Iterator[int]:
    with suppress(OSError):
        yield from [int(name) for name in os.listdir("/proc") if name.isdigit()]


def boot_of() -> str:
    """Return a name for the scope of process numbers: this boot of the host, and the PID namespace."""
    with suppress(OSError):
        namespace = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}-{namespace}"
    return "boot"


# --- files ---------------------------------------------------------------------------------------------


def written_status(path: str) -> int | None:
    """Return the exit status a wrapper wrote, or None; death by a signal is 128 and more."""
    with suppress(OSError, ValueError):
        text = Path(path).read_text()
        return int(text) if text.endswith("\n") else None
    return None


def is_empty(path: str) -> bool:
    """Return whether a file has no content, or cannot be read."""
    try:
        return not os.stat(path).st_size
    except OSError:
        return True


def describe_exit(code: int, tail: bytes) -> str:
    """Return an exit code in words, with the last lines of the output."""
    if code < 0:
        name = signal.Signals(-code).name if -code in _SIGNALS else f"signal {-code}"
        status = f"killed by {name}"
    else:
        status = f"exit status {code}"
        if code - 128 in _SIGNALS:
            status += f" ({signal.Signals(code - 128).name})"
    lines = _ESCAPES.sub("", tail.decode(errors="replace")).strip().splitlines()[-MAX_LINES:]
    text = "\n".join(lines)[-MAX_TAIL:]
    return f"{status}: {text}" if text else status


def remove_files(files: Files, *, survive: bool) -> None:
    """Remove the files of a process; only one that survives its owner has a status file."""
    for path in files if survive else files[:1]:
        with suppress(OSError):
            os.unlink(path)


# --- supervisors ---------------------------------------------------------------------------------------

# How long a start waits until the supervisors of an earlier owner have their records, in seconds.
LOCK_S, LOCK_PAUSE_S = 10.0, 0.005
# A program that has not replied for so long, in seconds, gets no more starts: it may wait for another host.
STUCK_S = 15.0
# How many starts a program has in hand when another one is started, how many programs there are at most,
# and for how long they stay without work, in seconds.
MANY_STARTS, MAX_PROGRAMS, IDLE_S = 16, 4, 30.0
# How many bytes of replies are read at once.
REPLIES_SIZE = 65_536


class Supervisors:
    """Starts supervised processes through small programs, which wait for them and outlive their owner.

    The first program is started with the first process, further ones while many starts wait, because one
    program can do nothing while it starts a process. `env` are the variables that all processes inherit.
    One that has ended is replaced; one that does not reply keeps its processes and gets no more.
    """

    def __init__(self, folder: str) -> None:
        self._lock = f"{folder}/supervisor.lock"
        self._programs: list[SupervisorProgram] = []
        self._closer: asyncio.TimerHandle | None = None
        self.stuck_s = STUCK_S
        self.env: Mapping[bytes, bytes] = {}

    def open(self) -> None:
        """Start a program, once the runs that an earlier owner requested have their records."""
        if not self._programs:
            self._open()

    def _open(self) -> "SupervisorProgram":
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not self._programs:
                _wait_for_starts(lock)
            # It is shared by the programs of one owner, and held until they have read all of its requests.
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            self._programs.append(SupervisorProgram(lock, self.env))
        finally:
            os.close(lock)
        return self._programs[-1]

    def start(self, request: Record, on_reply: "OnReply", on_end: "OnReply") -> None:
        """Start a supervised process; the replies come later: started, then ended, None if none will come.

        Starts do not wait for each other, so a burst takes the time of its work, not of its round trips.
        """
        self._next_program().start(request, on_reply, on_end)
        if self._closer is None and len(self._programs) > 1:
            self._closer = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def _next_program(self) -> "SupervisorProgram":
        """Return the program with the fewest starts in hand, perhaps a new one."""
        self._programs = [program for program in self._programs if program.is_open]
        able = [program for program in self._programs if program.silent_s <= self.stuck_s]
        least = min(able, key=lambda program: program.waiting, default=None)
        if least is None or (least.waiting >= MANY_STARTS and len(able) < MAX_PROGRAMS):
            return self._open()
        return least

    def _close_idle(self) -> None:
        """Close all programs but one that have no processes; they end then."""
        self._closer = None
        for program in [program for program in self._programs if program.is_idle]:
            if len(self._programs) > 1:
                self._programs.remove(program)
                program.close()
        if len(self._programs) > 1:
            self._closer = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def close(self) -> None:
        """Leave the programs, which end with their last process."""
        if self._closer is not None:
            self._closer.cancel()
            self._closer = None
        for program in self._programs:
            program.close()
        self._programs = []


def _wait_for_starts(lock: int) -> None:
    """Wait until the supervisor of an earlier owner has read all of its requests, at most LOCK_S seconds."""
    for _ in range(int(LOCK_S / LOCK_PAUSE_S)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sleep(LOCK_PAUSE_S)
        else:
            return
    _log.warning("a supervisor of an earlier krond does not reply: what it has not started will not start")


OnReply = Callable[[Record | None], None]


class SupervisorProgram:
    """One running supervisor, as its owner sees it."""

    def __init__(self, lock: int, env: Mapping[bytes, bytes]) -> None:
        self._unsent, self._replies = bytearray(), bytearray()
        self._started: dict[int, OnReply] = {}
        self._ended: dict[int, OnReply] = {}
        self._number = 0
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = (theirs.fileno(), lock)
            argv = [sys.executable, "-I", "-S", supervisor.__file__, *map(str, numbers)]
            # The program is Kron's own.
            self._program = subprocess.Popen(  # noqa: S603
                argv, stdin=subprocess.DEVNULL, pass_fds=numbers, start_new_session=True
            )
        self.pid = self._program.pid
        self._channel: socket.socket | None = ours
        ours.setblocking(False)
        loop = self._loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._on_readable)
        self._heard_at = loop.time()
        base = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        self._send({"base_env": base})

    @property
    def is_open(self) -> bool:
        """Return whether it takes requests; one that has ended is noticed when it is read from."""
        return self._channel is not None

    @property
    def waiting(self) -> int:
        """Return how many starts have no reply yet."""
        return len(self._started)

    @property
    def is_idle(self) -> bool:
        """Return whether it has neither starts nor processes in hand."""
        return not self._started and not self._ended

    @property
    def silent_s(self) -> float:
        """Return for how long starts have waited for a reply."""
        return self._loop.time() - self._heard_at if self._started else 0.0

    def start(self, request: Record, on_reply: OnReply, on_end: OnReply) -> None:
        """Request a process; the request is sent when the program has read those before it."""
        if not self._started:
            self._heard_at = self._loop.time()
        self._number += 1
        self._started[self._number], self._ended[self._number] = on_reply, on_end
        self._send({**request, "id": self._number})

    def _send(self, message: Record) -> None:
        is_first = not self._unsent
        self._unsent += supervisor.encoded(message)
        if is_first:
            self._on_writable()

    def _on_writable(self) -> None:
        if self._channel is None:
            return
        try:
            del self._unsent[: self._channel.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            # It has ended: reading from it says so, after the replies that it has sent.
            self._unsent.clear()
        if self._unsent:
            self._loop.add_writer(self._channel.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(self._channel.fileno())

    def _on_readable(self) -> None:
        assert self._channel is not None
        try:
            part = self._channel.recv(REPLIES_SIZE)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self._give_up()
            return
        self._heard_at = self._loop.time()
        self._replies += part
        while (reply := supervisor.take_message(self._replies)) is not None:
            number = reply.pop("id", None)
            if isinstance(number, int):
                self._on_message(number, reply)

    def _on_message(self, number: int, reply: Record) -> None:
        is_end = "code" in reply
        if "pid" not in reply:
            self._ended.pop(number, None)
        call = (self._ended if is_end else self._started).pop(number, None)
        if call is not None:
            call(reply)

    def _give_up(self) -> None:
        """Tell everybody who waits for a reply that it will not come."""
        waiting = [*self._started.values(), *self._ended.values()]
        self._started, self._ended = {}, {}
        self.close()
        for call in waiting:
            call(None)

    def close(self) -> None:
        """Close the socket: the program ends with its last process."""
        if self._channel is not None:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())
            self._channel.close()
            self._channel = None
        if self.is_idle:
            self._program.wait()
        elif self._program.poll() is None:
            # `Popen` would otherwise warn that it still runs.
            self._program.returncode = 0


def read_variables(path: str) -> dict[str, str]:
    """Return the variables of a file of `NAME=value` lines; blank lines and comments are skipped.

    A value may stand in quotes. As root, a file that others could write is refused.
    """
    if fault := untrusted(path):
        raise ValueError(f"env_file {path}: {fault}")
    variables: dict[str, str] = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        text = line.strip().removeprefix("export ")
        if not text or text.startswith("#"):
            continue
        name, mark, value = text.partition("=")
        if not mark or not name.strip().replace("_", "a").isalnum():
            raise ValueError(f"env_file {path}:{number}: must be NAME=value")
        value = value.strip()
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
        variables[name.strip()] = value[1:-1] if quoted else value
    return variables


def untrusted(path: str, owner: int = 0) -> str | None:
    """Return why root must not follow a file, or None: another user could change it, or a folder above it.

    The file may belong to an `owner`, if it is followed as that user alone.
    """
    if os.geteuid() != 0:
        return None
    place = os.path.realpath(path)
    found = os.stat(place)
    if found.st_uid not in (0, owner):
        return "belongs to another user than root"
    if found.st_mode & 0o022:
        return "can be written by others: chmod go-w"
    return None if owner else _untrusted_folder(os.path.dirname(place))


def _untrusted_folder(folder: str) -> str | None:
    """Return why another user could replace a folder, or one above it; in a sticky one nobody can."""
    while True:  # each folder is shorter
        found = os.stat(folder)
        if found.st_uid != 0:
            return f"is below {folder}, which belongs to another user than root"
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            return f"is below {folder}, which can be written by others: chmod go-w"
        if folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
