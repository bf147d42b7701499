"""From a URL to a store: `memory://`, `sqlite:///kron.db`, `postgresql://user@host/database`."""

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from kron.core.errors import InvalidOptionError
from kron.ports import DagStore, IdempotencyLog, Store, WorkflowStore
from kron.stores.migration import Schema, SqliteSchema
from kron.stores.sqlite.dag import sqlite_dags
from kron.stores.sqlite.store import MEMORY, SqliteStore
from kron.stores.sqlite.workflow import SqliteWorkflows

FORMS = "use memory://, sqlite:///kron.db, sqlite:////var/lib/kron.db or postgresql://user@host/database"
INSTALL = "PostgreSQL needs an extra: pip install 'kron-engine[postgres]'"
POSTGRES = ("postgresql", "postgres")


class WorkflowDatabase(WorkflowStore, IdempotencyLog, Protocol):
    """The tables of the run launcher: workflow versions and recorded starts."""


def open_workflows(url: str) -> WorkflowDatabase:
    """Return the workflow tables of a URL's database; it is opened at the first use."""
    scheme = _scheme_of(url)
    if scheme == "memory":
        return SqliteWorkflows(MEMORY)
    if scheme == "sqlite":
        return SqliteWorkflows(_path_of(url))
    try:
        from kron.stores.postgres.workflow import PostgresWorkflows
    except ModuleNotFoundError as cause:
        raise InvalidOptionError(option="store", value=scheme, reason=INSTALL) from cause
    return PostgresWorkflows(url)


def open_dags(url: str) -> DagStore:
    """Return the DAG runs in a URL's database; it is opened at the first use."""
    scheme = _scheme_of(url)
    if scheme == "memory":
        return sqlite_dags(MEMORY)
    if scheme == "sqlite":
        return sqlite_dags(_path_of(url))
    try:
        from kron.stores.postgres.dag import postgres_dags
    except ModuleNotFoundError as cause:
        raise InvalidOptionError(option="store", value=scheme, reason=INSTALL) from cause
    return postgres_dags(url)


def open_store(url: str, *, lease_ms: int | None = None) -> Store:
    """Return the store of a URL, with this lease TTL; it is opened at the first use."""
    scheme = _scheme_of(url)
    if scheme == "memory":
        _check_memory(url)
        return SqliteStore(MEMORY)
    if scheme == "sqlite":
        return SqliteStore(_path_of(url))
    try:
        from kron.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as cause:
        raise InvalidOptionError(option="store", value=scheme, reason=INSTALL) from cause
    return PostgresStore(url) if lease_ms is None else PostgresStore(url, ttl_ms=lease_ms)


def is_there(url: str) -> bool:
    """Return whether a store can hold anything: a missing file cannot."""
    return _scheme_of(url) != "sqlite" or Path(_path_of(url)).exists()


def schema_of(url: str) -> Schema:
    """Return the schema of a URL's database."""
    scheme = _scheme_of(url)
    if scheme == "memory":
        raise InvalidOptionError(option="store", value="memory", reason="a store in memory has no migrations")
    if scheme == "sqlite":
        return SqliteSchema(_path_of(url))
    try:
        from kron.stores.postgres.schema import PostgresSchema
    except ModuleNotFoundError as cause:
        raise InvalidOptionError(option="store", value=scheme, reason=INSTALL) from cause
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


def _check_memory(url: str) -> None:
    if url != "memory://":
        raise InvalidOptionError(option="store", value="memory://...", reason="write memory:// and no more")


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
