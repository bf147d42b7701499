"""Leases of namespaces: the operating system's lock, released when its process dies, and the owner."""

import fcntl
import os
import re
import sqlite3
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from threading import Event
from threading import Lock as Mutex
from weakref import WeakSet

from kron.core.errors import OwnedError
from kron.core.plan.incident import KILLED, STOPPED, absence_after, parsed_detail
from kron.core.plan.query import WorkerLease
from kron.core.plan.record import IncidentRecord
from kron.core.plan.step import NO_PREDECESSORS, Ownership, Predecessor
from kron.core.shard import SHARDS
from kron.stores.drain import SEEN_MS, with_drains
from kron.stores.sqlite.write import Writing
from kron.stores.statement import statements

SQL = statements("sqlite")

# The length of a namespace's name in the name of its lock file.
MAX_LOCK_NAME = 60
# How often, and how far apart, a lock is requested.
MAX_TRIES, RETRY_S = 3, 0.005


class Lock:
    """The locks of one store: each is a file beside its database; in memory there are no files."""

    def __init__(self, path: str, *, in_memory: bool) -> None:
        self._path = path
        self._in_memory = in_memory
        self._handles: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        self._mutex = Mutex()
        self._is_closed = False
        _LOCKS.add(self)

    def acquire(self, namespace: str, owner: str) -> None:
        """Lock a namespace, or raise OwnedError if another owner holds its lock.

        An owner whose release failed holds the lock still, and takes it over from itself.
        """
        with self._mutex:
            if self._is_closed or self._owners.get(namespace, owner) != owner:
                raise OwnedError(namespace=namespace, owner=self._path)
            if namespace not in self._handles:
                self._handles[namespace] = -1 if self._in_memory else self._locked_file(namespace)
            self._owners[namespace] = owner

    def is_held(self, namespace: str) -> bool:
        """Say whether any process holds the lock of a namespace."""
        if namespace in self._owners or self._in_memory:
            return namespace in self._owners
        try:
            handle = os.open(self._file_of(namespace), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(handle)

    def release(self, namespace: str) -> None:
        """Unlock a namespace."""
        self._owners.pop(namespace, None)
        handle = self._handles.pop(namespace, -1)
        if handle != -1:
            # Closing alone leaves it locked while a child that was being forked has the file open.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)

    def forget(self) -> None:
        """Close the files in a child of the process that holds the locks, which keep them locked."""
        handles = [handle for handle in self._handles.values() if handle != -1]
        self._handles, self._owners, self._is_closed = {}, {}, True
        for handle in handles:
            os.close(handle)

    def release_all(self) -> None:
        """Unlock every namespace."""
        for namespace in list(self._handles):
            self.release(namespace)

    def close(self) -> None:
        """Unlock every namespace and refuse later locks, also those of calls that are already running."""
        with self._mutex:
            self._is_closed = True
            self.release_all()

    def _file_of(self, namespace: str) -> str:
        # The name is for people; the digest separates namespaces that differ in other characters only.
        name = re.sub(r"[^A-Za-z0-9]+", "-", namespace)[:MAX_LOCK_NAME]
        digest = sha256(namespace.encode()).hexdigest()[:8]
        return f"{self._path}.{name}-{digest}.lock"

    def _locked_file(self, namespace: str) -> int:
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._file_of(namespace), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _is_locked(handle):
            os.close(handle)
            raise OwnedError(namespace=namespace, owner=self._path)
        return handle


# A forked child, such as a worker of `multiprocessing`, would otherwise keep a lock whose process has died.
_LOCKS: "WeakSet[Lock]" = WeakSet()


def _forget_locks() -> None:
    for lock in list(_LOCKS):
        lock.forget()


os.register_at_fork(after_in_child=_forget_locks)


class SqliteLease:
    """The leases of one store's namespaces, each with all its shards. `number` is the namespace's."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def acquire(self, connection: sqlite3.Connection, number: int, namespace: str, owner: str) -> Ownership:
        """Lock a namespace and record its owner, or raise OwnedError."""
        self._lock.acquire(namespace, owner)
        try:
            values = {"namespace": number, "owner": owner}
            with Writing(connection):
                before = _last_owner(connection, values)
                (token,) = connection.execute(SQL["take_over"], values).fetchone()
                (high,) = connection.execute(SQL["high"], values).fetchone()
        except BaseException:
            self._lock.release(namespace)
            raise
        shards = range(SHARDS)
        known = dict.fromkeys(shards, before) if before is not None else NO_PREDECESSORS
        return Ownership(namespace, owner, dict.fromkeys(shards, token), high=high, predecessors=known)

    def release(
        self, connection: sqlite3.Connection, number: int, ownership: Ownership, now: int | None
    ) -> None:
        """End a lease, unless another owner has taken over."""
        values = {"namespace": number, "token": ownership.token, "now": now}
        with Writing(connection):
            is_mine = connection.execute(SQL["release"], values).rowcount == 1
        if is_mine:
            self._lock.release(ownership.namespace)

    def is_drained(self, connection: sqlite3.Connection, number: int, owner: str, now: int) -> bool:
        """Say whether a worker was asked to drain; if so, note that it was heard from."""
        values = {"namespace": number, "owner": owner, "now": now}
        drain = connection.execute(SQL["drain"], values).fetchone()
        if drain is not None and now - (drain[0] or 0) >= SEEN_MS:
            with Writing(connection):
                connection.execute(SQL["saw_drained"], values)
        return drain is not None

    def absence(self, connection: sqlite3.Connection, number: int, namespace: str) -> IncidentRecord | None:
        """Return the outage of a namespace that no worker owns now; None while a worker owns it."""
        if self._lock.is_held(namespace):
            return None
        return absence_after(*(_last_owner(connection, {"namespace": number}) or ()))

    def leases(self, connection: sqlite3.Connection, number: int, namespace: str) -> list[WorkerLease]:
        """Return the worker of a namespace, and those that were asked to drain."""
        values: dict[str, object] = {"namespace": number}
        owner, *_ = connection.execute(SQL["lease"], values).fetchone() or (None,)
        leases = []
        if owner is not None:
            row = connection.execute(SQL["last_take_over"], {**values, "owner": owner}).fetchone()
            taken_at, detail = row or (None, None)
            lease = WorkerLease(owner, tuple(range(SHARDS)), self._lock.is_held(namespace), taken_at=taken_at)
            leases.append(lease._replace(version=parsed_detail(detail).get("version")))
        return with_drains(leases, connection.execute(SQL["drains"], values))


def _last_owner(connection: sqlite3.Connection, values: Mapping[str, object]) -> Predecessor | None:
    """Return the last owner of a lease: one that is still named in it ended without a stop.

    Nothing is written while a worker is idle: the last known of it is its last write. Writes of people are
    not counted, which may come after its end.
    """
    lease = connection.execute(SQL["lease"], values).fetchone()
    if lease is None:
        return None
    owner, last_owner, released_at = lease
    if owner is not None:
        (seen,) = connection.execute(SQL["last_seen"], {**values, "owner": owner}).fetchone()
        return Predecessor(owner, max(seen, released_at or 0), KILLED)
    return None if last_owner is None else Predecessor(last_owner, released_at or 0, STOPPED)


def _is_locked(handle: int) -> bool:
    """Lock a file, and say whether that worked; a reader that tests the lock has it for an instant."""
    for _ in range(MAX_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            Event().wait(RETRY_S)
        else:
            return True
    return False
