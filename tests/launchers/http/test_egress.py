"""Where requests may go, judged by names, by addresses, and by what a name means when it is asked."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.core.plan.report import RunEvent
from kron.launchers.http.egress import NOT_LISTED, NOT_PUBLIC, EgressPolicy, check_host, egress_policy_of
from kron.launchers.http.launcher import HttpLauncher
from tests.launchers.ear import Ear
from tests.launchers.http.test_launcher import QUICK, Server, a_request, result_of

OPEN, LISTED = egress_policy_of(None), egress_policy_of(["executor.example", "93.184.216.34"])
INSIDE = egress_policy_of(["executor.example", "10.0.0.0/8", "::1"])


SPECIAL = [
    "192.0.0.1", "192.0.0.9", "192.0.0.170", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1",
    "192.175.48.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255",
    "[::]", "[64:ff9b:1::1]", "[64:ff9b::7f00:1]", "[100::1]", "[100:0:0:1::1]", "[2001::1]", "[2001:2::1]",
    "[2001:10::1]", "[2001:20::1]", "[2001:db8::1]", "[2002:7f00:1::]", "[2620:4f:8000::1]", "[3fff::1]",
    "[5f00::1]",
    "[fc00::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
]  # fmt: skip


@pytest.mark.parametrize("host", SPECIAL)
def test_no_special_purpose_address_is_public(host: str) -> None:
    assert OPEN.fault_of(f"http://{host}/") == NOT_PUBLIC
    assert OPEN.fault_of_addresses("http://name.example/", [host.strip("[]")]) == NOT_PUBLIC


@pytest.mark.parametrize(
    ("gate", "url", "fault"),
    [
        pytest.param(OPEN, "https://example.com/x", None, id="any name may be public"),
        pytest.param(OPEN, "http://93.184.216.34/", None, id="a public address"),
        pytest.param(OPEN, "http://127.0.0.1:8080/", NOT_PUBLIC, id="loopback"),
        pytest.param(OPEN, "http://[::1]/", NOT_PUBLIC, id="loopback of IPv6"),
        pytest.param(OPEN, "http://169.254.169.254/latest/meta-data", NOT_PUBLIC, id="link-local"),
        pytest.param(OPEN, "http://10.1.2.3/", NOT_PUBLIC, id="private"),
        pytest.param(OPEN, "http://192.168.1.1/", NOT_PUBLIC, id="private at home"),
        pytest.param(OPEN, "http://100.64.0.1/", NOT_PUBLIC, id="shared by a carrier"),
        pytest.param(OPEN, "http://0.0.0.0/", NOT_PUBLIC, id="this host"),
        pytest.param(OPEN, "http://224.0.0.1/", NOT_PUBLIC, id="many at once"),
        pytest.param(OPEN, "http://[::ffff:127.0.0.1]/", NOT_PUBLIC, id="loopback inside IPv6"),
        pytest.param(OPEN, "http://[64:ff9b::7f00:1]/", NOT_PUBLIC, id="loopback behind a translator"),
        pytest.param(OPEN, "http://[::127.0.0.1]/", NOT_PUBLIC, id="loopback written the oldest way"),
        pytest.param(OPEN, "http://[::]/", NOT_PUBLIC, id="this host of IPv6"),
        pytest.param(OPEN, "http://[2002:7f00:1::]/", NOT_PUBLIC, id="loopback inside 6to4"),
        pytest.param(OPEN, "http://[fe80::1%25eth0]/", NOT_PUBLIC, id="link-local with its interface"),
        pytest.param(OPEN, "http://[fc00::1]/", NOT_PUBLIC, id="private of IPv6"),
        pytest.param(LISTED, "https://Executor.Example/x", None, id="a name in any case"),
        pytest.param(LISTED, "https://example.com/", NOT_LISTED, id="another name"),
        pytest.param(LISTED, "https://executor.example.evil.com/", NOT_LISTED, id="a name that goes on"),
        pytest.param(LISTED, "http://93.184.216.34/", None, id="an address that is named"),
        pytest.param(LISTED, "http://93.184.216.35/", NOT_LISTED, id="its neighbour"),
        pytest.param(INSIDE, "http://10.200.0.1/", None, id="inside a network that is named"),
        pytest.param(INSIDE, "http://[::1]:9/", None, id="an address of IPv6 that is named"),
        pytest.param(INSIDE, "http://11.0.0.1/", NOT_LISTED, id="outside of it"),
        pytest.param(INSIDE, "http://anything.internal/", NOT_LISTED, id="a name beside the listed one"),
        pytest.param(
            egress_policy_of(["10.0.0.0/8"]),
            "http://any.internal/",
            None,
            id="networks alone wait for the meaning",
        ),
        pytest.param(
            egress_policy_of([]), "https://example.com/", NOT_LISTED, id="an empty list allows nothing"
        ),
        pytest.param(
            egress_policy_of([], urls=["http://127.0.0.1/a"]),
            "http://127.0.0.1/a",
            None,
            id="the operator's own",
        ),
        pytest.param(
            egress_policy_of([], urls=["http://127.0.0.1/a"]),
            "http://127.0.0.1/b",
            NOT_LISTED,
            id="and no other",
        ),
    ],
)
def test_what_an_address_says_itself_is_judged(gate: EgressPolicy, url: str, fault: str | None) -> None:
    assert gate.fault_of(url) == fault


@pytest.mark.parametrize(
    ("gate", "addresses", "fault"),
    [
        pytest.param(OPEN, ["93.184.216.34"], None, id="public"),
        pytest.param(OPEN, ["93.184.216.34", "10.0.0.1"], NOT_PUBLIC, id="one that is not is enough"),
        pytest.param(LISTED, ["93.184.216.34"], None, id="a name that is allowed"),
        pytest.param(LISTED, ["127.0.0.1"], NOT_PUBLIC, id="a name alone opens nothing inside"),
        pytest.param(INSIDE, ["10.9.9.9", "::1"], None, id="networks that are named"),
        pytest.param(INSIDE, ["fe80::1%eth0"], NOT_PUBLIC, id="another network"),
    ],
)
def test_what_a_name_means_is_judged(gate: EgressPolicy, addresses: list[str], fault: str | None) -> None:
    assert gate.fault_of_addresses("https://executor.example/", addresses) == fault


@pytest.mark.parametrize(
    "word", ["http://example.com", "example.com:80", "*.example.com", "10.0.0.0/99", "a/b"]
)
def test_what_is_no_host_is_refused(word: str) -> None:
    with pytest.raises(InputError, match="must be a host's name"):
        check_host(word)


@asynccontextmanager
async def launching(gate: EgressPolicy) -> AsyncIterator[tuple[HttpLauncher, Server]]:
    server = Server()
    await server.open()
    launcher = HttpLauncher(SystemClock(), backoff=QUICK, egress=gate)
    try:
        yield launcher, server
    finally:
        await launcher.close()
        await server.close()


@pytest.mark.parametrize("gate", [OPEN, egress_policy_of(["localhost"]), egress_policy_of(["example.com"])])
async def test_nothing_is_sent_to_a_host_inside_that_nobody_allowed_and_it_is_not_tried_again(
    gate: EgressPolicy,
) -> None:
    async with launching(gate) as (launcher, server):
        for host in ("localhost", "127.0.0.1", "2130706433"):
            answer = await result_of(launcher, a_request(f"http://{host}:{server.port}/start"))
            assert answer[0] is RunEvent.LAUNCH_FAILED
            assert "is not allowed" in answer[1]
            assert "tried" not in answer[1]
        assert server.asked == []


async def test_a_host_inside_is_asked_by_its_name_when_its_network_is_allowed() -> None:
    async with launching(egress_policy_of(["127.0.0.0/8", "::1"])) as (launcher, server):
        launch = a_request(f"http://localhost:{server.port}/start?a=1")
        assert (await result_of(launcher, launch))[0] is RunEvent.ACCEPTED
        (asked,) = server.asked
        assert asked.headers["host"] == f"localhost:{server.port}"
        assert asked.line == "POST /start?a=1 HTTP/1.1"


async def test_a_name_nobody_knows_may_be_known_later() -> None:
    async with launching(OPEN) as (launcher, _):
        answer = await result_of(launcher, a_request("http://nobody.invalid/start"))
        assert answer[0] is RunEvent.LAUNCH_FAILED
        assert "cannot be reached" in answer[1]
        assert "tried 3 times" in answer[1]


class TwoFaced(asyncio.SelectorEventLoop):
    """A loop whose resolver gives an allowed address first, and another one on the second lookup."""

    asked = 0

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        self.asked += 1
        assert host == "rebound.example"
        address = "127.0.0.1" if self.asked == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port or 0))]


def test_the_address_that_was_checked_is_the_one_that_is_asked() -> None:
    async def launch() -> None:
        async with launching(egress_policy_of(["127.0.0.1"])) as (launcher, server):
            answer = await result_of(launcher, a_request(f"http://rebound.example:{server.port}/start"))
            assert answer[0] is RunEvent.ACCEPTED
            assert len(server.asked) == 1

    with asyncio.Runner(loop_factory=TwoFaced) as runner:
        runner.run(launch())
        loop = runner.get_loop()
        assert isinstance(loop, TwoFaced)
        assert loop.asked == 1


async def test_over_tls_the_server_has_to_be_the_host_of_the_url() -> None:
    """The connection goes to an address, and still asks for the certificate of the name."""
    hello = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(4_096)
        if not hello.done():
            hello.set_result(first)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    launcher, ear = (
        HttpLauncher(SystemClock(), backoff=QUICK, egress=egress_policy_of(["127.0.0.0/8", "::1"])),
        Ear(),
    )
    launch = a_request(f"https://localhost:{port}/start")
    launcher.start(launch, ear)
    assert b"localhost" in await hello
    await ear.end_of(launch)
    await launcher.close()
    server.close()
    await server.wait_closed()
