"""An executor that outlives all workers and honours idempotency keys: an HTTP server."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.faults.ledger import Ledger, Line


class Executor:
    """Records every delivery, and an execution for the first of each key and attempt."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: set[tuple[str, int]] = set()
        self._turn = threading.Lock()
        # The offset of the workers' clocks.
        self.ahead_ms = 0

    def take(self, identity: str, key: str, attempt: int, token: int) -> None:
        """Run a delivery, unless it is a duplicate."""
        with self._turn:
            line = Line(
                "delivered", identity, key, attempt, token, time.time_ns() // 1_000_000 + self.ahead_ms
            )
            self._ledger.write(line)
            if (key, attempt) not in self._known:
                self._known.add((key, attempt))
                self._ledger.write(line._replace(what="begin"))


@contextmanager
def serving(executor: Executor) -> Iterator[str]:
    """Serve on the loopback interface; yield the URL, to which a job's identity is added."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            attempt, token = int(self.headers["Kron-Attempt"]), int(self.headers["Kron-Fencing-Token"])
            executor.take(self.path[1:], self.headers["Idempotency-Key"], attempt, token)
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
