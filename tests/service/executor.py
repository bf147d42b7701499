"""An executor on loopback: it accepts every start unless told otherwise, and remembers what it was sent."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """One request: its headers in lower case, and its document."""

    headers: dict[str, str]
    document: dict[str, object]
    body: bytes

    @property
    def key(self) -> str:
        """Return the run's key."""
        return self.headers["idempotency-key"]


class Executor:
    """Where runs are started."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.url = ""
        self.status, self.answer = 202, ""
        # Keys whose starts are answered with 503.
        self.refused: set[str] = set()
        # Keys whose next connection ends without an answer, and keys that came over a kept connection.
        self.cut: set[str] = set()
        self.kept: set[str] = set()

    def keys(self) -> list[str]:
        """Return the keys of the starts, in the order in which they came."""
        return [str(sent.document["idempotency_key"]) for sent in list(self.sent)]


@contextmanager
def executing(look: Callable[[str], None] = lambda key: None) -> Iterator[Executor]:
    """Run an executor; it looks at each key before it answers."""
    executor = Executor()

    class Handler(BaseHTTPRequestHandler):
        # Connections are kept as long as the server runs.
        protocol_version = "HTTP/1.1"
        is_kept = False

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            document = json.loads(body)
            key = str(document.get("idempotency_key"))
            if self.is_kept:
                executor.kept.add(key)
            self.is_kept = True
            look(key)
            executor.sent.append(Sent(headers, document, body))
            if key in executor.cut:
                executor.cut.remove(key)
                self.close_connection = True
                return
            answer = executor.answer.encode()
            self.send_response(503 if key in executor.refused else executor.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        # Threads of kept connections are not waited for.
        daemon_threads = True
        # With the default of five, more connections at once would wait a second for their next attempt.
        request_queue_size = 128

        def handle_error(self, *where: Any) -> None:
            """Print errors, except that a client is gone."""
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(*where)

    with Server(("127.0.0.1", 0), Handler) as server:
        executor.url = f"http://127.0.0.1:{server.server_address[1]}/start"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield executor
        finally:
            server.shutdown()
            thread.join()
