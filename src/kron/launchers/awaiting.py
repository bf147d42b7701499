"""Whether a task waits for a future: directly, or through gather, wait, wait_for, shield or a task group."""

import asyncio
from collections.abc import Iterator
from functools import partial


def waits_for(task: "asyncio.Task[object]", future: "asyncio.Future[object]") -> bool:
    """Return whether a task is blocked until a future is done, as far as asyncio's callbacks show it."""
    seen: set[int] = set()
    todo: list[asyncio.Future[object]] = [future]
    while todo:
        awaited = todo.pop()
        if awaited is task:
            return True
        if id(awaited) not in seen:
            seen.add(id(awaited))
            todo += _waiting_for(awaited)
    return False


def _waiting_for(future: "asyncio.Future[object]") -> Iterator["asyncio.Future[object]"]:
    """Yield the tasks and futures that are woken when a future is done."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        for value in _values_of(callback):
            if isinstance(value, asyncio.TaskGroup):
                value = getattr(value, "_parent_task", None)
            if isinstance(value, asyncio.Future):
                yield value


def _values_of(callback: object) -> Iterator[object]:
    """Yield the values that a callback is bound to."""
    if isinstance(callback, partial):
        yield from callback.args
        callback = callback.func
    yield getattr(callback, "__self__", None)
    for cell in getattr(callback, "__closure__", None) or ():
        yield cell.cell_contents
