"""The store contract on all three stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.ports import Store
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        store = SqliteStore()
        yield store
        await store.close()


class TestSqliteStore(StoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore(str(tmp_path / "kron.db"))
        yield store
        await store.close()


class TestPostgresStore(StoreContract):
    @pytest.fixture
    async def store(self, postgres_url: str) -> AsyncIterator[Store]:
        store = PostgresStore(postgres_url)
        yield store
        await store.close()
