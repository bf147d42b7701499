"""A number of requests of each kind, as large as they come, over connections of several hostile users."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from itertools import cycle

import httpx

from tests.abuse.attacks import Request, rewrite
from tests.abuse.connections import Link, Place, Work, answer_in

# The connections of one user; beyond those that wait for a turn or for the processor, answers are refusals.
CONNECTIONS = 30
# How many times a request is recorded that differs each time.
RECORDED = 8
PIECE = 1 << 18
LIMITED = str(HTTPStatus.TOO_MANY_REQUESTS.value)


class _Recording(httpx.BaseTransport):
    """Keeps the bytes of a request instead of sending it."""

    sent = b""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Keep a request, with its length."""
        body = request.read()
        lines = [b"%s: %s" % header for header in request.headers.raw if header[0] != b"Transfer-Encoding"]
        if body and "content-length" not in request.headers:
            lines.append(b"Content-Length: %d" % len(body))
        target = request.method.encode() + b" " + request.url.raw_path + b" HTTP/1.1"
        self.sent = b"\r\n".join([target, *lines, b"", body])
        return httpx.Response(200)


def recorded(url: str, token: str, prefix: str, request: Request) -> Iterator[bytes]:
    """Yield the bytes of a request again and again, as one user sends it."""
    recording = _Recording()
    headers = {"authorization": f"Bearer {token}"}
    kept = []
    with httpx.Client(base_url=url, headers=headers, transport=recording) as client:
        for _ in range(RECORDED if request is rewrite else 1):
            request(client, prefix)
            if recording.sent not in kept:
                kept.append(recording.sent)
    return cycle(kept)


async def send_many(place: Place, users: list[Iterator[bytes]], work: Work) -> None:
    """Send requests over the connections of several users, until there have been enough."""
    async with asyncio.TaskGroup() as group:
        for messages in users:
            for _ in range(CONNECTIONS):
                group.create_task(_send(place, messages, work))


async def _send(place: Place, messages: Iterator[bytes], work: Work) -> None:
    """Send requests over one connection after another."""
    while work.begin():
        link: Link | None = None
        try:
            link = await place.connect()
            while True:
                status, is_kept = await _answered(link, next(messages))
                work.answers[status] += 1
                if status == LIMITED:
                    # A caller who waits has more of its requests carried out.
                    await asyncio.sleep(1)
                if not is_kept or not work.begin():
                    break
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            work.answers[type(error).__name__] += 1
        finally:
            if link is not None:
                link.close()


async def _answered(link: Link, message: bytes) -> tuple[str, bool]:
    """Send a request, and return the status of its answer, and whether the connection can be used again.

    An answer that comes before the request was sent ends the sending.
    """
    sending = asyncio.create_task(_write(link, message))
    try:
        status, is_kept = await answer_in(link.reader)
        return status, is_kept and sending.done()
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await sending


async def _write(link: Link, message: bytes) -> None:
    view = memoryview(message)
    for start in range(0, len(view), PIECE):
        link.writer.write(view[start : start + PIECE])
        await link.writer.drain()
