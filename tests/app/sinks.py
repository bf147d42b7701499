"""Receivers of notifications on loopback: an HTTP and an SMTP server that keep what they were sent."""

import asyncio
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import NamedTuple


class Request(NamedTuple):
    """One request: its method and path, its headers in lower case, and its body."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, object]:
        """Return the JSON of the body."""
        document = json.loads(self.body)
        assert isinstance(document, dict)
        return document


class HttpSink:
    """An HTTP server; `statuses` are the answers to the next requests, then 200. It may hang instead.

    With a `gate` it answers once that is open; every answer has the header lines `further` and the `body`.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.statuses: list[int] = []
        self.url = ""
        self.hangs = False
        self.gate: asyncio.Event | None = None
        self.further = ""
        self.body = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(head[0].removesuffix(" HTTP/1.1"), headers, body))
                if self.hangs:
                    await reader.read()
                if self.gate is not None:
                    await self.gate.wait()
                status = self.statuses.pop(0) if self.statuses else 200
                length = f"Content-Length: {len(self.body)}\r\n\r\n"
                writer.write(f"HTTP/1.1 {status} X\r\n{self.further}{length}".encode() + self.body)
                await writer.drain()
        writer.close()


class SmtpSink:
    """An SMTP server; `refusal` is its answer to every recipient instead of 250."""

    def __init__(self) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[str] = []
        self.refusal: bytes | None = None
        self.logins: list[bytes] = []
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.is_secret = False

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the messages of one session."""
        writer.write(b"220 sink\r\n")
        with suppress(ConnectionError):
            while line := await reader.readline():
                writer.write(await self._answer(line.strip(), reader, writer))
                await writer.drain()
                if line.upper().startswith(b"QUIT"):
                    break
        writer.close()

    async def _answer(self, line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        verb = line.upper()
        if verb.startswith(b"RCPT TO:"):
            if self.refusal is not None:
                return self.refusal + b"\r\n"
            self.recipients.append(line[8:].strip(b"<> ").decode())
        elif verb.startswith(b"EHLO"):
            offers = b"STARTTLS" if self.tls is not None and not self.is_secret else b"AUTH PLAIN"
            return b"250-sink\r\n250 " + offers + b"\r\n"
        elif verb == b"STARTTLS" and self.tls is not None:
            writer.write(b"220 go ahead\r\n")
            await writer.drain()
            await writer.start_tls(self.tls)
            self.is_secret = True
            return b""
        elif verb.startswith(b"AUTH PLAIN "):
            self.logins.append(b64decode(line.split()[2]))
            return b"235 welcome\r\n"
        elif verb == b"DATA":
            writer.write(b"354 go on\r\n")
            data = await reader.readuntil(b"\r\n.\r\n")
            email = message_from_bytes(data[:-3], policy=policy.default)
            assert isinstance(email, EmailMessage)
            self.messages.append(email)
        return b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n"


@asynccontextmanager
async def http_sink() -> AsyncIterator[HttpSink]:
    """Run an HTTP server on loopback."""
    sink = HttpSink()
    server = await asyncio.start_server(sink.handle, "127.0.0.1", 0)
    sink.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield sink
    finally:
        server.close()
        for writer in sink.writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def smtp_sink(
    tls: ssl.SSLContext | None = None, *, starttls: ssl.SSLContext | None = None
) -> AsyncIterator[SmtpSink]:
    """Run an SMTP server on loopback: over TLS, or in clear text until a client starts TLS."""
    sink = SmtpSink()
    sink.tls = starttls
    server = await asyncio.start_server(sink.handle, "127.0.0.1", 0, ssl=tls)
    sink.port = server.sockets[0].getsockname()[1]
    try:
        yield sink
    finally:
        server.close()
