"""Connections to PostgreSQL: opened at the first use, checked after a rest, replaced when broken."""

import asyncio
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from psycopg_pool import AsyncConnectionPool

from kron.stores.postgres.schema import CONNECT_S, Connection, PostgresSchema, address_of

# Every statement is a number of lookups by key, whatever the planner estimates for tables without statistics.
# Pages cost nothing, so that the index with the fewest rows is used. Otherwise the smallest index would be,
# and an update of a thousand runs would read all runs a thousand times. A count for a page takes one
# processor of the database, not all of them.
SESSION = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_material = off;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_custom_plan;
SET random_page_cost = 0; SET seq_page_cost = 0; SET max_parallel_workers_per_gather = 0;
{limits}
"""
# What every connection has.
LIMITS = """
SET lock_timeout = '10s'; SET statement_timeout = '60s'; SET idle_in_transaction_session_timeout = {frozen_ms}
"""
# A worker that freezes inside a transaction must not block a takeover: its locks end with its lease, and at
# most after this time. A worker that is merely slow is not affected.
MAX_FROZEN_MS = 10_000
# A connection used within this time is checked by a round trip only if the server has sent something.
CHECK_AFTER_S = 1.0

Configure = Callable[[Connection], Awaitable[None]]


class PostgresPool:
    """The connections of one store; its tables are created or checked before the first use."""

    def __init__(self, url: str, *, min_size: int, max_size: int, configure: Configure | None = None) -> None:
        self.address = address_of(url)
        self._schema = PostgresSchema(url)
        self._sizes = min_size, max_size
        self._configure = configure or _limit
        self._opening = asyncio.Lock()
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._used_at: WeakKeyDictionary[Connection, float] = WeakKeyDictionary()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Lend a connection; its errors become StoreError."""
        async with self.address.translated():
            pool = self._pool or await self._open()
            async with pool.connection() as connection:
                yield connection
                self._used_at[connection] = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close all connections."""
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
                    min_size=self._sizes[0],
                    max_size=self._sizes[1],
                    open=False,
                    configure=self._configure,
                    check=self._check,
                    timeout=CONNECT_S,
                    reconnect_timeout=CONNECT_S,
                )
                await pool.open()
                self._pool = pool
            return self._pool

    async def _check(self, connection: Connection) -> None:
        """Raise if a connection is broken: the pool replaces it."""
        used_at = self._used_at.get(connection)
        rested = used_at is None or asyncio.get_running_loop().time() - used_at >= CHECK_AFTER_S
        if rested or _has_input(connection):
            await AsyncConnectionPool.check_connection(connection)


def _has_input(connection: Connection) -> bool:
    """Return whether the server has sent something unasked, as it does when it ends a connection."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def configuring(ttl_ms: int) -> Callable[[Connection], Awaitable[None]]:
    """Return a function that configures the sessions of a store with this lease TTL."""
    text = SESSION.format(limits=LIMITS.format(frozen_ms=max(1, min(ttl_ms, MAX_FROZEN_MS))))

    async def configure(connection: Connection) -> None:
        await connection.execute(text.encode())

    return configure


async def _limit(connection: Connection) -> None:
    """Configure a session whose statements the planner may run as it likes."""
    await connection.execute(LIMITS.format(frozen_ms=MAX_FROZEN_MS).encode())


async def rows_of(connection: Connection, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return all rows of a statement."""
    return await (await connection.execute(statement.encode(), values)).fetchall()


async def count_of(connection: Connection, statement: str, values: dict[str, Any]) -> int:
    """Return how many rows a statement wrote."""
    return (await connection.execute(statement.encode(), values)).rowcount
