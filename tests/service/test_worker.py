"""Workers as processes: they wait their turn, take over, notice changes, and hand over (SPEC 3: 2, 8, 12)."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from kron.cli.main import BAD, run
from kron.clocks.system import SystemClock
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch
from kron.fronts.service.documents import Document
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.runs import run_now
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import Settings
from kron.stores.sqlite.store import SqliteStore
from kron.stores.url import open_store
from kron.testing import SimulatedClock
from tests.service.executor import executing
from tests.service.registrar_rig import NOON, WORK
from tests.service.server import process, serving
from tests.waiting import wait_for

SECONDLY = {
    "schedule_id": "fast",
    "workflow_id": "wf",
    "version": 1,
    "user_id": "ann",
    "cron_expr": "* * * * * *",
    "timezone": "UTC",
    "overlap_policy": "allow",
}
YEARLY = {name: value for name, value in SECONDLY.items() if name != "overlap_policy"}
YEARLY["cron_expr"] = "0 0 1 1 *"
FAST = {"KRON_TICK_MS": "50"}
T = TypeVar("T")


async def asked(url: str, work: Callable[[Registrar], Awaitable[T]]) -> T:
    """Ask a registrar of this process, which is not the worker's."""
    store = open_store(url)
    try:
        return await work(Registrar(store, SystemClock()))
    finally:
        await store.close()


def upsert(url: str, document: Document) -> None:
    asyncio.run(asked(url, lambda registrar: registrar.upsert_schedule(document)))


def runs_of(url: str, name: str = "fast") -> list[RunRecord]:
    return asyncio.run(asked(url, lambda registrar: registrar.store.runs(NAMESPACE, name, limit=10_000)))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/kron.db"
    return str(request.getfixturevalue("postgres_url"))


def test_a_worker_alone_notices_what_another_process_registers(url: str, tmp_path: Path) -> None:
    with executing() as executor, process("worker", "--store", url, folder=tmp_path, **FAST) as worker:
        worker.logged("lease acquired")
        upsert(url, {**SECONDLY, "launcher": {"kind": "http", "url": executor.url}})
        wait_for(lambda: len(executor.sent) >= 2)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
        runs = runs_of(url)
        assert {run.status for run in runs} == {"ENQUEUED"}
        assert sorted(executor.keys()) == sorted({run.key for run in runs})


@pytest.mark.slow
def test_of_two_workers_one_works_and_the_other_takes_over_when_it_is_gone(url: str, tmp_path: Path) -> None:
    with (
        executing() as executor,
        process("worker", "--store", url, folder=tmp_path, **FAST) as first,
    ):
        first.logged("lease acquired")
        upsert(url, {**SECONDLY, "launcher": {"kind": "http", "url": executor.url}})
        with process("worker", "--store", url, folder=tmp_path, **FAST) as second:
            wait_for(lambda: len(executor.sent) >= 2)
            second.logged("standing by: another worker holds the lease")
            assert len([line for line in second.log if " WARNING kron.service " not in line]) == 1
            first.signal(signal.SIGTERM)
            assert first.ended() == 0
            # Leases were handed over: no worker waits for them to expire.
            second.logged("lease acquired")
            before = len(executor.sent)
            wait_for(lambda: len(executor.sent) >= before + 2)
            second.signal(signal.SIGINT)
            assert second.ended() == 0
    keys = executor.keys()
    assert len(keys) == len(set(keys))
    times = sorted(run.nominal_time for run in runs_of(url))
    assert times == list(range(times[0], times[0] + len(times)))


@pytest.mark.slow
def test_a_stop_waits_for_what_runs_within_its_bound_and_the_next_owner_finds_the_rest(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/kron.db"
    done, go = tmp_path / "done", tmp_path / "go"
    command = ["/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; echo x >> {done}"]
    upsert(url, {**YEARLY, "launcher": {"kind": "process", "command": command, "survive": True}})

    asyncio.run(asked(url, lambda registrar: run_now(registrar, "fast", "one")))
    variables = {**FAST, "KRON_DRAIN_MS": "200", "KRON_ALLOWED_COMMANDS": "/bin/sh"}
    with process("worker", "--store", url, folder=tmp_path, **variables) as first:
        wait_for(lambda: [run for run in runs_of(url) if run.acked])
        first.signal(signal.SIGTERM)
        assert first.ended() == 0
        assert "handing over" in "".join(first.log)
    assert [run.status for run in runs_of(url)] == ["STARTED"]
    go.touch()
    with process("worker", "--store", url, folder=tmp_path, **variables):
        wait_for(lambda: [run for run in runs_of(url) if run.status == "SUCCESS"])
    assert done.read_text() == "x\n"


def test_a_process_the_settings_allow_is_run_by_the_service(tmp_path: Path) -> None:
    with serving(tmp_path, KRON_ALLOWED_COMMANDS="/bin/echo") as (client, server):
        launcher = {"kind": "process", "command": ["/bin/echo", "hello"]}
        document = {**YEARLY, "schedule_id": "echo", "launcher": launcher}
        assert client.post("/schedules/upsert", json=document).status_code == 200
        client.post("/schedules/echo/run")

        def ended() -> object:
            return client.get("/runs", params={"status": "SUCCESS"}).json()["runs"]

        wait_for(ended, lambda: client.get("/runs").text)
        server.signal(signal.SIGTERM)
        assert server.ended() == 0


@pytest.mark.slow
def test_what_was_registered_is_there_after_a_restart(tmp_path: Path) -> None:
    for number in range(2):
        with serving(tmp_path) as (client, server):
            listed = client.get("/schedules").json()["schedules"]
            assert len(listed) == number
            client.post("/schedules/upsert", json=YEARLY)
            server.signal(signal.SIGINT)
            assert server.ended() == 0


@pytest.mark.slow
def test_defaults_come_from_the_environment(tmp_path: Path) -> None:
    variables = {
        "DEFAULT_OVERLAP_POLICY": "queue",
        "KRON_DEFAULT_CATCHUP_POLICY": "spread",
        "DEFAULT_JITTER_MS": "7",
    }
    with serving(tmp_path, **variables) as (client, _):
        client.post("/schedules/upsert", json=YEARLY)
        found = client.get("/schedules/fast").json()
        assert [found[name] for name in ("overlap_policy", "catchup_policy", "jitter_ms")] == [
            "queue",
            "spread",
            7,
        ]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com", "::"])
def test_an_address_others_can_reach_is_refused_unless_told_otherwise(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--host", host, "--port", "0", "--store", "memory://"]) == BAD
    assert "--insecure" in capsys.readouterr().err


@pytest.mark.slow
def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with serving(tmp_path) as (client, _):
        port = str(client.base_url.port)
        with process("serve", "--port", port, "--store", "memory://", folder=tmp_path) as second:
            assert second.ended() == BAD
            assert "Invalid address" in json.dumps(second.log)


@pytest.mark.parametrize(
    ("tick_ms", "change", "seen_by"),
    [
        pytest.param(1_000, timedelta(seconds=5.2), timedelta(seconds=6.2), id="a second"),
        pytest.param(10_000, timedelta(seconds=5.2), timedelta(seconds=15.2), id="ten seconds"),
    ],
)
async def test_a_worker_sleeps_until_a_fire_time_and_sees_a_change_within_a_tick(
    tick_ms: int, change: timedelta, seen_by: timedelta, tmp_path: Path
) -> None:
    """Whoever writes tells the worker nothing; what it knows it starts at its time, whatever the tick."""
    assert Settings().tick_ms == 1_000
    clock, store = SimulatedClock(NOON + timedelta(milliseconds=1)), SqliteStore()
    settings = Settings(tick_ms=tick_ms, process_folder=str(tmp_path))
    worker, registrar = ServiceWorker(store, clock, settings), Registrar(store, clock)
    starts: dict[str, list[datetime]] = {"known": [], "changed": []}

    def noted(name: str) -> Callable[[Launch], Awaitable[None]]:
        async def call(_: Launch) -> None:
            starts[name].append(clock.now())

        return call

    worker.callbacks.update({name: noted(name) for name in starts})
    document = {**WORK, "timezone": "UTC", "launcher": {"kind": "callback"}}
    await registrar.upsert_schedule({**document, "schedule_id": "known", "cron_expr": "3,4 0 12 * * *"})
    working = asyncio.create_task(worker.run())
    await clock.advance_to(NOON + change)
    assert starts["known"] == [NOON + timedelta(seconds=3), NOON + timedelta(seconds=4)]
    fields = {"schedule_id": "changed", "cron_expr": "* * * * * *", "overlap_policy": "allow"}
    await registrar.upsert_schedule({**document, **fields})
    await clock.advance_to(NOON + seen_by)
    # What came before it was seen is due, and not lost.
    seconds = range(6, int(seen_by.total_seconds()) + 1)
    assert len(starts["changed"]) == len(seconds)
    worker.leave()
    await working
    await store.close()
