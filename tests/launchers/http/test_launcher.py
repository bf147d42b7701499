"""Requests to a real server that answers, fails, hangs, resets and lies."""

import asyncio
import gc
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.report import Launch, LeaseStatus, RunEvent, Traits
from kron.launchers.backoff import Backoff
from kron.launchers.http.client import ConnectError
from kron.launchers.http.launcher import HTTP, HttpLauncher, StartSender
from kron.launchers.http.spec import HttpOptions, HttpSettings
from kron.launchers.spec import LauncherConfig, LauncherContext, settings_parser
from kron.testing.clock import SimulatedClock
from tests.launchers.ear import Ear, a_launch, on_record
from tests.waiting import PATIENCE_S, until

QUICK = Backoff(max_attempts=3, first_delay=timedelta(milliseconds=5), max_delay=timedelta(milliseconds=20))


class Asked(NamedTuple):
    """A request as the server received it."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.body)
        return found


class Reply(NamedTuple):
    """What the server does with a request; `then` is for what comes after the first bytes."""

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[str, ...] = ()
    then: str = "close"


OK = Reply(202, b'{"run_id": "r-17"}')
RESET, HANG, GARBAGE = Reply(then="reset"), Reply(then="hang"), Reply(then="garbage")


class Server:
    """A server on this host that follows a script; after its last reply it accepts."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: list[Reply] = []
        self.under_way = self.most_under_way = 0
        # Replies marked "held" wait for it.
        self.answers = asyncio.Event()
        self._held: set[asyncio.Task[object]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()
        for task in self._held:
            task.cancel()
        if self._held:
            await asyncio.wait(self._held)

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/start"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._held.add(task)
        self.under_way += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.asked.append(Asked(head[0], headers, body))
            self.most_under_way = max(self.most_under_way, self.under_way)
            await self._reply(self.script.pop(0) if self.script else OK, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self.under_way -= 1
            self._held.discard(task)
            writer.close()

    async def _reply(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        match reply.then:
            case "reset":
                writer.transport.abort()
                return
            case "hang":
                await asyncio.sleep(60)
            case "garbage":
                writer.write(b"\x00\xffno HTTP at all\r\n\r\n")
            case then:
                if then == "held":
                    await self.answers.wait()
                await asyncio.sleep(0.05 if then == "slow" else 0)
                length = len(reply.body) + (1_000_000 if then in ("stall", "tear") else 0)
                lines = [f"HTTP/1.1 {reply.status} X", f"Content-Length: {length}", "Connection: close"]
                writer.write("\r\n".join([*lines, *reply.headers, "", ""]).encode() + reply.body)
                await writer.drain()
                if then == "stall":
                    await asyncio.sleep(60)
        await writer.drain()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.open()
    yield server
    await server.close()


@pytest.fixture
async def launcher() -> AsyncIterator[HttpLauncher]:
    launcher = HttpLauncher(SystemClock(), backoff=QUICK)
    yield launcher
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()


def a_request(url: str, **fields: object) -> Launch:
    return a_launch({"kind": "http", "url": url, **fields})


async def result_of(launcher: HttpLauncher, launch: Launch) -> tuple[RunEvent, str, str | None]:
    ear = Ear()
    launcher.start(launch, ear)
    assert launcher.busy
    await ear.until(lambda: ear.reports)
    assert not launcher.busy
    (report,) = ear.of(launch)
    return report.happened, report.error or "", report.run_id


# --- what is sent --------------------------------------------------------------------------------


async def test_the_start_arguments_are_posted(server: Server, launcher: HttpLauncher) -> None:
    launch = a_request(
        server.url, workflow_id="etl", version=3, user_id="u1", headers={"Authorization": "Bearer t"}
    )
    assert await result_of(launcher, launch) == (RunEvent.ACCEPTED, "", "r-17")
    (asked,) = server.asked
    assert asked.line == "POST /start HTTP/1.1"
    assert asked.document == {
        "workflow_id": "etl",
        "version": 3,
        "user_id": "u1",
        "scheduled_for": "2026-03-01T12:00:00Z",
        "idempotency_key": launch.run.key,
        "identity": "backup",
        "attempt": 1,
        "fencing_token": 7,
        "data_interval_start": "2026-03-01T11:00:00Z",
        "data_interval_end": "2026-03-01T12:00:00Z",
    }
    sent = {name: asked.headers[name] for name in SENT}
    assert sent == dict(
        zip(
            SENT,
            [launch.run.key, "1", "7", *INTERVAL, "application/json", "Bearer t", "identity"],
            strict=True,
        )
    )


INTERVAL = ("2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z")
SENT = (
    "idempotency-key",
    "kron-attempt",
    "kron-fencing-token",
    "kron-data-interval-start",
    "kron-data-interval-end",
    "content-type",
    "authorization",
    "accept-encoding",
)


async def test_login_and_query_of_the_address_are_sent(server: Server, launcher: HttpLauncher) -> None:
    url = f"http://ann:p%40ss@127.0.0.1:{server.port}/go?token=abc%20d&x=1"
    assert (await result_of(launcher, a_request(url)))[0] is RunEvent.ACCEPTED
    (asked,) = server.asked
    assert asked.line == "POST /go?token=abc%20d&x=1 HTTP/1.1"
    assert asked.headers["authorization"] == "Basic YW5uOnBAc3M="


@pytest.mark.parametrize("reports", [False, True])
def test_the_traits_say_whether_ends_are_reported(reports: bool) -> None:
    launcher = HttpLauncher(SystemClock(), reports=reports)
    assert launcher.traits == Traits(reports=reports, idempotent=True, enqueues=True, remote=True)


# --- what answers mean ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "run_id"),
    [
        pytest.param(Reply(200, b'{"run_id": "a"}'), "a", id="a name"),
        pytest.param(Reply(202, b'{"run_id": 17}'), "17", id="a number"),
        pytest.param(Reply(201, b"created"), None, id="no JSON"),
        pytest.param(Reply(204, b""), None, id="nothing"),
        pytest.param(Reply(200, b"[1, 2]"), None, id="no object"),
        pytest.param(Reply(200, b'{"run_id": null}'), None, id="null"),
        pytest.param(Reply(200, b'{"run_id": {"a": 1}}'), None, id="an object"),
        pytest.param(Reply(200, b'{"run_id": true}'), None, id="true"),
        pytest.param(Reply(200, b'{"run_id": "a\\u0000b"}'), None, id="what cannot be stored"),
        pytest.param(Reply(200, b'{"run_id": "' + b"x" * 300 + b'"}'), None, id="too long a name"),
        pytest.param(Reply(200, b"[" * 30_000), None, id="a deep document"),
        pytest.param(Reply(200, b"\xff\xfe\x00"), None, id="no text"),
        pytest.param(Reply(200, b"x" * 3_000_000), None, id="megabytes"),
        pytest.param(Reply(200, b'{"run_id": "a"}', then="tear"), None, id="torn off"),
        pytest.param(Reply(200, b'{"run_id": "a"}', then="slow"), "a", id="slow"),
    ],
)
async def test_what_is_accepted_is_accepted_whatever_else_it_says(
    server: Server, launcher: HttpLauncher, reply: Reply, run_id: str | None
) -> None:
    server.script = [reply]
    happened, error, found = await result_of(launcher, a_request(server.url))
    assert (happened, error) == (RunEvent.ACCEPTED, "")
    if reply.then == "tear":
        # A whole document may have come before the connection broke.
        assert found in (None, "a")
    else:
        assert found == run_id
    assert len(server.asked) == 1


async def test_an_answer_that_stalls_after_its_status_is_accepted(
    server: Server, launcher: HttpLauncher
) -> None:
    server.script = [Reply(200, b"{", then="stall")]
    happened, _, _ = await result_of(launcher, a_request(server.url, timeout="200ms"))
    assert happened is RunEvent.ACCEPTED
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422, 499])
async def test_a_wrong_request_is_not_sent_again(server: Server, launcher: HttpLauncher, status: int) -> None:
    server.script = [Reply(status, b'{"detail":\n "no\x00 such workflow"}')]
    happened, error, _ = await result_of(launcher, a_request(server.url))
    assert happened is RunEvent.LAUNCH_FAILED
    assert error.startswith(f"{server.url} answered {status}")
    assert error.endswith(': {"detail": "no\ufffd such workflow"}')
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_neither_followed_nor_sent_again(
    server: Server, launcher: HttpLauncher, status: int
) -> None:
    server.script = [Reply(status, b"", (f"Location: {server.url}/elsewhere",))]
    happened, error, _ = await result_of(launcher, a_request(server.url))
    assert happened is RunEvent.LAUNCH_FAILED
    assert error.startswith(f"{server.url} answered {status} ")
    assert error.endswith(": redirects are not followed; use the final URL")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        pytest.param(Reply(500, b"boom"), "answered 500 Internal Server Error: boom", id="500"),
        pytest.param(Reply(503, b""), "answered 503 Service Unavailable", id="503"),
        pytest.param(Reply(408, b""), "answered 408 Request Timeout", id="408"),
        pytest.param(Reply(429, b""), "answered 429 Too Many Requests", id="429"),
        pytest.param(Reply(599, b""), "answered 599", id="a status nobody knows"),
        pytest.param(RESET, "cannot be reached: ", id="reset"),
        pytest.param(GARBAGE, "cannot be reached: ", id="no HTTP"),
        pytest.param(HANG, "did not answer within 0.7 s", id="hangs"),
    ],
)
async def test_what_may_pass_is_sent_again_with_the_same_key_and_then_fails(
    server: Server, launcher: HttpLauncher, reply: Reply, error: str
) -> None:
    server.script = [reply] * 3
    launch = a_request(server.url, timeout="700ms" if reply is HANG else "20s")
    happened, said, _ = await result_of(launcher, launch)
    assert happened is RunEvent.LAUNCH_FAILED
    assert said.startswith(f"{server.url} {error}")
    assert said.endswith(", tried 3 times")
    assert [asked.headers["idempotency-key"] for asked in server.asked] == [launch.run.key] * 3
    assert [asked.headers["kron-attempt"] for asked in server.asked] == ["1"] * 3
    assert server.script == []


@pytest.mark.parametrize(
    "reply", [Reply(500), Reply(429), RESET, GARBAGE], ids=["500", "429", "reset", "no HTTP"]
)
async def test_what_passes_is_accepted(server: Server, launcher: HttpLauncher, reply: Reply) -> None:
    server.script = [reply, reply]
    assert (await result_of(launcher, a_request(server.url)))[0] is RunEvent.ACCEPTED
    assert len(server.asked) == 3


async def test_an_executor_that_honours_the_key_runs_it_once_though_the_answer_was_lost(
    server: Server, launcher: HttpLauncher
) -> None:
    server.script = [RESET]
    launch = a_request(server.url)
    assert (await result_of(launcher, launch))[0] is RunEvent.ACCEPTED
    assert [asked.document for asked in server.asked] == [server.asked[0].document] * 2
    assert {asked.headers["idempotency-key"] for asked in server.asked} == {launch.run.key}


async def test_nobody_listens(launcher: HttpLauncher, server: Server) -> None:
    url = server.url
    await server.close()
    happened, error, _ = await result_of(launcher, a_request(url))
    assert happened is RunEvent.LAUNCH_FAILED
    assert error.startswith(f"{url} cannot be reached: ConnectError")
    assert error.endswith("tried 3 times")


async def test_a_request_that_could_not_be_sent_is_not_kept_until_a_garbage_collection() -> None:
    sender, launch = StartSender(SystemClock()), a_request("http://127.0.0.1:9/")
    settings = settings_parser(HttpSettings)(launch.job.launcher)
    await sender.send(launch, settings)
    gc.collect()
    gc.disable()
    try:
        assert (await sender.send(launch, settings)).retry
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        kept = [each for each in gc.garbage if isinstance(each, FrameType | ConnectError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        sender.close()
    assert kept == []


@pytest.mark.parametrize("settings", ["{", '{"kind": "http"}', '{"kind": "callback"}'])
async def test_settings_that_are_wrong_fail_at_once(launcher: HttpLauncher, settings: str) -> None:
    happened, error, _ = await result_of(launcher, a_launch(settings))
    assert happened is RunEvent.LAUNCH_FAILED
    assert "launcher" in error


# --- waiting -------------------------------------------------------------------------------------

START = SystemClock().now().replace(microsecond=0)


def in_an_hour() -> str:
    from email.utils import format_datetime

    return format_datetime(START + timedelta(hours=1), usegmt=True)


@pytest.mark.parametrize(
    ("after", "least_s", "most_s"),
    [
        pytest.param(None, 5, 10, id="by itself"),
        pytest.param("40", 40, 40, id="seconds"),
        pytest.param("100000", 60, 60, id="seconds, beyond the bound"),
        pytest.param("9" * 400, 60, 60, id="seconds beyond all"),
        pytest.param(in_an_hour(), 60, 60, id="an instant, beyond the bound"),
        pytest.param("Thu, 01 Jan 1970 00:00:00 GMT", 5, 10, id="an instant long ago"),
        pytest.param("soon", 5, 10, id="nonsense"),
        pytest.param("-5", 5, 10, id="negative"),
    ],
)
async def test_the_other_side_may_ask_for_a_while(
    server: Server, after: str | None, least_s: int, most_s: int
) -> None:
    clock = SimulatedClock(START)
    backoff = Backoff(max_attempts=2, first_delay=timedelta(seconds=10), max_delay=timedelta(seconds=60))
    launcher, ear = HttpLauncher(clock, backoff=backoff), Ear()
    server.script = [Reply(503, headers=(f"Retry-After: {after}",) if after else ())]
    launcher.start(a_request(server.url), ear)
    await clock.advance_to(START + timedelta(seconds=least_s - 0.001))
    assert ear.reports == []
    assert len(server.asked) == 1
    await clock.advance_to(START + timedelta(seconds=most_s))
    assert [report.happened for report in ear.reports] == [RunEvent.ACCEPTED]
    await launcher.close()


async def test_only_so_many_requests_are_under_way_at_once(server: Server) -> None:
    launcher, ear = HttpLauncher(SystemClock(), max_requests=3), Ear()
    server.script = [Reply(200, then="slow")] * 12
    for n in range(12):
        launcher.start(a_launch({"kind": "http", "url": server.url}, identity=f"job {n}"), ear)
    await launcher.close()
    assert [report.happened for report in ear.reports] == [RunEvent.ACCEPTED] * 12
    assert 1 <= server.most_under_way <= 3


async def test_the_operators_limit_of_a_tenant_holds_and_others_have_their_reserved_slots(
    server: Server,
) -> None:
    """Two tenants hold every slot of a target; a third still gets the one that is reserved for it."""
    context = LauncherContext(SystemClock(), LauncherConfig((HttpOptions(max_per_tenant=2),)))
    launcher, ear = HTTP.build("http", context), Ear()
    assert launcher is not None
    server.script = [Reply(then="held")] * 9
    for n, user in enumerate(["ann"] * 4 + ["bob"] * 4):
        launcher.start(
            a_launch({"kind": "http", "url": server.url, "user_id": user}, identity=f"job {n}"), ear
        )
    await until(lambda: len(server.asked) == 4)
    launcher.start(a_launch({"kind": "http", "url": server.url, "user_id": "cem"}, identity="cem"), ear)
    await until(lambda: len(server.asked) == 5)
    assert "cem" in str(server.asked[-1].document)
    server.answers.set()
    await launcher.close()
    assert [report.happened for report in ear.reports] == [RunEvent.ACCEPTED] * 9
    assert server.most_under_way == 5


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(OK, id="accepted"),
        pytest.param(
            Reply(400, b"bad login hunter22 with Bearer t0ps3cret and tok3n99"), id="it quotes them"
        ),
        pytest.param(Reply(500), id="it fails"),
        pytest.param(RESET, id="reset"),
        pytest.param(GARBAGE, id="no HTTP"),
        pytest.param(HANG, id="hangs"),
    ],
)
async def test_no_secret_of_an_address_is_told_or_logged(
    server: Server, launcher: HttpLauncher, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logging.getLogger("kron").setLevel(logging.DEBUG)
    server.script = [reply] * 3
    url = f"http://ann:hunter22@127.0.0.1:{server.port}/go?key=tok3n99"
    launch = a_request(url, headers={"Authorization": "Bearer t0ps3cret"}, timeout="100ms")
    _, error, _ = await result_of(launcher, launch)
    for secret in ("hunter22", "tok3n99", "t0ps3cret", "ann:"):
        assert secret not in error
        assert secret not in caplog.text


async def test_a_login_that_stands_in_no_header_is_not_told_either(
    server: Server, launcher: HttpLauncher
) -> None:
    server.script = [Reply(401, b"who is p@ssw0rd or p%40ssw0rd?")]
    _, error, _ = await result_of(launcher, a_request(f"http://ann:p%40ssw0rd@127.0.0.1:{server.port}/"))
    assert "ssw0rd" not in error
    assert error.endswith("who is *** or ***?")


# --- ending, adopting, closing -------------------------------------------------------------------


async def test_a_launch_under_way_can_be_given_up(server: Server, launcher: HttpLauncher) -> None:
    server.script = [HANG]
    ear, launch = Ear(), a_request(server.url)
    launcher.start(launch, ear)
    await until(lambda: server.asked)
    launcher.end(launch.run)
    launcher.end(launch.run)
    assert ear.said(launch) == [RunEvent.CANCELLED]
    assert not launcher.busy
    await launcher.close()
    assert ear.said(launch) == [RunEvent.CANCELLED]


async def test_a_launch_can_be_given_up_before_its_first_step(server: Server, launcher: HttpLauncher) -> None:
    ear, launch = Ear(), a_request(server.url)
    launcher.start(launch, ear)
    launcher.end(launch.run)
    await asyncio.sleep(0.02)
    assert ear.said(launch) == [RunEvent.CANCELLED]
    assert server.asked == []


async def test_what_was_accepted_is_out_of_our_hands(server: Server, launcher: HttpLauncher) -> None:
    ear, launch = Ear(), a_request(server.url)
    launcher.start(launch, ear)
    await ear.accepted(launch)
    launcher.end(launch.run)
    await asyncio.sleep(0.02)
    assert ear.said(launch) == [RunEvent.ACCEPTED]


async def test_what_was_accepted_is_found_again_and_the_rest_is_not(
    server: Server, launcher: HttpLauncher
) -> None:
    ear = Ear()
    accepted = a_launch({"kind": "http", "url": server.url}, identity="a")
    launcher.start(accepted, ear)
    known = on_record(accepted, await ear.accepted(accepted))
    unknown = a_launch({"kind": "http", "url": server.url}, identity="b")
    other = HttpLauncher(SystemClock(), reports=True)
    assert await other.adopt([known, unknown], ear) == {accepted.run.key}
    assert len(server.asked) == 1


async def test_a_launcher_adopts_what_it_has_in_hand(server: Server, launcher: HttpLauncher) -> None:
    first, second, launch = Ear(), Ear(), a_request(server.url)
    server.script = [Reply(200, then="slow")]
    launcher.start(launch, first)
    assert await launcher.adopt([launch], second) == {launch.run.key}
    await launcher.close()
    assert (first.reports, second.said(launch)) == ([], [RunEvent.ACCEPTED])
    assert len(server.asked) == 1


async def test_closing_waits_for_requests_and_their_repetitions(
    server: Server, launcher: HttpLauncher
) -> None:
    server.script = [Reply(500), RESET]
    ear, launch = Ear(), a_request(server.url)
    launcher.start(launch, ear)
    await launcher.close(wait=True)
    assert ear.said(launch) == [RunEvent.ACCEPTED]


async def test_closing_waits_for_what_is_begun_meanwhile(server: Server, launcher: HttpLauncher) -> None:
    server.script = [Reply(200, then="held"), Reply(200, then="held")]
    ear = Ear()
    first, second = a_request(server.url), a_launch({"kind": "http", "url": server.url}, identity="other")
    launcher.start(first, ear)
    await until(lambda: server.asked)
    closing = asyncio.create_task(launcher.close())
    await asyncio.sleep(0.03)
    launcher.start(second, ear)
    server.answers.set()
    await closing
    assert (ear.said(first), ear.said(second)) == ([RunEvent.ACCEPTED], [RunEvent.ACCEPTED])
    assert len(server.asked) == 2, "no request is broken off and sent again"


@pytest.mark.slow
async def test_closing_without_waiting_leaves_launches_to_the_next_owner(
    server: Server, launcher: HttpLauncher
) -> None:
    server.script = [HANG]
    ear, launch = Ear(), a_request(server.url)
    launcher.start(launch, ear)
    await until(lambda: server.asked)
    await launcher.close(wait=False)
    assert not launcher.busy
    assert ear.reports == [], "it has not ended: the key is sent again"
    launcher.start(launch, ear)
    assert (await ear.accepted(launch)).happened is RunEvent.ACCEPTED


async def test_closing_without_waiting_still_hears_the_last_responses_and_sends_nothing_more(
    server: Server,
) -> None:
    """One start was refused and waits for its retry, one waits for its response, one for a free slot."""
    launcher, ear = HttpLauncher(SystemClock(), max_requests=1), Ear()
    server.script = [Reply(500), Reply(202, then="held")]
    settings = {"kind": "http", "url": server.url}
    refused, sent, queued = (a_launch(settings, identity=name) for name in ("refused", "sent", "queued"))
    for launch in (refused, sent, queued):
        launcher.start(launch, ear)
    await until(lambda: len(server.asked) == 2)
    closing = asyncio.create_task(launcher.close(wait=False))
    await asyncio.sleep(0)
    server.answers.set()
    await closing
    assert not launcher.busy
    assert [report.key for report in ear.reports] == [sent.run.key]
    assert ear.said(sent) == [RunEvent.ACCEPTED]
    assert len(server.asked) == 2


# --- leases --------------------------------------------------------------------------------------


async def test_nothing_is_sent_while_a_lease_may_have_ended(server: Server, launcher: HttpLauncher) -> None:
    holds = [LeaseStatus.LAPSED]
    ear, launch = Ear(), a_request(server.url)._replace(lease_status=lambda: holds[0])
    launcher.start(launch, ear)
    await asyncio.sleep(0.05)
    assert (server.asked, launcher.busy) == ([], True)
    holds[0] = LeaseStatus.HELD
    assert (await ear.accepted(launch)).happened is RunEvent.ACCEPTED


async def test_what_somebody_else_looks_after_is_not_sent_again(
    server: Server, launcher: HttpLauncher
) -> None:
    server.script = [Reply(500), Reply(500)]
    ear, launch = Ear(), a_request(server.url)
    launch = launch._replace(lease_status=lambda: LeaseStatus.LOST if server.asked else LeaseStatus.HELD)
    launcher.start(launch, ear)
    await until(lambda: not launcher.busy)
    assert (len(server.asked), ear.reports) == (1, []), "the other owner sends it, and hears of it"


async def test_a_start_whose_lease_lapses_before_it_is_sent_waits_for_it_and_has_not_failed(
    server: Server, launcher: HttpLauncher
) -> None:
    """More often than a start is retried: it lapses while the connection is made."""
    statuses = [LeaseStatus.HELD, LeaseStatus.LAPSED] * (QUICK.max_attempts + 1)
    ear, launch = Ear(), a_request(server.url)
    launch = launch._replace(lease_status=lambda: statuses.pop(0) if statuses else LeaseStatus.HELD)
    launcher.start(launch, ear)
    assert (await ear.accepted(launch)).happened is RunEvent.ACCEPTED
    assert (len(server.asked), statuses) == (1, [])


async def test_what_was_lost_is_not_adopted_and_begins_anew_once(
    server: Server, launcher: HttpLauncher
) -> None:
    holds = [LeaseStatus.LAPSED]
    ear, launch = Ear(), a_request(server.url)
    launcher.start(launch._replace(lease_status=lambda: holds[0]), ear)
    await asyncio.sleep(0)
    holds[0] = LeaseStatus.LOST
    assert await launcher.adopt([launch], ear) == frozenset()
    launcher.start(launch._replace(run=launch.run._replace(token=8)), ear)
    await launcher.close()
    assert ear.said(launch) == [RunEvent.ACCEPTED]
    assert [asked.headers["kron-fencing-token"] for asked in server.asked] == ["8"]


WITHOUT = """
import sys
for name in ("httpx", "httpcore", "h11", "anyio"):
    sys.modules[name] = None
import asyncio
from kron.clocks.system import SystemClock
from kron.launchers.http.launcher import HttpLauncher
async def use():
    await HttpLauncher(SystemClock()).close()
    print("used")
asyncio.run(use())
"""


def test_it_needs_nothing_that_is_not_installed_with_python(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        cwd=tmp_path,
    ).stdout
    assert said.strip() == "used"
