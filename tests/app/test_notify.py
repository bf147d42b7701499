"""The sender: real requests, e-mail and commands, at least once, with retries, and visible afterwards."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kron.app.notify.channel import EmailChannel, parse_channels
from kron.app.notify.sender import BACKOFF, MAX_OF_TARGET, MAX_READ, MAX_SENDING, NotifyOptions, Sender
from kron.app.query import Query
from kron.app.worker import Worker, WorkerOptions
from kron.clocks.system import SystemClock
from kron.core.errors import StoreUnavailableError
from kron.core.job.job import Job
from kron.core.plan.notice import NOTICE_CODES
from kron.core.plan.outbox import MAX_GROUP, SendLimits
from kron.core.plan.record import NoticeEvent, NoticeRecord, NoticeState
from kron.core.plan.registration import create
from kron.core.plan.step import Change
from kron.launchers.callback import CallbackLauncher
from kron.launchers.http.egress import EgressPolicy, egress_policy_of
from kron.ports import Store
from kron.runtime.journal import LogJournal
from kron.stores.postgres.store import PostgresStore
from kron.stores.sqlite.store import SqliteStore
from tests.app.sinks import HttpSink, Request, http_sink, smtp_sink
from tests.service.auth.authority import Authority
from tests.waiting import until

pytestmark = pytest.mark.slow

SPACE = "runner:main"
YEARLY = Job.from_dict({"identity": "yearly", "schedule": "0 0 1 1 *"})
PERIOD = 1_767_225_600
AT_ONCE = SendLimits(wait_ms=0, interval_ms=0)


class Stage:
    """A running worker with a sender, and a store that notices are written to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = SystemClock()
        self.sender: Sender | None = None

    async def write(self, *notices: NoticeRecord) -> None:
        """Write notices as a commit of the engine does."""
        is_stale = True
        while is_stale:  # the worker writes the job at its first wake
            (state,) = await self.store.cases(SPACE)
            job = state.job
            change = Change(job._replace(revision=job.revision + 1), job.revision, notices=notices)
            settled = await self.store.put(SPACE, created=[], changed=[change], now=PERIOD)
            is_stale = bool(settled.stale_jobs)
        if self.sender is not None:
            self.sender.call()

    async def all(self) -> list[NoticeRecord]:
        """Return every notice."""
        return await self.store.notices(SPACE, "yearly", first=0, last=PERIOD, limit=1_000)

    async def ended(self) -> list[NoticeRecord]:
        """Wait until every notice is sent or given up."""
        while await self.store.pending_notices(SPACE, limit=1):  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
        return await self.all()

    async def tried(self) -> NoticeRecord:
        """Wait until an attempt to send the only notice has failed."""
        while not (await self.all())[0].error:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
        return (await self.all())[0]

    @asynccontextmanager
    async def sending(
        self,
        channels: object = None,
        *,
        limits: SendLimits = AT_ONCE,
        egress: EgressPolicy | None = None,
        open_target: Callable[[str], str] = str,
        are_apart: bool = False,
    ) -> AsyncIterator[Sender]:
        """Run a worker that sends."""
        options = NotifyOptions(
            channels=parse_channels(channels or {}),
            limits=limits,
            egress=egress,
            open_target=open_target,
            are_apart=are_apart,
        )
        journal = LogJournal()
        self.sender = Sender(self.store, self.clock, namespace=SPACE, options=options, journal=journal)
        launchers = {"callback": CallbackLauncher(self.clock)}
        worker = Worker(
            self.store, self.clock, launchers, namespace=SPACE, journal=journal, sender=self.sender
        )
        await worker.take_over()
        worker.start()
        try:
            yield self.sender
        finally:
            await worker.stop()


class OutboxStore(SqliteStore):
    """A store that does something more after the outbox was read, once."""

    after_read: Callable[[], Awaitable[None]] | None = None
    # The most notices that were read at once.
    most_read = 0

    async def pending_notices(
        self, namespace: str, *, limit: int, of_owner: int | None = None
    ) -> list[NoticeRecord]:
        pending = await super().pending_notices(namespace, limit=limit, of_owner=of_owner)
        self.most_read = max(self.most_read, len(pending))
        hook, self.after_read = self.after_read, None
        if hook is not None:
            await hook()
        return pending


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    store = OutboxStore(str(tmp_path / "kron.db"))
    now = (PERIOD - 60) * 1000
    await store.put(SPACE, created=[create(YEARLY, now=now)], changed=[], now=now)
    yield Stage(store)
    await store.close()


def a_notice(number: int = 1, target: str = "ops", **fields: object) -> NoticeRecord:
    at = 1000 * int(SystemClock().now().timestamp())
    notice = NoticeRecord(
        f"n{number}", "yearly", NoticeEvent.FAILED, target, PERIOD, "k", at, detail="exit status 3", due_at=at
    )
    return notice._replace(**fields)  # type: ignore[arg-type]


def hook(sink: HttpSink, path: str = "/hook/s3cr3t-path", **fields: object) -> dict[str, object]:
    return {"ops": {"kind": "webhook", "url": sink.url + path, **fields}}


async def test_a_webhook_gets_the_event_with_a_stable_id_and_the_sentences_of_why(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending(hook(sink)):
        await stage.write(a_notice())
        (notice,) = await stage.ended()
    (request,) = sink.requests
    assert request.line == "POST /hook/s3cr3t-path"
    assert request.headers["kron-notification-id"] == request.headers["idempotency-key"] == "n1"
    document = request.document
    assert (document["id"], document["summary"]) == ("n1", '"yearly" failed: exit status 3')
    events = document["events"]
    assert isinstance(events, list)
    assert events[0]["period_id"] == "2026-01-01T00:00:00Z"
    headline, schedule, *_, remedy = events[0]["why"]
    assert headline.startswith("did not run: no worker ran before worker ")
    assert headline.endswith(", and the deadline had passed")
    assert schedule == 'the schedule is "0 0 1 1 *" in UTC'
    assert not any("notification" in sentence for sentence in events[0]["why"])
    assert remedy == "a longer deadline lets a late period start"
    assert (notice.state, notice.tries) == (NoticeState.SENT, 1)
    assert notice.sent_as == f"webhook {sink.url}/***"


async def test_why_says_what_was_sent_what_failed_and_what_waits(stage: Stage) -> None:
    query = Query(stage.store, SPACE, now=lambda: 1000 * PERIOD)
    async with http_sink() as sink, stage.sending(hook(sink)):
        await stage.write(a_notice(), a_notice(2, "gone"))
        sent, failed = await stage.ended()
    await stage.write(a_notice(3, "https://h.example/s3cr3t-path", event=NoticeEvent.MISSED))
    explanation = await query.why("yearly", "2026-01-01T00:00:00Z")
    facts = {fact.sentence: fact.at for fact in explanation.facts if fact.code in NOTICE_CODES}
    assert list(facts.items())[:2] == [
        (f'the notification "failed" to ops was sent: webhook {sink.url}/***', sent.ended_at),
        (
            'the notification "failed" to gone could not be sent: there is no channel "gone" in the settings',
            failed.ended_at,
        ),
    ]
    assert 'the notification "missed" to https://h.example/*** is still to be sent' in facts
    assert explanation.code not in NOTICE_CODES


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("smtp://mail.example.com", ("smtp", "mail.example.com", 587)),
        ("smtps://mail.example.com", ("smtps", "mail.example.com", 465)),
        ("smtp://[::1]:25", ("smtp", "::1", 25)),
    ],
)
def test_a_mail_server_has_the_usual_port_unless_it_names_one(
    server: str, expected: tuple[str, str, int]
) -> None:
    channel = {"kind": "email", "server": server, "from": "k@e.com", "to": "a@e.com"}
    made = parse_channels({"ops": channel})["ops"]
    assert isinstance(made, EmailChannel)
    assert made.address == expected


async def test_an_unexpected_error_ends_one_message_and_not_the_sender(stage: Stage) -> None:
    def broken(target: str) -> str:
        if target.endswith("/broken"):
            raise ZeroDivisionError
        return target

    async with http_sink() as sink, stage.sending({}, open_target=broken):
        await stage.write(a_notice(1, f"{sink.url}/broken"))
        await stage.write(a_notice(2, f"{sink.url}/fine"))
        first, second = sorted(await stage.ended(), key=lambda notice: notice.id)
    assert (first.state, first.error) == (NoticeState.FAILED, "it failed unexpectedly: ZeroDivisionError")
    assert second.state is NoticeState.SENT


async def test_a_slack_webhook_gets_one_escaped_text(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending({}):
        await stage.write(a_notice(target=f"slack+{sink.url}/T0", detail="<b> & c"))
        await stage.ended()
    (request,) = sink.requests
    assert set(request.document) == {"text"}
    assert str(request.document["text"]).startswith('"yearly" failed: &lt;b&gt; &amp; c\n')


async def test_a_flood_of_one_owner_is_read_in_parts(stage: Stage) -> None:
    await stage.write(*(a_notice(number, f"gone{number}") for number in range(MAX_READ + 200)))
    async with stage.sending():
        assert isinstance(stage.store, OutboxStore)
        while not stage.store.most_read:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
    assert stage.store.most_read == MAX_READ


async def test_a_message_that_ends_while_the_outbox_is_read_is_not_sent_again(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending(hook(sink)) as sender:
        gate = sink.gate = asyncio.Event()
        await stage.write(a_notice())
        await until(lambda: len(sink.requests) == 1)

        async def ends() -> None:
            gate.set()
            await until(lambda: bool(sender._unwritten))

        assert isinstance(stage.store, OutboxStore)
        stage.store.after_read = ends
        await stage.write(a_notice(2, "gone"))
        store = stage.store
        await until(lambda: store.after_read is None)
        await stage.ended()
    assert len(sink.requests) == 1


async def test_the_delay_that_a_receiver_asks_for_is_kept(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending(hook(sink)):
        sink.statuses, sink.further = [503], "Retry-After: 86400\r\n"
        await stage.write(a_notice())
        notice = await stage.tried()
    assert notice.due_at is not None
    assert notice.due_at - notice.created_at >= 1000 * BACKOFF.max_delay.total_seconds(), "the longest delay"


async def test_an_encrypted_url_is_opened_for_webhooks_and_heartbeats(stage: Stage) -> None:
    async with http_sink() as sink:
        urls = {
            "https://h.example/***#1": f"slack+{sink.url}/hook",
            "https://h.example/***#2": sink.url + "/ping",
        }
        async with stage.sending(open_target=urls.__getitem__):
            hidden, ping = urls
            await stage.write(a_notice(target=hidden), a_notice(2, ping, event=NoticeEvent.PING_START))
            await until(lambda: len(sink.requests) == 2)
    assert sorted(request.line for request in sink.requests) == ["GET /ping/start", "POST /hook"]


async def test_a_message_is_sent_again_with_the_same_id_until_it_is_accepted(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending(hook(sink)):
        sink.statuses = [503, 429]
        await stage.write(a_notice())
        (notice,) = await stage.ended()
    assert [request.headers["kron-notification-id"] for request in sink.requests] == ["n1"] * 3
    assert (notice.state, notice.tries, notice.error) == (NoticeState.SENT, 3, None)


async def test_a_final_refusal_is_recorded_without_the_secret_path(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending(hook(sink)):
        sink.statuses = [404]
        await stage.write(a_notice())
        (notice,) = await stage.ended()
    assert len(sink.requests) == 1
    assert (notice.state, notice.error) == (NoticeState.FAILED, f"{sink.url}/*** answered 404 Not Found")


async def test_many_failures_are_one_message_that_counts_them(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending(hook(sink)):
        await stage.write(*(a_notice(number) for number in range(100)))
        notices = await stage.ended()
    (request,) = sink.requests
    assert (request.document["summary"], request.document["count"]) == ('100 failed in "yearly"', 100)
    assert len(request.document["events"]) + int(str(request.document["more"])) == 100  # type: ignore[arg-type]
    assert {notice.batch for notice in notices} == {"n0"}


async def test_a_second_message_to_a_target_waits_and_another_target_does_not(stage: Stage) -> None:
    limits = SendLimits(wait_ms=0, interval_ms=3_600_000)
    async with http_sink() as sink, stage.sending(hook(sink), limits=limits):
        await stage.write(a_notice(1))
        await until(lambda: len(sink.requests) == 1)
        await stage.write(a_notice(2), a_notice(3, f"{sink.url}/other"))
        await until(lambda: len(sink.requests) == 2)
        waiting = await stage.store.pending_notices(SPACE, limit=10)
    assert sink.requests[1].line == "POST /other"
    assert [notice.id for notice in waiting if notice.tries == 0] == ["n2"]


async def test_a_target_that_hangs_delays_no_other(stage: Stage) -> None:
    async with http_sink() as stuck, http_sink() as sink, stage.sending({}):
        stuck.hangs = True
        await stage.write(a_notice(1, f"{stuck.url}/a"))
        await until(lambda: stuck.requests)
        (claimed,) = await stage.store.pending_notices(SPACE, limit=10)
        assert (claimed.batch, claimed.tries) == ("n1", 1)
        await stage.write(a_notice(2, f"{sink.url}/b"))
        await until(lambda: sink.requests)
        assert len(stuck.requests) == 1
    (left,) = await stage.store.pending_notices(SPACE, limit=10)
    assert left.id == "n1"


async def test_targets_of_one_owner_that_hang_delay_no_other_owner(stage: Stage) -> None:
    async with http_sink() as stuck, http_sink() as sink, stage.sending({}):
        stuck.hangs = True
        for owner, first in (("ann", 100), ("bob", 200)):
            notices = (
                a_notice(first + number, f"{stuck.url}/{first + number}", identity=f"{owner}/yearly")
                for number in range(20)
            )
            await stage.write(*notices)
        await until(lambda: len(stuck.requests) == MAX_SENDING)
        assert [len([each for each in stuck.requests if f"/{owner}" in each.line]) for owner in (1, 2)] == [
            5,
            5,
        ]
        await stage.write(a_notice(1, f"{sink.url}/cem", identity="cem/yearly"))
        await until(lambda: sink.requests)
        assert len(stuck.requests) == MAX_SENDING


async def test_owners_who_share_a_target_that_hangs_send_a_few_messages_to_it_at_once(stage: Stage) -> None:
    async with http_sink() as stuck, http_sink() as sink, stage.sending({}, are_apart=True):
        stuck.hangs = True
        owners = [f"user{number}" for number in range(2 * MAX_OF_TARGET)]
        await stage.write(
            *(
                a_notice(10 * number + each, f"{stuck.url}/shared", identity=f"{owner}/yearly")
                for number, owner in enumerate(owners)
                for each in range(3)
            )
        )
        await until(lambda: len(stuck.requests) == MAX_OF_TARGET)
        await stage.write(a_notice(1_000, f"{sink.url}/own", identity="user9/yearly"))
        await until(lambda: sink.requests)
        assert len(stuck.requests) == MAX_OF_TARGET
        assert all(request.document["count"] == 3 for request in stuck.requests)


async def test_a_flood_to_a_target_hides_no_notice_of_another_owner(stage: Stage) -> None:
    async with http_sink() as stuck:
        stuck.hangs = True
        flood = [a_notice(number, stuck.url, identity="ann/yearly") for number in range(1, MAX_GROUP + 2)]
        await stage.write(*flood, a_notice(5_000, stuck.url, identity="bob/yearly"))
        async with stage.sending({}, are_apart=True):
            await until(lambda: len(stuck.requests) == 2)
        names = [str(request.document["summary"]) for request in stuck.requests]
        assert [name for name in names if '"bob/yearly"' in name], names


async def test_what_was_claimed_before_a_crash_is_sent_again_as_the_same_message(stage: Stage) -> None:
    claimed = [a_notice(number, batch="n1", tries=1) for number in (1, 2)]
    await stage.write(*claimed, a_notice(3))
    limits = SendLimits(wait_ms=0, interval_ms=3_600_000)
    async with http_sink() as sink, stage.sending(hook(sink), limits=limits):
        await until(lambda: sink.requests)
    (request,) = sink.requests
    assert (request.headers["kron-notification-id"], request.document["count"]) == ("n1", 2)


async def test_a_heartbeat_is_pinged_in_order_and_leaves_no_record(stage: Stage) -> None:
    async with http_sink() as sink, stage.sending({}):
        url = f"{sink.url}/uuid?x=1"
        events = (NoticeEvent.PING_START, NoticeEvent.PING_SUCCESS, NoticeEvent.PING_FAIL)
        await stage.write(*(a_notice(number, url, event=event) for number, event in enumerate(events)))
        assert await stage.ended() == []
    assert [request.line for request in sink.requests] == [
        "GET /uuid/start?x=1",
        "GET /uuid?x=1",
        "GET /uuid/fail?x=1",
    ]
    assert sink.requests[0].headers["kron-notification-id"] == "n0"


async def test_a_url_of_a_schedule_obeys_the_egress_policy_and_a_channel_of_the_operator_need_not(
    stage: Stage,
) -> None:
    async with http_sink() as sink, stage.sending(hook(sink), egress=egress_policy_of(None)):
        await stage.write(
            a_notice(1),
            a_notice(2, f"{sink.url}/inside"),
            a_notice(3, f"{sink.url}/hb", event=NoticeEvent.PING_START),
        )
        first, second, third = await stage.ended()
    assert [request.line for request in sink.requests] == ["POST /hook/s3cr3t-path"]
    assert first.state is NoticeState.SENT
    for refused in (second, third):
        assert refused.state is NoticeState.FAILED
        assert refused.error is not None
        assert "is not allowed: 127.0.0.1 is not a public address" in refused.error


async def test_an_email_is_handed_to_the_smtp_server(stage: Stage) -> None:
    async with smtp_sink() as sink:
        channel = {
            "kind": "email",
            "server": f"smtp://127.0.0.1:{sink.port}",
            "from": "kron@example.com",
            "to": ["ann@example.com", "bob@example.com"],
        }
        async with stage.sending({"ops": channel}):
            await stage.write(a_notice(detail="exit status 3\nBcc: eve@example.com"))
            (notice,) = await stage.ended()
    (email,) = sink.messages
    assert sink.recipients == ["ann@example.com", "bob@example.com"]
    assert email["Subject"] == '[Kron] "yearly" failed: exit status 3 Bcc: eve@example.com'
    assert (email["Message-ID"], email["Kron-Notification-Id"]) == ("<n1@kron.invalid>", "n1")
    assert "Bcc" not in email
    assert "period 2026-01-01T00:00:00Z" in email.get_content()
    assert notice.sent_as == "e-mail to ann@example.com, bob@example.com"


@pytest.mark.parametrize(
    ("refusal", "state"), [(b"550 no", NoticeState.FAILED), (b"450 later", NoticeState.PENDING)]
)
async def test_an_email_that_is_refused_for_good_is_not_retried(
    stage: Stage, refusal: bytes, state: NoticeState
) -> None:
    async with smtp_sink() as sink:
        sink.refusal = refusal
        channel = {
            "kind": "email", "server": f"smtp://127.0.0.1:{sink.port}", "from": "k@e.com", "to": "a@e.com",
        }  # fmt: skip
        async with stage.sending({"ops": channel}):
            await stage.write(a_notice())
            notice = await stage.tried()
    assert notice.state is state
    assert "refused every recipient: a@e.com" in str(notice.error)


async def test_a_password_is_not_sent_in_clear_text(stage: Stage) -> None:
    async with smtp_sink() as sink:
        channel = {
            "kind": "email", "server": f"smtp://127.0.0.1:{sink.port}", "from": "k@e.com", "to": "a@e.com",
            "user": "kron", "password": "s3cr3t-password",
        }  # fmt: skip
        async with stage.sending({"ops": channel}):
            await stage.write(a_notice())
            (notice,) = await stage.ended()
    assert sink.messages == []
    assert "offers no TLS, and a password is not sent in clear text" in str(notice.error)


async def test_an_email_goes_over_tls_with_the_login_of_its_file(stage: Stage, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.certificate("mail"))
    (tmp_path / "password").write_text("s3cr3t-password\n")
    async with smtp_sink(tls) as sink:
        channel = {
            "kind": "email", "server": f"smtps://127.0.0.1:{sink.port}", "from": "k@e.com", "to": "a@e.com",
            "user": "kron", "password_file": str(tmp_path / "password"), "authorities": str(authority.path),
        }  # fmt: skip
        stranger = {name: value for name, value in channel.items() if name != "authorities"}
        async with stage.sending({"ops": channel, "other": stranger}):
            await stage.write(a_notice())
            await until(lambda: sink.messages)
            await stage.write(a_notice(2, "other"))
            while not (refused := (await stage.all())[1].error):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
    assert sink.logins == [b"\0kron\0s3cr3t-password"]
    assert len(sink.messages) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in refused


async def test_an_email_session_starts_tls_before_its_login(stage: Stage, tmp_path: Path) -> None:
    """A server with a certificate of its own authority offers STARTTLS, and a login only after it."""
    authority = Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.certificate("mail"))
    async with smtp_sink(starttls=tls) as sink:
        channel = {
            "kind": "email", "server": f"smtp://127.0.0.1:{sink.port}", "from": "k@e.com", "to": "a@e.com",
            "user": "kron", "password": "s3cr3t-password", "authorities": str(authority.path),
        }  # fmt: skip
        stranger = {name: value for name, value in channel.items() if name != "authorities"}
        async with stage.sending({"ops": channel, "other": stranger}):
            await stage.write(a_notice())
            await until(lambda: sink.messages)
            assert sink.is_secret
            sink.is_secret = False
            await stage.write(a_notice(2, "other"))
            while not (refused := (await stage.all())[1].error):  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
    assert sink.logins == [b"\0kron\0s3cr3t-password"]
    assert len(sink.messages) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in refused


async def test_a_command_gets_the_message_on_its_input_and_none_of_the_services_secrets(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRON_JWT_SECRET", "s3cr3t" * 6)
    copy = tmp_path / "copy.json"
    program = (
        "import os,sys,pathlib,json;"
        "pathlib.Path(sys.argv[1]).write_text(json.dumps([json.load(sys.stdin), dict(os.environ)]))"
    )
    channel = {"kind": "command", "command": [sys.executable, "-c", program, str(copy)]}
    async with stage.sending({"ops": channel}):
        await stage.write(a_notice())
        (notice,) = await stage.ended()
    document, environment = json.loads(copy.read_text())
    assert document["summary"] == environment["KRON_NOTIFICATION_SUMMARY"] == '"yearly" failed: exit status 3'
    assert environment["KRON_NOTIFICATION_ID"] == "n1"
    assert "KRON_JWT_SECRET" not in environment
    assert (notice.state, notice.sent_as) == (NoticeState.SENT, f"command {sys.executable}")


async def test_a_command_that_fails_is_retried_and_says_why(stage: Stage, tmp_path: Path) -> None:
    program = (
        "import sys,pathlib; mark=pathlib.Path(sys.argv[1]); again=mark.exists(); mark.touch();"
        "sys.exit(0 if again else 'no pager')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "mark")]
    async with stage.sending({"ops": {"kind": "command", "command": command}}):
        await stage.write(a_notice())
        assert str((await stage.tried()).error).endswith("exited with status 1: no pager")
        (notice,) = await stage.ended()
    assert (notice.state, notice.tries) == (NoticeState.SENT, 2)


async def test_a_channel_that_is_gone_from_the_settings_is_a_recorded_failure(stage: Stage) -> None:
    async with stage.sending({}):
        await stage.write(a_notice(target="gone"))
        (notice,) = await stage.ended()
    assert (notice.state, notice.error) == (
        NoticeState.FAILED,
        'there is no channel "gone" in the settings',
    )


def events_of(request: Request) -> list[object]:
    events = request.document["events"]
    assert isinstance(events, list)
    return events


async def test_of_workers_that_share_a_store_one_sends(postgres_url: str) -> None:
    """Each message is sent once, and by the other worker when the first one has stopped."""
    stores = [PostgresStore(postgres_url) for _ in range(2)]
    now = (PERIOD - 60) * 1000
    await stores[0].put(SPACE, created=[create(YEARLY, now=now)], changed=[], now=now)
    async with http_sink() as sink:
        options = NotifyOptions(channels=parse_channels(hook(sink)), limits=AT_ONCE)
        stage, workers, tasks = Stage(stores[0]), [], []
        for number, store in enumerate(stores):
            clock, journal = SystemClock(), LogJournal()
            worker = Worker(
                store,
                clock,
                {"callback": CallbackLauncher(clock)},
                namespace=SPACE,
                journal=journal,
                sender=Sender(store, clock, namespace=SPACE, options=options, journal=journal),
                options=WorkerOptions(owner=f"w{number}", balance=True),
            )
            workers.append(worker)
            tasks.append(asyncio.create_task(worker.run()))
            while worker.state != "running":  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
        for number in range(5):
            await stage.write(a_notice(number))
            for worker in workers:
                worker.call()
        await stage.ended()
        sent = [request.document["id"] for request in sink.requests]
        assert len(set(sent)) == len(sent)
        assert sum(len(events_of(request)) for request in sink.requests) == 5
        workers[0].leave()
        await tasks[0]
        await stage.write(a_notice(5))
        workers[1].call()
        await stage.ended()
        assert len(events_of(sink.requests[-1])) == 1
        workers[1].leave()
        await tasks[1]
    for store in stores:
        await store.close()


async def test_an_email_waits_for_a_server_that_is_away(stage: Stage) -> None:
    async with smtp_sink() as sink:
        port = sink.port
    channel = {
        "kind": "email", "server": f"smtp://127.0.0.1:{port}", "from": "k@e.com", "to": "a@e.com",
    }  # fmt: skip
    async with stage.sending({"ops": channel}):
        await stage.write(a_notice())
        notice = await stage.tried()
    assert notice.state is NoticeState.PENDING
    assert f"127.0.0.1:{port} cannot be used: ConnectionRefusedError" in str(notice.error)


async def test_a_refusal_that_quotes_its_path_is_recorded_without_it(stage: Stage) -> None:
    """The whole path is secret, and each of its parts."""
    async with http_sink() as sink, stage.sending(hook(sink)):
        sink.statuses = [404]
        sink.body = b"no hook/s3cr3t-path, no s3cr3t-path"
        await stage.write(a_notice())
        (notice,) = await stage.ended()
    assert notice.error == f"{sink.url}/*** answered 404 Not Found: no ***, no ***"


async def test_after_a_failure_of_the_store_the_outbox_is_not_read_again_at_once(stage: Stage) -> None:
    reads, store = 0, stage.store
    assert isinstance(store, OutboxStore)

    async def fail() -> None:
        nonlocal reads
        reads += 1
        store.after_read = fail
        raise StoreUnavailableError("The store cannot be used: it is away")

    store.after_read = fail
    async with stage.sending():
        await until(lambda: reads)
        await asyncio.sleep(0.5)
        # The worker may call for it once more; without a pause it is read hundreds of times.
        assert reads <= 3
        store.after_read = None
