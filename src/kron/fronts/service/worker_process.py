"""The worker in a process apart from the API: how it is started, told to stop, asked and missed.

Both halves talk over a socket pair, one JSON object per line. Neither waits for the other without a timeout:
a wake that cannot be sent is dropped, because the worker polls the store in any case.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from itertools import count

from kron.app.worker import Worker
from kron.core.errors import KronError
from kron.telemetry.log_format import apply_log_level

_log = logging.getLogger("kron.service")
# How long the API waits for an answer of the worker, in seconds.
ANSWER_S = 2.0
# Unsent bytes from which on wakes are dropped, and the longest line: the metrics of a worker.
MAX_UNSENT, MAX_LINE = 65_536, 1 << 24
# Linux: the signal that a process gets when its parent dies.
PR_SET_PDEATHSIG = 1
# The exit codes of a worker that failed, and of one whose API is gone.
FAILED, ORPHANED = 1, 3

Message = dict[str, object]
Status = tuple[str | None, str | None]


# --- the API's half ------------------------------------------------------------------------------------


class WorkerProcess:
    """The worker's process as the API sees it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None
        self._questions: dict[int, asyncio.Future[Message]] = {}
        self._numbers = count(1)
        self._code: int | None = None
        # The error of a worker that failed.
        self.error: str | None = None

    async def open(self) -> None:
        """Connect to the worker; it waits for `start`."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=MAX_LINE)
        self._listening = asyncio.create_task(self._listen(reader), name="kron worker process")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message: Message = json.loads(line)
                if "failed" in message:
                    self.error = str(message["failed"])
                question = self._questions.pop(int(str(message.get("answer", 0))), None)
                if question is not None and not question.done():
                    question.set_result(message)
        except ConnectionError:
            pass
        # The socket is closed, so the process has ended or is about to.
        self._code = os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, self.pid, 0))[1])

    def _send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def start(self) -> None:
        """Start the worker."""
        self._send({"do": "start"})

    def call(self, at: int | None = None) -> None:
        """Wake the worker: a job was changed, and nothing of it is due before `at`, None: now."""
        if self._writer is not None and self._writer.transport.get_write_buffer_size() < MAX_UNSENT:
            self._send({"do": "wake", "at": at})

    def leave(self) -> None:
        """Stop the worker once its running executions have ended, within the drain timeout."""
        self._send({"do": "stop"})

    def set_log_level(self, level: str) -> None:
        """Change the worker's log level."""
        self._send({"do": "log_level", "level": level})

    async def status(self) -> Status:
        """Return the worker's state and its error."""
        if self._code is not None:
            return "ended", self.error or f"the worker's process ended with {self._code}"
        answer = await self._ask("status")
        if answer is None:
            return "unresponsive", f"the worker's process has not answered for {ANSWER_S:g} s"
        state, error = answer.get("state"), answer.get("error")
        return None if state is None else str(state), None if error is None else str(error)

    async def metrics(self) -> str | None:
        """Return the worker's metrics as text; None if it does not answer."""
        answer = await self._ask("metrics")
        return None if answer is None else str(answer.get("text"))

    async def _ask(self, what: str) -> Message | None:
        if self._code is not None:
            return None
        number = next(self._numbers)
        question: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._questions[number] = question
        self._send({"do": what, "number": number})
        try:
            async with asyncio.timeout(ANSWER_S):
                return await question
        except TimeoutError:
            return None
        finally:
            self._questions.pop(number, None)

    async def ended(self) -> int:
        """Wait until the process has ended, and return its exit code; a signal's is negative."""
        assert self._listening is not None, "opened"
        await asyncio.shield(self._listening)
        assert self._code is not None, "the process has ended"
        return self._code

    def close(self) -> None:
        """End the process at once, if it has not ended."""
        self._channel.close()
        if self._code is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass


# --- the worker's half ---------------------------------------------------------------------------------


def fork_worker(run: Callable[[socket.socket], None], *, close: Iterable[socket.socket]) -> WorkerProcess:
    """Start `run` in a new process that ends with this one; it does not keep the sockets in `close`.

    It has to be called before this process starts threads or an event loop.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        return WorkerProcess(pid, ours)
    code = FAILED
    try:
        for each in (ours, *close):
            each.close()
        _end_with(parent)
        # Ctrl-C goes to both processes, and the API stops the worker. A function, because programs that the
        # worker starts would inherit an ignored signal.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: None)
        run(theirs)
        code = 0
    except KronError as error:
        _log.error("%s", error)
    except BaseException:  # noqa: BLE001 - the copy of the API's call stack must not go on
        _log.exception("the worker's process failed")
    finally:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)


def _end_with(parent: int) -> None:
    """Let the operating system kill this process when its parent dies; where it cannot, the socket tells."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(ORPHANED)


async def run_attended(
    channel: socket.socket, worker: Worker, scrape: Callable[[], Awaitable[bytes]]
) -> None:
    """Run a worker as the API tells it to; when the API's process is gone, end at once as a crash would."""
    reader, writer = await asyncio.open_connection(sock=channel)
    attendant = _Attendant(worker, scrape, writer)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, attendant.leave)
    attending = asyncio.create_task(attendant.attend(reader), name="kron api")
    await attendant.started.wait()
    try:
        await worker.run()
    except KronError as error:
        attendant.send({"failed": str(error)})
        await writer.drain()
        raise
    finally:
        attending.cancel()


class _Attendant:
    """Carries out the messages of the API's process."""

    def __init__(
        self, worker: Worker, scrape: Callable[[], Awaitable[bytes]], writer: asyncio.StreamWriter
    ) -> None:
        self._worker = worker
        self._scrape = scrape
        self._writer = writer
        self._answering: set[asyncio.Task[None]] = set()
        self.started = asyncio.Event()

    def send(self, message: Message) -> None:
        """Send a message to the API."""
        self._writer.write(json.dumps(message).encode() + b"\n")

    def leave(self) -> None:
        """Stop the worker, even before it has started."""
        self._worker.leave()
        self.started.set()

    async def attend(self, reader: asyncio.StreamReader) -> None:
        """Carry out messages until the API's process ends."""
        try:
            while line := await reader.readline():
                self._carry_out(json.loads(line))
        except ConnectionError:
            pass
        os._exit(ORPHANED)

    def _carry_out(self, message: Message) -> None:
        match message["do"]:
            case "start":
                self.started.set()
            case "wake":
                at = message["at"]
                self._worker.call(at if isinstance(at, int) else None)
            case "stop":
                self.leave()
            case "log_level":
                apply_log_level(str(message["level"]))
            case "status":
                state, error = self._worker.state, self._worker.error
                self.send({"answer": message["number"], "state": state, "error": error})
            case _:
                task = asyncio.create_task(self._answer_metrics(message["number"]))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _answer_metrics(self, number: object) -> None:
        self.send({"answer": number, "text": (await self._scrape()).decode()})
