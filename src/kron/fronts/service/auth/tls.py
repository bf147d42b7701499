"""Connections: a caller who dawdles is let go, and what a client's certificate says travels with requests."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

# What a client hears who takes too long.
TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
# Where a request has the subject of its client's certificate.
PEER = "kron.peer"
# How the parts of a subject are written; others keep their long names.
SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C",
    "stateOrProvinceName": "ST", "localityName": "L", "domainComponent": "DC", "userId": "UID",
}  # fmt: skip


class PatientProtocol(H11Protocol):
    """HTTP over a connection whose client has so long for the head of each request, and no longer."""

    patience_s = 30.0
    _dawdling: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take note of the certificate, and begin to wait."""
        super().connection_made(transport)
        self.app = _with_peer(self.app, subject_of(transport))
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what came; once a request has a head, it is the API's to be patient."""
        self._watch()
        super().data_received(data)
        if self._is_busy():
            self._unwatch()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a caller who sent all of a request and closed their side; over TLS there are no sides."""
        if not self._is_busy() or self.cycle.more_body or self.scheme == "https":
            return False
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._unwatch()
        super().connection_lost(exc)

    def _is_busy(self) -> bool:
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _watch(self) -> None:
        if self._dawdling is None and not self._is_busy():
            self._dawdling = self.loop.call_later(self.patience_s, self._let_go)

    def _unwatch(self) -> None:
        if self._dawdling is not None:
            self._dawdling.cancel()
            self._dawdling = None

    def _let_go(self) -> None:
        self._dawdling = None
        if not self._is_busy() and not self.transport.is_closing():
            self.transport.write(TOO_SLOW)
            self.transport.close()


def protocol_with(patience_s: float) -> type[PatientProtocol]:
    """Return HTTP with so much patience."""
    return type("PatientProtocol", (PatientProtocol,), {"patience_s": patience_s})


def subject_of(transport: asyncio.BaseTransport) -> str | None:
    """Return the subject of a client's certificate, such as `CN=ci,O=Example`."""
    tls = transport.get_extra_info("ssl_object")
    certificate: Mapping[str, Any] = (tls.getpeercert() if tls is not None else None) or {}
    names = [name for part in certificate.get("subject", ()) for name in part]
    return ",".join(f"{SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in names) or None


def _escaped(value: str) -> str:
    return "".join(f"\\{sign}" if sign in ',\\+="' else sign for sign in value)


def _with_peer(app: Any, subject: str | None) -> ASGIApp:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, PEER: subject}, receive, send)

    return call
