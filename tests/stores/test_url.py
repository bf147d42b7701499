"""From a URL to a store."""

import traceback
from pathlib import Path

import pytest

from kron.core.errors import InvalidOptionError
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from kron.stores.url import open_store, schema_of
from kron.testing.store_contract import SPACE, a_job, stored


async def test_a_store_in_memory() -> None:
    store = open_store("memory://")
    await stored(store, a_job())
    await store.close()


async def test_an_absolute_path_has_four_slashes(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/with%20blank/kron.db")
    await stored(store, a_job())
    await store.close()
    assert (tmp_path / "with blank" / "kron.db").is_file()


async def test_a_relative_path_has_three_slashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///kron.db")
    await stored(store, a_job())
    await store.close()
    assert (tmp_path / "kron.db").is_file()


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_a_database_server(scheme: str, postgres_url: str) -> None:
    store = open_store(postgres_url.replace("postgresql", scheme, 1))
    assert isinstance(store, PostgresStore)
    assert await store.cases(SPACE) == []
    await store.close()


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    assert isinstance(open_store(f"sqlite:///{tmp_path}/kron.db"), SqliteStore)
    assert isinstance(open_store("postgresql://nobody@nowhere.invalid/none"), PostgresStore)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("", "it is not a URL"),
        ("kron.db", "it is not a URL"),
        ("hunter2", "it is not a URL"),
        ("mysql://me:hunter2@host/jobs", 'Invalid store "mysql://..."'),
        ("SQLITE:///kron.db", "use memory://"),
        ("memory://hunter2", "write memory:// and no more"),
        ("sqlite://", "three slashes"),
        ("sqlite://kron.db", "three slashes"),
        ("sqlite://me:hunter2@host/kron.db", "three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///kron.db?mode=ro", "takes no options"),
        ("sqlite:///kron%00.db", "no file can have this name"),
        ("postgresql://me:hunter2@host/jobs?what=1", "postgresql://user@host:port/database"),
    ],
)
def test_other_urls_are_refused_without_being_quoted(url: str, complaint: str) -> None:
    for use in (open_store, schema_of):
        if url.startswith("memory") and use is schema_of:
            continue
        with pytest.raises(InvalidOptionError) as caught:
            use(url)
        assert complaint in str(caught.value)
        said = "".join(traceback.format_exception(caught.value)) + repr(caught.value.details)
        assert "hunter2" not in said
