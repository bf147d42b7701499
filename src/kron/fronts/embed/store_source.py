"""The state of an embedded front: a store by URL, a given store, or a file beside the program."""

import asyncio
import logging
import os
import sys
from pathlib import Path

from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.stores.url import open_store

MEMORY_URL = "memory://"
FILE = "kron.db"
ALONE = "state is kept in memory: it is lost when this program ends"
ONE_OF_SEVERAL = (
    f"{ALONE}. This looks like one of several processes of a server, each of which would start every job: "
    "use a file or PostgreSQL (sqlite:///kron.db, postgresql://...), so that one of them does"
)
_log = logging.getLogger("kron.scheduler")


def default_state() -> str:
    """Return the URL of the file beside the program, or in the current folder in an interactive session."""
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    folder = Path(program).resolve().parent if program else Path.cwd()
    return f"sqlite:///{str(folder / FILE).replace('%', '%25').replace('?', '%3F').replace('#', '%23')}"


def is_one_of_several() -> bool:
    """Return whether this looks like a worker process of a server: forked, or started by multiprocessing."""
    spawning = sys.modules.get("multiprocessing.process")
    if spawning is not None and spawning.parent_process() is not None:
        return True
    try:
        own, parents = (Path(f"/proc/{pid}/cmdline").read_bytes() for pid in ("self", os.getppid()))
    except OSError:
        return False
    return own == parents


class State:
    """The store of a scheduler or runner; one in memory, or a given one, stays open between uses."""

    def __init__(self, state: str | Store | None) -> None:
        if isinstance(state, str) or state is None:
            self._url: str | None = default_state() if state is None else state
            self._store: Store | None = open_store(self._url)
            if self._url == MEMORY_URL:
                _log.warning(ONE_OF_SEVERAL if is_one_of_several() else ALONE)
        else:
            self._url, self._store = None, state

    def open(self) -> Store:
        """Return the store; nothing is opened before its first use."""
        if self._store is None:
            assert self._url is not None
            self._store = open_store(self._url)
        return self._store

    async def close(self) -> None:
        """Close files and connections; a store in memory stays, because closing it would lose it."""
        if self._store is not None and self._url not in (None, MEMORY_URL):
            store, self._store = self._store, None
            try:
                await store.close()
            except asyncio.CancelledError:
                if isinstance(store, SqliteStore):
                    store.abandon()
                raise

    def abandon(self) -> None:
        """Drop everything without writing, as a crash would; a store in memory is lost."""
        if isinstance(self._store, SqliteStore):
            if self._url is None:
                self._store.drop_locks()
                return
            self._store.abandon()
        if self._url is not None:
            self._store = None
