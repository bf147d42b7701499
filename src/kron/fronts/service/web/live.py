"""Live pages: a stream of server-sent events per page, which says that something has changed.

One poller asks the store for its version while at least one stream is open; with none, nothing is asked. The
event has no content: the page requests itself again, with the permissions of its caller.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from weakref import finalize

from kron.core.errors import StoreError
from kron.fronts.service.auth.principal import UNRESTRICTED, Caller, LimitExceededError
from kron.fronts.service.registrar import new_name

# Streams in all, and of one caller.
MAX_STREAMS, MAX_OWN_STREAMS = 500, 50
# How long a browser waits before it opens a cut stream again, in milliseconds.
RETRY = b"retry: 2000\n\n"


class StreamTimes(NamedTuple):
    """The times of streams, in seconds.

    The store is asked every `poll` seconds. Events of a stream are at least `spacing` apart, and further with
    every other stream: at each event a page requests itself, and all pages together must leave the processor
    to others. A caller of some tenants gets an event every `pace` seconds, because events at writes would
    reveal those of other tenants. A stream without events sends a comment every `keep_alive`, so that both
    sides notice a cut connection. After `age` it ends and the page opens another, which authenticates again.
    """

    poll: float = 0.5
    spacing: float = 1.0
    spacing_per_stream: float = 0.05
    pace: float = 5.0
    keep_alive: float = 15.0
    age: float = 300.0


DEFAULT_TIMES = StreamTimes()


class LiveUpdates:
    """The open streams of a process, and the poller that feeds them."""

    def __init__(self, version: Callable[[], Awaitable[str]], times: StreamTimes = DEFAULT_TIMES) -> None:
        self._version = version
        self._times = times
        # Numbers of another process are not comparable.
        self._process = new_name()[:8]
        self._number = 0
        self._changed = asyncio.Event()
        self._streams: Counter[str] = Counter()
        self._poller: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    @property
    def open_streams(self) -> int:
        """Return how many streams are open."""
        return self._streams.total()

    @property
    def _is_closed(self) -> bool:
        return self._closing.is_set()

    @property
    def is_polling(self) -> bool:
        """Return whether the store is being asked."""
        return self._poller is not None

    def stream(self, caller: Caller, last_id: str | None = None) -> AsyncGenerator[bytes, None]:
        """Return the events of a new stream after the event `last_id`, or raise LimitExceededError.

        Without `last_id` it begins with an event: the page may have changed since it was rendered.
        """
        own = self._streams[caller.name]
        if self._is_closed or self.open_streams >= MAX_STREAMS:
            raise LimitExceededError(f"{MAX_STREAMS} pages are live already: poll instead", wait_s=60)
        if caller is not UNRESTRICTED and own >= MAX_OWN_STREAMS:
            message = f"{MAX_OWN_STREAMS} pages of this caller are live already: poll instead"
            raise LimitExceededError(message, wait_s=60)
        # Counted now: of many requests at once, all could pass the check before the first stream begins.
        self._streams[caller.name] += 1
        release = _Once(partial(self._release, caller.name))
        events = self._events(caller, last_id, release)
        # One whose client is gone before its first event never runs.
        finalize(events, release)
        return events

    def _release(self, name: str) -> None:
        self._streams[name] -= 1
        if not self._streams[name]:
            del self._streams[name]

    def close(self) -> None:
        """End every stream and the poller."""
        self._closing.set()
        self._changed.set()
        if self._poller is not None:
            self._poller.cancel()

    async def _events(
        self, caller: Caller, last_id: str | None, release: Callable[[], None]
    ) -> AsyncGenerator[bytes, None]:
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll(), name="kron live pages")
        time = asyncio.get_running_loop().time
        ends = time() + self._times.age
        events = self._changes(last_id) if caller.users is None else self._steps()
        try:
            yield RETRY
            async for event in events:
                yield event
                if time() > ends:
                    break
        finally:
            release()

    async def _changes(self, last_id: str | None) -> AsyncGenerator[bytes, None]:
        """Yield one event for all changes since the last one, and comments while there are none."""
        seen = last_id
        while not self._is_closed:
            latest, changed = f"{self._process}-{self._number}", self._changed
            if latest != seen:
                seen = latest
                yield f"id: {seen}\nevent: changed\ndata: {self._number}\n\n".encode()
                spacing_s = max(self._times.spacing, self._times.spacing_per_stream * self.open_streams)
                await _set_within(spacing_s, self._closing)
            elif not await _set_within(self._times.keep_alive, changed):
                yield b": nothing new\n\n"

    async def _steps(self) -> AsyncGenerator[bytes, None]:
        """Yield an event at every step of a steady pace."""
        while not self._is_closed:
            yield b"event: changed\ndata: 0\n\n"
            await _set_within(self._times.pace, self._closing)

    async def _poll(self) -> None:
        """Compare the version of the store while there are viewers."""
        known: str | None = None
        try:
            while self._streams:
                with suppress(StoreError):
                    version = await self._version()
                    if version != known:
                        known = version
                        self._number += 1
                        changed, self._changed = self._changed, asyncio.Event()
                        changed.set()
                await asyncio.sleep(self._times.poll)
        finally:
            self._poller = None


class _Once:
    """Calls a function once, however often it is called."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function: Callable[[], None] | None = function

    def __call__(self) -> None:
        function, self._function = self._function, None
        if function is not None:
            function()


async def _set_within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event, and return whether it was set in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
