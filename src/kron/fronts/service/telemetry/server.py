"""Listening: sockets and servers that leave signals to whoever runs them."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from kron.core.errors import InvalidOptionError
from kron.fronts.service.security import ServerOptions

# How long a stop waits for requests under way, in seconds.
REQUESTS_S = 5
BUSY = "something else listens there; stop it, or take another port: --port 8081, or --port 0 for a free one"
PLAIN: ServerOptions = {"ws": "none"}


class Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or raise if it cannot."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as cause:
        reason = BUSY if cause.errno == errno.EADDRINUSE else str(cause)
        raise InvalidOptionError(option="address", value=f"{host}:{port}", reason=reason) from cause
    # Connections inherit it. Without it each answer waits 40 ms for the caller to acknowledge its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def server_of(app: ASGIApp, told: ServerOptions = PLAIN) -> Server:
    """Return a server of an application."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=REQUESTS_S,
        **told,
    )
    return Server(config)


def address_of(host: str, listening: socket.socket, *, scheme: str = "http") -> str:
    """Return where a socket can be reached."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
