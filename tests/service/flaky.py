"""An executor on loopback that follows a script: it fails, hangs, resets and lies before it accepts."""

import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import NamedTuple


class Sent(NamedTuple):
    """One request as it came: where to, its headers in lower case, and its body."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, object]:
        """Return the body, read."""
        found: dict[str, object] = json.loads(self.body)
        return found

    def part(self, name: str) -> dict[str, object]:
        """Return the DAG or the meta data."""
        found = self.document[name]
        assert isinstance(found, dict)
        return found


class Flaky:
    """What was sent, and what is still to go wrong; without a script everything is accepted."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.script: list[str] = []
        self.over = Event()
        self.port = 0

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.port}/run"


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_POST(self) -> None:
        executor = self.server.executor
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        executor.sent.append(Sent(self.path, headers, body))
        self._act(executor.script.pop(0) if executor.script else "accept", executor)

    def _act(self, what: str, executor: Flaky) -> None:
        match what:
            case "hang":
                executor.over.wait(60)
                self.close_connection = True
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
            case "redirect":
                self._answer(307, b"", f"http://127.0.0.1:{executor.port}/elsewhere")
            case "garbage":
                self._answer(200, b"\xff<html>no JSON at all")
            case "accept":
                self._answer(202, b'{"run_id": "r-1"}')
            case status:
                self._answer(int(status), b"not now")

    def _answer(self, status: int, body: bytes, location: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if location is not None:
            self.send_header("Location", location)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass

    def finish(self) -> None:
        with suppress(OSError, ValueError):  # a connection that was reset
            super().finish()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, executor: Flaky) -> None:
        self.executor = executor
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_: object) -> None:
        """Say nothing: connections are meant to break here."""


@contextmanager
def flaky() -> Iterator[Flaky]:
    """Run a flaky executor."""
    executor = Flaky()
    with _Server(executor) as server:
        executor.port = int(server.server_address[1])
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield executor
        finally:
            executor.over.set()
            server.shutdown()
            thread.join()
