"""The operating system's lock on a namespace, which the death of its process releases."""

import fcntl
import os
import re
from hashlib import sha256
from pathlib import Path
from threading import Lock as Mutex

from kron.core.errors import OwnedError

# How much of a namespace's name a lock file shows; file names have an end.
MAX_LOCK_NAME = 60


class Lock:
    """The locks one store holds, each a file beside its database; in memory a note is enough."""

    def __init__(self, path: str, *, in_memory: bool) -> None:
        self._path = path
        self._in_memory = in_memory
        self._handles: dict[str, int] = {}
        self._turn = Mutex()
        self._is_over = False

    def take(self, namespace: str) -> None:
        """Lock a namespace, or raise OwnedError if it is locked."""
        with self._turn:
            if namespace in self._handles or self._is_over:
                raise OwnedError(namespace=namespace, owner=self._path)
            self._handles[namespace] = -1 if self._in_memory else self._locked_file(namespace)

    def let_go(self, namespace: str) -> None:
        """Let another one take a namespace."""
        handle = self._handles.pop(namespace, -1)
        if handle != -1:
            os.close(handle)

    def let_go_all(self) -> None:
        """Let go of every namespace."""
        for namespace in list(self._handles):
            self.let_go(namespace)

    def end(self) -> None:
        """Let go of every namespace and take none again, also not for work that has begun already."""
        with self._turn:
            self._is_over = True
            self.let_go_all()

    def _locked_file(self, namespace: str) -> int:
        # The readable part is for people; namespaces that differ only in other signs have the rest.
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
