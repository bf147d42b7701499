"""The supervisor of a run: a small process that starts a command, outlives krond and records the end.

This file is a program of its own, with the standard library alone: `python -I -S supervisor.py SOCKET LOCK`
reads requests from a socket and forks one supervisor for each, which costs little because it is small. A
supervisor creates the record of its run before it starts the command, so that a record without a process, a
process without an end and a run that never started can be told apart, and no run can start twice.
"""

import contextlib
import errno
import json
import os
import signal
import socket
import sys
import warnings  # noqa: F401 - `os.execvpe` imports it, as a user who may not read Python's own files
import zlib

# A record is overwritten in place: its end needs no further space on a full disk.
RECORD_SIZE = 4_096
HEADER = 4
# Where systemd's journal takes the output of services.
JOURNAL_SOCKET = "/run/systemd/journal/stdout"
# How long a supervisor waits between looks at the output, at first and when it does not grow, in seconds.
LOOK_S, MAX_LOOK_S = 0.05, 1.0
# How far an output may grow beyond the kept size before its middle is freed.
SLACK = 1024 * 1024
# Freeing a part of a file that keeps its length: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE.
PUNCH, BLOCK = 0x03, 4_096
# How often the record of an end is written again if that fails, and the pause between, in seconds.
WRITE_TRIES, WRITE_PAUSE_S = 600, 1.0
# Signals that Python ignores, and whose defaults a command expects.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Record = dict[str, object]
Request = dict[str, object]


# --- records -------------------------------------------------------------------------------------------


def write_record(file: int, record: Record) -> None:
    """Write the record of a run in place."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")
    os.pwrite(file, text[: RECORD_SIZE - 1].ljust(RECORD_SIZE - 1) + b"\n", 0)


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
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name is in parentheses and may contain some.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


# --- messages ------------------------------------------------------------------------------------------


def send(channel: socket.socket, message: Record) -> None:
    """Send one message: its length, then JSON."""
    text = json.dumps(message).encode()
    channel.sendall(len(text).to_bytes(HEADER, "big") + text)


def receive(channel: socket.socket) -> Record | None:
    """Return the next message, or None at the end."""
    head = _exactly(channel, HEADER)
    text = None if head is None else _exactly(channel, int.from_bytes(head, "big"))
    return None if text is None else dict(json.loads(text))


def take_message(received: bytearray) -> Record | None:
    """Remove and return the first whole message of some bytes, or None."""
    size = HEADER + int.from_bytes(received[:HEADER], "big")
    if len(received) < HEADER or len(received) < size:
        return None
    text = bytes(received[HEADER:size])
    del received[:size]
    return dict(json.loads(text))


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(size - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


# --- the program ---------------------------------------------------------------------------------------


def main(channel_number: int, lock: int) -> None:
    """Fork a supervisor for each request until krond closes the socket.

    The lock is free when every requested run has its record, so a new krond waits for it.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Supervisors that end leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # No command inherits them.
    os.set_inheritable(channel_number, False)
    os.set_inheritable(lock, False)
    channel = socket.socket(fileno=channel_number)
    while (request := receive(channel)) is not None:
        if os.fork() == 0:
            try:
                _supervise(request, channel, lock)
            finally:
                os._exit(0)


def _supervise(request: Request, channel: socket.socket, lock: int) -> None:
    """Start the command of a request, wait for it, and record its end."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    place = str(request["record"])
    me: Record = {
        **{name: request[name] for name in ("identity", "nominal_time", "boot", "cgroup")},
        "supervisor": os.getpid(),
        "supervisor_started": started_of(os.getpid()),
    }
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        record = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        write_record(record, {"state": "starting", **me})
    except OSError as error:
        _reply(channel, request, {"exists": True} if error.errno == errno.EEXIST else _fault(error))
        return
    finally:
        os.close(lock)
    try:
        pid = _spawn(request)
    except (OSError, LookupError, ValueError) as error:
        for path in (place, str(request["output"])):
            with contextlib.suppress(OSError):
                os.unlink(path)
        _reply(channel, request, _fault(error))
        return
    running: Record = {"state": "running", "pid": pid, "started": started_of(pid), **me}
    with contextlib.suppress(OSError):
        write_record(record, running)
    _reply(channel, request, running)
    channel.close()
    _record_end(record, running, request, _wait(request, pid))


def _reply(channel: socket.socket, request: Request, answer: Record) -> None:
    """Answer a request; krond may have died since it sent it."""
    with contextlib.suppress(OSError):
        send(channel, {"id": request["id"], **answer})


def _fault(error: Exception) -> Record:
    if isinstance(error, OSError):
        place = "" if error.filename is None else f": {os.fsdecode(error.filename)}"
        return {"errno": error.errno or 0, "error": f"{error.strerror or error}{place}"}
    return {"error": str(error.args[0]) if error.args else str(error)}


# --- starting ------------------------------------------------------------------------------------------


def _spawn(request: Request) -> int:
    """Fork the command, and return its number once it has been executed."""
    opened: list[int] = []
    try:
        streams = _streams(request, opened)
        account = _account(request)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                _become(request, streams, account)
            except BaseException as error:  # noqa: BLE001 - reported to the parent
                os.write(
                    write, json.dumps(_fault(error if isinstance(error, Exception) else OSError())).encode()
                )
            os._exit(127)
        os.close(write)
        with open(read, "rb") as pipe:
            fault = pipe.read()
    finally:
        for file in opened:
            os.close(file)
    if fault:
        os.waitpid(pid, 0)
        reason = json.loads(fault)
        if "errno" in reason:
            raise OSError(reason["errno"], reason["error"])
        raise LookupError(reason["error"])
    return pid


def _streams(request: Request, opened: list[int]) -> tuple[int, int, int]:
    """Open the standard streams of a command."""

    def open_file(path: str, flags: int, mode: int = 0o600) -> int:
        opened.append(os.open(path, flags, mode))
        return opened[-1]

    text = request.get("stdin")
    read = open_file(os.devnull, os.O_RDONLY)
    if text is not None:
        path = f"{request['output']}.in"
        read = open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.unlink(path)
        os.write(read, str(text).encode(errors="surrogateescape"))
        os.lseek(read, 0, os.SEEK_SET)
    places = []
    for number, name in ((1, "stdout"), (2, "stderr")):
        where = request.get(name, "capture")
        if where == "capture":
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            places.append(open_file(str(request["output"]), flags))
        elif where == "inherit":
            places.append(number)
        elif where == "discard":
            places.append(open_file(os.devnull, os.O_WRONLY))
        elif where == "journal":
            places.append(_journal(str(request["identity"])))
            opened.append(places[-1])
        else:
            assert isinstance(where, dict)
            if number == 1 or where != request.get("stdout"):
                _rotate(where)
            places.append(open_file(str(where["file"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640))
    return read, places[0], places[1]


def _journal(identity: str) -> int:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.connect(os.environ.get("KROND_JOURNAL", JOURNAL_SOCKET))
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
        import grp
        import pwd

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


def _account(request: Request) -> _Account | None:
    user, group = request.get("user"), request.get("group")
    if user is None and group is None:
        return None
    return _Account(None if user is None else str(user), None if group is None else str(group))


def _become(request: Request, streams: tuple[int, int, int], account: _Account | None) -> None:
    """Become the command: its session, streams, limits, user and folder."""
    os.setsid()
    if cgroup := request.get("cgroup"):
        with contextlib.suppress(OSError):
            os.makedirs(str(cgroup), exist_ok=True)
            with open(f"{cgroup}/cgroup.procs", "w") as file:
                file.write("0")
    copies = [os.dup(stream) for stream in streams]
    for number, copy in enumerate(copies):
        os.dup2(copy, number)
    if (nice := request.get("nice")) is not None:
        os.setpriority(os.PRIO_PROCESS, 0, int(str(nice)))
    if (umask := request.get("umask")) is not None:
        os.umask(int(str(umask), 8))
    argv, env = request["argv"], request["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    variables = {str(name): str(value) for name, value in env.items()}
    if account is not None:
        variables = {**variables, **account.env, **_given(request)}
        account.drop()
    if request.get("cwd"):
        os.chdir(str(request["cwd"]))
    elif account is not None:
        # Some users have a home that does not exist.
        os.chdir("/")
        with contextlib.suppress(OSError):
            os.chdir(variables.get("HOME", "/"))
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    # The operator of the host wrote the command.
    os.execvpe(str(argv[0]), [str(word) for word in argv], variables)  # noqa: S606


def _given(request: Request) -> dict[str, str]:
    """Return the variables that the job itself sets: they win over those of its user."""
    given = request.get("given")
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}


# --- waiting -------------------------------------------------------------------------------------------


def _wait(request: Request, pid: int) -> Record:
    """Wait for a command, keep its output bounded, and return its end."""
    path, keep = str(request["output"]), int(str(request["max_output"]))
    pause, trimmed, known = LOOK_S, 0, 0
    while True:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            break
        signal.sigtimedwait({signal.SIGCHLD}, pause)
        size = size_of(path)
        pause = LOOK_S if size > known else min(2 * pause, MAX_LOOK_S)
        known = size
        trimmed = trim(path, keep, trimmed, size)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "max_rss_kb": usage.ru_maxrss,
    }


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


def _record_end(file: int, running: Record, request: Request, end: Record) -> None:
    """Compress the output, then record the end; a full disk may cost the output, never the end."""
    path = str(request["output"])
    text, size = kept_output(path, int(str(request["max_output"])))
    end["output"] = size
    if text:
        log = f"{str(request['record']).removesuffix('.run')}.log"
        packer = zlib.compressobj(wbits=31)
        try:
            with open(f"{log}.new", "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as packed:
                packed.write(packer.compress(text) + packer.flush())
            os.replace(f"{log}.new", log)
        except OSError as error:
            end["output_lost"] = error.strerror or str(error)
            with contextlib.suppress(OSError):
                os.unlink(f"{log}.new")
    for _ in range(WRITE_TRIES):
        try:
            write_record(file, {**running, **end, "state": "ended"})
            break
        except OSError:
            signal.sigtimedwait({signal.SIGCHLD}, WRITE_PAUSE_S)
    with contextlib.suppress(OSError):
        os.unlink(path)
    if cgroup := request.get("cgroup"):
        with contextlib.suppress(OSError):
            os.rmdir(str(cgroup))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
