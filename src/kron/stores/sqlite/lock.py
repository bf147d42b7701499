"""The operating system's lock on a namespace, released when its process dies."""

import fcntl
import os
import re
from hashlib import sha256
from pathlib import Path
from threading import Lock as Mutex

from kron.core.errors import OwnedError

# The length of a namespace's name in the name of its lock file.
MAX_LOCK_NAME = 60


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

    def _locked_file(self, namespace: str) -> int:
        # The name is for people; the digest separates namespaces that differ in other characters only.
        name = re.sub(r"[^A-Za-z0-9]+", "-", namespace)[:MAX_LOCK_NAME]
        digest = sha256(namespace.encode()).hexdigest()[:8]
        Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(f"{self._path}.{name}-{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as cause:
            os.close(handle)
            raise OwnedError(namespace=namespace, owner=self._path) from cause
        return handle
