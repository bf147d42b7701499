"""An answer of HTTP/1.1, read from bytes as they come. Nothing here touches a network."""

import re
from http import HTTPStatus

# What is read of an answer: so much of what stands before its text, and so much of the text.
MAX_HEAD, MAX_ANSWER = 65_536, 65_536
# How many digits the size of a text may have; more would be nobody's honest answer.
MAX_DIGITS = 15

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(r"\r?\n")
_STATUS_LINE = re.compile(r"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?", re.ASCII)
_HEX = re.compile(rb"[0-9A-Fa-f]+")
_WITHOUT_TEXT = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


class BadAnswerError(OSError):
    """What came is no answer of HTTP/1.1."""


class Response:
    """One answer: its status is 0 until its head has come; `is_over` when nothing more of it is read.

    The names of its headers are in lower case. `is_kept` says whether the connection can be used again.
    """

    __slots__ = ("_buffer", "_left", "_until", "body", "headers", "is_kept", "is_over", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_over = self.is_kept = False
        self._buffer = bytearray()
        # What ends the text: a "size", the last of its "chunks", or that the connection is "closed".
        self._until = "size"
        # How much of the text, or of a chunk and the end of its line, is still to come.
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take what came; raise BadAnswerError if it cannot be an answer."""
        self._buffer += data
        if not self.status:
            self._read_heads()
        if self.status and not self.is_over:
            self._read_text()

    def close(self) -> bool:
        """Take note that nothing more comes; say whether the answer is whole."""
        if self.status and self._until == "closed":
            self.is_over = True
        return self.is_over

    # --- before the text -------------------------------------------------------------------------

    def _read_heads(self) -> None:
        """Read the head of the answer, and pass over those that only say that one will come."""
        while not self.status:  # each turn takes a part of what came
            end = _HEAD_END.search(self._buffer)
            if (len(self._buffer) if end is None else end.start()) > MAX_HEAD:
                raise BadAnswerError("the head of the answer does not end")
            if end is None:
                return
            first, *lines = _LINE_END.split(self._buffer[: end.start()].decode("latin-1"))
            del self._buffer[: end.end()]
            found = _STATUS_LINE.fullmatch(first)
            if found is None:
                raise BadAnswerError("the answer is not HTTP/1.1")
            status = int(found[2])
            if status >= HTTPStatus.OK:
                self.status, self.headers = status, _headers_of(lines)
                self._begin_text(is_new=found[1] == "1")

    def _begin_text(self, *, is_new: bool) -> None:
        """Find out where the text ends, and whether another answer can follow it."""
        encoding, size = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        self.is_kept = is_new and "close" not in self.headers.get("connection", "").lower()
        if self.status in _WITHOUT_TEXT:
            self.is_over = True
        elif encoding is not None:
            self._until = "chunks" if encoding.lower() == "chunked" else "closed"
        elif size is None:
            self._until = "closed"
        elif not (size.isascii() and size.isdigit()) or len(size) > MAX_DIGITS:
            raise BadAnswerError("the size of the answer is no number")
        else:
            self._left = int(size)
        # One that says two things may be understood by others in another way.
        self.is_kept = self.is_kept and self._until != "closed" and (encoding is None or size is None)

    # --- the text --------------------------------------------------------------------------------

    def _read_text(self) -> None:
        if self._until == "chunks":
            self._read_chunks()
        elif self._until == "closed":
            self._take(len(self._buffer))
        else:
            self._left -= self._take(self._left)
            self.is_over = self._left == 0
        if len(self.body) >= MAX_ANSWER and not self.is_over:
            # Nobody needs the rest, and it may have no end.
            self.is_over, self.is_kept = True, False
        if self.is_over and self._buffer:
            # Nobody asked for more.
            self.is_kept = False

    def _take(self, size: int) -> int:
        """Move some of what came to the text, and return how much it was."""
        taken = self._buffer[:size]
        del self._buffer[:size]
        self.body += taken[: MAX_ANSWER - len(self.body)]
        return len(taken)

    def _read_chunks(self) -> None:
        while not self.is_over and self._buffer:  # each turn takes a part of what came, or is the last
            if self._left > 2:
                self._left -= self._take(self._left - 2)
            elif self._left:
                # The end of a chunk's line is not part of the text.
                cut = min(self._left, len(self._buffer))
                del self._buffer[:cut]
                self._left -= cut
            elif not self._read_size():
                return

    def _read_size(self) -> bool:
        """Read how long the next chunk is; say whether its line has come."""
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadAnswerError("a chunk of the answer has no size")
            return False
        digits = bytes(self._buffer[:end]).partition(b";")[0].strip()
        if not _HEX.fullmatch(digits) or len(digits) > MAX_DIGITS:
            raise BadAnswerError("the size of a chunk is no number")
        size = int(digits, 16)
        if size:
            del self._buffer[: end + 2]
            self._left = size + 2
            return True
        # Headers may follow the last chunk; nobody reads them, so whoever sends some is not asked again.
        self.is_over = True
        self.is_kept = self.is_kept and self._buffer == b"0\r\n\r\n"
        self._buffer.clear()
        return True


def _headers_of(lines: list[str]) -> dict[str, str]:
    """Return headers by their names in lower case; one that comes again is a list, except for a size."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or not name or name != name.strip():
            raise BadAnswerError("a header of the answer has no name")
        if name in headers and not (name == "content-length" and headers[name] == value):
            value = f"{headers[name]}, {value}"
        headers[name] = value
    return headers
