"""The launcher of DAG runs: users take turns, waiting launches are small, and every end is reported once."""

import asyncio
import tracemalloc
from collections.abc import Sequence

from kron.clocks.system import SystemClock
from kron.core.dag.contract import StartRunResult
from kron.core.dag.record import DagRun, DagRunStatus
from kron.core.plan.report import Launch, Payload, RunEvent
from kron.launchers.dag import PER_TENANT, DagLauncher
from tests.launchers.ear import Ear, a_launch
from tests.waiting import until

BUSY = 50
MEGABYTE = 1_000_000


class Runs:
    """Runs of DAGs that start once their user is let through, and have the states they are given."""

    def __init__(self, *held: str) -> None:
        self.held = {user: asyncio.Event() for user in held}
        self.started: list[str] = []
        self.cancelled: list[str] = []
        self.states: dict[str, DagRunStatus] = {}
        # Called while the states are looked up.
        self.on_look = asyncio.Event()

    async def start_run(self, *, dag_id: str, logical_date: str, **_: object) -> StartRunResult:
        user = dag_id.partition(".")[0]
        if user in self.held:
            await self.held[user].wait()
        self.started.append(dag_id)
        self.states.setdefault(dag_id, DagRunStatus.RUNNING)
        return StartRunResult(
            run_id=dag_id,
            run_key=dag_id,
            dag_id=dag_id,
            version=1,
            logical_date=logical_date,
            status="queued",
            created=True,
        )

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, DagRunStatus]:
        self.on_look.set()
        # Others may start meanwhile.
        for _ in range(20):
            await asyncio.sleep(0)
        return {each: self.states[each] for each in run_ids if each in self.states}

    async def error_of(self, run_id: str) -> str | None:
        return f"{run_id} failed"

    async def cancel(self, run_id: str) -> DagRun:
        self.cancelled.append(run_id)
        self.states[run_id] = DagRunStatus.CANCELLED
        return None  # type: ignore[return-value] # nobody reads it

    async def retry(self, run_id: str) -> DagRun:
        return None  # type: ignore[return-value] # nobody reads it


def a_start(user: str, number: int = 0, document: str = "{}") -> Launch:
    facts = {"workflow_id": f"{user}.{number}", "version": "1", "user_id": user}
    return a_launch(identity=f"{user}/{number}")._replace(payload=Payload(document, facts))


async def test_the_starts_of_one_user_leave_turns_to_others() -> None:
    runs, ear = Runs("mallory"), Ear()
    launcher = DagLauncher(SystemClock(), runs)
    for number in range(BUSY):
        launcher.start(a_start("mallory", number), ear)
    launch = a_start("ann")
    launcher.start(launch, ear)
    await ear.accepted(launch)
    assert runs.started == ["ann.0"]
    runs.held["mallory"].set()
    await launcher.close()
    assert len(runs.started) == BUSY + 1


async def test_the_cancellations_of_one_user_leave_turns_to_others() -> None:
    runs, ear = Runs(), Ear()
    launcher = DagLauncher(SystemClock(), runs)
    many = [a_start("mallory", number) for number in range(BUSY)]
    for launch in many:
        launcher.start(launch, ear)
        await ear.accepted(launch)
    for launch in many:
        launcher.end(launch.run)
    launch = a_start("ann")
    launcher.start(launch, ear)
    await ear.accepted(launch)
    assert len(runs.cancelled) < BUSY // 2
    for launch in many:
        assert (await ear.end_of(launch)).happened is RunEvent.CANCELLED
    await launcher.close()


async def test_launches_that_wait_and_runs_that_are_watched_keep_no_dag() -> None:
    runs, ear = Runs("mallory"), Ear()
    launcher = DagLauncher(SystemClock(), runs)
    tracemalloc.start()
    try:
        for number in range(BUSY):
            launcher.start(a_start("mallory", number, "x" * MEGABYTE), ear)
        assert tracemalloc.get_traced_memory()[0] < 5 * MEGABYTE
    finally:
        tracemalloc.stop()
    runs.held["mallory"].set()
    await launcher.close()


async def test_a_launch_that_is_ended_before_its_turn_never_starts() -> None:
    runs, ear = Runs("mallory"), Ear()
    launcher = DagLauncher(SystemClock(), runs)
    many = [a_start("mallory", number) for number in range(PER_TENANT + 1)]
    for launch in many:
        launcher.start(launch, ear)
    launcher.end(many[-1].run)
    assert (await ear.end_of(many[-1])).happened is RunEvent.CANCELLED
    runs.held["mallory"].set()
    await launcher.close()
    assert runs.started == ["mallory.0", "mallory.1"]


async def test_a_launch_that_waits_for_its_turn_is_adopted_and_starts_once() -> None:
    runs, ear, heir = Runs("mallory"), Ear(), Ear()
    launcher = DagLauncher(SystemClock(), runs)
    many = [a_start("mallory", number) for number in range(PER_TENANT + 1)]
    for launch in many:
        launcher.start(launch, ear)
    await until(lambda: launcher.waiting == 1)
    adopted = await launcher.adopt([many[-1]._replace(payload=None)], heir)
    assert adopted == {many[-1].run.key}
    runs.held["mallory"].set()
    await heir.accepted(many[-1])
    await launcher.close()
    assert runs.started == ["mallory.0", "mallory.1", "mallory.2"]


async def test_a_run_that_starts_during_a_look_for_states_is_not_reported_as_gone() -> None:
    runs, ear = Runs(), Ear()
    launcher = DagLauncher(SystemClock(), runs)
    first, second = a_start("ann", 1), a_start("ann", 2)
    launcher.start(first, ear)
    await runs.on_look.wait()
    launcher.start(second, ear)
    await ear.accepted(second)
    runs.states["ann.1"] = DagRunStatus.FAILED
    end = await ear.end_of(first)
    assert (end.happened, end.error) == (RunEvent.FAILED, "ann.1 failed")
    runs.states["ann.2"] = DagRunStatus.SUCCESS
    assert (await ear.end_of(second)).happened is RunEvent.SUCCESS
    await launcher.close()


async def test_a_run_that_does_not_exist_any_more_is_reported() -> None:
    runs, ear, launch = Runs(), Ear(), a_start("ann")
    launcher = DagLauncher(SystemClock(), runs)
    launcher.start(launch, ear)
    await ear.accepted(launch)
    runs.states.clear()
    assert (await ear.end_of(launch)).happened is RunEvent.ORPHANED
    await launcher.close()
