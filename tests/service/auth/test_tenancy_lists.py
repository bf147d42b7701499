"""Lists of one tenant leave connections of the store to others."""

import asyncio

import psycopg

from kron.core.plan.query import JobFilter
from kron.fronts.service.auth.principal import Caller, TokenScope, acting_as
from kron.fronts.service.auth.tenancy import LISTS_AT_ONCE, TenantStore
from kron.stores.postgres.store import MAX_CONNECTIONS, PostgresStore
from kron.testing.store_contract import SPACE, a_job, stored
from tests.waiting import until

WAITING = b"SELECT 1 FROM pg_stat_activity WHERE application_name = 'kron' AND wait_event_type = 'Lock'"


async def test_the_slow_lists_of_a_tenant_leave_connections_to_others(postgres_url: str) -> None:
    inner = PostgresStore(postgres_url)
    await stored(inner, a_job("mallory/x"), namespace=SPACE)
    store = TenantStore(inner)
    callers = [Caller(name, frozenset({TokenScope.READ}), (name,)) for name in ("mallory", "ann")]
    with psycopg.connect(postgres_url) as slow, psycopg.connect(postgres_url, autocommit=True) as watching:
        # Every list waits for this, as it would for a long statement.
        slow.execute("LOCK TABLE schedules IN ACCESS EXCLUSIVE MODE")
        with acting_as(callers[0]):
            listing = [
                asyncio.create_task(store.find_jobs(SPACE, JobFilter())) for _ in range(3 * MAX_CONNECTIONS)
            ]
        await until(lambda: len(watching.execute(WAITING).fetchall()) >= LISTS_AT_ONCE)
        with acting_as(callers[1]):
            # With every connection taken, this would wait until one of the lists has given up.
            assert await store.leases(SPACE) == []
        assert not any(task.done() for task in listing)
        assert len(watching.execute(WAITING).fetchall()) == LISTS_AT_ONCE
        slow.commit()
    await asyncio.gather(*listing)
    await inner.close()
