"""Stores of the simulator: one that is deterministic, and one that can crash its caller."""

from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from kron.core.plan.step import WriteResult
from kron.ports import Clock, Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing.faulty_store import FaultyStore

Arguments = ParamSpec("Arguments")
T = TypeVar("T")


class InlineStore(SqliteStore):
    """A store that works inline when in memory: no thread makes the order of events random."""

    async def _do(self, work: Callable[..., T], *arguments: object, many: bool = False) -> T:
        return await super()._do(work, *arguments)


class CrashStore(FaultyStore):
    """A faulty store that can also kill its caller; `put_at` is the time of the last list written."""

    def __init__(self, store: Store, clock: Clock, kill: Callable[[], None]) -> None:
        super().__init__(store, clock)
        self._kill = kill
        self._trap: tuple[str, str] | None = None
        self.put_at: int | None = None

    def set_trap(self, call: str, how: str) -> None:
        """Crash the caller at the next call of a name, `before` it is done or `after`."""
        self._trap = call, how

    def heal(self) -> None:
        """Remove all faults and the trap."""
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
        result = await super()._call(name, call, *arguments, **named)
        now = named.get("now")
        if name == "put" and isinstance(now, int) and isinstance(result, WriteResult) and not any(result):
            self.put_at = now
        self._spring(name, "after")
        return result

    def _spring(self, name: str, how: str) -> None:
        if self._trap == (name, how):
            self._trap = None
            self._kill()
            # The caller is dead: nothing after the call is done.
            raise CancelledError
