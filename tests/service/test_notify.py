"""Notifications of the service: refused, shown and sent by real processes, also after a kill."""

import json
import os
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from shutil import which

import httpx
import pytest

from kron.app.settings import InvalidSettingsError
from kron.fronts.service.settings import read_settings
from kron.launchers.http.launcher import is_signed, signing_key_of
from kron.launchers.secret import SecretUnavailableError, Vault
from tests.app.sinks import HttpSink, http_sink
from tests.service.executor import executing
from tests.service.server import serving
from tests.service.test_secrets import in_store, reencrypt
from tests.waiting import until, wait_for

SECRET = "very-secret-path"
FALSE = {"kind": "process", "command": [which("false")]}


def notifying(sink: HttpSink, **further: str) -> dict[str, str]:
    """Return the settings of a service that notifies a sink of every failure at once."""
    channels = {"ops": {"kind": "webhook", "url": f"{sink.url}/{SECRET}"}}
    return {
        "KRON_CHANNELS": json.dumps(channels),
        "KRON_NOTIFY": json.dumps({"to": "ops"}),
        "KRON_NOTIFY_WAIT_MS": "0",
        "KRON_ALLOWED_COMMANDS": str(which("false")),
        **further,
    }


def upsert(client: httpx.Client, **fields: object) -> httpx.Response:
    document: dict[str, object] = {
        "schedule_id": "fails", "cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": FALSE, **fields,
    }  # fmt: skip
    return client.post("/schedules/upsert", json=document)


def run_now(client: httpx.Client, request: str) -> None:
    answer = client.post("/schedules/fails/run", json={"request_id": request})
    assert answer.is_success, answer.text


@pytest.mark.slow
async def test_a_message_that_was_not_answered_before_a_kill_is_sent_again_with_the_same_id(
    tmp_path: Path,
) -> None:
    async with http_sink() as sink:
        sink.hangs = True
        with serving(tmp_path, **notifying(sink)) as (client, server):
            assert upsert(client).is_success
            run_now(client, "a")
            await until(lambda: sink.requests)
            for pid in (*server.children(), server.pid):
                os.kill(pid, signal.SIGKILL)
            server.ended()
        sink.hangs = False
        with serving(tmp_path, **notifying(sink)) as (client, _):
            await until(lambda: len(sink.requests) > 1)
            counted = 'kron_notifications_total{channel="ops",result="sent"} 1.0'
            wait_for(lambda: counted in client.get("/metrics").text)
    first, again, *_ = sink.requests
    assert first.line == again.line == f"POST /{SECRET}"
    assert first.headers["kron-notification-id"] == again.headers["kron-notification-id"]
    assert again.document["summary"] == '"fails" failed: exit status 1'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "signer"), [("ann", "ann"), ("", None)], ids=["of a user", "without a user"]
)
async def test_a_message_to_a_url_of_a_schedule_is_signed_with_the_key_of_its_user(
    tmp_path: Path, user: str, signer: str | None
) -> None:
    secret = "s" * 32
    owner = {"user_id": user} if user else {}
    async with http_sink() as sink:
        signing = notifying(sink, KRON_SIGNING_SECRET=secret, KRON_ALLOWED_HOSTS="127.0.0.1")
        with serving(tmp_path, **signing) as (client, _):
            assert upsert(client, **owner, notify={"to": ["ops", f"{sink.url}/own"]}).is_success
            run_now(client, "a")
            await until(lambda: len(sink.requests) == 2)
    by_path = {request.line.rpartition("/")[2]: request for request in sink.requests}
    for path, key in ((SECRET, secret.encode()), ("own", signing_key_of(secret.encode(), signer))):
        found = by_path[path]
        headers = {name.title(): value for name, value in found.headers.items()}
        assert is_signed(key, headers, found.body, now=int(headers["Kron-Timestamp"])), path


@pytest.mark.slow
async def test_a_failure_that_an_executor_reports_is_notified(tmp_path: Path) -> None:
    with executing() as executor:
        remote = {"kind": "http", "url": executor.url, "reports": True}
        async with http_sink() as sink:
            with serving(tmp_path, **notifying(sink)) as (client, _):
                assert upsert(client, launcher=remote).is_success
                run_now(client, "a")
                await until(lambda: executor.sent)
                (key,) = executor.keys()
                report = {"status": "FAILED", "error": "out of memory"}
                answer = client.post(f"/runs/{key}/status", json=report)
                assert answer.is_success, answer.text
                await until(lambda: sink.requests)
    assert sink.requests[0].document["summary"] == '"fails" failed: out of memory'


def test_a_schedule_names_only_channels_and_hosts_that_the_operator_allows(tmp_path: Path) -> None:
    true = {"kind": "command", "command": ["true"]}
    channels = json.dumps({"ops": true, "pager": {**true, "users": ["ann"]}})
    with serving(
        tmp_path,
        KRON_CHANNELS=channels,
        KRON_ALLOWED_HOSTS="hooks.example",
        KRON_ALLOWED_COMMANDS=str(which("false")),
    ) as (client, server):
        refused = upsert(client, notify={"to": ["opps", f"https://other.example/{SECRET}"]})
        assert refused.status_code in (400, 422)
        assert "is not a channel that this schedule may name; did you mean ops?" in refused.text
        assert "other.example" in refused.text
        assert SECRET not in refused.text
        bob = upsert(client, user_id="bob", notify={"to": "pager"})
        assert "is not a channel that this schedule may name; use ops" in bob.text
        assert upsert(client, user_id="ann", notify={"to": "pager"}).is_success
        heartbeat = upsert(client, notify={"heartbeat": f"http://127.0.0.1:9/{SECRET}"})
        assert "is not among the hosts the settings allow" in heartbeat.text
        allowed = {"to": ["ops", f"slack+https://hooks.example/{SECRET}"], "on": ["failed"]}
        assert upsert(client, notify=allowed).is_success
        shown = client.get("/schedules/fails").json()
        assert shown["notify"] == {"to": ["ops", "slack+https://hooks.example/***"], "on": ["failed"]}
        redacted = upsert(client, notify=shown["notify"])
        assert "notify.to: is redacted: give the whole URL" in redacted.text
        (exported,) = (each["definition"] for each in client.get("/definitions").json()["jobs"])
        assert SECRET not in str(exported)
        client.post("/definitions", json={"jobs": [exported]})  # from now on in a set
        (again,) = client.post("/definitions", json={"jobs": [exported]}).json()["changes"]
        assert again["change"] == "unchanged"
        other = {**exported, "notify": {"to": "https://hooks.example/other/***"}}
        assert "is redacted" in client.post("/definitions", json={"jobs": [other]}).text
        etag = client.get("/schedules/fails").headers["etag"]
        assert upsert(client, notify={"to": "ops"}).is_success
        assert client.get("/schedules/fails").headers["etag"] != etag
        audit = client.get("/audit").text
        newest = json.loads(audit)["entries"][0]
        assert (newest["before"]["notify"], newest["after"]["notify"]) == (shown["notify"], {"to": ["ops"]})
        page = client.get("/schedules/fails", headers={"Accept": "text/html"}).text
        assert SECRET not in audit + page + "".join(server.log)


def test_wrong_channels_are_refused_at_the_start_without_their_secrets(tmp_path: Path) -> None:
    cases: list[tuple[Mapping[str, object], str]] = [
        ({"ops": {"kind": "webhook", "url": f"ftp://{SECRET}"}}, "ops.url: must be an address"),
        ({"ops": {"kind": "email", "to": "a@b.c", "from": "x@y.z"}}, "ops.server: is missing"),
        (
            {"ops": {"kind": "email", "to": "a@b.c", "from": "x@y.z", "server": f"smtp://kron:{SECRET}@m.x"}},
            "ops.server: must be an address such as smtp://mail.example.com:587, without a login",
        ),
        ({str(number): True for number in range(1_001)}, "must be an object of at most"),
        ({"ops": {"kind": "pager"}}, "ops: must be an object with kind: webhook, email, command"),
        ({"ops": {"kind": "webhook", "url": "https://x.y", "url_file": "f"}}, "ops.url_file: conflicts with"),
    ]
    for channels, reason in cases:
        with pytest.raises(InvalidSettingsError) as refused:
            read_settings({"KRON_CHANNELS": json.dumps(channels)}, {})
        assert reason in str(refused.value)
        assert SECRET not in str(refused.value)


def test_wrong_default_notifications_are_refused_at_the_start_without_their_secrets() -> None:
    for default, reason in (
        ({"to": f"ftp://hooks.example/{SECRET}"}, "must be an address"),
        ({"to": "ops", "on": ["sometimes"]}, "sometimes"),
    ):
        with pytest.raises(InvalidSettingsError) as refused:
            read_settings({"KRON_NOTIFY": json.dumps(default)}, {})
        assert reason in str(refused.value)
        assert SECRET not in str(refused.value)


def stored_notify(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "kron.db")) as store:
        ((text,),) = store.execute("SELECT notify FROM jobs WHERE schedule_id = 'fails'").fetchall()
    return str(text)


async def test_urls_are_encrypted_in_the_store_and_used_in_full(tmp_path: Path) -> None:
    """With a key the store has neither the URL of a webhook nor that of a heartbeat in clear text."""
    key = {"KRON_SECRET_KEYS": "a-key-of-thirty-two-characters-01"}
    async with http_sink() as sink:
        urls = {"to": f"{sink.url}/{SECRET}", "heartbeat": f"{sink.url}/heart-{SECRET}"}
        default = {"KRON_NOTIFY": json.dumps({"to": f"{sink.url}/default-{SECRET}"})}
        with serving(tmp_path, **notifying(sink) | default, **key) as (client, _):
            assert upsert(client, notify=urls).is_success
            assert upsert(client, schedule_id="other").is_success
            run_now(client, "a")
            assert client.post("/schedules/other/run").is_success
            await until(lambda: len(sink.requests) >= 4)
            shown = client.get("/schedules/fails").json()["notify"]
            (exported, _) = (each["definition"] for each in client.get("/definitions").json()["jobs"])
            client.post("/definitions", json={"jobs": [exported]})
            (again,) = client.post("/definitions", json={"jobs": [exported]}).json()["changes"]
            stored = in_store(tmp_path)
            given = upsert(client, notify=json.loads(stored_notify(tmp_path)))
    lines = {request.line for request in sink.requests}
    pings = {f"GET /heart-{SECRET}/start", f"GET /heart-{SECRET}/fail"}
    assert lines == pings | {f"POST /{SECRET}", f"POST /default-{SECRET}"}
    assert SECRET.encode() not in stored
    assert shown == {"to": [f"{sink.url}/***"], "heartbeat": f"{sink.url}/***"}
    assert again["change"] == "unchanged"
    assert "is redacted" in given.text


@pytest.mark.slow
def test_urls_that_were_stored_in_clear_text_are_encrypted_by_reencrypt(tmp_path: Path) -> None:
    allowed = {"KRON_ALLOWED_HOSTS": "hooks.example", "KRON_ALLOWED_COMMANDS": str(which("false"))}
    with serving(tmp_path, **allowed) as (client, _):
        assert upsert(client, notify={"to": f"slack+https://hooks.example/{SECRET}"}).is_success
    assert SECRET in stored_notify(tmp_path)
    first, second = "a-key-of-thirty-two-characters-01", "a-key-of-thirty-two-characters-02"
    for keys in (first, f"{second},{first}"):
        before = stored_notify(tmp_path)
        ended = reencrypt(tmp_path, KRON_SECRET_KEYS=keys)
        assert (ended.returncode, ended.stdout) == (0, "encrypted the secrets of 1 schedules\n")
        assert before != stored_notify(tmp_path)
    vault = Vault([second])
    (target,) = json.loads(stored_notify(tmp_path))["to"]
    assert target.startswith("slack+https://hooks.example/***#v1.")
    assert vault.open_target(target) == f"slack+https://hooks.example/{SECRET}"
    with pytest.raises(SecretUnavailableError, match="secrets of the notification cannot be decrypted"):
        Vault([first]).open_target(target)
