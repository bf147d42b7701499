"""Attacks that are connections: opened and left, fed drop by drop, or never read."""

import asyncio
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

# The longest wait for an answer.
PATIENCE_S = 600
# How many requests a client sends that reads no answer.
UNREAD = 100
SENT_AHEAD = 1 << 17
READ_NOTHING_S, WATCHED_S, DROP_S = 6.0, 0.5, 0.5


@dataclass(slots=True)
class Work:
    """How many requests are to be sent at least, and until when, and what the answers were."""

    least: int
    ends_at: float
    begun: int = 0
    answers: Counter[str] = field(default_factory=Counter)

    def begin(self) -> bool:
        """Count a request, or say that there have been enough."""
        if self.begun >= self.least and time.time() >= self.ends_at:
            return False
        self.begun += 1
        return True


class Link(NamedTuple):
    """An open connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Close it, whatever was not sent."""
        self.writer.transport.abort()


class Place(NamedTuple):
    """Where the service is, and the token of a hostile user."""

    host: str
    port: int
    token: str

    async def connect(self) -> Link:
        """Open a connection, with little room in the kernel for what the service does not read."""
        opened = socket.socket()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
        opened.setblocking(False)
        try:
            async with asyncio.timeout(60):
                await asyncio.get_running_loop().sock_connect(opened, (self.host, self.port))
                return Link(*await asyncio.open_connection(sock=opened))
        except BaseException:
            opened.close()
            raise

    def head(self, request: bytes, *headers: bytes) -> bytes:
        """Return the head of a request."""
        lines = (request, b"Host: localhost", b"Authorization: Bearer " + self.token.encode(), *headers)
        return b"\r\n".join([*lines, b"", b""])


Attack: TypeAlias = Callable[[Place, Work], Coroutine[None, None, None]]
# One request over a connection of its own; returns how it ended.
Hold: TypeAlias = Callable[[Link], Coroutine[None, None, str]]


async def answer_in(reader: asyncio.StreamReader, *, with_body: bool = True) -> tuple[str, bool]:
    """Read an answer, and return its status, and whether the connection stays."""
    async with asyncio.timeout(PATIENCE_S):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status, *lines = head.split(b"\r\n")
        headers = dict(line.partition(b": ")[::2] for line in lines)
        if with_body:
            await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return status.split()[1].decode(), headers.get(b"connection") != b"close"


async def _hold(place: Place, work: Work, at_once: int, hold: Hold, each: int = 1) -> None:
    """Hold a number of connections at once until there have been enough; one has `each` requests."""

    async def one() -> None:
        while work.begin():
            work.begun += each - 1
            try:
                link = await place.connect()
            except OSError as error:
                work.answers[type(error).__name__] += 1
                continue
            try:
                work.answers[await hold(link)] += each
            except (OSError, EOFError, asyncio.LimitOverrunError) as error:
                work.answers[type(error).__name__] += each
            finally:
                link.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(one())


async def idle(place: Place, work: Work) -> None:
    """Keep more connections open than the API serves."""
    links: deque[Link] = deque()
    while work.begin():
        with suppress(OSError):
            links.append(await place.connect())
        work.answers["connections"] += 1
        if len(links) > 1_100:
            links.popleft().close()
        await asyncio.sleep(0.005)
    for link in links:
        link.close()


async def drip(place: Place, work: Work) -> None:
    """Send sign-in forms of which a byte comes now and then, until they are answered."""
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"

    async def hold(link: Link) -> str:
        async def feed() -> None:
            with suppress(OSError):
                while True:
                    link.writer.write(b" ")
                    await link.writer.drain()
                    await asyncio.sleep(DROP_S)

        link.writer.write(head)
        feeding = asyncio.create_task(feed())
        try:
            return (await answer_in(link.reader))[0]
        finally:
            feeding.cancel()

    await _hold(place, work, 400, hold)


async def tiny_parts(place: Place, work: Work) -> None:
    """Send bodies in parts of one byte, each of which costs as much time as a kilobyte."""
    head = place.head(
        b"POST /preview HTTP/1.1", b"Content-Type: application/json", b"Transfer-Encoding: chunked"
    )
    parts = b"1\r\n \r\n" * 100_000

    async def hold(link: Link) -> str:
        link.writer.write(head + parts)
        return (await answer_in(link.reader))[0]

    await _hold(place, work, 10, hold)


async def unread(place: Place, work: Work) -> None:
    """Request large answers over each connection, and read none until the connection is closed."""
    requests = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * UNREAD

    async def hold(link: Link) -> str:
        # What the kernel has room for is not reading.
        link.writer.transport.pause_reading()  # type: ignore[attr-defined]
        link.writer.write(requests)
        await asyncio.sleep(READ_NOTHING_S)
        return "unread"

    await _hold(place, work, 25, hold, UNREAD)


async def streams(place: Place, work: Work) -> None:
    """Open live streams, and read the head of each and nothing else."""
    head = place.head(b"GET /ui/live HTTP/1.1", b"Accept: text/event-stream")

    async def hold(link: Link) -> str:
        link.writer.write(head)
        status, _ = await answer_in(link.reader, with_body=False)
        await asyncio.sleep(WATCHED_S)
        return status

    await _hold(place, work, 100, hold)


CONNECTING: dict[str, Attack] = {
    "1,100 idle connections": idle,
    "dripping sign-in forms": drip,
    "bodies in tiny parts": tiny_parts,
    "answers that are not read": unread,
    "live streams that are not read": streams,
}
