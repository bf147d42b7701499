"""TLS handshakes: they have a timeout, and their connections make room for others as idle ones do."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from typing import ClassVar

from kron.fronts.service.auth.tls import TimeoutProtocol

# How long a connection waits for the end of TLS that its client should confirm, in seconds.
TLS_END_S = 1
# How much of an encrypted connection is read at once: every one has a buffer of this size, and asyncio's of
# 256 KiB would take 230 MiB for those that may be open. A record has at most 16 KiB.
TLS_BUFFER = 32_768


class SecureProtocol(TimeoutProtocol):
    """The same over TLS: a connection counts, and counts as idle, from before its handshake.

    A listening socket with TLS would keep any number of unfinished handshakes, for a minute each.
    """

    context: ClassVar[ssl.SSLContext]
    _handshake: asyncio.Task[None] | None = None
    _is_secure = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and begin the handshake."""
        self._enter()
        self.transport = transport
        self.idle[self] = None
        # What arrives between the end of the handshake and the begin of HTTP.
        self._early = bytearray()
        self._handshake = self.loop.create_task(self._secure(transport))

    async def _secure(self, transport: asyncio.Transport) -> None:
        try:
            secured = await self.loop.start_tls(
                transport,
                self,
                self.context,
                server_side=True,
                ssl_handshake_timeout=self.timeout_s,
                ssl_shutdown_timeout=TLS_END_S,
            )
        except OSError:
            secured = None
        self._handshake = None
        if secured is None or secured.is_closing():
            self.give_up()
            return
        self._is_secure = True
        self.idle.pop(self, None)
        self._open(secured)
        if self._early:
            super().data_received(bytes(self._early))

    def data_received(self, data: bytes) -> None:
        """Read bytes; the first ones may come before HTTP has begun."""
        if self._is_secure:
            super().data_received(data)
        else:
            self._early += data

    def eof_received(self) -> bool:  # type: ignore[override]
        """Disconnect: TLS has no half-close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the handshake, or the timers."""
        if self._is_secure:
            super().connection_lost(exc)
        else:
            self.give_up()

    def give_up(self) -> None:
        """Disconnect at once."""
        if self._is_secure:
            super().give_up()
            return
        self.connections.discard(self)
        self.idle.pop(self, None)
        self.transport.abort()
        if self._handshake is not None:
            # A cancelled task keeps its frames, and they this connection, until a collection of garbage.
            self._handshake.cancel()
            self._handshake = None

    def shutdown(self) -> None:
        """Disconnect once there is no request in progress."""
        if self._is_secure:
            super().shutdown()
        else:
            self.give_up()


def encrypting(protocol: type[TimeoutProtocol], context: ssl.SSLContext) -> type[SecureProtocol]:
    """Return a protocol over TLS."""
    SSLProtocol.max_size = TLS_BUFFER
    return type("SecureProtocol", (SecureProtocol, protocol), {"context": context})
