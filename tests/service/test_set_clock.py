"""Real processes whose wall clock is set while they run, or is wrong from start to end (libfaketime)."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.faketime import WrongClock, needs_faketime
from tests.service.executor import Executor, executing
from tests.service.server import NEW_KRON, Process, process, serving
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, needs_faketime]

DAY, NOTHING, HALF_A_DAY = timedelta(days=1), timedelta(0), timedelta(hours=12)
VARIABLES = {"KRON_LOOKAHEAD_MS": "3000", "KRON_EXECUTOR": '{"kind": "dag"}'}
NAMES = ("often", "etl%2Foften")


@contextmanager
def served(folder: Path, clock: WrongClock) -> Iterator[tuple[httpx.Client, Process]]:
    """Serve in a new process with a clock of its own."""
    with serving(folder, program=NEW_KRON, **VARIABLES, **clock.variables) as pair:
        yield pair


def register(client: httpx.Client, executor: Executor) -> None:
    """Register a schedule, and a DAG of one task, of every fifth second."""
    timing = {"cron_expr": "*/5 * * * * *", "timezone": "UTC", "overlap_policy": "allow"}
    schedule = {"schedule_id": "often", "workflow_id": "wf", "version": 1, "user_id": "ann", **timing}
    http = {"kind": "http", "url": executor.url}
    assert client.post("/schedules/upsert", json={**schedule, "launcher": http}).status_code == 200
    trigger = {"id": "often", "type": "schedule_based", "schedule": timing}
    task = {"id": "one", "type": "http", "url": executor.url}
    document = {"user_id": "ann", "nodes": [task], "triggers": [trigger]}
    assert client.put("/workflows/etl/versions/1", json=document).status_code == 201


def ran(client: httpx.Client, name: str, since: datetime, until: datetime) -> bool:
    """Say whether a run was started for a period of an interval, and of a DAG whether it succeeded."""
    runs = client.get(f"/schedules/{name}/runs", params={"limit": 1000}).json()["runs"]
    wanted = ("SUCCESS",) if name.startswith("etl") else ("ENQUEUED", "STARTED", "SUCCESS")
    times = [datetime.fromisoformat(run["run_at"]) for run in runs if run["status"] in wanted]
    return any(since <= at < until for at in times)


def wait_for_runs(client: httpx.Client, since: datetime, until: datetime) -> None:
    """Wait until the schedule and the DAG have each run for a period of an interval."""
    for name in NAMES:
        wait_for(lambda name=name: ran(client, name, since, until), lambda name=name: name)  # type: ignore[misc]


def assert_none_twice(executor: Executor) -> None:
    keys = [sent.key for sent in list(executor.sent)]
    assert len(keys) == len(set(keys))


def test_a_service_survives_an_excursion_of_its_clock(tmp_path: Path) -> None:
    """A day ahead and back: what it ran is not repeated, the rest runs again, and all of it is shown."""
    clock, start = WrongClock(tmp_path), datetime.now(UTC)
    with executing() as executor, served(tmp_path, clock) as (client, server):
        register(client, executor)
        wait_for_runs(client, start - DAY, start + HALF_A_DAY)
        clock.set(DAY)
        wait_for_runs(client, start + HALF_A_DAY, start + 2 * DAY)
        clock.set(NOTHING)
        back = datetime.now(UTC)
        server.logged("ERROR.*clock_behind")
        server.logged("WARNING.*clock_corrected")
        wait_for_runs(client, back + timedelta(seconds=3), back + HALF_A_DAY)
        assert "is right again" in wait_for(lambda: client.get("/readyz").json()["error"])
        metrics = client.get("/metrics").text
        for event in ("clock_moved_forward", "clock_behind", "clock_corrected"):
            assert f'kron_clock_excursions_total{{event="{event}"}} ' in metrics
        assert_none_twice(executor)


def test_a_service_that_ran_with_a_clock_a_day_ahead_runs_on_with_the_right_one(tmp_path: Path) -> None:
    clock, start = WrongClock(tmp_path), datetime.now(UTC)
    clock.set(DAY)
    with executing() as executor:
        with served(tmp_path, clock) as (client, server):
            register(client, executor)
            wait_for_runs(client, start + HALF_A_DAY, start + 2 * DAY)
            server.signal(signal.SIGTERM)
            assert server.ended() == 0
        clock.set(NOTHING)
        back = datetime.now(UTC)
        with served(tmp_path, clock) as (client, server):
            server.logged("ERROR.*clock_behind")
            wait_for_runs(client, back + timedelta(seconds=3), back + HALF_A_DAY)
            server.logged("WARNING.*clock_corrected")
        assert_none_twice(executor)


def test_an_api_with_a_wrong_clock_beside_a_worker_with_the_right_one_on_sqlite(tmp_path: Path) -> None:
    """The worker has run steadily, so it corrects at once what the API wrote a day ahead."""
    clock, start = WrongClock(tmp_path), datetime.now(UTC)
    clock.set(DAY)
    store = {"KRON_STORE": f"sqlite:///{tmp_path}/kron.db", "KRON_TICK_MS": "50"}
    with executing() as executor, process("worker", folder=tmp_path, **VARIABLES, **store) as worker:
        worker.logged("lease acquired")
        with served(tmp_path, clock) as (client, _):
            register(client, executor)
            wait_for_runs(client, start - DAY, start + HALF_A_DAY)
            worker.logged("WARNING.*clock_corrected")
        assert_none_twice(executor)


def test_an_api_with_a_wrong_clock_is_refused_by_postgresql(tmp_path: Path, postgres_url: str) -> None:
    clock = WrongClock(tmp_path)
    clock.set(DAY)
    variables = {**VARIABLES, **clock.variables, "KRON_STORE": postgres_url}
    with serving(tmp_path, program=NEW_KRON, **variables) as (client, server):
        document = {"schedule_id": "a", "workflow_id": "wf", "version": 1, "user_id": "ann"}
        timing = {"cron_expr": "* * * * *", "timezone": "UTC", "launcher": {"kind": "log"}}
        answer = client.post("/schedules/upsert", json={**document, **timing})
        assert (answer.status_code, answer.json()["code"]) == (503, "clocks_differ")
        server.logged("ERROR.*the clock differs from the store's by")
