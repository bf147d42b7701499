"""A DAG runtime in one object: a store, an orchestrator, the trigger service, and a worker."""

import json
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from kron.app.dag.orchestrator import RunOrchestrator
from kron.app.dag.task_call import TaskFunction
from kron.app.dag.trigger import SchedulerTriggerService
from kron.app.dag.worker import DagWorker, DagWorkerOptions
from kron.clocks.system import SystemClock
from kron.core.dag.record import RUN_ENDS
from kron.core.workflow import WorkflowRecord, same_dag
from kron.dag_ports import WorkflowStore
from kron.fronts.dag.python_dag import PythonDag
from kron.ports import Clock
from kron.stores.url import open_dags, open_workflows


async def put_next(
    orchestrator: RunOrchestrator, workflows: WorkflowStore, dag_id: str, document: Mapping[str, object]
) -> WorkflowRecord:
    """Store a definition as the next version of its DAG, unless the latest one is the same."""
    versions = await workflows.versions(dag_id, limit=1)
    if not versions:
        return await orchestrator.put_version(dag_id, 1, document)
    latest = await workflows.get(dag_id, versions[0].version)
    if latest is not None and (latest.is_draft or same_dag(latest.dag, json.dumps(document))):
        return await orchestrator.put_version(dag_id, latest.version, document)
    return await orchestrator.put_version(dag_id, versions[0].version + 1, document)


DEFAULT_OPTIONS = DagWorkerOptions(name="main")


class DagRuntime:
    """Runs DAGs in this program, with their state in a store: `memory://`, `sqlite:///...`, `postgresql://...`.

    `functions` are those that tasks of the type `python` name.
    """

    def __init__(
        self,
        state: str = "memory://",
        functions: Mapping[str, TaskFunction] | None = None,
        *,
        options: DagWorkerOptions = DEFAULT_OPTIONS,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.store = open_dags(state)
        self.workflows = open_workflows(state)
        known = {**options.functions, **(functions or {})}
        self.worker = DagWorker(self.store, replace(options, functions=known), clock)
        self.orchestrator = RunOrchestrator(self.store, self.workflows, clock, on_change=self.worker.wake)
        self.triggers = SchedulerTriggerService(self.orchestrator)

    async def deploy(self, dag: PythonDag) -> WorkflowRecord:
        """Store a DAG as its next version, unless the latest one is the same, and register its functions."""
        self.worker.functions.update(dag.functions)
        return await put_next(self.orchestrator, self.workflows, dag.dag_id, dag.document)

    async def run_to_end(self, run_id: str) -> str:
        """Execute tasks until one run has ended, and return its status."""

        async def is_over() -> bool:
            run = await self.store.run(run_id)
            return run is None or run.status in RUN_ENDS

        await self.worker.run(until=is_over)
        return (await self.orchestrator.state(run_id)).run.status.value

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()
        await self.workflows.close()
