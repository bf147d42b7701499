"""Waiting for a condition, with the patience a busy machine needs."""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

# Only a test that fails waits this long, and it says why before pytest's timeout ends it (pyproject.toml);
# `tools/mutation.py` makes many of them fail.
PATIENCE_S = float(os.environ.get("TEST_PATIENCE_S", "90"))
_POLL_S = 0.01

T = TypeVar("T")
Text = TypeVar("Text", str, bytes)


def wait_for(condition: Callable[[], T | None], describe: Callable[[], object] = lambda: "") -> T:
    """Wait until a condition holds, and return its value; a failure says what `describe` returns."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < give_up_at, f"not so after {PATIENCE_S:.0f} s: {describe()}"
        time.sleep(_POLL_S)
    return value


@contextmanager
def awaited(process: subprocess.Popen[Text]) -> Iterator[subprocess.Popen[Text]]:
    """Wait for a process to end by itself; a test that fails, or times out, kills it instead."""
    with process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


async def until(condition: Callable[[], object]) -> None:
    """Wait, in real time, until a condition holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - nothing signals an arbitrary condition
            await asyncio.sleep(_POLL_S)


async def retried(work: Callable[[], Awaitable[T]], *errors: type[Exception]) -> T:
    """Repeat an operation until it raises none of these errors, and return its result."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(*errors):
                return await work()
            await asyncio.sleep(_POLL_S)
