"""Connections over real sockets: what one too many is answered."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from kron.fronts.service.auth.tls import protocol_with
from kron.fronts.service.http_server import listen, server_of
from kron.fronts.service.security import ServerOptions
from tests.service.auth.authority import Authority
from tests.service.server import process
from tests.waiting import PATIENCE_S, wait_for


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
def serving(app: ASGIApp, options: ServerOptions | None = None) -> Iterator[int]:
    """A server, by default of at most two connections, and its port."""
    with listen("127.0.0.1", 0) as listening:
        server = server_of(
            app, options or {"http": protocol_with(PATIENCE_S, max_connections=2), "ws": "none"}
        )
        thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)


async def empty(_scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer nothing."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def test_connections_without_a_request_count_too() -> None:
    with serving(empty) as port, connected(port, 2) as idle:
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


# --- over TLS --------------------------------------------------------------------------------------------

# Connections that never begin their handshake, more than may be open.
SILENT = 2_000


def secured(connection: socket.socket, authority: Authority) -> ssl.SSLSocket:
    """Return a connection with TLS."""
    trusted = ssl.create_default_context(cafile=str(authority.path))
    return trusted.wrap_socket(connection, server_hostname="localhost")


def options_of(authority: Authority, patience_s: float) -> ServerOptions:
    """Return the options of a server with TLS, from whose third connection on idle ones make room."""
    certificate, key = authority.certificate("server")
    protocol = protocol_with(patience_s, max_connections=3, max_open=2)
    return {"http": protocol, "ws": "none", "ssl_certfile": certificate, "ssl_keyfile": key}


def test_an_unfinished_handshake_makes_room(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with serving(empty, options_of(authority, PATIENCE_S)) as port, ExitStack() as stack:
        silent = [stack.enter_context(connected_to(port)) for _ in range(3)]
        assert silent[0].recv(1) == b""
        with secured(connected_to(port), authority) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 204"
            assert silent[1].recv(1) == b""
            silent[2].setblocking(False)
            with pytest.raises(BlockingIOError):
                silent[2].recv(1)


def test_an_unfinished_handshake_is_given_up(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with (
        serving(empty, options_of(authority, patience_s=0.2)) as port,
        connected_to(port) as silent,
    ):
        # asyncio itself waits a minute.
        silent.settimeout(PATIENCE_S / 2)
        assert silent.recv(1) == b""


def connected_to(port: int) -> socket.socket:
    """Return a connection."""
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


@pytest.mark.slow
def test_thousands_of_unfinished_handshakes_take_little_memory_and_stop_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.certificate("server")
    files = {"KRON_TLS_CERTIFICATE": certificate, "KRON_TLS_KEY": key, "KRON_STORE": "sqlite:///kron.db"}
    with process("serve", "--port", "0", folder=tmp_path, **files) as server, ExitStack() as stack:
        port = int(server.logged(r"serving on https://[\w.]+:(\d+)")[1])
        before = server.memory_bytes
        for _ in range(SILENT):
            stack.enter_context(connected_to(port))
        with secured(connected_to(port), authority) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        files_of = Path(f"/proc/{server.pid}/fd")
        wait_for(lambda: len(list(files_of.iterdir())) < 1_000)
        # With buffers of asyncio's size those that are open would take 280 MiB.
        assert server.memory_bytes - before < 160 * 1024 * 1024
