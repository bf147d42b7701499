from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.ports import Store
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store: Store
    if request.param == "sqlite":
        store = SqliteStore(str(tmp_path / "kron.db"))
    else:
        store = PostgresStore(request.getfixturevalue("postgres_url"))
    yield store
    await store.close()
