"""Hostile callers: slow, oversized, deeply nested and garbled requests get a clear answer and cost little."""

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from select import select

import httpx
import pytest

from kron.core.errors import KronError
from kron.fronts.service.api.middleware import SMALL_BODY
from kron.fronts.service.auth.middleware import MAX_CALLERS, RateLimit
from kron.fronts.service.auth.principal import LimitExceededError
from kron.fronts.service.auth.tls import MAX_HEAD
from kron.fronts.service.auth.turns import AT_ONCE, MAX_WAITING
from kron.testing import SimulatedClock
from tests.service.auth import forge
from tests.service.server import Process, serving
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

MIB = 1 << 20
# The most that a server may grow under attack: less than the bytes that are sent.
MOST_GROWTH = 64 * MIB
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
PREVIEW = b"POST /preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BULK = b"POST /schedules/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
SCHEDULE = b'{"schedule_id": "x", "cron_expr": "* * * * *", "timezone": "UTC", "launcher": {"kind": "log"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, Process]]:
    with serving(tmp_path_factory.mktemp("hostile"), KRON_PATIENCE_S="1") as started:
        yield started


def raw(client: httpx.Client) -> socket.socket:
    """Return a connection of one's own."""
    return socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=30)


def everything(connection: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    heard = b""
    try:
        while part := connection.recv(65_536):
            heard += part
    except ConnectionResetError:
        pass
    return heard


def memory_of(process: Process) -> int:
    """Return the resident memory of a process, in bytes."""
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def ends_of(connection: socket.socket) -> list[str]:
    """Return the ends of a connection as the server's kernel table names them, its own first."""
    return [f"0100007F:{port:04X}" for _, port in (connection.getpeername(), connection.getsockname())]


def is_held(ends: list[str]) -> bool:
    """Say whether the server's process holds its end of a connection."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # A connection that its process has closed has no inode.
    return any(row[1:3] == ends and row[9] != "0" for row in rows)


def is_well(client: httpx.Client) -> bool:
    return client.get("/healthz").status_code == 200


def test_a_head_that_comes_drop_by_drop_is_given_up(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    with raw(client) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\na",
        PREVIEW + b"Content-Length: 50\r\n\r\na",
        PREVIEW + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nx\r\n",
        BULK + b"Content-Length: 50\r\n\r\na",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"\0\r\n\r\n",
    ],
)
def test_a_client_that_leaves_or_sends_garbage_writes_no_line_of_the_log(
    sent: bytes, server: tuple[httpx.Client, Process]
) -> None:
    client, process = server
    assert is_well(client)
    before = len(process.log)
    with raw(client) as connection:
        ends = ends_of(connection)
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        everything(connection)
    wait_for(lambda: not is_held(ends))
    assert is_well(client)
    # A line would come through a pipe.
    time.sleep(0.5)
    assert process.log[before:] == []


def test_silent_and_slow_connections_do_not_block_others(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    connections = [raw(client) for _ in range(100)]
    try:
        for connection in connections[:50]:
            connection.sendall(b"POST /schedules/upsert HTTP/1.1\r\nHost: localhost\r\n")
        assert is_well(client)
        for connection in connections:
            assert everything(connection).startswith(b"HTTP/1.1 408")
    finally:
        for connection in connections:
            connection.close()


def test_the_next_request_of_a_connection_is_waited_for_as_briefly(
    server: tuple[httpx.Client, Process],
) -> None:
    client, _ = server
    with raw(client) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = connection.recv(65_536)
        assert heard.startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /hea")
        assert everything(connection).endswith(b"Cache-Control: no-store\r\n\r\n")


@pytest.mark.parametrize(
    ("request_text", "heard"),
    [
        (b"GET /schedules HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200 OK"),
        (PREVIEW + b"Content-Length: 2\r\n\r\n{}", b"HTTP/1.1 400 Bad Request"),
        (PREVIEW + b"Content-Length: 9\r\n\r\n{}", b""),
        (b"", b""),
    ],
)
def test_a_client_that_half_closes_gets_the_response_to_a_whole_request(
    request_text: bytes, heard: bytes, server: tuple[httpx.Client, Process]
) -> None:
    with raw(server[0]) as connection:
        connection.sendall(request_text)
        connection.shutdown(socket.SHUT_WR)
        assert everything(connection).partition(b"\r\n")[0] == heard
    assert is_well(server[0])


def test_a_body_that_stops_coming_is_given_up(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    for path in (b"/schedules/upsert", b"/schedules/bulk"):
        head = b"POST %s HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: 999\r\n\r\n"
        with raw(client) as connection:
            connection.sendall(head % path + SCHEDULE)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("path", [b"/login", b"/schedules/upsert", b"/schedules/bulk"])
def test_a_body_that_comes_drop_by_drop_is_given_up(
    path: bytes, server: tuple[httpx.Client, Process]
) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
    with raw(server[0]) as connection:
        connection.sendall(head + b"Content-Length: 9999\r\n\r\n")
        connection.settimeout(0.2)

        def answer() -> bytes | None:
            """Send a byte, long before the timeout of a part, and return what has come back."""
            try:
                connection.sendall(b" ")
                return connection.recv(65_536)
            except TimeoutError:
                return None

        assert wait_for(answer).startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_read_its_responses_is_disconnected(
    server: tuple[httpx.Client, Process],
) -> None:
    with raw(server[0]) as connection:
        # Asked before the server closes: a connection that was reset has no peer any more.
        ends = ends_of(connection)
        wait_for(lambda: is_held(ends))
        connection.setblocking(False)
        with suppress(BlockingIOError, ConnectionError):
            for _ in range(500):
                connection.send(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # The client cannot see it: the end of the connection is behind the bytes it has not read.
        wait_for(lambda: not is_held(ends))


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Long: " + b"x" * 100_000, id="one long header"),
        pytest.param(b"\r\n".join(b"X-%d: y" % n for n in range(20_000)), id="many headers"),
        pytest.param(b"Cookie: " + b"a=b; " * 20_000, id="many cookies"),
    ],
)
def test_a_flood_of_headers_is_refused(head: bytes, server: tuple[httpx.Client, Process]) -> None:
    client, process = server
    before = memory_of(process)
    for _ in range(20):
        with raw(client) as connection:
            try:
                connection.sendall(b"GET /schedules HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n")
            except ConnectionError:
                continue
            with suppress(ConnectionResetError):
                heard = connection.recv(65_536)
                assert not heard or heard.startswith(b"HTTP/1.1 4")
    assert is_well(client)
    assert memory_of(process) - before < MOST_GROWTH


@pytest.mark.parametrize(
    ("size", "status"),
    [pytest.param(-500, 200, id="just small enough"), pytest.param(1, 431, id="too large")],
)
def test_headers_are_bounded_by_the_sum_of_all(
    size: int, status: int, server: tuple[httpx.Client, Process]
) -> None:
    """Half of it in one of them, a quarter in many."""
    client, _ = server
    few = {"X-Long": "x" * (MAX_HEAD // 2), **{f"X-{n:04}": "y" * 94 for n in range(MAX_HEAD // 400)}}
    used = sum(len(name) + len(value) for name, value in few.items())
    answer = client.get("/schedules", headers={**few, "X-Rest": "z" * (MAX_HEAD - used - 6 + size)})
    assert answer.status_code == status


def test_a_body_in_tiny_parts_is_refused(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    head = PREVIEW + b"Transfer-Encoding: chunked\r\n\r\n"
    with raw(client) as connection:
        connection.sendall(head)
        with suppress(OSError):
            for _ in range(100):
                connection.sendall(b"1\r\n \r\n" * 1_000)
        assert everything(connection).startswith(b"HTTP/1.1 400 ")
    # Parts of the size of a line are read, however many they are.
    part = b"80\r\n" + b" " * 128 + b"\r\n"
    with raw(client) as connection:
        connection.sendall(PREVIEW + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(part * 3_000 + b"2\r\n{}\r\n0\r\n\r\n")
        assert b"invalid_schedule" in everything(connection)


@pytest.mark.parametrize(
    ("version", "lengths"),
    [
        (b"1.1", b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n"),
        (b"1.1", b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n"),
        (b"1.0", b"Transfer-Encoding: chunked\r\n"),
        (b"1.1", b"Content-Length: 2\r\nContent-Length: 3\r\n"),
        (b"1.1", b"Content-Length: +2\r\n"),
        (b"1.1", b"Transfer-Encoding: gzip, chunked\r\n"),
    ],
)
def test_a_body_whose_end_another_server_may_see_differently_is_refused(
    version: bytes, lengths: bytes, server: tuple[httpx.Client, Process]
) -> None:
    """Behind a proxy the rest of it could be the next request, in the name of another caller."""
    head = PREVIEW.replace(b"HTTP/1.1", b"HTTP/" + version)
    smuggled = b"GET /schedules HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with raw(server[0]) as connection:
        connection.sendall(head + lengths + b"\r\n2\r\n{}\r\n0\r\n\r\n" + smuggled)
        heard = everything(connection)
    assert heard.startswith(b"HTTP/1.1 400 ")
    assert heard.count(b"HTTP/1.1 ") == 1
    assert is_well(server[0])


def test_an_error_quotes_no_more_than_a_part_of_the_request(server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    for fields in (
        {"schedule_id": "x" * 500_000},
        {"cron_expr": "9" * 500_000},
        {"timezone": "a/" * 200_000},
    ):
        document = {"cron_expr": "* * * * *", "timezone": "UTC", "launcher": {"kind": "log"}, **fields}
        answer = client.post("/schedules/upsert", json=document)
        assert (answer.status_code, len(answer.content) < 20_000) == (400, True)


def test_a_body_too_large_is_refused_without_being_kept(server: tuple[httpx.Client, Process]) -> None:
    client, process = server
    before = memory_of(process)

    def endless() -> Iterator[bytes]:
        for _ in range(256):
            yield b"x" * MIB

    # A client that keeps sending may be disconnected before it reads the response.
    with suppress(httpx.TransportError):
        assert client.post("/schedules/upsert", content=endless(), headers=JSON).status_code == 413
    with suppress(httpx.TransportError):
        assert client.post("/schedules/bulk", content=endless(), headers=NDJSON).status_code in (400, 413)
    assert is_well(client)
    assert memory_of(process) - before < MOST_GROWTH


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/schedules/upsert", "application/json"),
        ("/schedules/x/run", "application/json"),
        ("/schedules/bulk", "application/x-ndjson"),
        ("/ui/schedule/pause?id=x", "application/x-www-form-urlencoded"),
    ],
)
def test_a_request_that_is_cut_off_is_no_failure_of_the_service(
    path: str, media_type: str, server: tuple[httpx.Client, Process]
) -> None:
    client, process = server
    route = path.partition("?")[0].replace("/x/", "/{schedule_id}/")
    counted = re.compile(
        rf'kron_http_requests_total{{method="POST",route="{re.escape(route)}",status="(\wxx)"'
    )

    def statuses() -> list[str]:
        return counted.findall(client.get("/metrics").text)

    with raw(client) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n"
        head += f"Content-Type: {media_type}\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    wait_for(statuses)
    assert statuses() == ["4xx"]
    assert "Traceback" not in "".join(process.log)


def test_large_bodies_of_one_caller_wait_for_each_other_and_for_nobody_else(tmp_path: Path) -> None:
    with (
        serving(tmp_path, KRON_JWT_SECRET=forge.SECRET, KRON_PATIENCE_S="60") as (client, _),
        ExitStack() as stack,
    ):
        now = int(time.time())
        ann, bob = (
            {"Authorization": f"Bearer {forge.token(sub=name, scope='read', iat=now, exp=now + 600)}"}
            for name in ("ann", "bob")
        )
        # A preview of 100,000 bytes.
        document = b'{"cron_expr": "* * * * *", "timezone": "UTC", "launcher": {"kind": "log"}'
        body = document + b" " * (100_000 - len(document) - 1) + b"}"

        def begun() -> socket.socket:
            """Send all of a request but its last byte."""
            connection = stack.enter_context(raw(client))
            head = PREVIEW + b"Authorization: %s\r\n" % ann["Authorization"].encode()
            connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body[:-1])
            return connection

        def is_answered(connection: socket.socket) -> bool:
            return bool(select([connection], [], [], 0)[0])

        connections = [begun() for _ in range(AT_ONCE + MAX_WAITING + 3)]
        wait_for(lambda: sum(map(is_answered, connections)) >= 3)
        refused = [each for each in connections if is_answered(each)]
        assert [each.recv(65_536)[:12] for each in refused] == [b"HTTP/1.1 503"] * 3
        # Of others, and with a small body, nothing waits.
        assert client.post("/preview", content=body, headers={**JSON, **bob}).status_code == 200
        assert client.post("/preview", content=document + b"}", headers={**JSON, **ann}).status_code == 200
        waiting = [each for each in connections if each not in refused]
        for connection in waiting:
            connection.sendall(body[-1:])
        for connection in waiting:
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert client.post("/preview", content=body, headers={**JSON, **ann}).status_code == 200


def test_heavy_answers_of_one_caller_wait_for_each_other_and_for_nobody_else(tmp_path: Path) -> None:
    path = "/workflows/ann.large/versions/1"
    with (
        serving(tmp_path, KRON_JWT_SECRET=forge.SECRET, KRON_PATIENCE_S="60") as (client, _),
        ExitStack() as stack,
    ):
        now = int(time.time())
        ann, bob = (
            {"Authorization": f"Bearer {forge.token(sub=name, scope='read write', iat=now, exp=now + 600)}"}
            for name in ("ann", "bob")
        )
        nodes = [{"id": f"t{number}", "type": "x", "text": "x" * 9_000} for number in range(100)]
        document = {"user_id": "ann", "nodes": nodes, "triggers": []}
        client.put(path, json=document, headers=ann).raise_for_status()

        def requested() -> socket.socket:
            """Request an answer that is longer than what the kernel keeps, and read none of it."""
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.settimeout(30)
            connection.connect((client.base_url.host, client.base_url.port or 80))
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ann['Authorization']}\r\n\r\n"
            connection.sendall(head.encode())
            return connection

        def is_answered(connection: socket.socket) -> bool:
            return bool(select([connection], [], [], 0)[0])

        # More than wait and have a turn, also where the kernel takes some of the answers whole.
        more = 10
        connections = [requested() for _ in range(AT_ONCE + MAX_WAITING + more)]
        wait_for(lambda: sum(map(is_answered, connections)) >= AT_ONCE + more)
        answers = [each for each in connections if is_answered(each)]
        refused = [each for each in answers if each.recv(12) == b"HTTP/1.1 503"]
        assert 0 < len(refused) <= more
        for connection in refused:
            text = b""
            while b"}" not in text:
                text += connection.recv(65_536)
            assert b"20 requests of this caller for answers that need much memory wait" in text
        # Of others, and what needs little memory, nothing waits.
        assert client.get(path, headers=bob).status_code == 404
        assert client.get("/workflows/ann.large", headers=ann).status_code == 200
        for connection in connections:
            connection.close()
        wait_for(lambda: client.get(path, headers=ann).status_code == 200)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 100_000, id="deep list"),
        pytest.param(b'{"a":' * 100_000, id="deep object"),
        pytest.param(SCHEDULE + b', "calendars": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", id="deep value"),
        pytest.param(SCHEDULE + b', "remaining": ' + b"9" * 100_000 + b"}", id="long number"),
        pytest.param(SCHEDULE + b', "cron_expr": "' + b"*," * 50_000 + b'*"}', id="long expression"),
        pytest.param(b'{"schedule_id": "\xff\xfe"}', id="not UTF-8"),
        pytest.param(b'{"schedule_id": "\\ud800"}', id="half a sign"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
        pytest.param(b"\x00" * 1000, id="zeros"),
        pytest.param(b"NaN", id="not a number"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_a_body_that_is_no_schedule_is_refused(body: bytes, server: tuple[httpx.Client, Process]) -> None:
    client, _ = server
    refusals = {
        "/schedules/upsert": (400,),
        "/preview": (400,),
        # They define nothing, so their bodies are small.
        "/schedules/pause": (413,) if len(body) > SMALL_BODY else (400,),
        "/schedules/x/backfill": (413,) if len(body) > SMALL_BODY else (400, 404),
    }
    for path, statuses in refusals.items():
        answer = client.post(path, content=body, headers=JSON)
        assert answer.status_code in statuses, (path, answer.text)
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert "Traceback" not in answer.text
    if body:
        assert client.post("/schedules/bulk", content=body, headers=NDJSON).status_code == 400
    assert client.get("/schedules").json()["schedules"] == []


def test_a_caller_above_the_rate_limit_gets_a_retry_time(tmp_path: Path) -> None:
    with serving(tmp_path, KRON_JWT_SECRET=forge.SECRET, KRON_REQUESTS_PER_S="5") as (client, _):
        now = int(time.time())
        ann, bob = (
            {"Authorization": f"Bearer {forge.token(sub=name, iat=now, exp=now + 600)}"}
            for name in ("ann", "bob")
        )
        answers = [client.get("/schedules", headers=ann) for _ in range(40)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert answers[0].status_code == 200
        assert refused
        assert int(refused[0].headers["retry-after"]) >= 1
        assert json.loads(refused[0].text)["code"] == "too_many"
        assert client.get("/schedules", headers=bob).status_code == 200
        assert is_well(client)


async def test_a_bucket_never_holds_more_than_a_burst() -> None:
    clock = SimulatedClock(forge.NOW)
    rate = RateLimit(2, clock)
    rate.take("ann")
    await clock.advance_to(clock.now() + timedelta(hours=1))
    for _ in range(4):
        rate.take("ann")
    with pytest.raises(LimitExceededError):
        rate.take("ann")


async def test_a_caller_is_told_to_wait_until_the_bucket_holds_a_request() -> None:
    clock = SimulatedClock(forge.NOW)
    rate = RateLimit(1, clock)
    for _ in range(2):
        rate.take("ann")
    await clock.advance_to(clock.now() + timedelta(seconds=0.5))
    with pytest.raises(LimitExceededError, match="retry after 1 s") as refusal:
        rate.take("ann")
    assert refusal.value.wait_s == 1
    await clock.advance_to(clock.now() + timedelta(seconds=0.5))
    rate.take("ann")


async def test_a_bucket_fills_again_and_forgotten_callers_cost_nothing() -> None:
    clock = SimulatedClock(forge.NOW)
    rate = RateLimit(2, clock)
    for _ in range(4):
        rate.take("ann")
    with pytest.raises(LimitExceededError) as refusal:
        rate.take("ann")
    assert refusal.value.wait_s == 1
    await clock.advance_to(clock.now().replace(second=1))
    rate.take("ann")
    rate.take("ann")
    with pytest.raises(KronError):
        rate.take("ann")
    for number in range(2 * MAX_CALLERS):
        rate.take(str(number))
    assert rate.tracked <= MAX_CALLERS
