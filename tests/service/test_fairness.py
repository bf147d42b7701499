"""Tenants share a worker: one whose executor never answers delays only itself."""

from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.service.executor import Executor, executing
from tests.service.server import serving
from tests.waiting import PATIENCE_S, wait_for

pytestmark = pytest.mark.slow
# More than the worker sends for one tenant at a time.
HANGING = 150


def schedule(client: httpx.Client, user: str, cron_expr: str, executor: Executor) -> None:
    document = {"schedule_id": user, "cron_expr": cron_expr, "timezone": "UTC", "user_id": user}
    # Longer than the test: nothing but the fairness of the queue gives others a slot.
    launcher = {"kind": "http", "url": executor.url, "timeout": "1h"}
    client.post("/schedules/upsert", json={**document, "launcher": launcher}).raise_for_status()


def test_an_executor_that_never_answers_takes_nothing_from_other_tenants(tmp_path: Path) -> None:
    released, arrived = Event(), list[str]()

    def hang(key: str) -> None:
        arrived.append(key)
        released.wait(PATIENCE_S)

    # The stop does not wait for the hanging starts.
    with (
        executing(hang) as hanging,
        executing() as other,
        serving(tmp_path, KRON_DRAIN_MS="0") as (client, _),
    ):
        schedule(client, "ann", "0 0 1 1 *", hanging)
        for number in range(HANGING):
            client.post("/schedules/ann/run", json={"request_id": f"r{number}"}).raise_for_status()
        wait_for(lambda: len(arrived) >= 100)
        schedule(client, "bob", "* * * * * *", other)
        wait_for(lambda: len(other.sent) >= 3)
        assert len(arrived) == 100
        released.set()
        wait_for(lambda: len(set(hanging.keys())) == HANGING)
    assert len(other.keys()) == len(set(other.keys()))
