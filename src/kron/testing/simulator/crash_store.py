"""Stores of a story: one that is the same every time, and one in which a crash waits at a call."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from kron.ports import Clock, Store, WriteResult
from kron.stores.sqlite.store import SqliteStore
from kron.testing.faulty_store import FaultyStore

Arguments = ParamSpec("Arguments")
T = TypeVar("T")


class PromptStore(SqliteStore):
    """A store that in memory does all its work at once: no thread decides who has the next turn."""

    async def _do(self, work: Callable[..., T], *arguments: object, many: bool = False) -> T:
        return await super()._do(work, *arguments)


class TrappedStore(FaultyStore):
    """A faulty store that can also kill whoever calls it; `put_at` is the time of the list last written."""

    def __init__(self, store: Store, clock: Clock, kill: Callable[[], None]) -> None:
        super().__init__(store, clock)
        self._kill = kill
        self._trap: tuple[str, str] | None = None
        self.put_at: int | None = None

    def set_trap(self, call: str, how: str) -> None:
        """Have the next call of a name be the last, `before` it is done or `after`."""
        self._trap = call, how

    def heal(self) -> None:
        """Let nothing fail any more, and nobody die."""
        super().heal()
        self._trap = None

    async def _call(
        self,
        name: str,
        call: Callable[Arguments, Awaitable[T]],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> T:
        self._spring(name, "before")
        answer = await super()._call(name, call, *arguments, **named)
        now = named.get("now")
        if name == "put" and isinstance(now, int) and isinstance(answer, WriteResult) and not any(answer):
            self.put_at = now
        self._spring(name, "after")
        return answer

    def _spring(self, name: str, how: str) -> None:
        if self._trap == (name, how):
            self._trap = None
            self._kill()
            # Whoever asked is dead, and nothing after the call is done.
            raise CancelledError
