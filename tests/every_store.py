"""A fixture that runs a test once on each store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.ports import Store
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Every store, one after the other."""
    made: Store
    match request.param:
        case "memory":
            made = SqliteStore()
        case "sqlite":
            made = SqliteStore(str(tmp_path / "kron.db"))
        case _:
            made = PostgresStore(request.getfixturevalue("postgres_url"))
    yield made
    await made.close()
