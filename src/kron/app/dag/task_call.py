"""Tasks that are Python functions: what they are called with, and what they return and print."""

import asyncio
import inspect
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO, TypeAlias

import kron
from kron.core.dag.definition import MAX_DOCUMENT
from kron.core.errors import InputError
from kron.core.plan.report import Launch
from kron.core.time.instant import EPOCH

# How many characters of the text that a function printed are kept, the last ones.
MAX_OUTPUT = 65_536
# The folders of the code that calls functions; its frames tell the author of a task nothing.
MACHINERY = tuple(
    str(Path(file).parent) + os.sep for file in (kron.__file__, asyncio.__file__, futures.__file__)
)
# An argument of this form stands for the result of another task.
RESULT = "$result"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What a task is executed with; `arguments` are those of its node, with the results they refer to."""

    dag_id: str
    run_id: str
    task_id: str
    logical_date: datetime
    attempt: int
    input: Mapping[str, Any]
    arguments: Mapping[str, Any]
    upstream: Mapping[str, Any]


# A function that a worker registers by name; a plain one is called in a thread.
TaskFunction: TypeAlias = Callable[[TaskContext], object]
_OUTPUT: ContextVar[io.StringIO | None] = ContextVar("kron task output", default=None)


class DocumentTooLargeError(InputError):
    """What a task gets is too large."""

    code = "document_too_large"

    def __init__(self) -> None:
        super().__init__(
            f"Its document has more than {MAX_DOCUMENT:,} characters: the input of the run, its arguments, "
            "and the results of the tasks it depends on; pass the names of large data instead of the data"
        )


def document_of(
    run_input: str, arguments: object, upstream: Mapping[str, str], meta: Mapping[str, object]
) -> str:
    """Return the document of a task as JSON text, or raise DocumentTooLargeError.

    Results are inserted as texts and never read: some lists take fifty times their length in memory.
    """
    return "".join(_within(MAX_DOCUMENT, _document_parts(run_input, arguments, upstream, meta)))


def _document_parts(
    run_input: str, arguments: object, upstream: Mapping[str, str], meta: Mapping[str, object]
) -> Iterator[str]:
    yield f'{{"input":{run_input},"arguments":'
    yield from _resolved(arguments, upstream)
    yield ',"upstream":{'
    for number, (name, text) in enumerate(upstream.items()):
        yield f"{',' if number else ''}{json.dumps(name)}:"
        yield text
    yield f'}},"meta":{json.dumps(meta)}}}'


def _within(most: int, parts: Iterable[str]) -> Iterator[str]:
    """Yield texts of a bounded length in all: one result may be referred to any number of times."""
    length = 0
    for part in parts:
        length += len(part)
        if length > most:
            raise DocumentTooLargeError
        yield part


def _resolved(value: object, upstream: Mapping[str, str]) -> Iterator[str]:
    """Yield an argument with the results it refers to: `{"$result": "extract"}` is that task's result."""
    if isinstance(value, Mapping):
        if set(value) == {RESULT}:
            yield upstream.get(str(value[RESULT]), "null")
            return
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{json.dumps(name)}:"
            yield from _resolved(each, upstream)
        yield "}" if value else "{}"
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield "," if number else "["
            yield from _resolved(each, upstream)
        yield "]" if value else "[]"
    else:
        yield json.dumps(value)


def context_of(launch: Launch) -> TaskContext:
    """Return the context of a launch from its payload."""
    assert launch.payload is not None, "every task has a payload"
    document = json.loads(launch.payload.document)
    meta = document["meta"]
    return TaskContext(
        dag_id=meta["dag_id"],
        run_id=meta["run_id"],
        task_id=meta["task_id"],
        logical_date=EPOCH + timedelta(milliseconds=meta["logical_ms"]),
        attempt=meta["attempt"],
        input=document["input"],
        arguments=document["arguments"],
        upstream=document["upstream"],
    )


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a function returned, as JSON text, and what it printed."""

    result: str | None
    output: str


async def call_task(function: TaskFunction, context: TaskContext) -> CallResult:
    """Call a function and return its result, or raise TaskFailedError with the exception and the output."""
    printed = io.StringIO()
    token = _OUTPUT.set(printed)
    try:
        if inspect.iscoroutinefunction(function):
            value = await function(context)
        else:
            value = await asyncio.to_thread(function, context)
            if inspect.isawaitable(value):
                value = await value
        result = None if value is None else json.dumps(value, separators=(",", ":"), allow_nan=False)
    except Exception as error:
        printed.write("".join(traceback.format_exception(type(error), error, _own_frames(error))))
        raise TaskFailedError(error, _tail(printed)) from error
    finally:
        _OUTPUT.reset(token)
    return CallResult(result, _tail(printed))


def _own_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception from the first frame that is neither Kron's nor of its threads."""
    frames = found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(MACHINERY):
        found = found.tb_next
    return found or frames


class TaskFailedError(Exception):
    """A function raised an exception; its output ends with the traceback."""

    def __init__(self, cause: Exception, output: str) -> None:
        super().__init__("the task failed")
        self.cause = cause
        self.output = output


def _tail(printed: io.StringIO) -> str:
    return printed.getvalue()[-MAX_OUTPUT:]


class _RoutedStream(io.TextIOBase):
    """A text stream that belongs to the task in whose context it is written to, and else to the program."""

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner

    def write(self, text: str) -> int:
        """Write to the output of the task, or through."""
        return (_OUTPUT.get() or self.inner).write(text)

    def flush(self) -> None:
        """Flush the program's stream."""
        self.inner.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@contextmanager
def printing_to_tasks() -> Iterator[None]:
    """Collect what functions of tasks print, each its own, instead of mixing it into the program's output."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _RoutedStream(before[0]), _RoutedStream(before[1])
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
