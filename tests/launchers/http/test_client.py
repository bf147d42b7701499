"""Requests over connections that are kept: used again, closed by the other side, and over TLS."""

import asyncio
import json
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.report import LeaseStatus, RunEvent
from kron.launchers.delivery import DeliveryResult
from kron.launchers.http.client import (
    TENANT_LOOKUPS,
    ConnectionPool,
    HttpClient,
    Origin,
    Route,
    connect,
    request_of,
    target_of,
)
from kron.launchers.http.egress import EgressPolicy, egress_policy_of
from kron.launchers.http.launcher import HttpLauncher, StartSender, request_bytes, template_of
from kron.launchers.http.response import MAX_HEAD, InvalidResponseError, Response
from kron.launchers.http.spec import HttpSettings
from tests.launchers.ear import Ear, a_launch
from tests.launchers.http.test_launcher import QUICK, a_request
from tests.service.auth.authority import Authority
from tests.waiting import PATIENCE_S, until

ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}"


class Keeper:
    """A server that keeps its connections, until its script says that it does not.

    A line of the script is what it answers; None ends the connection instead.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.heads: list[str] = []
        self.script: list[bytes | None] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = head.lower().partition("content-length: ")[2].partition("\r\n")[0]
                await reader.readexactly(int(length))
                self.heads.append(head)
                answer = self.script.pop(0) if self.script else ACCEPTED
                if answer is None:
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def keeping(tls: ssl.SSLContext | None = None) -> AsyncIterator[Keeper]:
    keeper = Keeper()
    server = await asyncio.start_server(keeper.serve, "127.0.0.1", 0, ssl=tls)
    keeper.port = server.sockets[0].getsockname()[1]
    yield keeper
    server.close()
    await server.wait_closed()
    for writer in keeper.writers:
        writer.transport.abort()
    await asyncio.sleep(0.01)


@asynccontextmanager
async def sending(
    gate: EgressPolicy | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[StartSender]:
    sender = StartSender(SystemClock(), egress=gate, tls=tls)
    yield sender
    sender.close()
    await asyncio.sleep(0)


async def sent(sender: StartSender, url: str, **fields: object) -> DeliveryResult:
    launch = a_request(url, **fields)
    return await sender.send(launch, HttpSettings.read(json.loads(launch.job.launcher)))


async def test_one_connection_carries_one_request_after_the_other() -> None:
    async with keeping() as keeper, sending() as sender:
        for _ in range(5):
            assert (await sent(sender, f"http://127.0.0.1:{keeper.port}/")).error is None
        assert (keeper.connections, len(keeper.heads)) == (1, 5)


async def test_as_many_connections_are_made_as_requests_are_under_way() -> None:
    async with keeping() as keeper, sending() as sender:
        for _ in range(3):
            answers = [sent(sender, f"http://127.0.0.1:{keeper.port}/") for _ in range(7)]
            assert [answer.error for answer in await asyncio.gather(*answers)] == [None] * 7
        assert (keeper.connections, len(keeper.heads)) == (7, 21)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", id="it says close"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", id="an old server"),
        pytest.param(ACCEPTED + b"and more", id="more than was asked for"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + b"x" * 70_000, id="too much text"),
    ],
)
async def test_a_connection_is_not_used_again_when_its_answer_says_so(answer: bytes) -> None:
    async with keeping() as keeper, sending() as sender:
        keeper.script = [answer]
        for _ in range(2):
            assert (await sent(sender, f"http://127.0.0.1:{keeper.port}/")).error is None
        assert keeper.connections == 2


async def test_a_request_over_a_kept_connection_that_has_ended_is_sent_once_more_over_a_new_one() -> None:
    async with keeping() as keeper, sending() as sender:
        keeper.script = [ACCEPTED, None]
        for _ in range(2):
            assert await sent(sender, f"http://127.0.0.1:{keeper.port}/") == DeliveryResult()
        assert (keeper.connections, len(keeper.heads)) == (2, 3)
        assert len({head.partition("Idempotency-Key")[2] for head in keeper.heads}) == 1


async def test_a_request_over_a_connection_that_has_ended_is_not_sent_again_when_its_lease_is_lost() -> None:
    launcher, ear = HttpLauncher(SystemClock(), backoff=QUICK), Ear()
    async with keeping() as keeper:
        keeper.script = [ACCEPTED, None]
        launch = a_request(f"http://127.0.0.1:{keeper.port}/")
        launcher.start(launch, ear)
        await ear.accepted(launch)
        lost = launch._replace(
            run=launch.run._replace(attempt=2),
            lease_status=lambda: LeaseStatus.LOST if len(keeper.heads) > 1 else LeaseStatus.HELD,
        )
        launcher.start(lost, ear)
        await until(lambda: not launcher.busy)
        await launcher.close()
        assert len(keeper.heads) == 2
        assert ear.said(lost) == []


async def test_a_new_connection_that_ends_without_an_answer_is_not_tried_again_here() -> None:
    async with keeping() as keeper, sending() as sender:
        keeper.script = [ACCEPTED, None, None]
        await sent(sender, f"http://127.0.0.1:{keeper.port}/")
        answer = await sent(sender, f"http://127.0.0.1:{keeper.port}/")
        assert answer.retry
        assert "cannot be reached: ConnectionLostError" in str(answer.error)
        assert len(keeper.heads) == 3


async def test_what_breaks_off_after_its_first_bytes_is_not_sent_again_here() -> None:
    async with keeping() as keeper, sending() as sender:
        await sent(sender, f"http://127.0.0.1:{keeper.port}/")
        keeper.script = [b"HTTP/1.1 20"]
        task = asyncio.create_task(sent(sender, f"http://127.0.0.1:{keeper.port}/"))
        await until(lambda: len(keeper.heads) == 2)
        keeper.writers[0].close()
        answer = await task
        assert answer.retry
        assert answer.error is not None
        assert len(keeper.heads) == 2


async def test_a_connection_the_other_side_closed_is_forgotten() -> None:
    async with keeping() as keeper, sending() as sender:
        await sent(sender, f"http://127.0.0.1:{keeper.port}/")
        assert len(sender.client.pool) == 1
        keeper.writers[0].close()
        await until(lambda: len(sender.client.pool) == 0)


async def test_what_is_said_without_a_question_ends_the_connection() -> None:
    async with keeping() as keeper, sending() as sender:
        await sent(sender, f"http://127.0.0.1:{keeper.port}/")
        keeper.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await until(lambda: len(sender.client.pool) == 0)
        assert (await sent(sender, f"http://127.0.0.1:{keeper.port}/")).error is None


async def test_a_request_that_was_given_up_leaves_no_connection_behind() -> None:
    async with keeping() as keeper:
        launcher, ear = HttpLauncher(SystemClock(), backoff=QUICK), Ear()
        keeper.script = [b""]
        launch = a_request(f"http://127.0.0.1:{keeper.port}/")
        launcher.start(launch, ear)
        await until(lambda: keeper.heads)
        launcher.end(launch.run)
        other = a_launch({"kind": "http", "url": f"http://127.0.0.1:{keeper.port}/"}, identity="other")
        launcher.start(other, ear)
        assert (await ear.accepted(other)).happened is RunEvent.ACCEPTED
        assert keeper.connections == 2
        await launcher.close()


async def test_those_in_line_are_given_up_and_broken_off_without_a_request() -> None:
    async with keeping() as keeper:
        launcher, ear = HttpLauncher(SystemClock(), max_requests=1), Ear()
        keeper.script = [b""]
        launches = [
            a_launch({"kind": "http", "url": f"http://127.0.0.1:{keeper.port}/"}, identity=f"job {number}")
            for number in range(4)
        ]
        for launch in launches:
            launcher.start(launch, ear)
        await until(lambda: keeper.heads)
        launcher.end(launches[1].run)
        assert ear.said(launches[1]) == [RunEvent.CANCELLED]
        launcher.end(launches[0].run)
        assert (await ear.accepted(launches[2])).happened is RunEvent.ACCEPTED
        await launcher.close(wait=False)
        assert not launcher.busy
        assert len(keeper.heads) <= 3


async def test_only_so_many_connections_are_kept_and_not_for_long() -> None:
    kept = ConnectionPool(max_kept=3, kept_s=0.05)
    async with keeping() as keeper:
        origins = [Origin("http", name, keeper.port) for name in "aabbcc"]
        connections = [await connect("127.0.0.1", origin, Route(), seconds=5) for origin in origins]
        for connection in connections:
            kept.put(connection)
        assert [connection.is_open for connection in connections] == [False] * 3 + [True] * 3
        assert kept.take(origins[0]) is None
        assert kept.take(origins[4]) is connections[5], "the one that was used last"
        await until(lambda: len(kept) == 0)
        assert [connection.is_open for connection in connections] == [False] * 5 + [True]
        kept.put(connections[5])
        await until(lambda: len(kept) == 0)
        assert not connections[5].is_open
        kept.close()
        await asyncio.sleep(0)


# --- whom a connection is for --------------------------------------------------------------------


async def test_a_connection_of_the_operators_own_address_is_for_nobody_else() -> None:
    """What may be asked wherever it is opens nothing for others who know its name."""
    async with keeping() as keeper:
        own = f"http://localhost:{keeper.port}/own"
        async with sending(egress_policy_of(None, urls=[own])) as sender:
            assert (await sent(sender, own)).error is None
            answer = await sent(sender, f"http://localhost:{keeper.port}/other")
            assert "is not allowed" in str(answer.error)
            assert not answer.retry
        assert len(keeper.heads) == 1


class Resolving(asyncio.SelectorEventLoop):
    """A loop that finds every name at two addresses of this host."""

    async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in ("127.0.0.2", "127.0.0.1")
        ]


def resolving(work: Coroutine[Any, Any, DeliveryResult]) -> DeliveryResult:
    with asyncio.Runner(loop_factory=Resolving) as runner:
        return runner.run(work)


def test_a_host_of_several_addresses_is_asked_where_somebody_listens() -> None:
    async def ask() -> DeliveryResult:
        # No server listens at the first of them.
        async with keeping() as keeper, sending(egress_policy_of(["127.0.0.0/8"])) as sender:
            return await sent(sender, f"http://several.example:{keeper.port}/")

    assert resolving(ask()) == DeliveryResult()


class Unresolving(Resolving):
    """A loop whose name server never answers for one host."""

    lookups: ClassVar[list[str]] = []

    async def getaddrinfo(self, host: Any, *_: Any, **__: Any) -> Any:
        self.lookups.append(str(host))
        if str(host).startswith("slow"):
            await asyncio.Event().wait()
        return await super().getaddrinfo(host)


def test_requests_to_a_host_that_is_not_found_share_one_lookup() -> None:
    async def ask() -> DeliveryResult:
        async with keeping() as keeper, sending(egress_policy_of(["127.0.0.0/8"])) as sender:
            url = f"http://slow.example:{keeper.port}/"
            waiting = [asyncio.create_task(sent(sender, url)) for _ in range(50)]
            waiting[0].cancel()
            await asyncio.wait(waiting[:1])
            result = await sent(sender, f"http://several.example:{keeper.port}/")
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            return result

    with asyncio.Runner(loop_factory=Unresolving) as runner:
        assert runner.run(ask()) == DeliveryResult()
    assert Unresolving.lookups.count("slow.example") == 1


def test_hosts_that_are_not_found_take_few_lookups_of_their_tenant_and_none_of_others() -> None:
    async def ask() -> DeliveryResult:
        async with keeping() as keeper, sending(egress_policy_of(["127.0.0.0/8"])) as sender:
            urls = [f"http://slow{number}.example:{keeper.port}/" for number in range(300)]
            waiting = [asyncio.create_task(sent(sender, url, user_id="ann")) for url in urls]
            result = await sent(sender, f"http://several.example:{keeper.port}/", user_id="bob")
            assert sum(host.startswith("slow") for host in Unresolving.lookups) == TENANT_LOOKUPS
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            return result

    Unresolving.lookups.clear()
    with asyncio.Runner(loop_factory=Unresolving) as runner:
        assert runner.run(ask()) == DeliveryResult()


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def served(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("server"))
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("gate", [None, egress_policy_of(["127.0.0.0/8", "::1"])], ids=["no gate", "a gate"])
async def test_a_server_that_proves_who_it_is_is_asked_over_tls(
    served: ssl.SSLContext, authority: Authority, host: str, gate: EgressPolicy | None
) -> None:
    trusting = ssl.create_default_context(cafile=str(authority.path))
    async with keeping(served) as keeper, sending(gate, trusting) as sender:
        for _ in range(3):
            assert await sent(sender, f"https://{host}:{keeper.port}/") == DeliveryResult()
        assert (keeper.connections, len(keeper.heads)) == (1, 3)


def test_a_server_that_is_somebody_else_is_told_nothing(served: ssl.SSLContext, authority: Authority) -> None:
    heads = []

    async def ask() -> DeliveryResult:
        trusting = ssl.create_default_context(cafile=str(authority.path))
        async with keeping(served) as keeper, sending(egress_policy_of(["127.0.0.0/8"]), trusting) as sender:
            answer = await sent(sender, f"https://other.example:{keeper.port}/")
            heads.extend(keeper.heads)
            return answer

    answer = resolving(ask())
    assert "certificate is not valid for 'other.example'" in str(answer.error)
    assert heads == []


async def test_a_server_nobody_vouches_for_is_told_nothing(served: ssl.SSLContext) -> None:
    async with keeping(served) as keeper, sending() as sender:
        answer = await sent(sender, f"https://localhost:{keeper.port}/")
        assert "CERTIFICATE_VERIFY_FAILED" in str(answer.error)
        assert keeper.heads == []


# --- what is written -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        pytest.param("http://a.example", "POST / HTTP/1.1", "a.example", id="no path"),
        pytest.param("https://A.example:443/x", "POST /x HTTP/1.1", "a.example", id="the usual port"),
        pytest.param("https://a.example:80/x", "POST /x HTTP/1.1", "a.example:80", id="another port"),
        pytest.param("http://[::1]:8080/", "POST / HTTP/1.1", "[::1]:8080", id="an address of IPv6"),
        pytest.param("http://a/x%20y?q=%zz&r", "POST /x%20y?q=%zz&r HTTP/1.1", "a", id="encoded already"),
        pytest.param(
            'http://a/x"{y}?{q}', "POST /x%22%7By%7D?{q} HTTP/1.1", "a", id="what a path cannot have"
        ),
        pytest.param("http://u:p@a/x", "POST /x HTTP/1.1", "a", id="a login"),
    ],
)
def test_the_first_lines_say_where_a_request_goes(url: str, line: str, host: str) -> None:
    lines = request_bytes(template_of(HttpSettings(url=url)), {}, b"{}").decode().split("\r\n")
    assert lines[:2] == [line, f"Host: {host}"]
    assert lines[-3:] == ["Content-Length: 2", "", "{}"]


def test_no_header_is_sent_twice() -> None:
    pairs = (("authorization", "Bearer x"), ("kron-run-token", "forged"), ("user-agent", "mine"))
    settings = HttpSettings(url="http://ann:secret@a/", headers=(*pairs, ("x-request-id", "mine")))
    ours = {"Kron-Run-Token": "real", "X-Request-Id": "asked"}
    lines = request_bytes(template_of(settings), ours, b"").decode().split("\r\n")
    sent_headers = sorted(line.lower() for line in lines[2:-2])
    assert sent_headers == [
        "authorization: basic yw5uonnly3jldA==".lower(),
        "content-length: 0",
        "kron-run-token: real",
        "user-agent: mine",
        "x-request-id: asked",
    ]
    assert "x-request-id: mine" in request_bytes(template_of(settings), {}, b"").decode().lower()


# --- whole exchanges -----------------------------------------------------------------------------


async def fetched(
    url: str, body: bytes | None = None, *, idle_s: float = 30, max_body: int = 1_000
) -> Response:
    client, target = HttpClient(), target_of(url)
    request = request_of("GET" if body is None else "POST", target, {"X-A": "b"}, body)
    try:
        return await client.fetch(request, target, idle_s=idle_s, max_body=max_body)
    finally:
        assert len(client.pool) == 0, "it keeps no connection"


async def test_a_request_without_a_body_has_no_length() -> None:
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n"))
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\nuntil the end")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        response = await fetched(f"http://ann:p%40ss@127.0.0.1:{port}/keys?a=\u00fc b")
    assert (response.status, bytes(response.body)) == (302, b"until the end"), "no redirect is followed"
    assert heads == [
        [
            "GET /keys?a=%C3%BC%20b HTTP/1.1", f"Host: 127.0.0.1:{port}", "User-Agent: kron",
            "Accept-Encoding: identity", "Authorization: Basic YW5uOnBAc3M=", "X-A: b", "", "",
        ]
    ]  # fmt: skip


async def test_a_long_body_is_sent_and_a_long_response_is_cut() -> None:
    sizes = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        sizes.append(len(await reader.readexactly(int(head.partition("Content-Length: ")[2].split()[0]))))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1_001)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        response = await fetched(url, b"y" * 10_000_000)
        whole = await fetched(url, b"y", max_body=1_001)
    assert sizes == [10_000_000, 1]
    assert (len(response.body), response.is_cut) == (1_000, True)
    assert (len(whole.body), whole.is_cut) == (1_001, False)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", id="a part"),
    ],
)
async def test_an_exchange_without_progress_is_given_up(sent: bytes) -> None:
    released = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await released.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        with pytest.raises(TimeoutError, match="no answer within"):
            await fetched(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", idle_s=0.05)
        released.set()


async def test_a_response_that_breaks_off_is_an_error() -> None:
    async with keeping() as keeper:
        keeper.script = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhel"]
        task = asyncio.create_task(fetched(f"http://127.0.0.1:{keeper.port}/", b""))
        await until(lambda: keeper.heads)
        keeper.writers[0].close()
        with pytest.raises(OSError, match="closed the connection"):
            await task


@pytest.mark.parametrize(
    ("url", "host", "path"),
    [
        pytest.param(
            "http://B\u00fccher.example", "xn--bcher-kva.example", "/", id="a name that is not ASCII"
        ),
        pytest.param("https://h:8443/a b/\u00fc", "h", "/a%20b/%C3%BC", id="a path that is not encoded"),
        pytest.param("http://[::1]/x\r\nX: y", "::1", "/xX:%20y", id="no line ends"),
    ],
)
def test_every_url_becomes_ascii(url: str, host: str, path: str) -> None:
    target = target_of(url)
    assert (target.origin.host, target.path) == (host, path)


@pytest.mark.parametrize("url", ["h/x", "ftp://h", "http://", "http://h:x", "http://[::1", "http://h:99999"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        target_of(url)


def test_templates_of_long_settings_are_kept_by_their_length() -> None:
    """Each has its settings three times; a thousand with 64 KiB of headers needed 200 MB of the worker."""

    def settings(number: int, length: int) -> HttpSettings:
        return HttpSettings(url=f"http://localhost/{number}", headers=(("X", "x" * length),))

    short, long = settings(0, 10), settings(0, 60_000)
    kept, dropped = template_of(short), template_of(long)
    assert template_of(long) is dropped
    for number in range(1, 100):
        template_of(settings(number, 60_000))
    assert template_of(short) is kept
    assert template_of(long) is not dropped


async def test_the_error_of_a_head_without_an_end_keeps_nothing_of_it() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * (8 * MAX_HEAD))
            await writer.drain()
        writer.close()

    errors = []
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        for _ in range(5):
            connection = await connect(origin.host, origin, Route(), seconds=PATIENCE_S)
            with pytest.raises(InvalidResponseError) as caught:
                await connection.request(b"GET / HTTP/1.1\r\n\r\n")
            errors.append(caught.value)
    frames = [frame for error in errors for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert not [frame for frame in frames if frame.f_code.co_name in ("data_received", "feed")]
