"""Connections that are kept for a while, so that the next request need not make one."""

import asyncio

from kron.launchers.http.connection import Connection, Origin

# How many are kept, and for how long: many servers close them after five seconds.
MAX_KEPT, KEPT_S = 100, 4.0


class Pool:
    """Connections nobody uses at present; the one used last is taken first, so that the others may end."""

    def __init__(self, *, max_kept: int = MAX_KEPT, kept_s: float = KEPT_S) -> None:
        self._max_kept = max_kept
        self._kept_s = kept_s
        self._kept: dict[Connection, float] = {}
        self._of: dict[Origin, list[Connection]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def take(self, origin: Origin) -> Connection | None:
        """Return a connection for a request, if there is one."""
        kept = self._of.get(origin)
        if not kept:
            return None
        connection = kept[-1]
        self._forget(connection)
        return connection

    def put(self, connection: Connection) -> None:
        """Keep a connection that can be used again."""
        if len(self._kept) >= self._max_kept:
            self._drop(next(iter(self._kept)))
        loop = asyncio.get_running_loop()
        self._kept[connection] = loop.time() + self._kept_s
        self._of.setdefault(connection.origin, []).append(connection)
        connection.on_end = self._forget
        if self._timer is None:
            self._timer = loop.call_later(self._kept_s, self._sweep)

    def close(self) -> None:
        """Let go of all."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._kept):
            self._drop(connection)

    def _sweep(self) -> None:
        """Close what nobody used for long, and come back when the next one will be old."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for connection, until in list(self._kept.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._sweep)
                return
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        connection.on_end = None
        if self._kept.pop(connection, None) is not None:
            kept = self._of[connection.origin]
            kept.remove(connection)
            if not kept:
                del self._of[connection.origin]
