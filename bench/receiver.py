"""A receiver of starts: minimal, so that the sender is measured and not the receiver."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import time

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
BACKLOG = 4_096


class Receiver:
    """Accepts every start, at once or after a delay; records its arrival and its nominal time.

    `keys` are the idempotency keys per nominal time, so that duplicates count once.
    """

    def __init__(self, after_s: float = 0.0) -> None:
        self.came: list[tuple[float, str]] = []
        self.keys: dict[str, set[str]] = {}
        self.lines: set[asyncio.Transport] = set()
        self.url = ""
        self.after_s = after_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def number(self, due: str) -> int:
        """Return the number of distinct starts received for one nominal time."""
        return len(self.keys.get(due, ()))

    def take(self, due: str, key: str) -> None:
        """Record a start."""
        self.came.append((time(), due))
        self.keys.setdefault(due, set()).add(key)

    def run(self, ready: threading.Event) -> None:
        """Receive until stopped."""
        asyncio.run(self._receive(ready))

    async def _receive(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        make = partial(_Line, self)
        server = await self._loop.create_server(make, "127.0.0.1", 0, backlog=BACKLOG)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/start"
        ready.set()
        await self._stopped.wait()
        server.close()
        for line in list(self.lines):
            line.abort()
        await asyncio.sleep(0)

    def stop(self) -> None:
        """Stop receiving."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped.set)


class _Line(asyncio.Protocol):
    """One connection with sequential requests."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._receiver.lines.add(transport)

    def connection_lost(self, _: Exception | None) -> None:
        assert self._transport is not None
        self._receiver.lines.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if end and len(body) >= int(_after(head, b"Content-Length: ")):
            self._buffer = b""
            due = _after(body, b'"scheduled_for": "').rstrip(b'",')
            key = _after(head, b"Idempotency-Key: ")
            self._receiver.take(due.decode(), key.decode())
            self._answer()

    def _answer(self) -> None:
        assert self._transport is not None
        if self._receiver.after_s:
            asyncio.get_running_loop().call_later(self._receiver.after_s, self._transport.write, ACCEPTED)
        else:
            self._transport.write(ACCEPTED)


def _after(text: bytes, mark: bytes) -> bytes:
    """Return the word after a marker."""
    return text.partition(mark)[2].split(None, 1)[0]


@contextmanager
def receiving(after_s: float = 0.0) -> Iterator[Receiver]:
    """Run a receiver in a separate thread."""
    receiver, ready = Receiver(after_s), threading.Event()
    thread = threading.Thread(target=receiver.run, args=(ready,), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield receiver
    finally:
        receiver.stop()
        thread.join()
