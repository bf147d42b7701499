"""Definitions are applied to all jobs of a namespace, however many there are."""

import pytest

from kron.app import apply
from kron.app.catalog import Catalog
from kron.core.plan.registration import create
from kron.core.time.instant import milliseconds_of
from kron.stores.sqlite.store import SqliteStore
from tests.engine_stage import NOON, SPACE, job_of


async def test_all_jobs_are_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "PAGE", 2)
    store, now = SqliteStore(), milliseconds_of(NOON)
    names = [f"job {number}" for number in range(5)]
    await store.put(SPACE, created=[create(job_of(name), now=now) for name in names], changed=[], now=now)
    catalog = Catalog(store, SPACE, now=lambda: now)
    assert [job.identity for job in await apply._all_jobs(catalog)] == names
    await store.close()
