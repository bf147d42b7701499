"""The operating system's lock on a namespace, released when its process dies."""

import fcntl
import os
import re
from hashlib import sha256
from pathlib import Path
from threading import Event
from threading import Lock as Mutex

from kron.core.errors import OwnedError

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
