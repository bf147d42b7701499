"""The HTTP servers of the service: listening sockets, and servers that leave signals to their process."""

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from kron.core.errors import InvalidOptionError
from kron.fronts.service.api.middleware import with_security_headers
from kron.fronts.service.auth.handshake import encrypting
from kron.fronts.service.auth.tls import TimeoutProtocol
from kron.fronts.service.security import ServerOptions

# How long a stop waits for the requests in progress, in seconds.
SHUTDOWN_S = 5
ADDRESS_IN_USE = (
    "another process listens there; stop it, or use another port: --port 8081, or --port 0 for a free one"
)
PLAIN_HTTP: ServerOptions = {"ws": "none"}


class Server(uvicorn.Server):
    """A server that leaves signals to its process.

    At its end it calls `on_shutdown`, before it waits for the responses in progress.
    """

    on_shutdown: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections; their protocol encrypts them, not the listening sockets."""
        protocol, context = self.config.http_protocol_class, self.config.ssl
        if context is not None and issubclass(protocol, TimeoutProtocol):
            self.config.http_protocol_class = encrypting(protocol, context)
            self.config.ssl = None
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, once the responses in progress are sent."""
        if self.on_shutdown is not None:
            self.on_shutdown()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise if the address cannot be used."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as cause:
        reason = ADDRESS_IN_USE if cause.errno == errno.EADDRINUSE else str(cause)
        raise InvalidOptionError(option="address", value=f"{host}:{port}", reason=reason) from cause
    # Connections inherit it. Without it each response waits 40 ms for the client to acknowledge its headers.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def server_of(app: ASGIApp, options: ServerOptions = PLAIN_HTTP) -> Server:
    """Return the server of an application."""
    config = uvicorn.Config(
        with_security_headers(app),
        log_config=None,
        access_log=False,
        # Any host could fill a disk with warnings of requests that are none.
        log_level="error",
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_S,
        **options,
    )
    return Server(config)


def url_of(host: str, listening: socket.socket, *, scheme: str = "http") -> str:
    """Return the URL of a listening socket."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
