"""A tenant whose schedules fail and notify many: what waits is bounded, and others start."""

import json
from pathlib import Path

import pytest

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
        server.logged(r"notifications given up: more than 10,000 of this owner waited")
        launcher = {"kind": "http", "url": other.url}
        document = {"schedule_id": "bob/b", "cron_expr": OFTEN, "timezone": "UTC", "user_id": "bob"}
        client.post("/schedules/upsert", json={**document, "launcher": launcher}).raise_for_status()
        wait_for(lambda: len(other.sent) >= 3)
