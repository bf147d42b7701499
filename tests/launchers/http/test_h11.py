"""The response parser beside h11: what one of the two accepts the other reads in the same way.

Both get the same bytes, cut at the same places, as the response to a POST. Either both find one complete
response with the same status, headers and body, or neither does; a connection that Kron keeps for another
request is one that h11 keeps too. Deliberate differences, each with an example below and kept out of the
generated responses:

- A transfer coding other than chunked is read until the connection ends; h11 refuses it. The status is what
  counts for a start, and a refusal would send an accepted start again. The connection is not reused.
- A version other than HTTP/1.x is refused; h11 reads any digits.
- Bodies and heads are bounded: a longer body is cut, a longer head refused.
"""

from typing import NamedTuple

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kron.launchers.http.response import MAX_HEAD, InvalidResponseError, Response
from tests.strategies import law

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Reading(NamedTuple):
    """One complete response, and whether another one may follow it on the connection."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_kept: bool


def read_by_kron(pieces: list[bytes]) -> Reading | None:
    """Return the response in some bytes, after which the connection ends; None where there is none."""
    response = Response(max_body=1 << 20)
    try:
        for piece in pieces:
            if not response.is_over:
                response.feed(piece)
    except InvalidResponseError:
        return None
    if not response.close():
        return None
    return Reading(response.status, response.headers, bytes(response.body), response.is_kept)


def read_by_h11(pieces: list[bytes]) -> Reading | None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "h"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    head: h11.Response | None = None
    body = b""
    try:
        for piece in [*(each for each in pieces if each), b""]:
            connection.receive_data(piece)
            while (event := connection.next_event()) is not h11.NEED_DATA:
                match event:
                    case h11.Response():
                        head = event
                    case h11.Data():
                        body += bytes(event.data)
                    case h11.EndOfMessage():
                        assert head is not None
                        is_kept = connection.their_state is h11.DONE and not connection.trailing_data[0]
                        return Reading(head.status_code, _joined(head), body, is_kept)
                    case h11.InformationalResponse():
                        pass
                    case _:
                        return None
    except h11.RemoteProtocolError:
        return None
    return None


def _joined(response: h11.Response) -> dict[str, str]:
    """Return headers as Kron has them: repeated ones joined by commas."""
    headers: dict[str, str] = {}
    for name, value in response.headers:
        text = value.decode("latin-1")
        key = name.decode()
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def check_same(pieces: list[bytes]) -> None:
    """Check that both find the same response, or none."""
    ours, theirs = _normalised(read_by_kron(pieces)), read_by_h11(pieces)
    if ours is None or theirs is None:
        assert ours == theirs
    else:
        assert ours._replace(is_kept=False) == theirs._replace(is_kept=False)
        # Kron closes more: after any response with two ways to find the end of its body.
        assert ours.is_kept <= theirs.is_kept


def _normalised(reading: Reading | None) -> Reading | None:
    """Return a reading with its framing headers as h11 writes them; Kron keeps them as they came."""
    if reading is None:
        return None
    headers = dict(reading.headers)
    if "content-length" in headers:
        headers["content-length"] = headers["content-length"].partition(",")[0].strip()
    if "transfer-encoding" in headers:
        headers["transfer-encoding"] = headers["transfer-encoding"].lower()
    return reading._replace(headers=headers)


# --- responses, valid and broken -------------------------------------------------------------------

# Each part of a response as it may be, and as at most one part of each generated response is instead.
GOOD: dict[str, list[bytes]] = {
    "before": [b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 X\r\nLink: x\r\n\r\n"],
    "status": [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 500 \xe9",
        b"HTTP/1.0 200 ",
        b"HTTP/1.1 202",
        b"HTTP/1.1 204 X",
    ],
    "line": [b"\r\n", b"\r\n", b"\n"],
    "name": [b"X-A", b"x-a", b"Server", b"Connection"],
    "colon": [b": ", b":", b":\t"],
    "value": [b"", b"a", b" a \t", b"a, b", b"close", b"a\x01b", b"\xe9"],
    "fold": [b"", b"", b"", b"\r\n folded", b"\n\tfolded more"],
    "length": [b"", b"Content-Length: 5\r\n", b"content-length:5, 5\r\n", b"Content-Length: 5\r\n" * 2],
    "coding": [b"Transfer-Encoding: chunked", b"transfer-encoding:Chunked "],
    "size": [b"%x", b"%X", b"0%x", b"0000000000000000000%x"],
    "extension": [b"", b"", b";a=b", b" ", b"\t ", b";\xff\r"],
    "end": [b"\r\n"],
    "last": [b"0\r\n", b"00\r\n", b"0;a=b\r\n"],
    "trailers": [b"\r\n", b"\r\n", b"\n", b"X: y\r\n\r\n", b"X: y\n z\n\n"],
}
BROKEN: dict[str, list[bytes]] = {
    "before": [b"HTTP/1.1 101 X\r\n\r\n", b"HTTP/1.1 100\r\nbad\r\n\r\n", b"\r\n", b"x"],
    "status": [
        b"",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 099 X",
        b"http/1.1 200 OK",
        b"HTTP/1.1 200OK",
        b"HTTP/1.1 200 a\x00b",
        b" HTTP/1.1 200 OK",
        b"HTTP/1.1 \xb2\xb2\xb2 X",
        b"HTTP/1.9 304 X",
        b"HTTP/1.1 999 X",
    ],
    "line": [b"\r\r\n"],
    "name": [b"", b"A b", b"X:", b"\xe9", b" X", b"X\0", b"Content-Length"],
    "colon": [b" : ", b""],
    "value": [b"a\0b", b"a\x0cb", b"a\rb", b"\x0b"],
    "fold": [b"\r\n \0", b"\r\n"],
    "length": [
        b"Content-Length: %s\r\n" % text for text in (b"", b"+5", b"5,6", b"5 5", b"9" * 21, b"\xb2", b"0x5")
    ],
    "size": [b" %x", b"%xg", b"-%x", b"0x%x", b"", b"000000000000000000000%x"],
    "extension": [b" ;a", b"\x0b", b"\r"],
    "end": [b"\n", b"xy", b"\r", b"", b"\r\r\n"],
    "last": [b"", b"0", b"0\n", b" 0\r\n"],
    "trailers": [b"", b"x", b"bad\r\n\r\n", b" x\r\n\r\n", b"X: y\r\n", b"\r"],
}


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    broken = draw(st.sampled_from(["", *BROKEN]))

    def part(name: str) -> bytes:
        return draw(st.sampled_from(BROKEN[name] if name == broken else GOOD[name]))

    head = part("before") + part("status") + part("line")
    for _ in range(draw(st.integers(0, 3))):
        head += part("name") + part("colon") + part("value") + part("fold") + part("line")
    head += part("length")
    if draw(st.booleans()):
        return head + part("line") + draw(st.binary(max_size=12))
    body = b""
    for data in draw(st.lists(st.binary(min_size=1, max_size=20), max_size=3)):
        size = part("size")
        body += (
            (size % len(data) if b"%" in size else size) + part("extension") + b"\r\n" + data + part("end")
        )
    more = draw(st.sampled_from([b"", b"", b"more"]))
    return head + part("coding") + part("line") + part("line") + body + part("last") + part("trailers") + more


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


PLACES = st.lists(st.integers(0, 500), max_size=6)


@law(600)
@given(data=responses(), places=PLACES)
@example(data=CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", places=[45, 46, 47, 48])
@example(data=CHUNKED + b"2\r\nhixx0\r\n\r\n", places=[])
@example(data=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", places=[])
def test_kron_and_h11_read_the_same_response_or_none(data: bytes, places: list[int]) -> None:
    check_same(cut(data, places))


@law(200)
@given(data=st.binary(max_size=60), places=PLACES)
def test_neither_reads_a_response_in_arbitrary_bytes(data: bytes, places: list[int]) -> None:
    for start in (b"", CHUNKED, b"HTTP/1.1 200 OK\r\n"):
        check_same(cut(start + data, places))


@pytest.mark.parametrize(
    ("data", "status", "accepted_by_h11"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nx", 200, False, id="a coding"
        ),
        pytest.param(b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", None, True, id="another version"),
    ],
)
def test_deliberate_differences(data: bytes, status: int | None, accepted_by_h11: bool) -> None:
    mine = read_by_kron([data])
    assert (None if mine is None else mine.status) == status
    assert (read_by_h11([data]) is not None) == accepted_by_h11
