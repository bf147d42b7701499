"""Tenants whose schedules fail and notify many: what waits is bounded, others start, and are notified."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.service.auth import forge
from tests.service.executor import executing
from tests.service.server import serving
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
# With 20 targets each, more notices than may wait of one owner.
SCHEDULES, OFTEN = 600, "* * * * * *"


def test_notifications_of_one_owner_that_nobody_takes_are_given_up(tmp_path: Path) -> None:
    with (
        executing() as refusing,
        executing() as other,
        serving(tmp_path, KRON_DRAIN_MS="0") as (client, server),
    ):
        refusing.status = 400
        lines = [
            json.dumps({
                "schedule_id": f"ann/{number}", "user_id": "ann", "timezone": "UTC", "cron_expr": OFTEN,
                "launcher": {"kind": "http", "url": refusing.url},
                "notify": {"to": [f"http://127.0.0.1:1/{number}/{target}" for target in range(20)]},
                "pause_after_failures": 1,
            })
            for number in range(SCHEDULES)
        ]  # fmt: skip
        headers = {"content-type": "application/x-ndjson"}
        client.post("/schedules/bulk", content="\n".join(lines), headers=headers).raise_for_status()
        server.logged(r"notifications given up: more than 10,000 notifications of this owner were waiting")
        launcher = {"kind": "http", "url": other.url}
        document = {"schedule_id": "bob/b", "cron_expr": OFTEN, "timezone": "UTC", "user_id": "bob"}
        client.post("/schedules/upsert", json={**document, "launcher": launcher}).raise_for_status()
        wait_for(lambda: len(other.sent) >= 3)


class Receiver:
    """The receiver of a channel that all tenants share: it does not answer messages about some of them."""

    def __init__(self, *, hangs_for: tuple[str, ...]) -> None:
        self.hangs_for = hangs_for
        self.url = ""
        # The owners that each message is about.
        self.answered: list[set[str]] = []
        self.held: list[set[str]] = []
        self.closing = Event()


@contextmanager
def receiving(**how: tuple[str, ...]) -> Iterator[Receiver]:
    receiver = Receiver(**how)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            owners = {event["schedule_id"].partition("/")[0] for event in document["events"]}
            if owners.intersection(receiver.hangs_for):
                receiver.held.append(owners)
                receiver.closing.wait()
                return
            receiver.answered.append(owners)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/ops"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            receiver.closing.set()
            server.shutdown()
            thread.join()


def test_hostile_tenants_who_share_a_channel_delay_no_notification_of_another(tmp_path: Path) -> None:
    hostile = ("eve", "mallory")
    with receiving(hangs_for=hostile) as receiver, executing() as refusing:
        refusing.status = 400
        settings = {
            "KRON_JWT_SECRET": forge.SECRET,
            "KRON_JWT_ISSUER": forge.ISSUER,
            "KRON_JWT_AUDIENCE": forge.AUDIENCE,
            "KRON_CHANNELS": json.dumps({"ops": {"kind": "webhook", "url": receiver.url}}),
            "KRON_NOTIFY_WAIT_MS": "0",
            "KRON_NOTIFY_INTERVAL_MS": "0",
            "KRON_DRAIN_MS": "0",
        }
        with serving(tmp_path, **settings) as (client, _):

            def fails(user: str, count: int, cron_expr: str) -> None:
                now = int(time.time())
                token = forge.token(sub=user, iat=now, exp=now + 3600, scope="read write run")
                lines = [
                    json.dumps({
                        "schedule_id": f"{user}/{number}", "user_id": user, "timezone": "UTC",
                        "cron_expr": cron_expr, "launcher": {"kind": "http", "url": refusing.url},
                        "notify": {"to": ["ops"]},
                    })
                    for number in range(count)
                ]  # fmt: skip
                headers = {"content-type": "application/x-ndjson", "authorization": f"Bearer {token}"}
                answer = client.post("/schedules/bulk", content="\n".join(lines), headers=headers)
                answer.raise_for_status()

            for user in hostile:
                fails(user, 50, OFTEN)
            # Each has a message that is not answered, and many notifications behind it.
            wait_for(lambda: {user for owners in receiver.held for user in owners} == set(hostile))
            fails("bob", 1, OFTEN)
            wait_for(lambda: {"bob"} in receiver.answered)
            assert not any(owners.intersection(hostile) for owners in receiver.answered)
