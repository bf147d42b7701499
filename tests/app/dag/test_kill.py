"""Real workers killed with SIGKILL while tasks run: every outcome is exact, every execution recorded."""

import asyncio
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from kron.cli.support.dag_file import dags_in
from kron.core.dag.record import RUN_ENDS
from kron.dag import DagRuntime
from tests.service.server import Process
from tests.waiting import PATIENCE_S, until

RUNS, KILLS = 6, 3
FILE = """
import os, time
from kron.dag import TaskContext, dag, process, task

def note(context):
    with open({log!r}, "a") as log:
        log.write(f"{{context.run_id}} {{context.task_id}} {{context.attempt}}\\n")

@task(retries=20, retry_delay="10ms")
def first(context: TaskContext):
    note(context)
    time.sleep(0.3)
    return context.attempt

@task(retries=20, retry_delay="10ms")
async def last(value, context: TaskContext):
    note(context)
    return value

@dag
def steps():
    start = first()
    script = "echo $KRON_RUN_ID $KRON_TASK_ID $KRON_ATTEMPT >> " + {log!r} + "; sleep 0.4"
    middle = process("middle", script, after=[start])
    middle >> last(start)
"""


def _has_grown(log: Path, before: int) -> bool:
    return log.exists() and log.stat().st_size > before


@pytest.mark.slow
async def test_workers_killed_again_and_again_run_every_task_to_one_success(tmp_path: Path) -> None:
    log, file = tmp_path / "log", tmp_path / "steps.py"
    file.write_text(FILE.format(log=str(log)))
    url = f"sqlite:///{tmp_path / 'kron.db'}"
    # Long enough that a worker on a busy machine renews it in time.
    words = ("dag", "worker", str(file), "--store", url, "--lease", "3s")
    async with DagRuntime(url) as runtime:
        await runtime.deploy(dags_in(str(file))[0])
        ids = [
            (await runtime.orchestrator.start_run(dag_id="steps", logical_date=f"2026-06-0{day}")).run_id
            for day in range(1, RUNS + 1)
        ]
        workers = [Process(*words, folder=tmp_path) for _ in range(2)]
        try:
            async with asyncio.timeout(PATIENCE_S):
                for number in range(KILLS):
                    # Until something new executes, so that the victim has work.
                    before = log.stat().st_size if log.exists() else 0
                    await until(partial(_has_grown, log, before))
                    victim = workers[number % 2]
                    victim.signal(signal.SIGKILL)
                    victim.ended()
                    victim.close()
                    workers[number % 2] = Process(*words, folder=tmp_path)
                while not all(run.status in RUN_ENDS for run in await runtime.store.runs()):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        finally:
            for worker in workers:
                worker.close()
        executed = Counter(log.read_text().splitlines())
        attempts = {
            f"{each.run_id} {each.task_id} {each.attempt}": each
            for run_id in ids
            for each in await runtime.store.attempts(run_id)
        }
        runs = await runtime.store.runs()
    assert {str(run.status) for run in runs} <= {"success", "failed"}
    assert set(executed) <= set(attempts)
    assert max(executed.values()) == 1
    assert all(each.outcome is not None for each in attempts.values())
    successes = Counter(
        (each.run_id, each.task_id) for each in attempts.values() if each.outcome == "success"
    )
    for run in runs:
        if run.status == "success":
            assert [successes[run.run_id, name] for name in ("first", "middle", "last")] == [1, 1, 1]
        else:
            # A process has no retries here: it failed because its exit status was lost with its worker.
            middle = attempts[f"{run.run_id} middle 1"]
            assert middle.outcome == "lost"
    assert any(run.status == "success" for run in runs)
