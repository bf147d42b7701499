"""Watching a SQLite file: nobody says that it changed, but asking costs next to nothing."""

from collections.abc import Awaitable, Callable

from kron.ports import News


class SqliteWatch:
    """Notices that another connection has written since the last look."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._seen: object = None

    async def look(self) -> News:
        """Return whether anything may have changed; at first it may have."""
        before, self._seen = self._seen, await self._ask()
        return News(jobs=self._seen != before)

    async def close(self) -> None:
        """Watch no more."""
