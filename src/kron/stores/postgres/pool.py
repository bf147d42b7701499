"""Connections to PostgreSQL: opened at the first use, looked at before each, replaced where they broke."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from psycopg_pool import AsyncConnectionPool

from kron.stores.postgres.schema import CONNECT_S, Connection, PostgresSchema, address_of

Configure = Callable[[Connection], Awaitable[None]]


class PostgresPool:
    """The connections of one store; its tables are made or checked before the first is given out."""

    def __init__(self, url: str, *, least: int, most: int, configure: Configure | None = None) -> None:
        self.address = address_of(url)
        self._schema = PostgresSchema(url)
        self._bounds = least, most
        self._configure = configure
        self._opening = asyncio.Lock()
        self._pool: AsyncConnectionPool[Connection] | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; what goes wrong with it is an error of the store."""
        async with self.address.translated():
            pool = self._pool or await self._open()
            async with pool.connection() as connection:
                yield connection

    async def close(self) -> None:
        """Let go of all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _open(self) -> AsyncConnectionPool[Connection]:
        async with self._opening:
            if self._pool is None:
                await self._schema.prepare()
                pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                    self.address.conninfo,
                    kwargs={"autocommit": True},
                    min_size=self._bounds[0],
                    max_size=self._bounds[1],
                    open=False,
                    configure=self._configure,
                    check=AsyncConnectionPool.check_connection,
                    timeout=CONNECT_S,
                    reconnect_timeout=CONNECT_S,
                )
                await pool.open()
                self._pool = pool
            return self._pool
