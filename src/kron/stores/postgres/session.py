"""A session of PostgreSQL: how statements are planned, and how long anything may hold a lock."""

from collections.abc import Awaitable, Callable

from kron.stores.postgres.schema import Connection

# Every statement is a number of look-ups by key, whatever the planner thinks of tables it does not know yet.
SESSION = """
SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_material = off;
SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off; SET plan_cache_mode = force_custom_plan;
SET lock_timeout = '10s'; SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = {frozen_ms}
"""
# A worker that froze inside a transaction must not hold its locks against those who take over: at most as
# long as its lease, and for so long. One that is merely slow gets the time it needs.
MAX_FROZEN_MS = 10_000


def configuring(ttl_ms: int) -> Callable[[Connection], Awaitable[None]]:
    """Return what prepares the sessions of a store whose leases last so long."""
    text = SESSION.format(frozen_ms=max(1, min(ttl_ms, MAX_FROZEN_MS)))

    async def configure(connection: Connection) -> None:
        await connection.execute(text.encode())

    return configure
