"""Lists leave connections of the store to what is short."""

import asyncio

import psycopg
import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.query import AuditFilter, JobFilter
from kron.fronts.service.auth.principal import ANONYMOUS, Caller, TokenScope, acting_as
from kron.fronts.service.auth.tenancy import ALL_LISTS_AT_ONCE, LISTS_AT_ONCE
from kron.fronts.service.client import LocalClient
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.settings import Settings
from kron.stores.postgres.store import MAX_CONNECTIONS, PostgresStore
from kron.testing.store_contract import SPACE, a_job, stored
from tests.waiting import until

WAITING = b"SELECT 1 FROM pg_stat_activity WHERE application_name = 'kron' AND wait_event_type = 'Lock'"


@pytest.mark.parametrize(("tenants", "at_once"), [(1, LISTS_AT_ONCE), (9, ALL_LISTS_AT_ONCE)])
async def test_the_slow_lists_of_tenants_leave_connections_to_others(
    postgres_url: str, tenants: int, at_once: int
) -> None:
    inner = PostgresStore(postgres_url)
    await stored(inner, a_job("ann/x", launcher='{"kind":"log","user_id":"ann"}'), namespace=SPACE)
    registrar = Registrar(inner, SystemClock())
    store, client = registrar.store, LocalClient(registrar, Settings())
    names = [f"mallory {number}" for number in range(tenants)]
    ann, *hostile = (Caller(name, frozenset({TokenScope.READ}), (name,)) for name in ("ann", *names))
    with psycopg.connect(postgres_url) as slow, psycopg.connect(postgres_url, autocommit=True) as watching:
        # Every list waits for this, as it would for a long statement.
        slow.execute("LOCK TABLE schedule_audit IN ACCESS EXCLUSIVE MODE")
        listing: list[asyncio.Task[object]] = []
        for caller in hostile:
            with acting_as(caller):
                listing += [
                    asyncio.create_task(store.audits(SPACE, AuditFilter()))
                    for _ in range(3 * MAX_CONNECTIONS)
                ]
        await until(lambda: len(watching.execute(WAITING).fetchall()) >= at_once)
        with acting_as(ann):
            # With every connection taken, this would wait until one of the lists has given up.
            assert await store.leases(SPACE) == []
            # With every turn of a list taken, this would.
            assert len(await store.find_jobs(SPACE, JobFilter(names=["ann/x"]))) == 1
        with acting_as(ANONYMOUS):
            assert (await client.health())["error"] is None
        assert not any(task.done() for task in listing)
        assert len(watching.execute(WAITING).fetchall()) == at_once
        slow.commit()
    await asyncio.gather(*listing)
    await inner.close()
