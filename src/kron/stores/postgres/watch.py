"""Listens to a PostgreSQL database: a transaction that changes jobs or leases notifies when it commits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from uuid import uuid4

from psycopg import AsyncConnection

from kron.core.errors import StoreError
from kron.ports import News
from kron.stores.postgres.schema import Address, Connection
from kron.stores.statement import statements

SQL = statements("postgres")
_log = logging.getLogger("kron.stores")
# Backoff before a listener reconnects: the first delay and the longest.
BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
# How long a cancelled listener may take before it is cancelled again, in seconds.
CANCEL_AGAIN_S = 0.1
JOBS, LEASES, DRAINS = "jobs", "leases", "drains"


def payload_of(namespace: str, message: str) -> str:
    """Return the payload of a notification; namespaces are hashed, as payloads have a maximum length."""
    return f"{sha256(namespace.encode()).hexdigest()[:16]} {message}"


async def notify(connection: Connection, namespace: str, message: str) -> None:
    """Notify the listeners of a namespace, once per transaction, at its commit."""
    await connection.execute(SQL["notify"].encode(), {"message": payload_of(namespace, message)})


class PostgresWatch:
    """Listens on a separate connection, and reconnects when that is cut.

    It trusts a connection after receiving a greeting sent over another one: some poolers drop LISTEN without
    an error. Until then every `look` reports that jobs may have changed.
    """

    def __init__(
        self,
        address: Address,
        namespace: str,
        call: Callable[[], None],
        greet: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._address = address
        self._namespace = namespace
        self._call = call
        self._greet = greet
        self._listener: asyncio.Task[None] | None = None
        self._backoff_s = BACKOFF_S
        self._news = News()
        self._is_closed = False
        self.is_listening = False

    async def look(self) -> News:
        """Return what may have changed since the last call."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="kron listener")
        news, self._news = self._news, News()
        return news if self.is_listening else news._replace(jobs=True, drains=True)

    async def close(self) -> None:
        """Stop listening."""
        self._is_closed = True
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # In Python 3.11 a cancellation that meets the end of a wait of psycopg is lost (`asyncio.wait_for`).
        while not listener.done():
            listener.cancel()
            await asyncio.wait([listener], timeout=CANCEL_AGAIN_S)
        with suppress(asyncio.CancelledError):
            await listener

    async def _listen(self) -> None:
        """Listen until closed; after a failure reconnect with backoff."""
        # A connection that ends while it is cancelled raises its error instead of the cancellation.
        while not self._is_closed:
            try:
                async with self._address.translated():
                    await self._receive()
            except StoreError as error:
                _log.debug("listening failed: %s", error)
            finally:
                self.is_listening = False
            if self._is_closed:
                return
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)

    async def _receive(self) -> None:
        greeting = f"hello {uuid4()}"
        async with await AsyncConnection.connect(self._address.conninfo, autocommit=True) as connection:
            await connection.execute(SQL["listen"].encode())
            await self._greet(self._namespace, greeting)
            async for notification in connection.notifies():
                self._handle(notification.payload, greeting)

    def _handle(self, payload: str, greeting: str) -> None:
        if payload == payload_of(self._namespace, greeting):
            # Notifications sent before this are lost, so everything may have changed.
            self.is_listening, self._backoff_s = True, BACKOFF_S
            self._news = News(jobs=True, leases=True, drains=True)
        elif payload == payload_of(self._namespace, JOBS):
            self._news = self._news._replace(jobs=True)
        elif payload == payload_of(self._namespace, LEASES):
            self._news = self._news._replace(leases=True)
        elif payload == payload_of(self._namespace, DRAINS):
            self._news = self._news._replace(drains=True)
        else:
            return
        self._call()
