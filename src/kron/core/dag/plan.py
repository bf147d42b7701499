"""Every decision about a run of a DAG, as pure functions of its records and the present instant."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from kron.core.dag.contract import DagError
from kron.core.dag.definition import MAX_RESULT, DagDefinition, TaskSpec, TriggerRule
from kron.core.dag.record import (
    RUN_ENDS,
    TASK_ENDS,
    AttemptOutcome,
    DagAttempt,
    DagChange,
    DagRun,
    DagRunStatus,
    DagState,
    DagTask,
    DagTaskStatus,
    LeasedTask,
)
from kron.core.plan.compiled import cached_by_text
from kron.core.time.instant import instant_text

WAITING, QUEUED, RUNNING = DagTaskStatus.WAITING, DagTaskStatus.QUEUED, DagTaskStatus.RUNNING
FAILURES = frozenset({DagTaskStatus.FAILED, DagTaskStatus.UPSTREAM_FAILED})
# What a retry of a run opens again.
UNFINISHED = FAILURES | {DagTaskStatus.CANCELLED}
# How many choices of branches are kept read.
MAX_BRANCHES = 1_024
Tasks = dict[str, DagTask]


class TaskEnd(NamedTuple):
    """How an attempt ended: its result is JSON text, its output the last part of what it wrote."""

    outcome: AttemptOutcome
    error: str | None = None
    result: str | None = None
    output: str | None = None


# --- starting ------------------------------------------------------------------------------------------


def run_key_of(dag_id: str, logical_date: int, rerun_key: str | None) -> str:
    """Return the key of a run: one logical date of a DAG is one run, whatever its trigger or version."""
    key = f"{dag_id}:{instant_text(logical_date)}"
    return key if rerun_key is None else f"{key}:{rerun_key}"


def run_id_of(run_key: str) -> str:
    """Return the id of a run, which is a valid file name and part of a URL."""
    return sha256(run_key.encode()).hexdigest()[:32]


def execution_key(run: DagRun, task: DagTask) -> str:
    """Return the idempotency key of an attempt; its executor may get it twice, after a take-over.

    A run in another store may have the same key; its results must not be taken for those of this one.
    """
    return sha256(f"{run.run_key}:{run.created_at}:{task.task_id}:{task.attempt}".encode()).hexdigest()


def new_tasks(run: DagRun, now: int) -> tuple[DagTask, ...]:
    """Return the tasks of a new run; those that depend on none are queued."""
    tasks = {
        spec.task_id: DagTask(run.run_id, spec.task_id, number, run.dag_id, spec.policy.pool, WAITING)
        for number, spec in enumerate(run.tasks.tasks.values())
    }
    _advance(run.tasks, tasks, [name for name, spec in run.tasks.tasks.items() if not spec.depends_on], now)
    return tuple(tasks.values())


# --- dependencies --------------------------------------------------------------------------------------


def decided(definition: DagDefinition, tasks: Mapping[str, DagTask], spec: TaskSpec) -> DagTaskStatus | None:
    """Return what becomes of a waiting task, or None while that depends on tasks that have not ended."""
    needed = [tasks[name] for name in spec.depends_on]
    if any(_excludes(definition, each, spec.task_id) for each in needed):
        return DagTaskStatus.SKIPPED
    statuses = {each.status for each in needed}
    rule = spec.policy.trigger_rule
    if rule is TriggerRule.ONE_FAILED and statuses & FAILURES:
        return QUEUED
    if not statuses <= TASK_ENDS:
        return None
    if rule is TriggerRule.ALL_DONE:
        return QUEUED
    if rule is TriggerRule.ONE_FAILED:
        return DagTaskStatus.SKIPPED
    if statuses & FAILURES:
        return DagTaskStatus.UPSTREAM_FAILED
    if DagTaskStatus.CANCELLED in statuses:
        return DagTaskStatus.CANCELLED
    some, every = DagTaskStatus.SUCCESS in statuses, DagTaskStatus.SKIPPED not in statuses
    return QUEUED if every or (some and rule is TriggerRule.NONE_FAILED) else DagTaskStatus.SKIPPED


def _excludes(definition: DagDefinition, task: DagTask, dependant: str) -> bool:
    """Return whether a task is a branch that ended and did not choose a dependant."""
    if task.status is not DagTaskStatus.SUCCESS or not definition.tasks[task.task_id].policy.branch:
        return False
    return dependant not in _chosen_in(task.result)


@cached_by_text(MAX_BRANCHES)
def _chosen_in(result: str | None) -> frozenset[object]:
    """Return which tasks a branch chose; each of those after it asks."""
    return frozenset(_branches_in(result))


def _branches_in(result: str | None) -> list[object]:
    value = None if result is None else json.loads(result)
    return [] if value is None else value if isinstance(value, list) else [value]


def _advance(definition: DagDefinition, tasks: Tasks, names: Iterable[str], now: int) -> None:
    """Decide about waiting tasks, and about those that depend on the ones that end by it."""
    left = list(names)
    while left:
        name = left.pop()
        task = tasks[name]
        status = decided(definition, tasks, definition.tasks[name]) if task.status is WAITING else None
        if status is QUEUED:
            tasks[name] = task.moved(QUEUED)._replace(due_at=now)
        elif status is not None:
            tasks[name] = task.moved(status)._replace(ended_at=now)
            left += definition.dependants[name]


def _change(state: DagState, tasks: Tasks, now: int, attempts: tuple[DagAttempt, ...] = ()) -> DagChange:
    """Return the write of some changed tasks; the run ends with its last task."""
    run = state.run
    if all(task.status in TASK_ENDS for task in tasks.values()):
        run = run.moved(_end_of(run, tasks.values()))._replace(ended_at=now)
    changed = tuple(task for name, task in tasks.items() if task != state.tasks[name])
    return DagChange(state.run.revision, run, changed, attempts)


def _end_of(run: DagRun, tasks: Iterable[DagTask]) -> DagRunStatus:
    if run.cancel:
        return DagRunStatus.CANCELLED
    failed = any(task.status in FAILURES for task in tasks)
    return DagRunStatus.FAILED if failed else DagRunStatus.SUCCESS


# --- executing -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Busy:
    """How many tasks execute: of each run, of each DAG, and in each pool with its number of slots."""

    pools: Mapping[str, int]
    of_run: Counter[str] = field(default_factory=Counter)
    of_dag: Counter[str] = field(default_factory=Counter)
    of_pool: Counter[str] = field(default_factory=Counter)

    def add(self, task: DagTask, number: int = 1) -> None:
        """Count tasks of the same run and pool."""
        self.of_run[task.run_id] += number
        self.of_dag[task.dag_id] += number
        if task.pool is not None:
            self.of_pool[task.pool] += number

    def has_room(self, run: DagRun, task: DagTask) -> bool:
        """Return whether one more task may execute within every limit."""
        pool = task.pool
        return (
            self.of_run[run.run_id] < run.parallelism
            and self.of_dag[run.dag_id] < run.max_active_tasks
            and (pool is None or self.of_pool[pool] < self.pools.get(pool, 0))
        )


def leased_to(
    worker: str, free: LeasedTask, now: int, lease_until: int
) -> tuple[LeasedTask, DagAttempt | None]:
    """Return a task with the worker's lease; one that is not taken over starts its next attempt."""
    leased = free.task._replace(worker=worker, lease_until=lease_until)
    if free.taken_over:
        return free._replace(task=leased), None
    task = leased.moved(RUNNING)._replace(
        attempt=leased.attempt + 1, started_at=now, ended_at=None, error=None, accepted=0
    )
    run = free.run.moved(DagRunStatus.RUNNING)
    run = run._replace(started_at=run.started_at or now)
    attempt = DagAttempt(task.run_id, task.task_id, task.attempt, worker, now)
    return LeasedTask(run, task), attempt


def holds(task: DagTask, worker: str, attempt: int) -> bool:
    """Return whether a worker executes this attempt of a task; the report of any other one is stale."""
    return task.status is RUNNING and task.worker == worker and task.attempt == attempt


def accepted(state: DagState, claim: DagTask) -> DagChange | None:
    """Return the write that another system has taken over an attempt, or None if the claim is stale."""
    task = state.tasks[claim.task_id]
    assert claim.worker is not None, "a claimed task has a worker"
    if not holds(task, claim.worker, claim.attempt):
        return None
    return DagChange(state.run.revision, state.run, (task._replace(accepted=1),))


def ended(state: DagState, claim: DagTask, end: TaskEnd, now: int) -> DagChange | None:
    """Return the write of the end of an attempt, or None where another worker has taken the task over."""
    return ended_together(state, [(claim, end)], now)


def ended_together(state: DagState, ends: Sequence[tuple[DagTask, TaskEnd]], now: int) -> DagChange | None:
    """Return one write of the ends of several attempts of a run, without the stale ones; None if all are."""
    definition, tasks = state.run.tasks, dict(state.tasks)
    attempts: list[DagAttempt] = []
    # The tasks after those that ended, each decided once.
    after: dict[str, None] = {}
    for claim, given in ends:
        task = tasks[claim.task_id]
        assert claim.worker is not None, "a claimed task has a worker"
        if not holds(task, claim.worker, claim.attempt):
            continue
        spec = definition.tasks[task.task_id]
        end = _checked(definition, spec, given)
        assert task.started_at is not None, "a running task has started"
        attempts.append(
            DagAttempt(
                task.run_id, task.task_id, task.attempt, claim.worker, task.started_at, now,
                end.outcome, end.error, end.output,
            )
        )  # fmt: skip
        tasks[task.task_id] = _after(state.run, task, spec, end, now)
        if tasks[task.task_id].status in TASK_ENDS:
            after.update(dict.fromkeys(definition.dependants[task.task_id]))
    _advance(definition, tasks, after, now)
    return _change(state, tasks, now, tuple(attempts)) if attempts else None


def _checked(definition: DagDefinition, spec: TaskSpec, end: TaskEnd) -> TaskEnd:
    """Return an end, or a failure where the result is too large or names no task after a branch."""
    if end.outcome is not AttemptOutcome.SUCCESS:
        return end
    if len(end.result or "") > MAX_RESULT:
        error = f"its result has {len(end.result or '')} characters as JSON; at most {MAX_RESULT} are allowed"
        return end._replace(outcome=AttemptOutcome.FAILED, error=error, result=None)
    return _checked_branch(definition, spec, end) if spec.policy.branch else end


def _checked_branch(definition: DagDefinition, spec: TaskSpec, end: TaskEnd) -> TaskEnd:
    """Return the end of a branch, or a failure where it names no task after it, or one twice."""
    names, known = _branches_in(end.result), frozenset(definition.dependants[spec.task_id])
    wrong = [name for name in names if not isinstance(name, str) or name not in known]
    if wrong:
        error = f"its result names {json.dumps(wrong[0])[:100]}, which is not a downstream task"
    elif len(set(map(str, names))) < len(names):
        error = "its result names a task twice; name each once"
    else:
        return end
    return end._replace(outcome=AttemptOutcome.FAILED, error=error, result=None)


def _after(run: DagRun, task: DagTask, spec: TaskSpec, end: TaskEnd, now: int) -> DagTask:
    """Return a task after the end of an attempt: ended, or queued for a retry."""
    free = task._replace(worker=None, lease_until=None, due_at=None, error=end.error)
    if end.outcome is AttemptOutcome.SUCCESS:
        return free.moved(DagTaskStatus.SUCCESS)._replace(ended_at=now, result=end.result)
    if run.cancel:
        return free.moved(DagTaskStatus.CANCELLED)._replace(ended_at=now)
    failures = task.attempt - task.base
    if failures <= spec.policy.retries:
        return free.moved(QUEUED)._replace(due_at=now + spec.policy.delay_ms(failures))
    return free.moved(DagTaskStatus.FAILED)._replace(ended_at=now)


def shortened(spec: TaskSpec, task: DagTask, now: int) -> DagTask | None:
    """Return a task whose retry waits longer than its delay, with the whole delay from now on, or None."""
    delay_ms = spec.policy.delay_ms(task.attempt - task.base)
    if task.due_at is None or task.due_at <= now + delay_ms:
        return None
    return task._replace(due_at=now + delay_ms)


# --- by hand -------------------------------------------------------------------------------------------


def cancelled(state: DagState, now: int) -> DagChange | None:
    """Return the write of a cancellation, or None if the run has ended; executing tasks end later."""
    if state.run.status in RUN_ENDS:
        return None
    tasks = {
        name: task.moved(DagTaskStatus.CANCELLED)._replace(ended_at=now, due_at=None)
        if task.status in (WAITING, QUEUED)
        else task
        for name, task in state.tasks.items()
    }
    return _change(state._replace(run=state.run._replace(cancel=1)), tasks, now)


def cleared(state: DagState, names: Collection[str], now: int) -> DagChange:
    """Return the write that runs some tasks and all after them again, or raise DagError."""
    definition = state.run.tasks
    unknown = [name for name in names if name not in definition.tasks]
    if unknown:
        raise DagError(
            "DAG_VALIDATION_UNKNOWN_TASK",
            f'The run {state.run.run_id} has no task "{unknown[0]}"',
            context={"run_id": state.run.run_id, "task_id": unknown[0]},
        )
    chosen = _with_dependants(definition, names)
    running = [name for name in chosen if state.tasks[name].status is RUNNING]
    if running:
        raise DagError(
            "DAG_STATE_TASK_RUNNING",
            f'The task "{running[0]}" is executing; cancel the run or wait for its end',
            category="state",
            context={"run_id": state.run.run_id, "task_id": running[0]},
        )
    tasks = dict(state.tasks)
    for name in chosen:
        task = tasks[name]
        tasks[name] = task._replace(
            status=WAITING, base=task.attempt, due_at=None, started_at=None, ended_at=None, result=None,
            error=None,
        )  # fmt: skip
    run = state.run._replace(cancel=0)
    if run.status in RUN_ENDS:
        run = run.moved(DagRunStatus.RUNNING)._replace(ended_at=None)
    _advance(definition, tasks, chosen, now)
    return _change(state._replace(run=run), tasks, now)


def retried(state: DagState, now: int) -> DagChange | None:
    """Return the write that runs all failed and cancelled tasks again, or None if there are none."""
    names = [name for name, task in state.tasks.items() if task.status in UNFINISHED]
    return cleared(state, names, now) if names else None


def _with_dependants(definition: DagDefinition, names: Collection[str]) -> list[str]:
    """Return tasks and all that depend on them, in the order of the definition."""
    reached, left = set(names), list(names)
    while left:
        for name in definition.dependants[left.pop()]:
            if name not in reached:
                reached.add(name)
                left.append(name)
    return [name for name in definition.tasks if name in reached]
