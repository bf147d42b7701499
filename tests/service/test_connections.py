"""Connections over real sockets: what one too many is answered."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from kron.fronts.service.auth.tls import protocol_with
from kron.fronts.service.http_server import listen, server_of
from tests.waiting import PATIENCE_S


@contextmanager
def connected(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections with a request in progress each."""
    connections = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) for _ in range(count)]
    try:
        for connection in connections:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        yield connections
    finally:
        for connection in connections:
            connection.close()


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    """A server of at most two connections, and its port."""
    with listen("127.0.0.1", 0) as listening:
        server = server_of(app, {"http": protocol_with(PATIENCE_S, max_connections=2), "ws": "none"})
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


def test_connections_without_a_request_count_too() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with serving(app) as port, connected(port, 2) as idle:
        assert [each.recv(12) for each in idle] == [b"HTTP/1.1 204"] * 2
        with connected(port, 1) as (refused,):
            assert refused.recv(12) == b"HTTP/1.1 503"


def test_the_answer_over_one_connection_too_many_has_the_security_headers() -> None:
    released, received = threading.Event(), threading.Semaphore(0)

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        received.release()
        await asyncio.to_thread(released.wait, PATIENCE_S)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    with serving(app) as port, connected(port, 2):
        # A request is refused by the connections that are open when it is read.
        assert received.acquire(timeout=PATIENCE_S)
        assert received.acquire(timeout=PATIENCE_S)
        with connected(port, 1) as (refused,):
            head, _, body = refused.makefile("rb").read().decode().partition("\r\n\r\n")
        released.set()
    assert head.startswith("HTTP/1.1 503 ")
    names = {line.partition(":")[0].lower(): line.partition(": ")[2] for line in head.split("\r\n")[1:]}
    assert (names["x-content-type-options"], names["cache-control"]) == ("nosniff", "no-store")
    assert (names["connection"], names["retry-after"], body) == ("close", "1", "too many connections")
