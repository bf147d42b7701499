"""Live pages: one stream per page, bounded and resumed, and nothing is polled while no page is open."""

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from kron.core.errors import StoreError
from kron.fronts.service.auth.principal import (
    EVERYTHING,
    UNRESTRICTED,
    Caller,
    LimitExceededError,
    TokenScope,
)
from kron.fronts.service.web.live import MAX_OWN_STREAMS, MAX_STREAMS, RETRY, LiveUpdates, StreamTimes
from tests.service.server import serving
from tests.service.web.test_pages import YEARLY
from tests.waiting import until

QUICK = StreamTimes(poll=0.005, spacing=0.02, spacing_per_stream=0.0, pace=0.02, keep_alive=0.05)
ADMIN = Caller("ops", EVERYTHING, None)
TENANT = Caller("ann", frozenset({TokenScope.READ}), ("ann",))
COMMENT = b": nothing new\n\n"


class Versions:
    """A store whose version a test changes, and how often it was asked."""

    def __init__(self) -> None:
        self.number = 0
        self.asked = 0
        self.fails = False

    async def version(self) -> str:
        self.asked += 1
        if self.fails:
            raise StoreError("away")
        return str(self.number)

    async def is_asked(self, times: int = 2) -> None:
        """Wait until it was asked some times more."""
        before = self.asked
        await until(lambda: self.asked >= before + times)


@asynccontextmanager
async def watching(
    live: LiveUpdates, caller: Caller = ADMIN, last_id: str | None = None
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """Open a stream, past its first line."""
    async with aclosing(live.stream(caller, last_id)) as events:
        assert await anext(events) == RETRY
        yield events


async def next_id(events: AsyncGenerator[bytes, None]) -> str:
    """Return the id of the next event."""
    async for event in events:
        if event != COMMENT:
            first, kind, *_ = event.decode().splitlines()
            assert kind == "event: changed"
            return first.removeprefix("id: ")
    raise AssertionError("the stream has ended")


async def test_the_store_is_asked_only_while_somebody_watches() -> None:
    versions = Versions()
    live = LiveUpdates(versions.version, QUICK)
    await asyncio.sleep(0)
    assert (versions.asked, live.is_polling) == (0, False)
    async with watching(live), watching(live):
        await versions.is_asked()
        assert live.open_streams == 2
    await until(lambda: not live.is_polling)
    assert live.open_streams == 0


async def test_changes_before_the_next_event_are_one_event() -> None:
    versions = Versions()
    live = LiveUpdates(versions.version, QUICK)
    async with watching(live) as events:
        first = await next_id(events)
        for _ in range(3):
            versions.number += 1
            await versions.is_asked()
        assert await next_id(events) != first
        # Nothing has changed since, so a comment keeps the connection.
        assert await anext(events) == COMMENT


async def test_a_stream_resumes_after_the_last_event_and_says_nothing_twice() -> None:
    versions = Versions()
    live = LiveUpdates(versions.version, QUICK)
    async with watching(live) as events:
        await versions.is_asked()
        seen = await next_id(events)
        async with watching(live, last_id=seen) as resumed:
            assert await anext(resumed) == COMMENT
        versions.number += 1
        async with watching(live, last_id=seen) as resumed:
            assert await next_id(resumed) != seen
        async with watching(live, last_id="another process-7") as fresh:
            assert await next_id(fresh) != seen


async def test_a_failing_store_ends_no_stream() -> None:
    versions = Versions()
    live = LiveUpdates(versions.version, QUICK)
    async with watching(live) as events:
        await versions.is_asked()
        seen = await next_id(events)
        versions.fails = True
        await versions.is_asked()
        versions.fails = False
        versions.number += 1
        assert await next_id(events) != seen


async def test_a_caller_of_some_tenants_gets_events_at_a_steady_pace_whatever_is_written() -> None:
    live = LiveUpdates(Versions().version, QUICK)
    async with watching(live, TENANT) as events:
        # Three events although nothing changes, and each like the others.
        assert {await anext(events) for _ in range(3)} == {b"event: changed\ndata: 0\n\n"}


async def test_streams_are_bounded_for_each_caller_and_in_all() -> None:
    live = LiveUpdates(Versions().version, QUICK)
    streams = []

    async def open_one(caller: Caller) -> None:
        streams.append(live.stream(caller))
        await anext(streams[-1])

    for _ in range(MAX_OWN_STREAMS):
        await open_one(ADMIN)
    with pytest.raises(LimitExceededError, match="50 pages of this caller are live already: poll instead"):
        live.stream(ADMIN)
    for _ in range(MAX_STREAMS - MAX_OWN_STREAMS):
        await open_one(UNRESTRICTED)
    with pytest.raises(LimitExceededError, match="500 pages are live already: poll instead"):
        live.stream(UNRESTRICTED)
    live.close()
    for stream in streams:
        async for _ in stream:
            pass
    assert live.open_streams == 0


async def test_a_stream_ends_after_a_while_and_when_the_process_stops() -> None:
    live = LiveUpdates(Versions().version, QUICK._replace(age=0.0))
    async with watching(live) as events:
        assert len([event async for event in events]) == 1
    live = LiveUpdates(Versions().version, QUICK._replace(keep_alive=60.0))
    async with watching(live) as events:
        await next_id(events)
        asyncio.get_running_loop().call_soon(live.close)
        assert COMMENT not in [event async for event in events]


@pytest.mark.slow
def test_a_write_reaches_an_open_page_and_a_stop_does_not_wait_for_it(tmp_path: Path) -> None:
    asked = {"accept": "text/event-stream"}
    with serving(tmp_path) as (client, server), client.stream("GET", "/ui/live", headers=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        skip_to(lines, "event: changed")
        written = httpx.post(f"{client.base_url}/schedules/upsert", json=YEARLY, trust_env=False)
        assert written.status_code == 200
        skip_to(lines, "event: changed")
        server.signal(signal.SIGTERM)
        # The stream ends properly: otherwise the client would complain.
        assert all(not line.startswith("event: error") for line in lines)
        assert server.ended() == 0


def skip_to(lines: Iterator[str], wanted: str) -> None:
    """Read a stream up to a line."""
    for line in lines:
        if line == wanted:
            return
    raise AssertionError(f"the stream ended before {wanted}")


async def test_streams_that_have_not_begun_count_and_forgotten_ones_do_not() -> None:
    live = LiveUpdates(Versions().version, QUICK)
    streams = [live.stream(ADMIN) for _ in range(MAX_OWN_STREAMS)]
    with pytest.raises(LimitExceededError):
        live.stream(ADMIN)
    # Their clients were gone before the first event.
    del streams
    assert live.open_streams == 0
