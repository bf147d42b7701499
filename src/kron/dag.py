"""DAGs: triggering (`SchedulerTriggerService`) and the runtime that executes their runs (`DagRuntime`)."""

from kron.app.dag.orchestrator import RunOrchestrator
from kron.app.dag.task_call import TaskContext
from kron.app.dag.trigger import (
    CatchupTriggerRequest,
    CatchupTriggerResult,
    ScheduledBatchTriggerRequest,
    ScheduledBatchTriggerResult,
    ScheduledTriggerRequest,
    SchedulerTriggerService,
)
from kron.app.dag.worker import DagWorker, DagWorkerOptions
from kron.core.dag.contract import DagError, StartRunResult
from kron.fronts.dag.python_dag import PythonDag, dag, process, task
from kron.fronts.dag.runtime import DagRuntime

__all__ = [
    "CatchupTriggerRequest",
    "CatchupTriggerResult",
    "DagError",
    "DagRuntime",
    "DagWorker",
    "DagWorkerOptions",
    "PythonDag",
    "RunOrchestrator",
    "ScheduledBatchTriggerRequest",
    "ScheduledBatchTriggerResult",
    "ScheduledTriggerRequest",
    "SchedulerTriggerService",
    "StartRunResult",
    "TaskContext",
    "dag",
    "process",
    "task",
]
