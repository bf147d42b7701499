"""One connection to whoever runs executions: a request, its answer, and perhaps the next request."""

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from kron.launchers.http.response import BadAnswerError, Response


class Origin(NamedTuple):
    """Whom a connection is for. What is `trusted` may be asked wherever it is; nobody else uses that."""

    scheme: str
    host: str
    port: int
    trusted: bool = False


class ConnectError(OSError):
    """No connection came about."""


class ConnectTimeoutError(ConnectError):
    """No connection came about in time."""


class LostError(OSError):
    """A connection ended before its answer did; `untouched` if nothing of an answer had come."""

    def __init__(self, message: str, *, untouched: bool) -> None:
        super().__init__(message)
        self.untouched = untouched


class Connection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._transport: asyncio.Transport | None = None
        self._answer: Response | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._has_heard = False
        self.is_open = False
        # Told when the connection has ended.
        self.on_end: Callable[[Connection], None] | None = None

    async def ask(self, request: bytes) -> Response:
        """Send a request; return its answer when its head has come."""
        assert self._transport is not None
        answer = self._answer = Response()
        self._has_heard = False
        self._transport.write(request)
        await self._wait()
        return answer

    async def rest_of(self, answer: Response) -> None:
        """Wait for the rest of an answer."""
        while not answer.is_over:  # what is lost raises
            await self._wait()

    async def _wait(self) -> None:
        if not self.is_open:
            raise LostError("the connection is closed", untouched=not self._has_heard)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            # What comes now belongs to a request nobody waits for.
            self.close()
            raise

    def close(self) -> None:
        """End the connection at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # --- what the event loop calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        self._transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        """Read what came of an answer; whatever comes without a request is no answer."""
        answer, self._has_heard = self._answer, True
        if answer is None or answer.is_over:
            self.close()
            return
        try:
            answer.feed(data)
        except BadAnswerError as error:
            self._fail(error)
            self.close()
            return
        if answer.status:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end, whoever wanted it."""
        self.is_open = False
        if self._answer is not None and exc is None and self._answer.close():
            self._wake()
        else:
            reason = "the other side closed the connection" if exc is None else str(exc)
            self._fail(LostError(reason, untouched=not self._has_heard))
        if self.on_end is not None:
            self.on_end(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: OSError) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


async def connect(address: str, origin: Origin, *, tls: ssl.SSLContext | None, seconds: float) -> Connection:
    """Connect to an address; over TLS the server has to prove that it is the host of the origin."""
    loop = asyncio.get_running_loop()
    name = None if tls is None else origin.host
    try:
        async with asyncio.timeout(seconds):
            _, connection = await loop.create_connection(
                partial(Connection, origin), address, origin.port, ssl=tls, server_hostname=name
            )
    except TimeoutError as cause:
        raise ConnectTimeoutError("no connection in time") from cause
    except OSError as cause:
        raise ConnectError(str(cause)) from cause
    return connection
