"""The DAG runtime on every store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.dag_ports import DagStore
from kron.stores.postgres.dag import postgres_dags
from kron.stores.sqlite.dag import sqlite_dags
from tests.app.dag.house import House


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def dags(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DagStore]:
    """Every store of DAG runs, one after the other."""
    match request.param:
        case "memory":
            store = sqlite_dags()
        case "sqlite":
            store = sqlite_dags(str(tmp_path / "kron.db"))
        case _:
            store = postgres_dags(request.getfixturevalue("postgres_url"))
    yield store
    await store.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A runtime in memory."""
    store = sqlite_dags()
    house = House(store, tmp_path)
    yield house
    await house.workflows.close()
    await store.close()
