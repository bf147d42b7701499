"""Tracks published tasks with Celery: their states in the result backend, and the workers that have them.

Imported on first use, because it needs the package.
"""

from collections.abc import Sequence

from celery import Celery

from kron.launchers.celery.broker import Broker, BrokerError, CeleryState, WorkerReplies
from kron.launchers.celery.publish import CONNECT_S, check_package, described, options_of

# How long the answers of workers are awaited, in seconds.
REPLIES_S = 2.0


class CeleryTracker:
    """Reads a result backend, and asks workers over the broker."""

    def __init__(self, broker: Broker, backend: str) -> None:
        check_package(backend)
        # Celery's configuration files and environment variables have no effect here.
        self._app = Celery("kron", broker=broker.url, backend=backend, loader="app", set_as_current=False)
        self._app.conf.update(
            broker_connection_timeout=CONNECT_S,
            broker_transport_options=options_of(broker.urls[0], broker.options),
            # Control messages are rare: each has its own connection.
            broker_pool_limit=0,
            # Results are data of other systems: only JSON is read.
            accept_content=["json"],
            result_accept_content=["json"],
        )

    def states(self, task_ids: Sequence[str]) -> dict[str, CeleryState]:
        """Return the state of each task, or raise BrokerError."""
        try:
            return {each: self._state(each) for each in task_ids}
        except Exception as cause:
            raise BrokerError(f"the result backend cannot be read: {described(cause)}", retry=True) from cause

    def _state(self, task_id: str) -> CeleryState:
        meta = self._app.backend.get_task_meta(task_id, cache=False)
        return CeleryState(meta["status"], meta.get("result"), meta.get("traceback"))

    def ask_workers(self, task_ids: Sequence[str]) -> WorkerReplies:
        """Return which Celery workers have which of the tasks, or raise BrokerError."""
        try:
            replies = self._app.control.broadcast(
                "query_task", arguments={"ids": list(task_ids)}, reply=True, timeout=REPLIES_S
            )
        except Exception as cause:
            raise BrokerError(f"the broker cannot be reached: {described(cause)}", retry=True) from cause
        answers = {worker: found for reply in replies or () for worker, found in reply.items()}
        tasks = {
            task_id: (worker, str(state[0]))
            for worker, found in answers.items()
            for task_id, state in found.items()
            if task_id in task_ids
        }
        return WorkerReplies(frozenset(answers), tasks)

    def revoke(self, task_id: str) -> None:
        """Make every worker discard a task, and end it where it executes, or raise BrokerError."""
        try:
            self._app.control.revoke(task_id, terminate=True)
        except Exception as cause:
            raise BrokerError(f"the broker cannot be reached: {described(cause)}", retry=True) from cause
