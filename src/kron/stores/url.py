"""From a URL to a store: `memory://`, `sqlite:///kron.db`, `postgresql://user@host/database`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from kron.core.errors import InvalidOptionError
from kron.dag_ports import DagStore, IdempotencyLog, WorkflowStore
from kron.ports import Store
from kron.stores.migration import Schema, SqliteSchema
from kron.stores.sqlite.file import MEMORY
from kron.stores.sqlite.store import SqliteStore

FORMS = "use memory://, sqlite:///kron.db, sqlite:////var/lib/kron.db or postgresql://user@host/database"
INSTALL = "PostgreSQL needs an extra: pip install 'kron-engine[postgres]'"
POSTGRES = ("postgresql", "postgres")


class WorkflowDatabase(WorkflowStore, IdempotencyLog, Protocol):
    """The tables of the run launcher: workflow versions and recorded starts."""


def open_workflows(url: str) -> WorkflowDatabase:
    """Return the workflow tables of a URL's database; it is opened at the first use."""
    file = _file_of(url)
    if file is not None:
        from kron.stores.sqlite.workflow import SqliteWorkflows

        return SqliteWorkflows(file)
    with _needs_extra():
        from kron.stores.postgres.workflow import PostgresWorkflows
    return PostgresWorkflows(url)


def open_dags(url: str) -> DagStore:
    """Return the DAG runs in a URL's database; it is opened at the first use."""
    file = _file_of(url)
    if file is not None:
        from kron.stores.sqlite.dag import sqlite_dags

        return sqlite_dags(file)
    with _needs_extra():
        from kron.stores.postgres.dag import postgres_dags
    return postgres_dags(url)


def open_store(url: str, *, lease_ms: int | None = None) -> Store:
    """Return the store of a URL, with this lease TTL; it is opened at the first use."""
    file = _file_of(url)
    if file is not None:
        return SqliteStore(file)
    with _needs_extra():
        from kron.stores.postgres.store import PostgresStore
    return PostgresStore(url) if lease_ms is None else PostgresStore(url, ttl_ms=lease_ms)


def is_there(url: str) -> bool:
    """Return whether a store can hold anything: a missing file cannot."""
    return _scheme_of(url) != "sqlite" or Path(_path_of(url)).exists()


def schema_of(url: str) -> Schema:
    """Return the schema of a URL's database."""
    file = _file_of(url)
    if file == MEMORY:
        raise InvalidOptionError(option="store", value="memory", reason="a store in memory has no migrations")
    if file is not None:
        return SqliteSchema(file)
    with _needs_extra():
        from kron.stores.postgres.schema import PostgresSchema
    return PostgresSchema(url)


def store_kind_of(url: str) -> str:
    """Return the kind of store a URL names: `memory`, `sqlite` or `postgresql`."""
    scheme = _scheme_of(url)
    return "postgresql" if scheme in POSTGRES else scheme


def _scheme_of(url: str) -> str:
    """Return the scheme of a URL; an invalid URL is not quoted, as it may hold a password."""
    scheme, mark, _ = url.partition("://")
    if not mark:
        raise InvalidOptionError(option="store", value="...", reason=f"it is not a URL; {FORMS}")
    if scheme not in ("memory", "sqlite", *POSTGRES):
        raise InvalidOptionError(option="store", value=f"{scheme}://...", reason=FORMS)
    return scheme


@contextmanager
def _needs_extra() -> Iterator[None]:
    """Raise InvalidOptionError where the packages for PostgreSQL are not installed."""
    try:
        yield
    except ModuleNotFoundError as cause:
        raise InvalidOptionError(option="store", value=POSTGRES[0], reason=INSTALL) from cause


def _file_of(url: str) -> str | None:
    """Return the SQLite file of a URL, MEMORY for one in memory; None for PostgreSQL."""
    scheme = _scheme_of(url)
    if scheme == "memory" and url != "memory://":
        raise InvalidOptionError(option="store", value="memory://...", reason="write memory:// and no more")
    return MEMORY if scheme == "memory" else _path_of(url) if scheme == "sqlite" else None


def _path_of(url: str) -> str:
    """Return the file of a SQLite URL: a relative path follows three slashes, an absolute one four."""
    rest = url.partition("://")[2]
    path = unquote(rest.removeprefix("/"))
    if not rest.startswith("/"):
        reason = "three slashes come before the path, as in sqlite:///kron.db"
    elif "?" in rest or "#" in rest:
        reason = "it takes no options"
    elif not path or path.endswith("/") or path == MEMORY:
        reason = "it names no file; for a store in memory use memory://"
    elif "\0" in path:
        reason = "no file can have this name"
    else:
        return path
    raise InvalidOptionError(option="store", value="sqlite://...", reason=reason)
