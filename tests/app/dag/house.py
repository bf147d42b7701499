"""A DAG runtime for tests: stores, an orchestrator, and workers with functions."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from kron.app.dag.orchestrator import RunOrchestrator
from kron.app.dag.task_call import TaskFunction
from kron.app.dag.worker import DagWorker, DagWorkerOptions
from kron.clocks.system import SystemClock
from kron.core.dag.record import RUN_ENDS, DagState
from kron.dag_ports import DagStore, WorkflowStore
from kron.launchers.process.spec import ProcessOptions
from kron.launchers.spec import LauncherConfig
from kron.ports import Clock
from kron.stores.sqlite.workflow import SqliteWorkflows

DAY = "2026-06-01T00:00:00Z"


def node(name: str, *needs: str, function: str | None = None, **more: object) -> dict[str, object]:
    return {
        "id": name, "type": "python", "function": function or name, "dependsOn": list(needs), **more,
    }  # fmt: skip


class House:
    def __init__(self, store: DagStore, folder: Path, workflows: WorkflowStore | None = None) -> None:
        self.store = store
        self.folder = folder
        self.workflows = workflows or SqliteWorkflows()
        self.clock: Clock = SystemClock()
        self.orchestrator = RunOrchestrator(store, self.workflows, self.clock)

    async def put(self, *nodes: Mapping[str, object], dag_id: str = "etl", **fields: object) -> None:
        await self.orchestrator.put_version(dag_id, 1, {"nodes": list(nodes), **fields})

    async def start(self, dag_id: str = "etl", day: str = DAY, **more: Any) -> str:
        return (await self.orchestrator.start_run(dag_id=dag_id, logical_date=day, **more)).run_id

    def worker(self, functions: Mapping[str, TaskFunction] | None = None, **options: Any) -> DagWorker:
        config = LauncherConfig((ProcessOptions(folder=str(self.folder / "processes")),))
        made: dict[str, Any] = {"name": "w", "tick": timedelta(milliseconds=50), "config": config} | options
        worker = DagWorker(self.store, DagWorkerOptions(functions=functions or {}, **made), self.clock)
        self.orchestrator.on_change = worker.wake
        return worker

    async def work(self, functions: Mapping[str, TaskFunction] | None = None, **options: Any) -> None:
        """Execute until every run has ended."""
        await self.worker(functions, **options).run(until=self.is_over)

    async def is_over(self) -> bool:
        return all(run.status in RUN_ENDS for run in await self.store.runs())

    async def state(self, run_id: str) -> DagState:
        return await self.orchestrator.state(run_id)

    async def statuses(self, run_id: str) -> dict[str, str]:
        return {name: str(task.status) for name, task in (await self.state(run_id)).tasks.items()}
