"""The boundary of DAGs: the protocols of their stores and of their runtime.

Instants are milliseconds since 1970.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from kron.core.dag.contract import StartRunResult
from kron.core.dag.record import (
    DagAttempt,
    DagChange,
    DagClaim,
    DagRun,
    DagRunStatus,
    DagState,
    DagSummary,
    DagTask,
    LeasedTask,
)
from kron.core.workflow import RecordedStart, StartRequest, WorkflowRecord, WorkflowVersion

# The user of DAGs that name none: a tenant of its own.
DEFAULT_USER = "kron"


class DagClaimRequest(NamedTuple):
    """A worker's request for tasks: how many at most, and until when it leases them.

    `executing` counts the tasks that it executes for each user. One with `most_of_user` of them gets no more;
    those of the default user have no limit, and with `is_full` get none. Without `takes_over` tasks of dead
    workers are left: the clock was set, and the living have not renewed their leases yet. `latest_lease` is
    the latest instant of a right lease: later ones, and retries that wait longer than their
    delay, were written while the clock was ahead. None leaves them, because the clock may be wrong now.
    """

    worker: str
    now: int
    lease_until: int
    limit: int
    executing: Mapping[str, int] = MappingProxyType({})
    most_of_user: int | None = None
    is_full: bool = False
    takes_over: bool = True
    latest_lease: int | None = None

    def users_without_room(self, claimed: Sequence[LeasedTask]) -> frozenset[str]:
        """Return the users that get no further task, after some were claimed."""
        counts = Counter(self.executing)
        counts.update(claim.run.user_id for claim in claimed)
        limit = self.most_of_user
        users = {user for user, count in counts.items() if limit is not None and count >= limit}
        return frozenset(users | {DEFAULT_USER} if self.is_full else users - {DEFAULT_USER})


class DagLease(NamedTuple):
    """An attempt of a task that a worker executes."""

    run_id: str
    task_id: str
    attempt: int

    def __str__(self) -> str:
        """Return the attempt as the log names it."""
        return f'task "{self.task_id}" of run {self.run_id}, attempt {self.attempt}'


class DagRuns(Protocol):
    """The runtime of DAGs as a launcher sees it: starts runs, and knows how they end."""

    async def start_run(
        self,
        *,
        dag_id: str,
        version: int | None,
        trigger: str,
        logical_date: str,
        input: Mapping[str, object],  # noqa: A002 (the name of the field)
        rerun_key: str | None,
    ) -> StartRunResult:
        """Start the run of a logical date, or return the one that has its key."""

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, DagRunStatus]:
        """Return the states of runs; those that do not exist are left out."""

    async def error_of(self, run_id: str) -> str | None:
        """Return why a run failed: its first failed task and its error."""

    async def cancel(self, run_id: str) -> DagRun:
        """Cancel a run."""

    async def retry(self, run_id: str) -> DagRun:
        """Run the failed and cancelled tasks of a run again."""


class DagStore(Protocol):
    """Stores runs of DAGs, queues their tasks and leases them to workers; each call is one transaction."""

    async def start(self, run: DagRun, tasks: Sequence[DagTask]) -> tuple[DagRun, bool]:
        """Insert a run and its tasks unless its key exists; return the stored run, and whether it is new."""

    async def run(self, run_id: str) -> DagRun | None:
        """Return a run without its definition, or None."""

    async def results(self, run_id: str, names: Sequence[str], *, most: int | None = None) -> dict[str, str]:
        """Return the results of tasks as JSON texts; with `most`, none after that many characters."""

    async def statuses(self, run_ids: Sequence[str]) -> dict[str, DagRunStatus]:
        """Return the states of runs; those that do not exist are left out."""

    async def failed_task(self, run_id: str) -> tuple[str, str | None] | None:
        """Return the name and the error of the first failed task of a run, or None."""

    async def state(self, run_id: str) -> DagState | None:
        """Return a run with its tasks, or None; of their results those of branches."""

    async def commit(self, change: DagChange) -> bool:
        """Write a change; return False where the run has another revision by now."""

    async def claim(self, request: DagClaimRequest) -> list[DagClaim]:
        """Lease due tasks to a worker within every limit: first those of dead workers, then queued ones."""

    async def renew(self, worker: str, leases: Sequence[DagLease], until: int) -> dict[DagLease, bool]:
        """Extend leases; return those the worker still has, and whether their runs are being cancelled."""

    async def next_due(self, now: int) -> int | None:
        """Return when a task is due next or a lease expires; None without either."""

    async def runs(
        self,
        *,
        dag_id: str | None = None,
        status: str | None = None,
        before: DagRun | None = None,
        limit: int = 100,
    ) -> list[DagRun]:
        """Return runs without their definitions, latest first."""

    async def attempts(self, run_id: str, task_id: str | None = None) -> list[DagAttempt]:
        """Return the attempts of a run, or of one of its tasks, by task and number.

        At most the latest thousand, with the ends of their outputs: a longer one of a single task.
        """

    async def open_runs(self, user_id: str) -> int:
        """Return how many runs of a user have not ended."""

    async def summaries(self, *, limit: int = 1_000) -> list[DagSummary]:
        """Return the DAGs that have runs or are paused, by name."""

    async def summary(self, dag_id: str) -> DagSummary:
        """Return the number of runs of a DAG in each state."""

    async def set_paused(self, dag_id: str, *, paused: bool) -> None:
        """Pause a DAG or resume it: no task of a paused one is claimed."""

    async def paused(self) -> frozenset[str]:
        """Return the DAGs that are paused."""

    async def set_pool(self, name: str, slots: int) -> None:
        """Set how many tasks of a pool execute at once."""

    async def pools(self) -> dict[str, int]:
        """Return the slots of each pool."""

    async def close(self) -> None:
        """Close files and connections."""


class WorkflowStore(Protocol):
    """Stores DAG JSON by workflow and version; a published version never changes (SPEC 3: 2)."""

    async def put(self, record: WorkflowRecord) -> WorkflowRecord:
        """Store a version unless a published one exists; return the stored one. A draft is replaced."""

    async def get(self, workflow_id: str, version: int) -> WorkflowRecord | None:
        """Return a version, or None."""

    async def versions(self, workflow_id: str, *, limit: int = 100) -> list[WorkflowVersion]:
        """Return the versions of a workflow, newest first."""

    async def names(
        self, *, users: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[str]:
        """Return the workflows by name, from a name on; with `users`, those of these owners only."""

    async def count_versions(self, prefix: str, *, most: int) -> int:
        """Count the versions of the workflows whose names start with a prefix, up to `most`."""

    async def close(self) -> None:
        """Close files and connections."""


class IdempotencyLog(Protocol):
    """Remembers the starts of workflows, so that none is made twice."""

    async def begin(self, start: StartRequest, *, old: int) -> RecordedStart | None:
        """Record a start before it is made, or return the earlier record; those older than `old` expire."""

    async def end(self, start: StartRequest, *, accepted: bool) -> None:
        """Mark a start as accepted, or remove its record so that it can be retried."""
