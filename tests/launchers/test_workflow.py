"""Workflows as launches: loaded, handed over, ended and found again by the executor's own launcher."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kron.app.launchers import read_launcher
from kron.clocks.system import SystemClock
from kron.core.plan.record import RunRecord
from kron.core.plan.report import Launch, RunEvent
from kron.core.workflow import WorkflowRecord, WorkflowVersion
from kron.launchers.process.launcher import ProcessLauncher
from kron.launchers.workflow import WorkflowLauncher
from kron.stores.sqlite.workflow import SqliteWorkflows
from tests.launchers.ear import Ear, a_launch, on_record
from tests.waiting import until

DAG = '{"nodes":[]}'


def a_workflow(workflow_id: str = "wf", version: int = 1) -> Launch:
    return a_launch({"kind": "workflow", "workflow_id": workflow_id, "version": version, "user_id": "ann"})


class Slow:
    """A place of workflows that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Event()

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        return record

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        self.asked += 1
        await self.answer.wait()
        return None if workflow_id == "gone" else WorkflowRecord(workflow_id, version, DAG, "ann", 0)

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        return []

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        return []

    async def count_versions(self, prefix: str, *, most: int) -> int:
        return 0

    async def close(self) -> None:
        pass


@asynccontextmanager
async def launching(
    place: Slow, folder: Path, command: Sequence[str] = ("/bin/cat",)
) -> AsyncIterator[WorkflowLauncher]:
    executor = read_launcher({"kind": "process", "command": list(command)})
    inner = ProcessLauncher(SystemClock(), folder)
    launcher = WorkflowLauncher(SystemClock(), place, executor, inner, own_only=False)
    try:
        yield launcher
    finally:
        place.answer.set()
        await launcher.close()


async def test_a_version_is_loaded_once_and_handed_over_for_each_run(tmp_path: Path) -> None:
    place, ear = Slow(), Ear()
    place.answer.set()
    async with launching(place, tmp_path) as launcher:
        assert launcher.traits == ProcessLauncher.traits
        for attempt in (1, 2, 3):
            launch = a_workflow()
            launch = launch._replace(run=launch.run._replace(attempt=attempt))
            launcher.start(launch, ear)
            assert launcher.busy
            assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
        assert not launcher.busy
        assert place.asked == 1


async def test_a_missing_version_is_a_failed_launch_that_says_which(tmp_path: Path) -> None:
    place, ear = Slow(), Ear()
    place.answer.set()
    async with launching(place, tmp_path) as launcher:
        launch = a_workflow("gone", 4)
        launcher.start(launch, ear)
        report = await ear.end_of(launch)
        assert (report.happened, report.error) == (RunEvent.LAUNCH_FAILED, 'There is no version 4 of "gone"')
        assert ear.said(launch) == [RunEvent.LAUNCH_FAILED]


@pytest.mark.parametrize("settings", ['{"kind": "callback"}', '{"kind": "workflow"}', "{", "[]"])
async def test_a_job_that_is_no_workflow_is_a_failed_launch(settings: str, tmp_path: Path) -> None:
    ear = Ear()
    async with launching(Slow(), tmp_path) as launcher:
        launch = a_launch(settings)
        launcher.start(launch, ear)
        assert (await ear.end_of(launch)).happened is RunEvent.LAUNCH_FAILED


async def test_one_that_is_ended_while_it_is_loaded_never_begins(tmp_path: Path) -> None:
    place, ear = Slow(), Ear()
    async with launching(place, tmp_path) as launcher:
        launch = a_workflow()
        launcher.start(launch, ear)
        await until(lambda: place.asked)
        launcher.end(launch.run)
        place.answer.set()
        assert ear.said(launch) == [RunEvent.CANCELLED]
        await until(lambda: not launcher.busy)
        assert ear.said(launch) == [RunEvent.CANCELLED]


async def test_one_that_runs_is_ended_by_the_executors_launcher(tmp_path: Path) -> None:
    place, ear = Slow(), Ear()
    place.answer.set()
    async with launching(place, tmp_path, ("/bin/sleep", "60")) as launcher:
        launch = a_workflow()
        launcher.start(launch, ear)
        await ear.accepted(launch)
        launcher.end(launch.run)
        assert (await ear.end_of(launch)).happened is RunEvent.CANCELLED


async def test_one_that_is_being_loaded_is_adopted_and_reports_to_its_new_owner(tmp_path: Path) -> None:
    place, first, second = Slow(), Ear(), Ear()
    async with launching(place, tmp_path) as launcher:
        launch = a_workflow()
        launcher.start(launch, first)
        await until(lambda: place.asked)
        assert await launcher.adopt([launch], second) == {launch.run.key}
        place.answer.set()
        assert (await second.end_of(launch)).happened is RunEvent.SUCCESS
        assert first.reports == []
        assert place.asked == 1


async def test_a_process_that_outlived_its_owner_is_adopted_by_the_next(tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = ("/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.02; done")
    place, ear, later = Slow(), Ear(), Ear()
    place.answer.set()
    launch = a_workflow()
    async with launching(place, tmp_path / "p", command) as launcher:
        launcher.start(launch, ear)
        launch = on_record(launch, await ear.accepted(launch))
        await launcher.close(wait=False)
    async with launching(place, tmp_path / "p", command) as launcher:
        assert await launcher.adopt([launch, a_workflow("other")._replace(run=_other())], later) == {
            launch.run.key
        }
        go.touch()
        await later.end_of(launch)


def _other() -> RunRecord:
    return a_launch(identity="other").run


async def test_what_is_let_go_while_it_is_loaded_is_left_to_the_next_owner(tmp_path: Path) -> None:
    place, ear = Slow(), Ear()
    async with launching(place, tmp_path) as launcher:
        launcher.start(a_workflow(), ear)
        await until(lambda: place.asked)
        await launcher.close(wait=False)
        assert ear.reports == []


async def test_much_that_was_loaded_is_not_remembered_for_ever(tmp_path: Path) -> None:
    workflows = SqliteWorkflows(str(tmp_path / "kron.db"))
    long = f'{{"nodes":[],"long":"{"x" * 1_000_000}"}}'
    executor = read_launcher({"kind": "process", "command": ["/bin/cat"]})
    inner = ProcessLauncher(SystemClock(), tmp_path / "p")
    launcher = WorkflowLauncher(SystemClock(), workflows, executor, inner, own_only=True)
    for version in range(20):
        await workflows.put(WorkflowRecord("wf", version, long, "ann", 0))
        ready = await launcher.ready(a_workflow(version=version))
        assert ready.payload is not None
        assert f'"version": {version}' in ready.payload.document
        assert launcher.cached_bytes <= 16 << 20
    await launcher.close()
    await workflows.close()
