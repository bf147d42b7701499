"""When an awaited Celery task has ended, and when it is lost."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.core.plan.report import RunEvent
from kron.launchers.celery.awaiting import PORTION, AwaitedTask, AwaitedTasks, AwaitingLauncher, end_of
from kron.launchers.celery.broker import CeleryState, WorkerReplies, parse_backend
from kron.launchers.celery.spec import CeleryOptions
from tests.launchers.celery.folder_broker import FolderBroker
from tests.launchers.ear import Ear, a_launch

HERE, THERE = "first@here", "second@there"
STARTED = CeleryState("STARTED", {"hostname": HERE, "pid": 1})
LOST_AFTER_S = 60.0


def awaited(*states: CeleryState) -> AwaitedTask:
    task = AwaitedTask(a_launch({"kind": "celery", "task": "t"}), Ear(), seen_s=0.0)
    for state in states:
        task.note(state, 0.0)
    return task


def replies(*workers: str, **tasks: tuple[str, str]) -> WorkerReplies:
    return WorkerReplies(frozenset(workers), tasks)


def is_lost(task: AwaitedTask, answers: WorkerReplies, at_s: float) -> bool:
    return task.is_lost("id", answers, at_s, LOST_AFTER_S)


def test_a_task_in_a_queue_is_never_lost() -> None:
    task = awaited()
    assert not is_lost(task, replies(HERE), 3_600)
    assert not is_lost(task, replies(), 7_200)


def test_a_started_task_is_lost_when_all_workers_are_silent_for_long() -> None:
    task = awaited(STARTED)
    assert not is_lost(task, replies(THERE), 59)
    assert is_lost(task, replies(THERE), 60)


def test_a_started_task_is_lost_when_its_worker_answers_twice_without_it() -> None:
    task = awaited(STARTED)
    assert not is_lost(task, replies(HERE), 1)
    assert is_lost(task, replies(HERE), 2)


def test_a_worker_that_has_the_task_keeps_it_alive() -> None:
    task = awaited(STARTED)
    assert not is_lost(task, replies(HERE), 30)
    assert not is_lost(task, replies(HERE, id=(HERE, "active")), 59)
    assert not is_lost(task, replies(HERE), 100)
    assert not is_lost(awaited(STARTED), replies(THERE, id=(THERE, "reserved")), 600)


def test_a_worker_that_executes_it_is_known_from_its_answer_where_starts_are_not_tracked() -> None:
    task = awaited()
    assert not is_lost(task, replies(HERE, id=(HERE, "active")), 1)
    assert not is_lost(task, replies(HERE), 2)
    assert is_lost(task, replies(HERE), 3)


def test_a_task_that_celery_retries_is_in_a_queue_again() -> None:
    task = awaited(STARTED, CeleryState("RETRY", ValueError("later")))
    assert not is_lost(task, replies(HERE), 3_600)


class WorkerLostError(Exception):
    """As Celery's."""


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (CeleryState("SUCCESS", {"rows": [1]}), (RunEvent.SUCCESS, None, '{"rows":[1]}')),
        (CeleryState("SUCCESS", None), (RunEvent.SUCCESS, None, None)),
        (CeleryState("SUCCESS", float("nan")), (RunEvent.FAILED, "its result is not JSON", None)),
        (CeleryState("SUCCESS", object()), (RunEvent.FAILED, "its result is not JSON", None)),
        (CeleryState("FAILURE", KeyError("a")), (RunEvent.FAILED, "KeyError: 'a'", None)),
        (CeleryState("FAILURE", ValueError()), (RunEvent.FAILED, "ValueError", None)),
        (CeleryState("FAILURE", WorkerLostError("x")), (RunEvent.ORPHANED, "WorkerLostError: x", None)),
        (CeleryState("REVOKED"), (RunEvent.CANCELLED, "it was revoked", None)),
    ],
)
def test_the_end_of_a_task(state: CeleryState, expected: tuple[RunEvent, str | None, str | None]) -> None:
    assert end_of(state) == expected


@pytest.mark.parametrize(
    "url", ["redis://:secret@h:6379/0", "db+postgresql://ann@h/results", "file:///results"]
)
def test_a_backend_that_every_process_can_read_is_taken(url: str) -> None:
    assert parse_backend(url) == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rpc://", "its results reach only the process that sent the task"),
        ("results", "must be an address such as redis://backend.example:6379/0"),
        (7, "must be an address"),
    ],
)
def test_any_other_backend_is_refused_with_the_reason(url: object, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_backend(url)


# --- tenants -------------------------------------------------------------------------------------


def test_a_round_reads_a_portion_of_each_tenants_tasks_in_turn() -> None:
    tasks = AwaitedTasks()
    for number in range(250):
        tasks.add(f"ann {number}", awaited_of("ann"))
    tasks.add("bob", awaited_of("bob"))
    first, second = list(tasks.portions()), list(tasks.portions())
    assert [len(portion) for portion in first] == [PORTION, 1]
    assert second == [[f"ann {number}" for number in range(100, 200)], ["bob"]]
    assert next(tasks.portions()) == [f"ann {number % 250}" for number in range(200, 300)]
    tasks.pop("bob")
    assert len(list(tasks.portions())) == 1
    assert len(tasks.to_ask(99.0)) == 0
    assert len(tasks.to_ask(100.0)) == PORTION


def awaited_of(user: str) -> AwaitedTask:
    return AwaitedTask(a_launch({"kind": "celery", "task": "t", "user_id": user}), Ear(), 100.0)


@pytest.mark.slow
async def test_a_result_that_cannot_be_read_ends_its_own_run_and_no_other(tmp_path: Path) -> None:
    broker, results = FolderBroker(tmp_path / "broker"), tmp_path / "results"
    results.mkdir()
    options = CeleryOptions(broker=broker.broker(), backend=f"file://{results}")
    launcher, ear = AwaitingLauncher(SystemClock(), options), Ear()
    launches = {
        user: a_launch({"kind": "celery", "task": "t", "user_id": user}, identity=user)
        for user in ("ann", "bob")
    }
    for launch in launches.values():
        launcher.start(launch, ear)
        await ear.accepted(launch)
    garbled, right = (results / f"celery-task-meta-{each.run.key}" for each in launches.values())
    garbled.write_bytes(b"\x80\x04garbled")
    right.write_text(json.dumps({"status": "SUCCESS", "result": 1, "task_id": launches["bob"].run.key}))
    assert (await ear.end_of(launches["bob"])).happened is RunEvent.SUCCESS
    end = await ear.end_of(launches["ann"])
    assert end.happened is RunEvent.FAILED
    assert str(end.error).startswith("its result cannot be read: ")
    await launcher.close()


async def test_a_take_over_does_not_wait_for_a_result_backend_that_hangs(tmp_path: Path) -> None:
    broker, results = FolderBroker(tmp_path / "broker"), tmp_path / "results"
    results.mkdir()
    options = CeleryOptions(broker=broker.broker(), backend=f"file://{results}")
    launcher, ear = AwaitingLauncher(SystemClock(), options), Ear()
    launch = a_launch({"kind": "celery", "task": "t"})
    # Reading blocks until there is a writer.
    result = results / f"celery-task-meta-{launch.run.key}"
    os.mkfifo(result)
    assert await launcher.adopt([launch], ear) == {launch.run.key}
    assert ear.reports == []
    await asyncio.to_thread(lambda: result.open("wb").close())
    assert (await ear.end_of(launch)).happened is RunEvent.ORPHANED
    await launcher.close()
