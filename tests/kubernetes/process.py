"""A simulated process: the tasks of one coroutine, killed or frozen together at any of their awaits.

A task that is killed is never resumed, not even for its `finally` clauses: nothing of it happens after its
last await, as with a process that gets SIGKILL. What it has written to its connections still arrives.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import datetime
from types import TracebackType
from typing import Any

from kron.launchers.http.client import Connection
from kron.testing import SimulatedClock

_process: ContextVar["Process | None"] = ContextVar("process", default=None)
# Nested `finally` clauses of one coroutine that await.
MAX_CLAUSES = 20


class Process:
    """The tasks that a coroutine starts, with their connections and their work on the clock.

    `on_await` is called at each await that suspends a task; it may `kill` or `freeze` the process.
    """

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = ProcessClock(clock)
        self.on_await: Callable[[], None] = lambda: None
        self.is_dead = False
        # What the tasks of a frozen process wait for; None while it runs.
        self.frozen: list[asyncio.Future[None]] | None = None
        self.connections: list[Connection] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        # What is left of killed tasks; a coroutine that is dropped would run its `finally` clauses.
        self._buried: list[Coroutine[Any, Any, Any]] = []
        self._context = copy_context()

    @property
    def is_running(self) -> bool:
        return not self.is_dead and self.frozen is None

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as this process; the tasks it creates belong to it."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(_task_of)  # type: ignore[arg-type]
        self._context.run(_process.set, self)
        return loop.create_task(work, context=self._context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def kill(self) -> None:
        """End every task at its present await."""
        self.is_dead = True
        self.clock.leave()
        for connection in self.connections:
            connection.on_end = None
            if connection._transport is not None:
                connection._transport.close()
        for task in list(self._tasks):
            task.cancel()

    def freeze(self) -> None:
        """Resume no task until `thaw`; its timers go on meanwhile, as those of the machine do."""
        self.frozen = []
        self.clock.leave()

    def thaw(self) -> None:
        waiting, self.frozen = self.frozen or (), None
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def bury(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._buried.append(coroutine)

    def forget(self) -> None:
        """Drop what is left of killed tasks, when nothing can come of it any more.

        Their `finally` clauses run now; tasks that these create are dead from the start.
        """
        while self._buried:
            coroutine = self._buried.pop()
            for _ in range(MAX_CLAUSES):
                try:
                    self._context.run(coroutine.close)
                    break
                except BaseException:  # noqa: BLE001 - a clause that awaits is left at that await
                    continue


class SteppedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine of a process, which stops at its await when that process does."""

    def __init__(self, process: Process, inner: Coroutine[Any, Any, Any]) -> None:
        self._process = process
        self._inner = inner
        # What a frozen task is resumed with, once it may go on.
        self._next: Callable[[], Any] | None = None

    def send(self, value: Any) -> Any:
        if self._next is None:
            self._next = lambda: self._inner.send(value)
        return self._step()

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        self._next = lambda: self._inner.throw(typ)
        return self._step()

    def close(self) -> None:
        """Nothing: a killed coroutine does not clean up."""

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError("only tasks run it")

    def _step(self) -> Any:
        process = self._process
        if process.is_dead:
            return self._end()
        if process.frozen is not None:
            return self._wait_for_thaw(process.frozen)
        assert self._next is not None
        resume, self._next = self._next, None
        result = resume()
        process.on_await()
        if process.is_dead:
            if result is not None:
                result.cancel()
            return self._end()
        return result

    def _wait_for_thaw(self, frozen: list[asyncio.Future[None]]) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future._asyncio_future_blocking = True
        frozen.append(future)
        return future

    def _end(self) -> Any:
        self._process.bury(self._inner)
        raise StopIteration(None)


class ProcessClock:
    """The clock of a simulation for one process: work of a dead or frozen one does not hold up time."""

    def __init__(self, clock: SimulatedClock) -> None:
        self._clock = clock
        self._working = 0
        self._has_left = False

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep_until(self, instant: datetime) -> None:
        await self._clock.sleep_until(instant)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def leave(self) -> None:
        """Let time pass from now on, whatever this process does."""
        if not self._has_left:
            self._clock._count(-self._working)
        self._has_left = True

    def _count(self, change: int) -> None:
        self._working += change
        if not self._has_left:
            self._clock._count(change)


@contextmanager
def processes() -> Iterator[None]:
    """Note the connections of each process, so that they end with it."""
    connection_made = Connection.connection_made

    def noted(connection: Connection, transport: asyncio.Transport) -> None:
        connection_made(connection, transport)
        process = _process.get()
        if process is not None:
            process.connections.append(connection)

    Connection.connection_made = noted  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        Connection.connection_made = connection_made  # type: ignore[method-assign]


def _task_of(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    context = options.get("context")
    process = _process.get() if context is None else context.get(_process)
    if process is None:
        return asyncio.Task(coroutine, loop=loop, **options)
    task: asyncio.Task[Any] = asyncio.Task(SteppedCoroutine(process, coroutine), loop=loop, **options)
    process.adopt(task)
    return task
