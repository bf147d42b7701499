"""The supervisors of one krond: started for work, replaced when they end, passed over while they hang."""

import asyncio
import fcntl
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import sleep

import kron
from kron.launchers.process import supervisor
from kron.launchers.process.supervisor.message import encoded, take_message
from kron.launchers.process.supervisor.record import Record

_log = logging.getLogger("kron.launchers")

# The file that supervisors lock until they have read all requests of their owner.
SUPERVISOR_LOCK = "supervisor.lock"
# How long a start waits until the supervisors of an earlier owner have their records, in seconds.
LOCK_S, LOCK_PAUSE_S = 10.0, 0.005
# A program that has not replied for so long, in seconds, gets no more starts: it may wait for another host.
STUCK_S = 15.0
# The pending starts of a program from which on another one is started, the most programs,
# and how long an idle one stays, in seconds.
MANY_STARTS, MAX_PROGRAMS, IDLE_S = 16, 4, 30.0
# How many bytes of replies are read at once.
REPLIES_SIZE = 65_536
# What a supervisor runs: the program, and the folder in which it finds Kron.
PROGRAM = str(Path(supervisor.__path__[0]) / "__main__.py")
HOME = str(Path(kron.__path__[0]).parent)

OnReply = Callable[[Record | None], None]


class SupervisorPool:
    """Starts supervised processes through small programs, which wait for them and outlive their owner.

    The first program is started with the first process, further ones while many starts wait, because one
    program can do nothing while it starts a process. `env` are the variables that all processes inherit.
    One that has ended is replaced; one that does not reply keeps its processes and gets no more.
    """

    def __init__(self, folder: str) -> None:
        self._lock = f"{folder}/{SUPERVISOR_LOCK}"
        self._programs: list[SupervisorProgram] = []
        # Programs that were closed and may not have ended yet.
        self._left: list[subprocess.Popen[bytes]] = []
        self._closer: asyncio.TimerHandle | None = None
        self.stuck_s = STUCK_S
        self.env: Mapping[str, str] = {}

    def open(self) -> None:
        """Start a program, once the runs that an earlier owner requested have their records."""
        if not self._programs:
            self._open()

    def _open(self) -> "SupervisorProgram":
        self._reap()
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

    def start(self, request: Record, on_reply: OnReply, on_end: OnReply) -> None:
        """Start a supervised process; the replies come later: started, then ended, None if none will come.

        Starts do not wait for each other, so a burst takes the time of its work, not of its round trips.
        """
        self._next_program().start(request, on_reply, on_end)
        if self._closer is None and len(self._programs) > 1:
            self._closer = asyncio.get_running_loop().call_later(IDLE_S, self.close_idle)

    def _next_program(self) -> "SupervisorProgram":
        """Return the program with the fewest pending starts, perhaps a new one."""
        self._left += [program.program for program in self._programs if not program.is_open]
        self._programs = [program for program in self._programs if program.is_open]
        able = [program for program in self._programs if program.silent_s <= self.stuck_s]
        least = min(able, key=lambda program: program.waiting, default=None)
        if least is None or (least.waiting >= MANY_STARTS and len(able) < MAX_PROGRAMS):
            return self._open()
        return least

    def close_idle(self) -> None:
        """Close all programs but one that have no processes; they end then."""
        self._closer = None
        for program in [program for program in self._programs if program.is_idle]:
            if len(self._programs) > 1:
                self._programs.remove(program)
                self._leave(program)
        self._reap()
        if len(self._programs) > 1:
            self._closer = asyncio.get_running_loop().call_later(IDLE_S, self.close_idle)

    def close(self) -> None:
        """Leave the programs, which end with their last process."""
        if self._closer is not None:
            self._closer.cancel()
            self._closer = None
        for program in self._programs:
            self._leave(program)
        self._programs = []
        self._reap()
        for left in self._left:
            # `Popen` would otherwise warn that it still runs.
            left.returncode = 0
        self._left = []

    def _leave(self, program: "SupervisorProgram") -> None:
        program.close()
        self._left.append(program.program)

    def _reap(self) -> None:
        """Wait for the programs that have ended; one may have an end to record, or processes of its own."""
        self._left = [program for program in self._left if program.poll() is None]


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


class SupervisorProgram:
    """One running supervisor, as its owner sees it."""

    def __init__(self, lock: int, env: Mapping[str, str]) -> None:
        self._unsent, self._replies = bytearray(), bytearray()
        self._started: dict[int, OnReply] = {}
        self._ended: dict[int, OnReply] = {}
        self._number = 0
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = (theirs.fileno(), lock)
            argv = [sys.executable, "-I", "-S", PROGRAM, HOME, *map(str, numbers)]
            # The program is Kron's own.
            self.program = subprocess.Popen(  # noqa: S603
                argv, stdin=subprocess.DEVNULL, pass_fds=numbers, start_new_session=True
            )
        self.pid = self.program.pid
        self._channel: socket.socket | None = ours
        ours.setblocking(False)
        loop = self._loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._on_readable)
        self._heard_at = loop.time()
        self._send({"base_env": dict(env)})

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
        """Return whether it has neither pending starts nor running processes."""
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
        """Send a message with all others of this iteration of the event loop."""
        if not self._unsent:
            self._loop.call_soon(self._on_writable)
        self._unsent += encoded(message)

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
        while (reply := take_message(self._replies)) is not None:
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
        """Tell every caller that waits for a reply that it will not come."""
        waiting = [*self._started.values(), *self._ended.values()]
        self._started, self._ended = {}, {}
        self.close()
        for call in waiting:
            call(None)

    def close(self) -> None:
        """Close the socket: the program ends with its last process."""
        # Requests of this iteration of the event loop have not been sent yet.
        self._on_writable()
        if self._channel is not None:
            self._loop.remove_reader(self._channel.fileno())
            self._loop.remove_writer(self._channel.fileno())
            self._channel.close()
            self._channel = None
