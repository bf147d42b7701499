"""Connections: a timeout for slow clients, and the subject of a client's certificate for each request."""

import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

# How large the headers of a request may be, in bytes.
MAX_HEAD = 32_768
# Parts of a body that are read whatever their size, and the least average size of more parts, in bytes.
# A part costs as much time as a kilobyte of a long one.
FREE_PARTS, MIN_PART = 1_000, 64
# How many connections are served at once, one more is answered 503, and from when on idle ones make room.
MAX_CONNECTIONS, MAX_OPEN = 1_000, 900
# How much of a response is written at once: while the client has not read it, the request is in progress.
PIECE = 65_536
# Sent before a slow client is disconnected.
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n"
    b"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n"
)
# The response to bytes that are no HTTP request.
INVALID = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n%s"
)
# The headers and the body of the response to a request over one connection too many.
FULL = b"too many connections"
FULL_HEADERS = (
    (b"content-length", b"%d" % len(FULL)),
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"connection", b"close"),
    (b"retry-after", b"1"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
# The key of the certificate's subject in the ASGI scope.
PEER = "kron.peer"
# Abbreviations of subject attributes (RFC 4514); others keep their long names.
SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "stateOrProvinceName": "ST", "localityName": "L", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip


class PartLimit(h11.Connection):
    """The parser of a connection, which refuses a body of tiny parts."""

    _parts = _bytes = 0

    def next_event(self) -> Any:
        """Return the next event, or raise RemoteProtocolError."""
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._parts += 1
            self._bytes += len(event.data)
            if self._parts > FREE_PARTS and self._bytes < MIN_PART * self._parts:
                raise h11.RemoteProtocolError("the parts of the body are too small")
        elif isinstance(event, h11.Request):
            self._parts = self._bytes = 0
            names = [name for name, _ in event.headers]
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                # Another server on the way may see another end of it (RFC 9112, 6.1).
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        return event


class TimeoutProtocol(H11Protocol):
    """HTTP/1.1 with timeouts for clients that hold connections open.

    They apply to the head of a request, and to a response that is not read. Beyond `max_open` connections the
    one that has been idle longest makes room for a new one; beyond `max_connections` the answer is 503.
    """

    timeout_s = 30.0
    max_connections = MAX_CONNECTIONS
    max_open = MAX_OPEN
    # The connections without a request in progress, the longest idle first; one dict for each server.
    idle: ClassVar[dict["TimeoutProtocol", None]] = {}
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and wait for a request."""
        self._enter()
        self._open(transport)

    def _enter(self) -> None:
        """Count the connection; the longest idle one makes room if there are too many."""
        self.connections.add(self)
        if len(self.connections) > self.max_open and self.idle:
            next(iter(self.idle)).give_up()

    def _open(self, transport: asyncio.Transport) -> None:
        """Add the certificate's subject to requests, and start the timer."""
        super().connection_made(transport)
        self.conn = PartLimit(h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEAD)
        self.app = self._bounded(_with_peer(self.app, subject_of(transport)))
        self._start_timer()

    def give_up(self) -> None:
        """Disconnect at once."""
        self._stop_timer()
        self.transport.abort()

    def _bounded(self, app: ASGIApp) -> ASGIApp:
        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            # This request is one of the tasks.
            busiest = max(len(self.connections), len(self.tasks))
            chosen = app if busiest <= self.max_connections else _refuse
            await chosen(scope, receive, _in_pieces(send))

        return call

    def data_received(self, data: bytes) -> None:
        """Read bytes; once a head is complete, the API applies its timeout to the body."""
        self._start_timer()
        super().data_received(data)
        if self._is_busy():
            self._stop_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP request, and disconnect."""
        self.transport.write(INVALID % (len(msg), msg.encode("ascii")))
        self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a client that half-closed after a whole request."""
        if not self._is_busy() or self.cycle.more_body:
            return False
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Disconnect a client that does not read its responses in time."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        self._stop_write_timer()
        super().resume_writing()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _is_busy(self) -> bool:
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None and not self._is_busy():
            self._timer = self.loop.call_later(self.timeout_s, self._disconnect)
            self.idle[self] = None

    def _stop_timer(self) -> None:
        self.idle.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _disconnect(self) -> None:
        self._timer = None
        # No request is in progress: its first byte would have stopped the timer.
        if not self.transport.is_closing():
            self.transport.write(TOO_SLOW)
            self.transport.close()


def _in_pieces(send: Send) -> Send:
    """Return a sender that waits for the client between the pieces of a long response.

    Written at once, it would be out of the request's hands, and a client could request more without reading.
    """

    async def respond(message: Message) -> None:
        body = message.get("body", b"")
        if message["type"] != "http.response.body" or len(body) <= PIECE:
            await send(message)
            return
        is_last = not message.get("more_body", False)
        for start in range(0, len(body), PIECE):
            piece = bytes(body[start : start + PIECE])
            await send({**message, "body": piece, "more_body": True})
        if is_last:
            await send({**message, "body": b"", "more_body": False})

    return respond


async def _refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 503, "headers": FULL_HEADERS})
    await send({"type": "http.response.body", "body": FULL})


def protocol_with(
    timeout_s: float, max_connections: int = MAX_CONNECTIONS, max_open: int = MAX_OPEN
) -> type[TimeoutProtocol]:
    """Return the protocol with a timeout in seconds."""
    values = {"timeout_s": timeout_s, "max_connections": max_connections, "max_open": max_open, "idle": {}}
    return type("TimeoutProtocol", (TimeoutProtocol,), values)


def subject_of(transport: asyncio.BaseTransport) -> str | None:
    """Return the subject of a client's certificate, e.g. `CN=ci,O=Example`."""
    tls = transport.get_extra_info("ssl_object")
    certificate: Mapping[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
    names = [name for part in certificate.get("subject", ()) for name in part]
    return ",".join(f"{SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in names) or None


def _escaped(value: str) -> str:
    return "".join(f"\\{character}" if character in ',\\+="' else character for character in value)


def _with_peer(app: Any, subject: str | None) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PEER: subject}, receive, send)

    return call
