"""Records of DAG runs, of their tasks and attempts, and the tables of their allowed changes of state.

Times are milliseconds since 1970. Stores derive their statements from the names of the fields.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kron.core.choice import Choice
from kron.core.dag.contract import DagError
from kron.core.dag.definition import DagDefinition, TaskSpec, definition_of


class DagRunStatus(Choice):
    """The state of a run of a DAG."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DagTaskStatus(Choice):
    """The state of a task of a run."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    UPSTREAM_FAILED = "upstream_failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class AttemptOutcome(Choice):
    """How one attempt of a task ended."""

    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"


_R, _T = DagRunStatus, DagTaskStatus
RUN_ENDS = frozenset({_R.SUCCESS, _R.FAILED, _R.CANCELLED})
TASK_ENDS = frozenset({_T.SUCCESS, _T.FAILED, _T.UPSTREAM_FAILED, _T.SKIPPED, _T.CANCELLED})
# The allowed changes of state; an ended run or task is opened again by a clear only.
RUN_MOVES: Mapping[DagRunStatus, frozenset[DagRunStatus]] = {
    _R.QUEUED: frozenset({_R.RUNNING, _R.FAILED, _R.CANCELLED}),
    _R.RUNNING: RUN_ENDS,
    **dict.fromkeys(RUN_ENDS, frozenset({_R.QUEUED, _R.RUNNING})),
}
TASK_MOVES: Mapping[DagTaskStatus, frozenset[DagTaskStatus]] = {
    _T.WAITING: frozenset({_T.QUEUED, _T.UPSTREAM_FAILED, _T.SKIPPED, _T.CANCELLED}),
    _T.QUEUED: frozenset({_T.RUNNING, _T.CANCELLED}),
    _T.RUNNING: frozenset({_T.QUEUED, _T.SUCCESS, _T.FAILED, _T.CANCELLED}),
    **dict.fromkeys(TASK_ENDS, frozenset({_T.WAITING, _T.QUEUED})),
}


class DagRun(NamedTuple):
    """One run: its key, its snapshots, and its state; `revision` grows with every write to it.

    The definition is empty where a store returns a run alone.
    """

    run_id: str
    run_key: str
    dag_id: str
    version: int
    trigger: str
    logical_date: int
    rerun_key: str | None
    user_id: str
    digest: str
    definition: str
    input: str
    status: DagRunStatus
    created_at: int
    parallelism: int
    max_active_tasks: int
    cancel: int = 0
    revision: int = 1
    started_at: int | None = None
    ended_at: int | None = None

    def moved(self, status: DagRunStatus) -> "DagRun":
        """Return the run in another state, or raise DagError if the table does not allow the change."""
        if status is not self.status and status not in RUN_MOVES[self.status]:
            raise wrong_move("run", self.run_id, self.status, status)
        return self._replace(status=status)

    @property
    def tasks(self) -> DagDefinition:
        """Return the definition that the run was started with."""
        return definition_of(self.definition, self.dag_id)


class DagTask(NamedTuple):
    """One task of a run: its state, its latest attempt, and the lease of the worker that executes it.

    `base` is the number of the last attempt before the latest clear: retries are counted from it.
    `accepted` is 1 once a system outside the worker has taken over the latest attempt.
    """

    run_id: str
    task_id: str
    position: int
    dag_id: str
    pool: str | None
    status: DagTaskStatus
    attempt: int = 0
    base: int = 0
    due_at: int | None = None
    worker: str | None = None
    lease_until: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    result: str | None = None
    error: str | None = None
    accepted: int = 0

    def moved(self, status: DagTaskStatus) -> "DagTask":
        """Return the task in another state, or raise DagError if the table does not allow the change."""
        if status not in TASK_MOVES[self.status]:
            raise wrong_move("task", f"{self.run_id}/{self.task_id}", self.status, status)
        return self._replace(status=status)


class DagAttempt(NamedTuple):
    """One attempt of a task: recorded before it starts, completed when it ends."""

    run_id: str
    task_id: str
    attempt: int
    worker: str
    started_at: int
    ended_at: int | None = None
    outcome: AttemptOutcome | None = None
    error: str | None = None
    output: str | None = None


class DagState(NamedTuple):
    """A run with all its tasks, by id, in the order of the definition."""

    run: DagRun
    tasks: Mapping[str, DagTask]


class DagChange(NamedTuple):
    """A write to one run: valid only while the run has the revision it was decided on."""

    revision: int
    run: DagRun
    tasks: tuple[DagTask, ...] = ()
    attempts: tuple[DagAttempt, ...] = ()


class LeasedTask(NamedTuple):
    """A task and its run; one taken over was executed by a worker whose lease expired."""

    run: DagRun
    task: DagTask
    taken_over: bool = False


class DagClaim(NamedTuple):
    """A task that a worker may execute now, with its definition, and what it depends on as JSON texts.

    Of results longer than a document may be, `upstream` has a part that is too large by itself.
    """

    run: DagRun
    task: DagTask
    taken_over: bool
    spec: TaskSpec
    upstream: Mapping[str, str]


class DagSummary(NamedTuple):
    """One DAG that has runs, or is paused: the number of its runs in each state."""

    dag_id: str
    paused: int
    queued: int
    running: int
    success: int
    failed: int
    cancelled: int
    latest: int | None


def wrong_move(what: str, name: str, before: str, after: str) -> DagError:
    """Return the error of a change of state that the table does not have."""
    return DagError(
        "DAG_STATE_INVALID_TRANSITION",
        f"The {what} {name} is {before} and cannot become {after}",
        category="state",
        context={what: name, "from": str(before), "to": str(after)},
    )
