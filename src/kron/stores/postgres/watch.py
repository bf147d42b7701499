"""Listening to a PostgreSQL database: whoever changes jobs or leases says so when it commits."""

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
# How long a listener waits before it connects again: at first, and at most.
BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
JOBS, LEASES = "jobs", "leases"


def message_of(namespace: str, what: str) -> str:
    """Return what is said of a namespace; names of any length come to short messages."""
    return f"{sha256(namespace.encode()).hexdigest()[:16]} {what}"


async def tell(connection: Connection, namespace: str, what: str) -> None:
    """Say that something changed, once per transaction, when it is committed."""
    await connection.execute(SQL["tell"].encode(), {"message": message_of(namespace, what)})


class PostgresWatch:
    """Listens on a connection of its own, and connects again when that is cut.

    It trusts a connection when it has heard a greeting that came by another one: some poolers let nobody
    listen, without a word. Until then every look says that jobs may have changed.
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
        self.hears = False

    async def look(self) -> News:
        """Return what may have changed since the last look."""
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen(), name="kron listener")
        news, self._news = self._news, News()
        return news if self.hears else news._replace(jobs=True)

    async def close(self) -> None:
        """Listen no more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener

    async def _listen(self) -> None:
        """Listen for good; a connection that fails is followed by another one, later each time."""
        while True:
            try:
                async with self._address.translated():
                    await self._hear()
            except StoreError as error:
                _log.debug("listening failed: %s", error)
            finally:
                self.hears = False
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)

    async def _hear(self) -> None:
        greeting = f"hello {uuid4()}"
        async with await AsyncConnection.connect(self._address.conninfo, autocommit=True) as connection:
            await connection.execute(SQL["listen"].encode())
            await self._greet(self._namespace, greeting)
            async for notice in connection.notifies():
                self._take(notice.payload, greeting)

    def _take(self, message: str, greeting: str) -> None:
        if message == message_of(self._namespace, greeting):
            # Whatever was said before it listened is looked for once.
            self.hears, self._backoff_s = True, BACKOFF_S
            self._news = News(jobs=True, leases=True)
        elif message == message_of(self._namespace, JOBS):
            self._news = self._news._replace(jobs=True)
        elif message == message_of(self._namespace, LEASES):
            self._news = self._news._replace(leases=True)
        else:
            return
        self._call()
