"""The run launcher as a library: once for each key, and false when nothing was started (SPEC 3: 4, 12)."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import ConflictError, StoreError
from kron.core.plan.report import RunEvent, RunReport
from kron.core.workflow import StartRequest, WorkflowRecord
from kron.fronts.service.errors import LaunchFailedError
from kron.fronts.service.launchers import workflow_launcher
from kron.fronts.service.registrar import NAMESPACE, Registrar
from kron.fronts.service.run_launcher import RunLauncher, WorkflowStart
from kron.fronts.service.serve import ServiceWorker
from kron.fronts.service.settings import Settings
from kron.launchers.run_token import is_run_token_of
from kron.launchers.workflow import Function, UnknownWorkflowError
from kron.ports import Clock
from kron.stores.sqlite.store import SqliteStore
from kron.stores.sqlite.workflow import SqliteWorkflows
from kron.testing import SimulatedClock
from tests.waiting import PATIENCE_S, until

DAG = '{"nodes":[{"id":"a","type":"t"}]}'
CALLBACK: Mapping[str, object] = {"kind": "callback", "name": "run"}
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECRET = "a secret that is long enough to be one"
WANTED = WorkflowStart("wf", 1, "ann", int(NOON.timestamp()), "key")


class Shop:
    """A run launcher, and what its executor was given."""

    def __init__(
        self,
        workflows: SqliteWorkflows,
        executor: Mapping[str, object] | None,
        folder: str,
        clock: Clock | None = None,
    ) -> None:
        self.calls: list[tuple[object, object]] = []
        self.reports: list[RunReport] = []
        self.heard = asyncio.Event()
        settings = Settings(executor=executor, process_folder=folder, signing_secret=SECRET)
        functions: dict[str, Function] = {"run": self._run}
        clock = clock or SystemClock()
        handing = workflow_launcher(clock, settings, workflows, functions)
        self.launcher = RunLauncher(clock, handing, workflows, on_end=self._hear)

    async def _run(self, dag: Mapping[str, object], meta: Mapping[str, object]) -> None:
        self.calls.append((dag, meta))
        if meta["user_id"] == "eve":
            raise RuntimeError("no")

    def _hear(self, report: RunReport) -> None:
        self.reports.append(report)
        self.heard.set()


@asynccontextmanager
async def shop_with(
    executor: Mapping[str, object] | None,
    folder: Path,
    workflows: SqliteWorkflows | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Shop]:
    workflows = workflows or SqliteWorkflows(str(folder / "kron.db"))
    await workflows.put(WorkflowRecord("wf", 1, DAG, "ann", 0))
    shop = Shop(workflows, executor, str(folder / "processes"), clock)
    try:
        yield shop
    finally:
        await shop.launcher.close()
        await workflows.close()


async def test_a_function_is_called_with_dag_and_meta_and_the_answer_is_true(tmp_path: Path) -> None:
    async with shop_with(CALLBACK, tmp_path) as shop:
        assert await shop.launcher.start("wf", 1, "ann", NOON, "k") is True
        await shop.heard.wait()
        ((dag, meta),) = shop.calls
        assert dag == {"nodes": [{"id": "a", "type": "t"}]}
        assert isinstance(meta, dict)
        assert {name: meta[name] for name in ("source", "user_id", "scheduled_for", "idempotency_key")} == {
            "source": "schedule",
            "user_id": "ann",
            "scheduled_for": "2026-06-01T12:00:00Z",
            "idempotency_key": "k",
        }


async def test_a_function_has_the_token_of_its_run(tmp_path: Path) -> None:
    async with shop_with(CALLBACK, tmp_path) as shop:
        await shop.launcher.start("wf", 1, "ann", NOON, "k")
        await shop.heard.wait()
        ((_, meta),) = shop.calls
        assert isinstance(meta, dict)
        assert is_run_token_of(meta["run_token"], SECRET.encode(), "k")


async def test_a_missing_dag_is_false_and_starts_nothing(tmp_path: Path) -> None:
    async with shop_with(CALLBACK, tmp_path) as shop:
        assert await shop.launcher.start("wf", 2, "ann", NOON, "k") is False
        assert await shop.launcher.start("nobody", 1, "ann", NOON, "k") is False
        assert shop.calls == []
        with pytest.raises(UnknownWorkflowError, match='There is no version 2 of "wf"'):
            await shop.launcher.launch(WANTED._replace(version=2))


async def test_the_same_key_starts_once_however_many_ask_at_the_same_time(tmp_path: Path) -> None:
    async with shop_with(CALLBACK, tmp_path) as shop:
        asked = [shop.launcher.start("wf", 1, "ann", "2026-06-01T12:00:00Z", "k") for _ in range(10)]
        assert await asyncio.gather(*asked) == [True] * 10
        assert len(shop.calls) == 1
        with pytest.raises(ConflictError, match="belongs to a start of version 1"):
            await shop.launcher.launch(WANTED._replace(key="k", version=3))


async def test_a_key_starts_once_even_if_it_comes_again_weeks_later(tmp_path: Path) -> None:
    """Other starts lie between: each of them may forget old ones."""
    clock = SimulatedClock(NOON)
    async with shop_with(CALLBACK, tmp_path, clock=clock) as shop:
        assert (await shop.launcher.launch(WANTED)).repeated is False
        for days in (0, 1, 29):
            clock.jump_to(NOON + timedelta(days=days, minutes=1))
            assert (await shop.launcher.launch(WANTED._replace(key=f"after-{days}"))).repeated is False
            assert (await shop.launcher.launch(WANTED)).repeated is True
        assert len(shop.calls) == 4


async def test_a_start_is_forgotten_after_thirty_days_so_the_log_does_not_grow_for_ever(
    tmp_path: Path,
) -> None:
    clock = SimulatedClock(NOON)
    async with shop_with(CALLBACK, tmp_path, clock=clock) as shop:
        await shop.launcher.launch(WANTED)
        clock.jump_to(NOON + timedelta(days=30, seconds=1))
        await shop.launcher.launch(WANTED._replace(key="later"))
        assert (await shop.launcher.launch(WANTED)).repeated is False
        assert len(shop.calls) == 3


async def test_how_a_run_ends_is_told_and_does_not_change_that_it_was_accepted(tmp_path: Path) -> None:
    async with shop_with(CALLBACK, tmp_path) as shop:
        assert await shop.launcher.start("wf", 1, "eve", NOON, "k") is True
        await shop.heard.wait()
        (report,) = shop.reports
        assert (report.happened, report.key, report.error) == (RunEvent.FAILED, "k", "RuntimeError: no")


@pytest.mark.parametrize(
    ("executor", "reason"),
    [
        pytest.param(None, "No executor is configured", id="no executor"),
        pytest.param(
            {"kind": "callback", "name": "other"},
            "No function is registered",
            id="no function",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"kind": "process", "command": ["/nowhere/at-all"]},
            "cannot be started",
            id="no command",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_what_cannot_be_run_is_said_and_may_be_tried_again(
    executor: Mapping[str, object] | None, reason: str, tmp_path: Path
) -> None:
    async with shop_with(executor, tmp_path) as shop:
        for _ in range(2):
            assert await shop.launcher.start("wf", 1, "ann", NOON, "key") is False
            with pytest.raises(LaunchFailedError, match=reason):
                await shop.launcher.launch(WANTED)


async def test_a_process_is_started_once_also_after_the_launcher_was_opened_anew(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    executor = {"kind": "process", "command": ["/bin/sh", "-c", f"echo x >> {ran}"]}
    for number in range(2):
        async with shop_with(executor, tmp_path) as shop:
            launched = await shop.launcher.launch(WANTED)
            assert launched.repeated is bool(number)
            if not launched.repeated:
                await shop.heard.wait()
                assert launched.run_id is not None
    assert ran.read_text() == "x\n"


@pytest.mark.parametrize(("executor", "starts"), [(CALLBACK, 0), ({"kind": "http"}, 1)])
async def test_a_start_whose_end_nobody_knows_is_made_again_only_where_that_does_no_harm(
    executor: Mapping[str, object], starts: int, tmp_path: Path
) -> None:
    """It was begun by a process that died; only an executor that honours the key may get it again."""
    from tests.service.flaky import flaky

    with flaky() as remote:
        whole = {**executor, "url": remote.url} if executor["kind"] == "http" else executor
        workflows = SqliteWorkflows(str(tmp_path / "kron.db"))
        now = int(SystemClock().now().timestamp() * 1000)
        await workflows.begin(StartRequest("key", 1, "wf", 1, now), old=0)
        async with shop_with(whole, tmp_path, workflows) as shop:
            assert await shop.launcher.start("wf", 1, "ann", NOON, "key") is bool(starts)
            assert (len(remote.sent), shop.calls) == (starts, [])


class Faltering(SqliteWorkflows):
    """A store that cannot be used for a while."""

    faults = 0

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        if self.faults:
            self.faults -= 1
            raise StoreError("The store cannot be used: for a test")
        return await super().get(workflow_id, version)


async def test_a_store_that_falters_is_asked_again_before_a_start_is_given_up(tmp_path: Path) -> None:
    workflows = Faltering(str(tmp_path / "kron.db"))
    async with shop_with(CALLBACK, tmp_path, workflows) as shop:
        workflows.faults = 2
        assert await shop.launcher.start("wf", 1, "ann", NOON, "k") is True
        assert len(shop.calls) == 1


async def test_a_store_that_falters_is_given_time_before_it_is_asked_again(tmp_path: Path) -> None:
    workflows, clock = Faltering(str(tmp_path / "kron.db")), SimulatedClock(NOON)
    async with shop_with(CALLBACK, tmp_path, workflows, clock) as shop:
        workflows.faults = 1
        starting = asyncio.create_task(shop.launcher.start("wf", 1, "ann", NOON, "k"))
        await until(lambda: workflows.faults == 0)
        await clock.advance_to(NOON + timedelta(milliseconds=1))
        assert not starting.done()
        await clock.advance_to(NOON + timedelta(seconds=30))
        assert await starting is True


async def test_a_worker_calls_a_function_for_each_period_of_a_workflow(tmp_path: Path) -> None:
    """Worker and launcher in one program: nothing but the function and its name is needed."""
    path, clock, settings = str(tmp_path / "kron.db"), SystemClock(), Settings(executor=CALLBACK, tick_ms=20)
    store, workflows = SqliteStore(path), SqliteWorkflows(path)
    worker = ServiceWorker(store, clock, replace(settings, process_folder=str(tmp_path)), workflows=workflows)
    registrar = Registrar(store, clock, rules=settings.rules, wake=worker.call, workflows=workflows)
    calls: list[Mapping[str, object]] = []

    async def run(dag: Mapping[str, object], meta: Mapping[str, object]) -> None:
        assert dag["nodes"] == []
        calls.append(meta)
        if len(calls) == 2:
            worker.leave()

    worker.functions["run"] = run
    schedule = {"cron_expr": "* * * * * *"}
    trigger = {"id": "often", "type": "schedule_based", "schedule": schedule}
    await registrar.deploy_workflow("wf", 1, {"triggers": [trigger], "nodes": []}, user_id="ann")
    async with asyncio.timeout(PATIENCE_S):
        await worker.run()
    runs = await store.runs(NAMESPACE, "wf/often")
    assert {run.key for run in runs if run.status == "SUCCESS"} >= {call["idempotency_key"] for call in calls}
    assert [call["schedule_id"] for call in calls] == ["wf/often"] * len(calls)
    await workflows.close()
    await store.close()
