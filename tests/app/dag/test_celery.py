"""Tasks of DAGs on real Celery workers: their ends are awaited, and no attempt is unrecorded."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kron.app.dag.worker import DagWorker
from kron.core.dag.record import AttemptOutcome, DagRunStatus
from kron.dag_ports import DagClaimRequest
from kron.launchers.celery.spec import CeleryOptions
from kron.launchers.spec import LauncherConfig
from kron.stores.sqlite.dag import sqlite_dags
from tests.app.dag.house import House
from tests.launchers.celery.folder_broker import FolderBroker
from tests.waiting import until

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).parents[3]


class CeleryHouse:
    """A broker, a result backend and the Celery workers on them."""

    def __init__(self, house: House, folder: Path) -> None:
        self.house = house
        self.folder = folder
        self.broker = FolderBroker(folder / "broker")
        (folder / "results").mkdir()
        self.log = folder / "log"

    def worker(self, name: str = "kron", *, lost_after_s: float = 3, **options: Any) -> DagWorker:
        celery = CeleryOptions(
            broker=self.broker.broker(),
            backend=f"file://{self.folder / 'results'}",
            lost_after=timedelta(seconds=lost_after_s),
        )
        return self.house.worker(name=name, config=LauncherConfig((celery,)), **options)

    async def work(self, **options: Any) -> None:
        await self.worker(**options).run(until=self.house.is_over)

    def executed(self) -> Counter[str]:
        return Counter(self.log.read_text().splitlines() if self.log.exists() else ())

    @contextmanager
    def celery(self, name: str = "first") -> Iterator["subprocess.Popen[bytes]"]:
        """Run a Celery worker with two processes."""
        words = "-A tests.app.dag.celery_app worker --pool prefork --concurrency 2 --loglevel WARNING"
        more = f"--without-gossip --without-mingle --hostname {name}@here"
        environment = {**os.environ, "KRON_TEST_CELERY": str(self.folder), "PYTHONPATH": str(PROJECT)}
        with (self.folder / f"{name}.out").open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", *words.split(), *more.split()],
                cwd=self.folder,
                env=environment,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        try:
            yield process
        finally:
            kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a worker with the processes of its tasks, as the end of its machine does."""
    if process.poll() is None:
        # Not one after another: a worker replaces a process that has ended.
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def children_of(process: "subprocess.Popen[bytes]") -> list[int]:
    """Return the processes that execute the tasks of a worker."""
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.fixture
def celery(house: House, tmp_path: Path) -> CeleryHouse:
    return CeleryHouse(house, tmp_path)


def task(name: str, *needs: str, task: str | None = None, **more: object) -> dict[str, object]:
    return {"id": name, "type": "celery", "task": task or name, "dependsOn": list(needs), **more}


async def test_the_end_of_a_celery_task_is_awaited_and_its_result_passed_on(celery: CeleryHouse) -> None:
    house = celery.house
    await house.put(
        task("extract"),
        task("load", "extract", arguments={"rows": {"$result": "extract"}}, retries=1, retry_delay=0),
        task("unknown", "load"),
    )
    run_id = await house.start(input={"more": 4})
    with celery.celery():
        await celery.work()
    state = await house.state(run_id)
    assert [str(each.status) for each in state.tasks.values()] == ["success", "success", "failed"]
    assert await house.store.results(run_id, list(state.tasks)) == {"extract": "[1,2,4]", "load": "7"}
    first, second = await house.store.attempts(run_id, "load")
    assert (first.outcome, first.error, second.outcome) == ("failed", "ValueError: not yet", "success")
    assert 'raise ValueError("not yet")' in (first.output or "")
    assert celery.executed() == dict.fromkeys(
        (f"{run_id} extract 1", f"{run_id} load 1", f"{run_id} load 2"), 1
    )
    assert state.tasks["unknown"].error == "NotRegistered: 'unknown'"


async def test_a_run_of_another_store_with_the_same_key_does_not_get_its_results(
    celery: CeleryHouse, tmp_path: Path
) -> None:
    published = set()
    for number in range(2):
        store = sqlite_dags()
        celery.house = House(store, tmp_path)
        await celery.house.put(task("extract", await_result=False))
        await celery.house.start()
        await celery.work()
        published |= {each.task_id for each in celery.broker.published()}
        assert len(published) == number + 1
        await celery.house.workflows.close()
        await store.close()


async def test_cancelling_a_run_revokes_the_celery_task_that_executes(celery: CeleryHouse) -> None:
    house = celery.house
    await house.put(task("wait"), task("extract", "wait"))
    run_id = await house.start()
    with celery.celery():
        working = asyncio.create_task(celery.work(lease=timedelta(milliseconds=600)))
        await until(celery.executed)
        await house.orchestrator.cancel(run_id)
        await working
        (celery.folder / "gate").touch()
    assert await house.statuses(run_id) == {"wait": "cancelled", "extract": "cancelled"}
    (attempt,) = await house.store.attempts(run_id)
    assert (attempt.outcome, attempt.error) == (AttemptOutcome.CANCELLED, "it was revoked")


async def test_a_celery_worker_is_killed_and_another_one_executes_the_next_attempt(
    celery: CeleryHouse,
) -> None:
    house = celery.house
    nodes = [task(f"t{number}", task="wait", retries=1, retry_delay=0) for number in range(2)]
    await house.put(*nodes, task("extract", "t0", "t1"))
    run_id = await house.start()
    with celery.celery("first") as first:
        working = asyncio.create_task(celery.work())
        await until(lambda: len(celery.executed()) == 2)
        kill(first)
        (celery.folder / "gate").touch()
        with celery.celery("second"):
            await working
    state = await house.state(run_id)
    assert state.run.status is DagRunStatus.SUCCESS
    attempts = await house.store.attempts(run_id)
    assert [(each.task_id, each.attempt, str(each.outcome), each.error) for each in attempts] == [
        ("extract", 1, "success", None),
        ("t0", 1, "lost", "the Celery worker that executed it died"),
        ("t0", 2, "success", None),
        ("t1", 1, "lost", "the Celery worker that executed it died"),
        ("t1", 2, "success", None),
    ]
    assert celery.executed() == {f"{run_id} {each.task_id} {each.attempt}": 1 for each in attempts}


async def test_the_process_of_a_task_is_killed_and_the_attempt_is_lost(celery: CeleryHouse) -> None:
    house = celery.house
    await house.put(task("wait"))
    run_id = await house.start()
    with celery.celery() as process:
        working = asyncio.create_task(celery.work(lost_after_s=60))
        await until(celery.executed)
        for child in children_of(process):
            os.kill(child, signal.SIGKILL)
        await working
    (attempt,) = await house.store.attempts(run_id)
    assert attempt.outcome == "lost"
    assert (attempt.error or "").startswith("WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL)")


async def test_a_celery_task_outlives_its_worker_of_dags_and_the_next_one_awaits_it(
    celery: CeleryHouse,
) -> None:
    house = celery.house
    await house.put(task("wait", retries=3), task("extract", "wait"))
    run_id = await house.start()
    with celery.celery():
        first = asyncio.create_task(celery.worker("first").run())
        await until(celery.executed)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(celery.work(name="second"))
        (celery.folder / "gate").touch()
        await second
    assert await house.statuses(run_id) == {"wait": "success", "extract": "success"}
    assert celery.executed() == {f"{run_id} wait 1": 1, f"{run_id} extract 1": 1}


async def test_an_attempt_that_a_dead_worker_may_have_published_is_lost_and_not_published_again(
    celery: CeleryHouse,
) -> None:
    house = celery.house
    await house.put(task("extract"))
    run_id = await house.start()
    now = int(house.clock.now().timestamp() * 1000)
    await house.store.claim(DagClaimRequest("dead", now, now, 1))
    await celery.work()
    (attempt,) = await house.store.attempts(run_id)
    assert (attempt.outcome, attempt.error) == ("lost", "the worker that executed it died")
    assert [each for each in celery.broker.published() if each.task == "extract"] == []


async def test_without_a_result_backend_the_remedy_is_named(house: House, tmp_path: Path) -> None:
    await house.put(task("extract"))
    run_id = await house.start()
    celery = CeleryOptions(broker=FolderBroker(tmp_path / "broker").broker())
    await house.work(config=LauncherConfig((celery,)))
    assert (await house.state(run_id)).tasks["extract"].error == (
        "its result cannot be awaited without a result backend: set celery_backend, e.g. as "
        "KRON_CELERY_BACKEND, or await_result to false"
    )


async def test_a_task_whose_result_is_not_awaited_ends_when_the_broker_has_it(
    house: House, tmp_path: Path
) -> None:
    await house.put(task("extract", await_result=False))
    run_id = await house.start()
    files = FolderBroker(tmp_path / "broker")
    await house.work(config=LauncherConfig((CeleryOptions(broker=files.broker()),)))
    assert await house.statuses(run_id) == {"extract": "success"}
    assert [each.task for each in files.published()] == ["extract"]
