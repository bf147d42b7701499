"""HTTP/1.1 response parser: bytes in, status, headers and body out. It does no I/O."""

import re
from collections.abc import Mapping
from http import HTTPStatus

# Bounds of the status line with its headers, of a chunk's header and trailers, and of the body that is kept.
MAX_HEAD, MAX_BODY = 65_536, 65_536
# Digits of the largest length; longer ones are refused.
MAX_DIGITS = 20
# Lines of a head or of trailers; and the chunks of a body that are read whatever their size, and the least
# average size of more of them, in bytes. Each costs as much time as a kilobyte, and many servers answer
# at once.
MAX_LINES, FREE_CHUNKS, MIN_CHUNK = 200, 1_000, 64

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(r"HTTP/1\.(\d) ([1-9]\d\d)(?: .*)?", re.ASCII)
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_FOLDS = (" ", "\t")
_FORBIDDEN = re.compile(r"[\0\r\f\v]")
_CHUNK_HEADER = re.compile(rb"([0-9A-Fa-f]{1,%d})(?:;[^\n]*)?[ \t]*" % MAX_DIGITS)
_WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class InvalidResponseError(OSError):
    """The server sent something that is not an HTTP/1.1 response."""


class Response:
    """One response: `status` is 0 until its head has arrived, `is_over` once no more of it is read.

    Header names are in lower case. `is_kept` says whether the connection can be reused, `is_cut` whether the
    body was longer than `max_body` and the rest dropped.
    """

    __slots__ = (
        "_buffer", "_chunked", "_chunks", "_heads", "_left", "_max_body", "_searched", "_until",
        "body", "headers", "is_cut", "is_kept", "is_over", "status",
    )  # fmt: skip

    def __init__(self, *, max_body: int = MAX_BODY) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_over = self.is_kept = self.is_cut = False
        self._max_body = max_body
        self._buffer = bytearray()
        # The start of the buffer in which a line end was searched in vain, and the bytes of heads so far.
        self._searched = self._heads = 0
        # How many chunks there were, and their bytes.
        self._chunks = self._chunked = 0
        # Where the body ends: at a "length", after its last chunk ("chunks", then "trailers"), or at "close".
        self._until = "length"
        # Bytes to come: of the body, or of a chunk and its line end.
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Parse further bytes, or raise InvalidResponseError."""
        self._buffer += data
        try:
            if not self.status:
                self._read_heads()
            if self.status and not self.is_over:
                self._read_body()
        except InvalidResponseError:
            # Nothing of it is read any more, and its request may be tried again for a while.
            self._buffer.clear()
            raise

    def close(self) -> bool:
        """Note that the connection has ended; return whether the response is complete."""
        if self.status and self._until == "close":
            self.is_over = True
        return self.is_over

    # --- head --------------------------------------------------------------------------------------

    def _read_heads(self) -> None:
        """Parse the head of the response; informational responses before it are skipped.

        Together they have the bounds of one head, else a server could send them for ever.
        """
        while not self.status:  # each round consumes a part of the buffer
            lines = self._take_lines("the head of the response does not end")
            if lines is None:
                return
            found = _STATUS_LINE.fullmatch(lines[0])
            if found is None:
                raise InvalidResponseError("the response is not HTTP/1.1")
            status = int(found[2])
            if status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise InvalidResponseError("the server switches to another protocol")
            headers = _headers_of(lines[1:])
            if status >= HTTPStatus.OK:
                self.status, self.headers = status, headers
                self._start_body(is_persistent=found[1] != "0")

    def _take_lines(self, error: str) -> list[str] | None:
        """Return the lines up to the next empty one, or None while it has not arrived."""
        # An empty line may have begun at the end of what was searched.
        end = _HEAD_END.search(self._buffer, max(0, self._searched - 3))
        size = len(self._buffer) if end is None else end.start()
        if self._heads + size > MAX_HEAD:
            raise InvalidResponseError(error)
        if end is None:
            self._searched = size
            return None
        text = self._buffer[:size].decode("latin-1").replace("\r\n", "\n")
        del self._buffer[: end.end()]
        self._searched, self._heads = 0, self._heads + end.end()
        if _FORBIDDEN.search(text):
            raise InvalidResponseError("a header of the response has a control character")
        if text.count("\n") >= MAX_LINES:
            raise InvalidResponseError(f"the response has more than {MAX_LINES} lines of headers")
        return text.split("\n")

    def _start_body(self, *, is_persistent: bool) -> None:
        """Decide where the body ends, and whether another response can follow it."""
        encoding, length = self.headers.get("transfer-encoding"), _length_of(self.headers)
        self.is_kept = is_persistent and "close" not in self.headers.get("connection", "").lower()
        if self.status in _WITHOUT_BODY:
            self._left = 0  # whatever its headers say
        elif encoding is not None:
            self._until = "chunks" if encoding.lower() == "chunked" else "close"
        elif length is None:
            self._until = "close"
        else:
            self._left = length
        # A response that gives both is understood differently by others, so nothing may follow it.
        self.is_kept = self.is_kept and self._until != "close" and (encoding is None or length is None)

    # --- body --------------------------------------------------------------------------------------

    def _read_body(self) -> None:
        match self._until:
            case "close":
                self._take(len(self._buffer))
            case "length":
                self._left -= self._take(self._left)
                self.is_over = self._left == 0
            case _:
                self._read_chunks()
        if self.is_cut and not self.is_over:
            # The rest is not used, and it may have no end.
            self.is_over = True
        if self.is_over and (self._buffer or self.is_cut):
            self.is_kept = False

    def _take(self, size: int) -> int:
        """Move up to `size` bytes from the buffer to the body, and return how many."""
        taken = self._buffer[:size]
        del self._buffer[:size]
        room = self._max_body - len(self.body)
        self.is_cut = self.is_cut or len(taken) > room
        self.body += taken[:room]
        return len(taken)

    def _read_chunks(self) -> None:
        while self._until == "chunks" and self._buffer and not self.is_cut:  # each round consumes, or returns
            if self._left > 2:
                self._left -= self._take(self._left - 2)
            elif self._left:
                self._skip_line_end()
            elif not self._read_chunk_header():
                return
        if self._until == "trailers":
            self._read_trailers()

    def _skip_line_end(self) -> None:
        """Consume the CR LF after a chunk, as far as it has arrived."""
        expected = b"\r\n"[2 - self._left :]
        cut = bytes(self._buffer[: len(expected)])
        if not expected.startswith(cut):
            raise InvalidResponseError("a chunk of the response is longer than its size")
        del self._buffer[: len(cut)]
        self._left -= len(cut)

    def _read_chunk_header(self) -> bool:
        """Parse the size of the next chunk; return whether its line has arrived."""
        end = self._buffer.find(b"\r\n", max(0, self._searched - 1))
        if end < 0:
            self._searched = len(self._buffer)
            if self._searched > MAX_HEAD:
                raise InvalidResponseError("a chunk of the response has no size")
            return False
        self._searched = 0
        found = _CHUNK_HEADER.fullmatch(self._buffer, 0, end)
        if found is None:
            raise InvalidResponseError("the size of a chunk is not a number")
        size = int(found[1], 16)
        del self._buffer[: end + 2]
        if size:
            self._left = size + 2
            self._chunks += 1
            self._chunked += size
            if self._chunks > FREE_CHUNKS and self._chunked < MIN_CHUNK * self._chunks:
                raise InvalidResponseError("the chunks of the response are too small")
        else:
            self._until = "trailers"
        return True

    def _read_trailers(self) -> None:
        """Consume the headers after the last chunk; they are checked and not kept."""
        for empty in (b"\r\n", b"\n"):
            if self._buffer.startswith(empty):
                del self._buffer[: len(empty)]
                self.is_over = True
                return
        lines = self._take_lines("the trailers of the response do not end")
        if lines is not None:
            _headers_of(lines)
            self.is_over = True


def _length_of(headers: Mapping[str, str]) -> int | None:
    """Return the Content-Length, if there is one; a list is valid if all of it is the same."""
    value = headers.get("content-length")
    if value is None:
        return None
    lengths = {length.strip(" \t") for length in value.split(",")}
    text = lengths.pop()
    if lengths or not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
        raise InvalidResponseError("the length of the response is not a number")
    return int(text)


def _headers_of(lines: list[str]) -> dict[str, str]:
    """Return headers by lower-case name; a repeated one is joined by commas."""
    headers: dict[str, str] = {}
    for line in _unfolded(lines) if any(line[:1] in _FOLDS for line in lines) else lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or not _HEADER_NAME.fullmatch(name):
            raise InvalidResponseError("a header of the response has no valid name")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _unfolded(lines: list[str]) -> list[str]:
    """Return header lines with their obsolete continuation lines joined to them (RFC 9112, 5.2)."""
    whole: list[str] = []
    for line in lines:
        if line[:1] not in _FOLDS:
            whole.append(line)
        elif whole:
            whole[-1] += " " + line.lstrip(" \t")
        else:
            raise InvalidResponseError("the first header of the response continues another")
    return whole
