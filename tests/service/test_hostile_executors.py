"""Executors that answer as no honest server does: their own starts fail, and the worker has little work."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.service.server import serving

pytestmark = pytest.mark.slow


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve connections with a function, and give the URL."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    stack.callback(connection.close)
                    threading.Thread(target=answered, args=(connection,), daemon=True).start()

        def answered(connection: socket.socket) -> None:
            with suppress(OSError):
                connection.recv(65_536)
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        stack.callback(listening.shutdown, socket.SHUT_RDWR)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"


def test_informational_responses_without_an_end_are_given_up(tmp_path: Path) -> None:
    def answer(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)

    with answering(answer) as url, serving(tmp_path, KRON_DRAIN_MS="0") as (client, server):
        # Not given up by its time, which is longer than the test: the worker would read for an hour.
        launcher = {"kind": "http", "url": url, "timeout": "1h"}
        document = {"schedule_id": "endless", "cron_expr": "0 0 1 1 *", "timezone": "UTC"}
        client.post("/schedules/upsert", json={**document, "launcher": launcher}).raise_for_status()
        client.post("/schedules/endless/run").raise_for_status()
        server.logged("the head of the response does not end; retrying")
