"""An executor in a separate process: it honours idempotency keys, and sometimes refuses, delays or hangs up.

Run as `python -m tests.chaos.executor LEDGER SEED API`; it prints its port. Runs of schedules whose names
start with `reports` are reported to the API, with retries.
"""

import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from random import Random
from typing import NamedTuple

import httpx

from tests.chaos.delivery import Answer, Delivery
from tests.chaos.story import now_ms

REPORTS = "reports"
# The delay of some responses; some connections end without one, after longer than a lease.
SLOW_S, HELD_S = 0.2, 7.0
# The pause before a report is retried.
AGAIN_S = 0.2
# The statuses of a report that is settled.
SETTLED = frozenset({200, 404, 409})


class Manner(NamedTuple):
    """The treatment of a delivery: whether it runs, the delay of the response, and its status."""

    runs: bool
    wait_s: float
    status: int | None
    answer: Answer


ACCEPTED = Manner(True, 0.0, 202, Answer.ACCEPTED)
MANNERS = {
    ACCEPTED: 77,
    Manner(True, SLOW_S, 202, Answer.ACCEPTED): 4,
    Manner(False, 0.0, 500, Answer.REFUSED): 6,
    Manner(False, 0.0, None, Answer.REFUSED): 4,
    Manner(True, 0.0, None, Answer.LOST): 5,
    Manner(True, SLOW_S, None, Answer.LOST): 1,
    Manner(True, 0.0, 503, Answer.LOST): 2,
    Manner(True, HELD_S, None, Answer.LOST): 1,
}


class Executor:
    """Runs each key once, and writes a line for each delivery before it is answered."""

    def __init__(self, path: str, seed: str, api: str) -> None:
        self._ledger = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._seed = seed
        self._api = api
        self._numbers = count()
        self._run: set[str] = set()
        self._turn = threading.Lock()
        self._reports: deque[tuple[str, int]] = deque()

    def take(self, identity: str, headers: Mapping[str, str]) -> Manner:
        """Run a delivery, unless it is a duplicate or refused."""
        with self._turn:
            manner = self._manner()
            self._note(identity, headers, manner)
        return manner

    def _manner(self) -> Manner:
        chance = Random(f"{self._seed} {next(self._numbers)}")
        (manner,) = chance.choices(list(MANNERS), list(MANNERS.values()))
        return manner

    def _note(self, identity: str, headers: Mapping[str, str], manner: Manner) -> None:
        key, attempt = headers["Idempotency-Key"], int(headers["Kron-Attempt"])
        token, sent_at = int(headers["Kron-Fencing-Token"]), int(headers["Kron-Timestamp"])
        ran = manner.runs and key not in self._run
        line = Delivery(identity, key, attempt, token, now_ms(), sent_at, ran, manner.answer)
        os.write(self._ledger, f"{json.dumps(line)}\n".encode())
        if ran:
            self._run.add(key)
            if identity.startswith(REPORTS):
                self._reports.append((key, attempt))

    def report(self) -> None:
        """Report runs until killed."""
        with httpx.Client(timeout=5, trust_env=False) as client:
            while True:
                key, attempt = self._reports.popleft() if self._reports else ("", 0)
                if not key or not self._is_told(client, key):
                    time.sleep(AGAIN_S)
                    if key:
                        self._reports.append((key, attempt))

    def _is_told(self, client: httpx.Client, key: str) -> bool:
        try:
            answer = client.post(f"{self._api}/runs/{key}/status", json={"status": "SUCCESS"})
        except httpx.HTTPError:
            return False
        return answer.status_code in SETTLED


def handler_of(executor: Executor) -> type[BaseHTTPRequestHandler]:
    """Return the request handler."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            manner = executor.take(document["identity"], dict(self.headers))
            time.sleep(manner.wait_s)
            if manner.status is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(manner.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    return Handler


class Server(ThreadingHTTPServer):
    """A server that takes many calls at once, and does not mind when a caller is killed."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Ignore errors: callers are killed all the time."""


def main(path: str, seed: str, api: str) -> None:
    """Serve until killed."""
    executor = Executor(path, seed, api)
    threading.Thread(target=executor.report, daemon=True).start()
    server = Server(("127.0.0.1", 0), handler_of(executor))
    print(server.server_port, flush=True)  # noqa: T201 - the parent process reads it
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
