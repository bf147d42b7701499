"""DAG triggering: `await SchedulerTriggerService(orchestrator).trigger_catchup(request)`."""

from kron.core.dag import DagError
from kron.fronts.dag.trigger import (
    CatchupTriggerRequest,
    CatchupTriggerResult,
    ScheduledBatchTriggerRequest,
    ScheduledBatchTriggerResult,
    ScheduledTriggerRequest,
    SchedulerTriggerService,
    StartRunResult,
)

__all__ = [
    "CatchupTriggerRequest",
    "CatchupTriggerResult",
    "DagError",
    "ScheduledBatchTriggerRequest",
    "ScheduledBatchTriggerResult",
    "ScheduledTriggerRequest",
    "SchedulerTriggerService",
    "StartRunResult",
]
