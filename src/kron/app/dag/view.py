"""Runs of DAGs as documents, for the command line and the API."""

from collections.abc import Sequence

from kron.core.dag.record import DagAttempt, DagRun, DagState, DagSummary, DagTask
from kron.core.time.instant import instant_text

View = dict[str, object]


def _time(value: int | None) -> str | None:
    return None if value is None else instant_text(value)


def run_view(run: DagRun) -> View:
    """Return a run without its snapshots."""
    return {
        "run_id": run.run_id,
        "run_key": run.run_key,
        "dag_id": run.dag_id,
        "version": run.version,
        "logical_date": instant_text(run.logical_date),
        "trigger": run.trigger,
        "rerun_key": run.rerun_key,
        "status": run.status.value,
        "created_at": instant_text(run.created_at),
        "started_at": _time(run.started_at),
        "ended_at": _time(run.ended_at),
    }


def task_view(task: DagTask, depends_on: Sequence[str]) -> View:
    """Return a task of a run."""
    return {
        "task_id": task.task_id,
        "depends_on": list(depends_on),
        "status": task.status.value,
        "attempt": task.attempt,
        "started_at": _time(task.started_at),
        "ended_at": _time(task.ended_at),
        "due_at": _time(task.due_at),
        "worker": task.worker,
        "error": task.error,
    }


def state_view(state: DagState) -> View:
    """Return a run with its tasks, in the order of its definition."""
    specs = state.run.tasks.tasks
    tasks = [task_view(task, specs[name].depends_on) for name, task in state.tasks.items()]
    return {**run_view(state.run), "tasks": tasks}


def attempt_view(attempt: DagAttempt) -> View:
    """Return an attempt with its output."""
    return {
        "task_id": attempt.task_id,
        "attempt": attempt.attempt,
        "worker": attempt.worker,
        "started_at": instant_text(attempt.started_at),
        "ended_at": _time(attempt.ended_at),
        "outcome": None if attempt.outcome is None else attempt.outcome.value,
        "error": attempt.error,
        "output": attempt.output,
    }


def summary_view(summary: DagSummary) -> View:
    """Return a DAG with the counts of its runs."""
    latest = None if summary.latest is None else instant_text(summary.latest)
    return {**summary._asdict(), "paused": bool(summary.paused), "latest": latest}
