"""The supervisor of runs: a small process that starts commands, outlives krond and records their ends.

This file is a program of its own, with the standard library alone: `python -I -S supervisor.py SOCKET LOCK`
reads requests from a socket, starts their commands and waits for all of them. When krond has ended it stays
until the last one has. It creates the record of a run before it starts the command, so that a record without
a process, a process without an end and a run that never started can be told apart, and no run can start
twice.

It does not fork for a command that needs no other user, priority, control group or file: `posix_spawn` does
not copy this process. Whatever could wait for another machine (the home of a user, a file of output) is done
in a forked child, which keeps nobody else waiting.
"""

import contextlib
import errno
import grp
import heapq
import json
import os
import pwd
import select
import signal
import socket
import sys
import time
import warnings  # noqa: F401 - `os.execvpe` imports it, as a user who may not read Python's own files
import zlib

# A record is overwritten in place: its end needs no further space on a full disk.
RECORD_SIZE = 4_096
HEADER = 4
# Where systemd's journal takes the output of services.
JOURNAL_SOCKET = "/run/systemd/journal/stdout"
# The time between looks at an output, at first and when it does not grow, in seconds.
LOOK_S, MAX_LOOK_S = 0.05, 1.0
# How far an output may grow beyond the kept size before its middle is freed.
SLACK = 1024 * 1024
# Freeing a part of a file that keeps its length: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE.
PUNCH, BLOCK = 0x03, 4_096
# How often the record of an end is written again if that fails, and the pause between, in seconds.
WRITE_TRIES, WRITE_PAUSE_S = 600, 1.0
# How many requests are read, and commands started, before ends are looked at; and bytes read at once.
STARTS_AT_ONCE, RECEIVED_SIZE = 8, 65_536
# An output of which this much is kept is compressed by a forked child, beside the other runs.
LARGE_OUTPUT = 1 << 20
# Outputs are texts, which any level makes several times smaller.
COMPRESSION = 1
# Signals that Python ignores or handles, and whose defaults a command expects.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# What of a request is needed after the start.
KEPT = ("id", "record", "output", "max_output", "stdout", "stderr", "cgroup")

# The state of a run that its krond recorded and that nobody has started: the next one forbids it.
NEVER = "never started"

Record = dict[str, object]
Request = dict[str, object]


# --- records -------------------------------------------------------------------------------------------


_record_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def write_record(file: int, record: Record) -> None:
    """Write the record of a run in place."""
    text = _record_text(record).encode(errors="replace")
    os.pwrite(file, text[: RECORD_SIZE - 1].ljust(RECORD_SIZE - 1) + b"\n", 0)


def create_record(path: str, record: Record) -> int:
    """Create the record of a run, which must not exist, and return its open file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, flags, 0o600)
    try:
        write_record(file, record)
    except OSError:
        # The disk is full: the run may be started when it is not.
        os.close(file)
        os.unlink(path)
        raise
    return file


def read_record(path: str) -> Record | None:
    """Return the record of a run, empty if it is damaged, or None if there is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(RECORD_SIZE)
    except OSError:
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def started_of(pid: int) -> int:
    """Return when a process started, in clock ticks since the host booted; 0 where unknown."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            # The name is in parentheses and may contain some.
            return int(os.read(file, RECORD_SIZE).rpartition(b")")[2].split()[19])
        finally:
            os.close(file)
    except (OSError, IndexError):
        return 0


# --- messages ------------------------------------------------------------------------------------------


def encoded(message: Record) -> bytes:
    """Return one message: its length, then JSON."""
    text = json.dumps(message).encode()
    return len(text).to_bytes(HEADER, "big") + text


def has_message(received: bytearray) -> bool:
    """Return whether some bytes start with a whole message."""
    return len(received) >= HEADER and HEADER + int.from_bytes(received[:HEADER], "big") <= len(received)


def take_message(received: bytearray) -> Record | None:
    """Remove and return the first whole message of some bytes, or None."""
    if not has_message(received):
        return None
    size = HEADER + int.from_bytes(received[:HEADER], "big")
    text = bytes(received[HEADER:size])
    del received[:size]
    return dict(json.loads(text))


# --- the program ---------------------------------------------------------------------------------------


class Run:
    """A run whose command was started: its request, its record, and what is known of its output."""

    __slots__ = ("failed_writes", "fault_pipe", "known", "pause", "pid", "record", "request", "trimmed")

    def __init__(self, request: Request, record: Record, pid: int, fault_pipe: int | None) -> None:
        self.request = request
        self.record = record
        self.pid = pid
        # Where a forked child says why it did not become the command; it is closed when it has.
        self.fault_pipe = fault_pipe
        self.pause = LOOK_S
        self.known = self.trimmed = self.failed_writes = 0

    @property
    def output(self) -> str:
        """Return the path of the captured output."""
        return str(self.request["output"])

    @property
    def max_output(self) -> int:
        """Return how much of the output is kept."""
        return int(str(self.request["max_output"]))


class Supervisor:
    """Starts the commands that krond requests over a socket, and waits for all of them.

    The lock is free when every requested run has its record, so a new krond waits for it.
    """

    def __init__(self, channel: socket.socket, lock: int) -> None:
        self._channel: socket.socket | None = channel
        self._lock = lock
        self._received, self._replies = bytearray(), bytearray()
        self._env: dict[str, str] = {}
        self._runs: dict[int, Run] = {}
        # Forked children that record the end of a run whose output is large.
        self._recorders: dict[int, Run] = {}
        # When outputs are looked at next, and ends that could not be recorded are written again.
        self._looks: list[tuple[float, int]] = []
        self._unwritten: list[tuple[float, Run]] = []
        self._poll = select.poll()
        self._pipes: dict[int, Run] = {}
        self._me: Record = {"supervisor": os.getpid(), "supervisor_started": started_of(os.getpid())}
        try:
            self._home = os.open(".", os.O_PATH)
        except OSError:
            self._home = os.open("/", os.O_PATH)

    def run(self) -> None:
        """Serve until krond has closed its end and every run has ended."""
        wake, signalled = os.pipe()
        for end in (wake, signalled):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(signalled, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll.register(wake, select.POLLIN)
        assert self._channel is not None
        self._channel.setblocking(False)
        self._poll.register(self._channel, select.POLLIN)
        while self._channel is not None or self._runs or self._recorders or self._unwritten:
            ready = dict(self._poll.poll(self._timeout_ms()))
            if ready.pop(wake, 0):
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, RECEIVED_SIZE)
                self._reap()
            for pipe in [pipe for pipe in ready if pipe in self._pipes]:
                self._on_fault_pipe(self._pipes[pipe])
            self._serve_channel()
            self._look_at_outputs()
            self._write_again()
            self._send()

    def _timeout_ms(self) -> int | None:
        """Return how long to wait for a message or an end: until the next look, or for ever."""
        if has_message(self._received):
            return 0
        due = [self._looks[0][0]] if self._looks else []
        due += [self._unwritten[0][0]] if self._unwritten else []
        return max(0, int((min(due) - _now()) * 1_000) + 1) if due else None

    # --- messages --------------------------------------------------------------------------------

    def _serve_channel(self) -> None:
        """Read requests and start some of them; send the replies. Neither waits for krond."""
        if self._channel is None:
            return
        try:
            part = self._channel.recv(RECEIVED_SIZE)
            is_closed = not part
            self._received += part
        except BlockingIOError:
            is_closed = False
        except OSError:
            is_closed = True
        for _ in range(sys.maxsize if is_closed else STARTS_AT_ONCE):
            message = take_message(self._received)
            if message is None:
                break
            self._on_message(message)
        if is_closed:
            self._on_krond_ended()

    def _on_message(self, message: Request) -> None:
        base = message.get("base_env")
        if isinstance(base, dict):
            self._env = base
        else:
            self._start(message)

    def _on_krond_ended(self) -> None:
        """Every requested run has its record now: the next krond may look."""
        assert self._channel is not None
        self._poll.unregister(self._channel)
        self._channel.close()
        self._channel = None
        os.close(self._lock)

    def _reply(self, request: Request, answer: Record) -> None:
        if self._channel is not None:
            self._replies += encoded({**answer, "id": request["id"]})

    def _send(self) -> None:
        """Send what krond has room for, and the rest when it has read some."""
        if self._channel is None:
            return
        if self._replies:
            # Should it be gone, the next read says so.
            with contextlib.suppress(OSError):
                del self._replies[: self._channel.send(self._replies)]
        self._poll.register(self._channel, select.POLLIN | (select.POLLOUT if self._replies else 0))

    # --- starting --------------------------------------------------------------------------------

    def _start(self, request: Request) -> None:
        """Create the record of a run, then start its command."""
        place = str(request["record"])
        me = {name: request[name] for name in ("identity", "nominal_time", "boot", "cgroup")} | self._me
        try:
            record = create_record(place, {"state": "starting", **me})
        except OSError as error:
            self._reply(request, {"exists": True} if error.errno == errno.EEXIST else _fault(error))
            return
        fault_pipe = None
        try:
            pid, fault_pipe = self._spawn(request)
        except (OSError, LookupError, ValueError) as error:
            self._refuse(request, _fault(error))
        else:
            running: Record = {"state": "running", "pid": pid, "started": started_of(pid), **me}
            with contextlib.suppress(OSError):
                write_record(record, running)
            kept = {name: request.get(name) for name in KEPT}
            run = self._runs[pid] = Run(kept, running, pid, fault_pipe)
            if fault_pipe is None:
                self._reply(request, running)
            else:
                self._pipes[fault_pipe] = run
                self._poll.register(fault_pipe, select.POLLIN)
            if is_captured(request):
                heapq.heappush(self._looks, (_now() + LOOK_S, pid))
        finally:
            os.close(record)

    def _spawn(self, request: Request) -> tuple[int, int | None]:
        """Start a command; return its number, and where a forked child says that it could not start."""
        env = {**self._env, **_strings(request["env"])}
        if is_plain(request):
            return self._spawn_plain(request, env), None
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            self._leave()
            try:
                become(request, env)
            except BaseException as error:  # noqa: BLE001 - reported to the parent
                reason = _fault(error if isinstance(error, Exception) else OSError(str(error)))
                os.write(write, json.dumps(reason).encode()[: select.PIPE_BUF])
            os._exit(127)
        os.close(write)
        return pid, read

    def _leave(self) -> None:
        """In a forked child: close what tells others whether the supervisor lives."""
        signal.set_wakeup_fd(-1)
        if self._channel is not None:
            self._channel.close()
            os.close(self._lock)

    def _spawn_plain(self, request: Request, env: dict[str, str]) -> int:
        """Start a command without a copy of this process, whose folder and mask it inherits."""
        opened: list[int] = []
        cwd, umask = folder_of(request, env), request.get("umask")
        mask = None
        try:
            streams = open_streams(request, opened)
            if cwd:
                os.chdir(cwd)
            argv = _words(request)
            mask = None if umask is None else os.umask(int(str(umask), 8))
            return os.posix_spawn(
                program_of(argv[0], env), argv, env,
                file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)],
                setsid=True, setsigmask=(), setsigdef=RESTORED,
            )  # fmt: skip
        finally:
            if mask is not None:
                os.umask(mask)
            if cwd:
                os.fchdir(self._home)
            for file in opened:
                os.close(file)

    def _refuse(self, request: Request, fault: Record) -> None:
        """Say why a command was not started; its run may be started again."""
        for path in (str(request["record"]), str(request["output"])):
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._reply(request, fault)

    def _on_fault_pipe(self, run: Run) -> None:
        """Reply for a forked child: it has become its command, or says why it could not."""
        pipe, run.fault_pipe = run.fault_pipe, None
        assert pipe is not None
        self._poll.unregister(pipe)
        del self._pipes[pipe]
        with open(pipe, "rb") as file:
            fault = file.read()
        if not fault:
            self._reply(run.request, run.record)
            return
        self._runs.pop(run.pid, None)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(run.pid, 0)
        self._refuse(run.request, json.loads(fault))

    # --- waiting ---------------------------------------------------------------------------------

    def _reap(self) -> None:
        """Record the end of every command that has ended."""
        while self._runs or self._recorders:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if (recorder := self._recorders.pop(pid, None)) is not None:
                written = read_record(str(recorder.request["record"])) or {}
                self._reply(recorder.request, written if "code" in written else recorder.record)
                continue
            run = self._runs.get(pid)
            if run is None:
                continue
            end: Record = {
                "state": "ended",
                "code": os.waitstatus_to_exitcode(status),
                "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
                "max_rss_kb": usage.ru_maxrss,
            }
            self._on_end(run, end)

    def _on_end(self, run: Run, end: Record) -> None:
        if run.fault_pipe is not None:
            self._on_fault_pipe(run)
        if self._runs.pop(run.pid, None) is None:
            # It never became its command.
            return
        run.record = {**run.record, **end}
        if min(size_of(run.output), run.max_output) < LARGE_OUTPUT:
            self._record_end(run)
            return
        pid = os.fork()
        if pid == 0:
            self._leave()
            with contextlib.suppress(BaseException):
                for _ in range(WRITE_TRIES):
                    if record_end(run.request, run.record):
                        break
                    time.sleep(WRITE_PAUSE_S)
            os._exit(0)
        self._recorders[pid] = run

    def _record_end(self, run: Run) -> None:
        """Record an end and tell krond; where it cannot be recorded yet, krond knows it all the same."""
        is_recorded = record_end(run.request, run.record)
        if not run.failed_writes:
            self._reply(run.request, run.record)
        run.failed_writes += 1
        if not is_recorded and run.failed_writes < WRITE_TRIES:
            self._unwritten.append((_now() + WRITE_PAUSE_S, run))

    def _write_again(self) -> None:
        while self._unwritten and self._unwritten[0][0] <= _now():
            self._record_end(self._unwritten.pop(0)[1])

    def _look_at_outputs(self) -> None:
        """Keep outputs bounded; one that does not grow is looked at less often."""
        now = _now()
        while self._looks and self._looks[0][0] <= now:
            _, pid = heapq.heappop(self._looks)
            run = self._runs.get(pid)
            if run is None:
                continue
            size = size_of(run.output)
            run.pause = LOOK_S if size > run.known else min(2 * run.pause, MAX_LOOK_S)
            run.known = size
            run.trimmed = trim(run.output, run.max_output, run.trimmed, size)
            heapq.heappush(self._looks, (now + run.pause, pid))


def main(channel_number: int, lock: int) -> None:
    """Supervise the runs that are requested over a socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # No command inherits them; and no file of a command takes the place of a missing standard stream.
    os.set_inheritable(channel_number, False)
    os.set_inheritable(lock, False)
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(null, True)
    os.close(null)
    Supervisor(socket.socket(fileno=channel_number), lock).run()


def _now() -> float:
    """Return the time for pauses: this program has no other clock, and decides nothing by it."""
    return time.monotonic()  # noqa: TID251


def _fault(error: Exception) -> Record:
    if isinstance(error, OSError):
        place = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        return {"errno": error.errno or 0, "error": f"{error.strerror or error}{place}"}
    return {"error": str(error.args[0]) if error.args else str(error)}


# --- a command -----------------------------------------------------------------------------------------


def _words(request: Request) -> list[str]:
    argv = request["argv"]
    assert isinstance(argv, list)
    return [str(word) for word in argv]


def _strings(variables: object) -> dict[str, str]:
    assert isinstance(variables, dict)
    return {str(name): str(value) for name, value in variables.items()}


def is_captured(request: Request) -> bool:
    """Return whether output of a command is kept with its run."""
    return "capture" in (request.get("stdout", "capture"), request.get("stderr", "capture"))


def is_plain(request: Request) -> bool:
    """Return whether a command can be started without a child that prepares something for it."""
    is_file = any(isinstance(request.get(name), dict) for name in ("stdout", "stderr"))
    return not is_file and all(request.get(name) is None for name in ("user", "group", "nice", "cgroup"))


def program_of(name: str, env: dict[str, str]) -> str:
    """Return the path of a program, from the command's own PATH."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def folder_of(request: Request, env: dict[str, str]) -> str | None:
    """Return the folder of a command; `~` is the home of its user."""
    cwd = request.get("cwd")
    if not isinstance(cwd, str) or not (cwd == "~" or cwd.startswith("~/")):
        return None if cwd is None else str(cwd)
    return f"{env.get('HOME') or pwd.getpwuid(os.getuid()).pw_dir}{cwd[1:]}"


def open_streams(request: Request, opened: list[int]) -> tuple[int, int, int]:
    """Open the standard streams of a command; the files are added to `opened`."""

    def open_file(path: str, flags: int, mode: int = 0o600) -> int:
        opened.append(os.open(path, flags, mode))
        return opened[-1]

    text = request.get("stdin")
    if text is None:
        read = open_file(os.devnull, os.O_RDONLY)
    else:
        path = f"{request['output']}.in"
        read = open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.unlink(path)
        os.write(read, str(text).encode(errors="surrogateescape"))
        os.lseek(read, 0, os.SEEK_SET)
    places: list[int] = []
    for number, name in ((1, "stdout"), (2, "stderr")):
        where = request.get(name, "capture")
        if number == 2 and where == request.get("stdout", "capture") and where in ("capture", "discard"):
            places.append(places[0])
        elif where == "capture":
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            places.append(open_file(str(request["output"]), flags))
        elif where == "inherit":
            places.append(number)
        elif where == "discard":
            places.append(open_file(os.devnull, os.O_WRONLY))
        elif where == "journal":
            places.append(_journal(name, str(request["identity"])))
            opened.append(places[-1])
        else:
            assert isinstance(where, dict)
            if number == 1 or where != request.get("stdout"):
                _rotate(where)
            places.append(open_file(str(where["file"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640))
    return read, places[0], places[1]


def _journal(name: str, identity: str) -> int:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place = os.environ.get("KROND_JOURNAL", JOURNAL_SOCKET)
    try:
        stream.connect(place)
    except OSError as error:
        stream.close()
        reason = f"{name}: journal needs systemd's journal ({error.strerror}: {place}); use capture or a file"
        raise OSError(error.errno, reason) from None
    # Identifier, unit, priority, level prefixes, and whether to forward to syslog, kernel log and console.
    stream.sendall(f"{identity}\n\n6\n1\n0\n0\n0\n".encode())
    return stream.detach()


def _rotate(where: dict[str, object]) -> None:
    """Rename a file of output that has become too large, and drop the oldest."""
    path, keep = str(where["file"]), int(str(where["keep"]))
    try:
        if os.stat(path).st_size <= int(str(where["max_size"])):
            return
    except OSError:
        return
    with contextlib.suppress(OSError):
        if not keep:
            os.truncate(path, 0)
            return
        for number in range(keep - 1, 0, -1):
            if os.path.exists(f"{path}.{number}"):
                os.replace(f"{path}.{number}", f"{path}.{number + 1}")
        os.replace(path, f"{path}.1")


class _Account:
    """The user and the groups a command runs as, and the variables that name them."""

    def __init__(self, user: str | None, group: str | None) -> None:
        self.uid: int | None = None
        self.gid: int | None = None
        self.groups: list[int] = []
        self.env: dict[str, str] = {}
        if user is not None:
            try:
                entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
            except KeyError:
                raise LookupError(f"there is no user {user}") from None
            self.uid, self.gid = entry.pw_uid, entry.pw_gid
            self.env = {
                "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name,
                "SHELL": entry.pw_shell or "/bin/sh",
            }  # fmt: skip
            self.groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        if group is not None:
            try:
                self.gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
            except KeyError:
                raise LookupError(f"there is no group {group}") from None
            self.groups = sorted({*self.groups, self.gid})

    def drop(self) -> None:
        """Take on the groups, then the group and the user; nothing of the old ones stays."""
        if os.geteuid() != 0:
            if self.uid not in (None, os.geteuid()) or self.gid not in (None, os.getegid()):
                raise PermissionError(errno.EPERM, "only root starts processes as another user or group")
            return
        if self.uid is not None or self.gid is not None:
            os.setgroups(self.groups)
        if self.gid is not None:
            os.setresgid(self.gid, self.gid, self.gid)
        if self.uid is not None:
            os.setresuid(self.uid, self.uid, self.uid)


def become(request: Request, env: dict[str, str]) -> None:
    """Become the command: its session, streams, limits, user and folder."""
    os.setsid()
    if cgroup := request.get("cgroup"):
        with contextlib.suppress(OSError):
            os.makedirs(str(cgroup), exist_ok=True)
            with open(f"{cgroup}/cgroup.procs", "w") as file:
                file.write("0")
    for number, stream in enumerate(open_streams(request, [])):
        os.dup2(stream, number)
    if (nice := request.get("nice")) is not None:
        os.setpriority(os.PRIO_PROCESS, 0, int(str(nice)))
    if (umask := request.get("umask")) is not None:
        os.umask(int(str(umask), 8))
    account = _account(request)
    if account is not None:
        # What the job itself sets wins over the variables of its user.
        env = {**env, **account.env, **_strings(request["env"])}
        account.drop()
    if cwd := folder_of(request, env):
        os.chdir(cwd)
    elif account is not None:
        # Some users have a home that does not exist.
        os.chdir("/")
        with contextlib.suppress(OSError):
            os.chdir(env.get("HOME", "/"))
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    argv = _words(request)
    # The operator of the host wrote the command.
    os.execvpe(argv[0], argv, env)  # noqa: S606


def _account(request: Request) -> _Account | None:
    user, group = request.get("user"), request.get("group")
    if user is None and group is None:
        return None
    return _Account(None if user is None else str(user), None if group is None else str(group))


# --- outputs and ends ----------------------------------------------------------------------------------


def size_of(path: str) -> int:
    """Return the size of a file; 0 if it cannot be read."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def head_of(keep: int) -> int:
    """Return how many of the kept bytes are the first ones."""
    return keep // 4


def trim(path: str, keep: int, trimmed: int, size: int) -> int:
    """Free the middle of an output that has become too long; return up to where it is freed."""
    head = -(-head_of(keep) // BLOCK) * BLOCK
    start, until = max(head, trimmed), (size - keep) // BLOCK * BLOCK
    if until - start <= SLACK:
        return trimmed
    with contextlib.suppress(OSError), open(path, "r+b") as file:
        if _punch(file.fileno(), start, until):
            return until
        # The file system cannot punch holes: bytes written between these lines may be lost.
        file.seek(size - keep)
        tail = file.read(keep)
        file.truncate(head)
        with open(path, "ab") as again:
            again.write(tail)
        return 0
    return trimmed


def _punch(file: int, start: int, until: int) -> bool:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        free = ctypes.CDLL(None, use_errno=True).fallocate64
        free.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return int(free(file, PUNCH, start, until - start)) == 0
    return False


def kept_output(path: str, keep: int) -> tuple[bytes, int]:
    """Return the kept part of an output, with a line in the place of the rest, and how long all of it was."""
    first, last, size = kept_parts(path, keep)
    return joined(first, last, size), size


def kept_parts(path: str, keep: int) -> tuple[bytes, bytes, int]:
    """Return the first and the last bytes of an output, nothing if all are kept, and how long it was."""
    head = head_of(keep)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= keep:
                return b"", file.read(keep), size
            first = file.read(head)
            file.seek(size - (keep - head))
            return first, file.read(keep - head), size
    except OSError:
        return b"", b"", 0


def joined(first: bytes, last: bytes, size: int) -> bytes:
    """Return the parts of an output with a line in the place of what was left out between them."""
    left_out = size - len(first) - len(last)
    return first + f"\n[... {left_out} bytes left out ...]\n".encode() + last if first else last


def record_end(request: Request, record: Record) -> bool:
    """Compress the output, then record the end; a full disk may cost the output, never the end.

    Return whether the end is recorded.
    """
    path, place = str(request["output"]), str(request["record"])
    if is_captured(request):
        text, record["output"] = kept_output(path, int(str(request["max_output"])))
        if text:
            _compress(text, f"{place.removesuffix('.run')}.log", record)
    else:
        record["output"] = 0
    try:
        file = os.open(place, os.O_WRONLY)
        try:
            write_record(file, record)
        finally:
            os.close(file)
    except FileNotFoundError:
        # It was removed with everything else of krond: there is nobody to read it.
        pass
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.unlink(path)
    if cgroup := request.get("cgroup"):
        with contextlib.suppress(OSError):
            os.rmdir(str(cgroup))
    return True


def _compress(text: bytes, log: str, record: Record) -> None:
    """Write the kept output; it counts once the record says that the run has ended."""
    packer = zlib.compressobj(COMPRESSION, wbits=31)
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(file, "wb") as packed:
            packed.write(packer.compress(text) + packer.flush())
    except OSError as error:
        record["output_lost"] = error.strerror or str(error)
        with contextlib.suppress(OSError):
            os.unlink(log)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
