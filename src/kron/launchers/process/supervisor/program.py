"""The program: starts the commands that krond requests, waits for all of them, and records their ends.

It reads requests from a socket. When krond has ended it stays until the last command has.
"""

import contextlib
import errno
import heapq
import json
import os
import select
import signal
import socket
import sys
import time

from kron.launchers.process.supervisor.command import become, is_plain, spawn_plain, strings_of
from kron.launchers.process.supervisor.message import encoded, has_message, take_message
from kron.launchers.process.supervisor.output import (
    SLACK,
    is_captured,
    is_shared,
    left_open,
    record_end,
    size_of,
    trim,
)
from kron.launchers.process.supervisor.record import (
    RUNNING,
    STARTING,
    Record,
    Request,
    create_record,
    read_record,
    started_of,
    write_record,
)

# The time between looks at an output, at first and when it does not grow, in seconds.
LOOK_S, MAX_LOOK_S = 0.05, 1.0
# How often the record of an end is written again if that fails, and the pause between, in seconds.
WRITE_TRIES, WRITE_PAUSE_S = 600, 1.0
# How many requests are read, and commands started, before ends are looked at; and bytes read at once.
STARTS_AT_ONCE, RECEIVED_SIZE = 8, 65_536
# How much of a reason is told, in characters: a path may be longer.
MAX_FAULT = 1_000
# An output of which this much is kept is compressed by a forked child, beside the other runs.
LARGE_OUTPUT = 1 << 20
# What krond is told of a start and of an end.
STARTED, ENDED = ("pid", "started", "supervisor", "supervisor_started"), ("pid", "code")
# What of a request is needed after the start.
KEPT = ("id", "record", "output", "max_output", "stdout", "stderr", "cgroup")


class SupervisedRun:
    """A run whose command was started: its request, its record, and the state of its output."""

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


class LeftOutput:
    """The removed output of an ended command, which processes that it has started still have open."""

    __slots__ = ("known", "pause")

    def __init__(self) -> None:
        self.pause, self.known = LOOK_S, 0


class Supervisor:
    """Starts the commands that krond requests over a socket, and waits for all of them.

    The lock is free when every requested run has its record, so a new krond waits for it.
    """

    def __init__(self, channel: socket.socket, lock: int) -> None:
        self._channel: socket.socket | None = channel
        self._lock = lock
        self._received, self._replies = bytearray(), bytearray()
        self._env: dict[str, str] = {}
        self._runs: dict[int, SupervisedRun] = {}
        # Forked children that record the end of a run whose output is large.
        self._recorders: dict[int, SupervisedRun] = {}
        # Removed outputs that others still have open, by the number of the file.
        self._left: dict[int, LeftOutput] = {}
        # When outputs are looked at next (those that are left have negative numbers), and ends that could
        # not be recorded are written again.
        self._looks: list[tuple[float, int]] = []
        self._unwritten: list[tuple[float, SupervisedRun]] = []
        self._poll = select.poll()
        self._pipes: dict[int, SupervisedRun] = {}
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
        while self._channel is not None or self._runs or self._recorders or self._unwritten or self._left:
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

    def _reply(self, request: Request, answer: Record, names: tuple[str, ...] = ()) -> None:
        """Answer a request, with all fields of an answer or some."""
        if self._channel is not None:
            chosen = {name: answer[name] for name in names} if names else {**answer}
            chosen["id"] = request["id"]
            self._replies += encoded(chosen)

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
            record = create_record(place, {"state": STARTING, **me})
        except OSError as error:
            self._reply(request, {"exists": True} if error.errno == errno.EEXIST else _fault(error))
            return
        fault_pipe = None
        try:
            pid, fault_pipe = self._spawn(request)
        except (OSError, LookupError, ValueError) as error:
            self._refuse(request, _fault(error))
        else:
            running: Record = {"state": RUNNING, "pid": pid, "started": started_of(pid), **me}
            with contextlib.suppress(OSError):
                write_record(record, running)
            kept = {name: request.get(name) for name in KEPT}
            run = self._runs[pid] = SupervisedRun(kept, running, pid, fault_pipe)
            if fault_pipe is None:
                self._reply(request, running, STARTED)
            else:
                self._pipes[fault_pipe] = run
                self._poll.register(fault_pipe, select.POLLIN)
            if is_captured(request):
                heapq.heappush(self._looks, (_now() + LOOK_S, pid))
        finally:
            os.close(record)

    def _spawn(self, request: Request) -> tuple[int, int | None]:
        """Start a command; return its number, and where a forked child says that it could not start."""
        env = {**self._env, **strings_of(request["env"])}
        if is_plain(request):
            return spawn_plain(request, env, self._home), None
        read, write = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if pid == 0:
            self._leave()
            try:
                become(request, env)
            except BaseException as error:  # noqa: BLE001 - reported to the parent
                reason = _fault(error if isinstance(error, Exception) else OSError(str(error)))
                with open(write, "wb") as pipe:
                    pipe.write(json.dumps(reason).encode())
            os._exit(127)
        os.close(write)
        return pid, read

    def _leave(self) -> None:
        """In a forked child: close what tells others whether the supervisor lives."""
        signal.set_wakeup_fd(-1)
        if self._channel is not None:
            self._channel.close()
            os.close(self._lock)

    def _refuse(self, request: Request, fault: Record) -> None:
        """Say why a command was not started; its run may be started again."""
        if self._channel is None:
            # Only its record tells the next krond, which may watch the run already.
            record = read_record(str(request["record"])) or {}
            record_end(request, {**record, "state": "ended", "error": fault["error"]})
            return
        for path in (str(request["record"]), str(request["output"])):
            with contextlib.suppress(OSError):
                os.unlink(path)
        self._reply(request, fault)

    def _on_fault_pipe(self, run: SupervisedRun) -> None:
        """Reply for a forked child: it has become its command, or says why it could not."""
        pipe, run.fault_pipe = run.fault_pipe, None
        assert pipe is not None
        self._poll.unregister(pipe)
        del self._pipes[pipe]
        with open(pipe, "rb") as file:
            fault = file.read()
        if not fault:
            self._reply(run.request, run.record, STARTED)
            return
        self._runs.pop(run.pid, None)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(run.pid, 0)
        self._refuse(run.request, _read_fault(fault))

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
                self._reply(recorder.request, recorder.record, ENDED)
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

    def _on_end(self, run: SupervisedRun, end: Record) -> None:
        if run.fault_pipe is not None:
            self._on_fault_pipe(run)
        if self._runs.pop(run.pid, None) is None:
            # It never became its command.
            return
        run.record = {**run.record, **end}
        if is_captured(run.request) and (file := left_open(run.output)) is not None:
            self._left[file] = LeftOutput()
            heapq.heappush(self._looks, (_now() + LOOK_S, -file))
        if min(size_of(run.output), run.max_output) < LARGE_OUTPUT:
            self._record_end(run)
            return
        try:
            pid = os.fork()
        except OSError:
            # The host has no room for a process: the others wait for this one.
            self._record_end(run)
            return
        if pid == 0:
            self._leave()
            with contextlib.suppress(BaseException):
                for _ in range(WRITE_TRIES):
                    if record_end(run.request, run.record):
                        break
                    time.sleep(WRITE_PAUSE_S)
            os._exit(0)
        self._recorders[pid] = run

    def _record_end(self, run: SupervisedRun) -> None:
        """Record an end and tell krond; where it cannot be recorded yet, krond knows it all the same."""
        is_recorded = record_end(run.request, run.record)
        if not run.failed_writes:
            self._reply(run.request, run.record, ENDED)
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
            if pid < 0:
                self._look_at_left(-pid, now)
                continue
            run = self._runs.get(pid)
            if run is None:
                continue
            size = size_of(run.output)
            run.pause = LOOK_S if size > run.known else min(2 * run.pause, MAX_LOOK_S)
            run.known = size
            run.trimmed = trim(run.output, run.max_output, run.trimmed, size)
            heapq.heappush(self._looks, (now + run.pause, pid))

    def _look_at_left(self, file: int, now: float) -> None:
        """Empty a removed output that still grows: its space is used, and no one can read it."""
        left = self._left[file]
        if not is_shared(file):
            del self._left[file]
            os.close(file)
            return
        size = os.fstat(file).st_size
        left.pause = LOOK_S if size > left.known else min(2 * left.pause, MAX_LOOK_S)
        left.known = size
        if size > SLACK:
            left.known = 0
            with contextlib.suppress(OSError):
                os.ftruncate(file, 0)
        heapq.heappush(self._looks, (now + left.pause, -file))


def main(channel_number: int, lock: int) -> None:
    """Supervise the runs that are requested over a socket."""
    # SIGIO: another process opens an output for which this one asks a lease.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGIO):
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
        return {"errno": error.errno or 0, "error": f"{error.strerror or error}{place}"[:MAX_FAULT]}
    return {"error": (str(error.args[0]) if error.args else str(error))[:MAX_FAULT]}


def _read_fault(text: bytes) -> Record:
    """Return what a forked child has written; one that was killed may have written a part."""
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"error": "the process that prepares the command was killed"}
