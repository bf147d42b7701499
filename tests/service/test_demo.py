"""`kron serve --demo`: a history made in virtual time, an end at once, and a second start that continues."""

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from kron.core.plan.query import JobFilter
from kron.core.plan.record import RunRecord, RunStatus
from kron.fronts.service.demo import AWAY, AWAY_AT, PARTS, Demo, NotDemoError
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.ports import Store
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from tests.service.server import KRON, Process, process, serving
from tests.waiting import PATIENCE_S, awaited, wait_for

NOW = datetime(2026, 11, 15, 16, 30, 7, tzinfo=UTC)


@contextmanager
def demo_in(folder: Path, *words: str) -> Iterator[tuple[httpx.Client, Process]]:
    with serving(folder, "--demo", *words, KRON_LOG_LEVEL="info") as running:
        yield running


def interrupted(server: Process) -> str:
    """End a server as Ctrl-C does, and return all it logged."""
    server.signal(signal.SIGINT)
    assert server.ended() == 0
    log = "".join(server.log)
    assert "Traceback" not in log
    return log


def runs_of(client: httpx.Client, name: str) -> list[dict[str, object]]:
    answer = client.get(f"/schedules/demo%2F{name}/runs", params={"limit": 1000}).json()
    runs: list[dict[str, object]] = answer["runs"]
    return runs


@pytest.mark.slow
def test_the_demo_has_a_past_ends_at_once_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    with demo_in(tmp_path) as (client, server):
        names = [found["schedule_id"] for found in client.get("/schedules").json()["schedules"]]
        assert sorted(names) == sorted(part.name for part in PARTS)
        past = runs_of(client, "nightly-literal")
        assert len(past) >= 219
        # What runs then is broken off, not waited for.
        wait_for(lambda: any(run["status"] == "STARTED" for run in runs_of(client, "slow-import")))
        log = interrupted(server)
        assert "SIGINT: stopping" in log
    with demo_in(tmp_path) as (client, server):
        assert runs_of(client, "nightly-literal")[-len(past) :] == past
        newest = runs_of(client, "heartbeat")[0]["run_at"]
        wait_for(lambda: runs_of(client, "heartbeat")[0]["run_at"] != newest)
        interrupted(server)


@pytest.mark.slow
def test_a_demo_says_where_it_is_and_how_to_end_it(tmp_path: Path) -> None:
    command = [*KRON, "serve", "--demo", "--port", "0"]
    with awaited(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)) as server:
        assert server.stdout is not None
        lines = list(iter(server.stdout.readline, "\n"))
        while "Ctrl-C" not in lines[-1]:
            lines.append(server.stdout.readline())
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE_S) == 0
    text = "".join(lines)
    assert "The demo's history was made by the engine, in virtual time." in text
    assert "Kron is running:  http://127.0.0.1:" in text
    assert ".kron/demo/kron.db" in text
    assert (tmp_path / ".kron" / "demo" / "kron.db").exists()


@pytest.mark.slow
def test_a_demo_that_is_broken_off_while_it_is_made_says_nothing_and_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "kron.db"
    words = ("serve", "--demo", "--port", "0", "--store", "sqlite:///kron.db")
    with process(*words, folder=tmp_path) as server:
        wait_for(lambda: store.exists() and store.with_name("kron.db-wal").exists())
        server.signal(signal.SIGINT)
        assert server.ended() == 130
        assert "Traceback" not in "".join(server.log)
    with demo_in(tmp_path) as (client, server):
        wait_for(lambda: len(client.get("/schedules").json()["schedules"]) == len(PARTS))
        interrupted(server)


@pytest.mark.slow
def test_a_store_with_schedules_of_others_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, server):
        fields = {
            "workflow_id": "w",
            "version": 1,
            "user_id": "u",
            "cron_expr": "0 0 1 1 *",
            "timezone": "UTC",
        }
        assert client.post("/schedules/upsert", json={"schedule_id": "mine", **fields}).status_code == 200
        interrupted(server)
    words = ("serve", "--demo", "--port", "0", "--store", "sqlite:///kron.db")
    with process(*words, folder=tmp_path) as refused:
        assert refused.ended() == 2
        assert "The store holds schedules that are not the demo's" in "".join(refused.log)
        assert "--store sqlite:///demo.db" in "".join(refused.log)
    with serving(tmp_path) as (client, _):
        assert [found["schedule_id"] for found in client.get("/schedules").json()["schedules"]] == ["mine"]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--demo",), ()])
def test_a_port_in_use_is_said_with_the_remedy(tmp_path: Path, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with process("serve", "--port", port, *words, folder=tmp_path) as refused:
            assert refused.ended() == 2
            log = "".join(refused.log)
    assert f"127.0.0.1:{port}" in log
    assert "another process listens there" in log
    assert "--port 0" in log
    assert list(tmp_path.rglob("*.db")) == []


# --- the past --------------------------------------------------------------------------------------


async def _past() -> tuple[Store, dict[str, list[RunRecord]]]:
    store = SqliteStore()
    assert await Demo(SimulatedClock).prepare(store, SimulatedClock(NOW))
    return store, {part.name: await store.runs(NAMESPACE, part.name, limit=1000) for part in PARTS}


async def test_the_past_ends_before_now_with_nothing_left_open() -> None:
    store, past = await _past()
    now = int(NOW.timestamp() * 1000)
    runs = [run for runs in past.values() for run in runs]
    assert max(run.ended_at or run.created_at for run in runs) <= now
    # What waits for its time in a window that is open is no execution.
    assert {run.status for run in runs if run.is_open} <= {RunStatus.PENDING}
    assert {run.status for run in runs} >= {
        RunStatus.SUCCESS,
        RunStatus.FAILED,
        RunStatus.SKIPPED,
        RunStatus.UNSCHEDULABLE,
    }
    await store.close()


@pytest.mark.slow
async def test_two_fillings_at_one_instant_are_the_same() -> None:
    (first, past), (second, again) = await _past(), await _past()
    assert past == again
    await first.close()
    await second.close()


@pytest.mark.slow
async def test_nothing_was_started_while_the_engine_was_away() -> None:
    store, past = await _past()
    left, back = NOW - AWAY_AT, NOW - AWAY_AT + AWAY
    started = [run.started_at for runs in past.values() for run in runs if run.started_at is not None]
    assert not [at for at in started if left.timestamp() < at / 1000 < back.timestamp()]
    ranges = [each for part in PARTS for each in await store.ranges(NAMESPACE, part.name)]
    assert {each.reason.value for each in ranges} == {"catchup_none"}
    assert any(run.reason.value == "caught_up" for run in past["demo/backup"])
    await store.close()


async def test_a_demo_is_refused_among_schedules_of_others_also_deleted_ones() -> None:
    store, clock = SqliteStore(), SimulatedClock(NOW)
    registrar = Registrar(store, clock)
    await registrar.upsert_schedule({**PARTS[0].document, "schedule_id": "mine"})
    await registrar.delete_schedule("mine")
    with pytest.raises(NotDemoError):
        await Demo(SimulatedClock).prepare(store, clock)
    await store.close()


async def test_what_was_deleted_from_a_demo_stays_away_and_what_never_came_is_added() -> None:
    store, clock = SqliteStore(), SimulatedClock(NOW)
    registrar = Registrar(store, clock)
    for part in PARTS[:3]:
        await registrar.upsert_schedule(part.document)
    await registrar.delete_schedule(PARTS[0].name)
    assert not await Demo(SimulatedClock).prepare(store, clock)
    names = {found["schedule_id"] for found in await registrar.list_schedules(JobFilter())}
    assert names == {part.name for part in PARTS[1:]}
    await store.close()
