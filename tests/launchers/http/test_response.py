"""Answers of HTTP/1.1, read from bytes however they are cut."""

import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kron.launchers.http.response import (
    FREE_CHUNKS,
    MAX_BODY,
    MAX_HEAD,
    MAX_LINES,
    MIN_CHUNK,
    InvalidResponseError,
    Response,
)

OK = b"HTTP/1.1 200 OK\r\n"
# What came; then status, text, whether it is over, and whether the connection can be used again.
WHOLE = {
    "a size": (OK + b"Content-Length: 5\r\n\r\nhello", (200, b"hello", True, True)),
    "no text": (OK + b"Content-Length: 0\r\n\r\n", (200, b"", True, True)),
    "a size twice": (OK + b"content-length: 2\r\nContent-Length: 2\r\n\r\nhi", (200, b"hi", True, True)),
    "204 has none": (b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", (204, b"", True, True)),
    "no phrase": (b"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", (202, b"", True, True)),
    "lines end in any way": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", (200, b"hi", True, True)),
    "chunks": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n",
        (200, b"hello0123456789", True, True),
    ),
    "a header over two lines": (
        OK + b"X: a\r\n\t b\r\nContent-Length: 2\r\n\r\nhi",
        (200, b"hi", True, True),
    ),
    "a size twice in one header": (OK + b"Content-Length: 2, 2\r\n\r\nhi", (200, b"hi", True, True)),
    "trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\nZ: 1\r\n\r\n",
        (200, b"hi", True, True),
    ),
    "the trailers have not come": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n",
        (200, b"hi", False, True),
    ),
    "told to go on": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + OK
        + b"Content-Length: 2\r\n\r\nhi",
        (200, b"hi", True, True),
    ),
    "it will be closed": (
        OK + b"Content-Length: 2\r\nConnection: Keep-Alive, Close\r\n\r\nhi",
        (200, b"hi", True, False),
    ),
    "an old server": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", (200, b"hi", True, False)),
    "two sizes, in two ways": (
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        (200, b"hi", True, False),
    ),
    "not all has come": (OK + b"Content-Length: 5\r\n\r\nhel", (200, b"hel", False, True)),
    "a chunk has not come": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", (200, b"hel", False, True)),
    "until it is closed": (OK + b"X: y\r\n\r\nhello", (200, b"hello", False, False)),
    "packed": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi", (200, b"2\r\nhi", False, False)),
    "megabytes": (
        OK + b"Content-Length: 9000000\r\n\r\n" + b"x" * 70_000,
        (200, b"x" * MAX_BODY, True, False),
    ),
    "a chunk of megabytes": (
        OK + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + b"x" * 70_000,
        (200, b"x" * MAX_BODY, True, False),
    ),
    "the head has not come": (OK + b"Content-Length: 5\r\n", (0, b"", False, False)),
}


def seen(response: Response) -> tuple[int, bytes, bool, bool]:
    return response.status, bytes(response.body), response.is_over, response.is_kept


@pytest.mark.parametrize(("data", "expected"), WHOLE.values(), ids=WHOLE.keys())
def test_an_answer_is_read(data: bytes, expected: tuple[int, bytes, bool, bool]) -> None:
    response = Response()
    response.feed(data)
    assert seen(response) == expected


@given(name=st.sampled_from(sorted(name for name in WHOLE if "megabytes" not in name)), cuts=st.data())
def test_it_does_not_matter_how_an_answer_is_cut(name: str, cuts: st.DataObject) -> None:
    data, expected = WHOLE[name]
    places = cuts.draw(st.lists(st.integers(0, len(data)), max_size=6).map(sorted))
    response = Response()
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        if not response.is_over:
            response.feed(data[begin:end])
    assert seen(response) == expected


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x00\xffno HTTP at all\r\n\r\n", id="nothing known"),
        pytest.param(b"HTTP/2 200\r\n\r\n", id="another version"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="a short status"),
        pytest.param(b"HTTP/1.1 099 OK\r\n\r\n", id="a status below all"),
        pytest.param(OK + b"no colon\r\n\r\n", id="a header without a value"),
        pytest.param(OK + b"X : y\r\n\r\n", id="a name with a space"),
        pytest.param(OK + b" A: b\r\n\r\n", id="a continuation of nothing"),
        pytest.param(OK + b"A: b\0c\r\n\r\n", id="a NUL in a header"),
        pytest.param(OK + b"A: b\rc\r\n\r\n", id="half a line end in a header"),
        pytest.param(OK + b"A(b): c\r\n\r\n", id="a name that is no token"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", id="another protocol"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhixx0\r\n\r\n", id="a chunk too long"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n 2\r\nhi\r\n", id="a space before a size"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX\r\n\r\n", id="a broken trailer"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"y" * MAX_HEAD,
            id="a trailer without an end",
        ),
        pytest.param(OK + b"Content-Length: -1\r\n\r\n", id="a negative size"),
        pytest.param(OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", id="two sizes"),
        pytest.param(OK + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", id="a size beyond all"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello", id="a negative chunk"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello", id="no digits"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 99_999, id="a chunk without a size"),
        pytest.param(OK + b"X: " + b"y" * MAX_HEAD, id="a head without an end"),
        pytest.param(OK + b"X: " + b"y" * MAX_HEAD + b"\r\n\r\n", id="a long head"),
        pytest.param(OK + b"X: y\r\n" * MAX_LINES + b"\r\n", id="a head of many lines"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 3_000, id="told to go on without an end"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (FREE_CHUNKS + 1),
            id="a body in tiny chunks",
        ),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidResponseError):
        Response().feed(data)


@given(st.lists(st.binary(max_size=40) | st.sampled_from([OK, b"\r\n", b"Content-Length: 3\r\n\r\n", b"0"])))
def test_whatever_comes_is_read_or_refused_and_never_grows(pieces: list[bytes]) -> None:
    response = Response()
    try:
        for piece in pieces:
            response.feed(piece)
    except InvalidResponseError:
        return
    assert len(response.body) <= MAX_BODY
    assert not response.is_over or response.status


def test_a_body_in_many_chunks_of_some_size_is_read() -> None:
    response = Response(max_body=1 << 20)
    chunk = b"%x\r\n%b\r\n" % (MIN_CHUNK, b"x" * MIN_CHUNK)
    response.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2 * FREE_CHUNKS + b"0\r\n\r\n")
    assert (len(response.body), response.is_over) == (2 * FREE_CHUNKS * MIN_CHUNK, True)


@pytest.mark.parametrize("start", [OK + b"X: ", OK + b"Transfer-Encoding: chunked\r\n\r\n1;"])
def test_a_line_that_comes_byte_by_byte_is_searched_once(start: bytes) -> None:
    response = Response()
    response.feed(start)
    # Searched again with each byte, the processor time is seconds, not hundredths.
    before = time.process_time()
    for _ in range(MAX_HEAD - 100):
        response.feed(b"y")
    assert time.process_time() - before < 1
    response.feed(b"\r\nx\r\n0\r\n\r\n" if b"chunked" in start else b"\r\nContent-Length: 0\r\n\r\n")
    assert response.is_over


def test_what_comes_beside_an_answer_ends_the_connection() -> None:
    response = Response()
    response.feed(OK + b"Content-Length: 2\r\n\r\nhi" + OK)
    assert seen(response) == (200, b"hi", True, False)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("header", [b"", b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_an_answer_without_a_body_ends_with_its_head(status: bytes, header: bytes) -> None:
    head = b"HTTP/1.1 " + status + b"\r\n" + header + b"\r\n"
    for more, is_kept in ((b"", True), (b"hi", False)):
        response = Response()
        response.feed(head + more)
        assert seen(response) == (int(status[:3]), b"", True, is_kept)


@pytest.mark.parametrize(("name", "is_whole"), [("until it is closed", True), ("not all has come", False)])
def test_only_a_text_of_no_known_size_ends_with_its_connection(name: str, is_whole: bool) -> None:
    response = Response()
    response.feed(WHOLE[name][0])
    assert response.close() == is_whole
    assert response.is_over == is_whole


def test_a_response_that_is_refused_keeps_nothing_of_what_came() -> None:
    """Its request is tried again for a while, and hundreds of servers may send heads without an end."""
    refused = [Response() for _ in range(50)]
    tracemalloc.start()
    try:
        for response in refused:
            with suppress(InvalidResponseError):
                response.feed(OK + b"x" * (4 * MAX_HEAD))
        assert tracemalloc.get_traced_memory()[0] < 10 * MAX_HEAD
    finally:
        tracemalloc.stop()
    assert not any(response.status for response in refused)
