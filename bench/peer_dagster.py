"""Dagster, measured like Kron's DAG runtime, in new processes: `python -m bench.peer_dagster`.

Jobs run with `execute_in_process`; runs and events are kept in SQLite, in a temporary folder.
"""

import logging
import os
import sys
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from bench.child import PROJECT, answer

FOLDER = PROJECT / ".cache" / "dag_peers"
if not (FOLDER / "dagster").is_dir():
    raise ModuleNotFoundError("No module named 'dagster'; make bench installs it")
sys.path.insert(0, str(FOLDER))
os.environ |= {"DAGSTER_DISABLE_TELEMETRY": "yes"}

from dagster import DagsterInstance, In, Nothing, job, op  # noqa: E402 (the folder has to come first)

logging.disable(logging.CRITICAL)


@op  # type: ignore[untyped-decorator]
def first() -> None:
    """Do nothing, as the task of a benchmark."""


@op(ins={"before": In(Nothing)})  # type: ignore[untyped-decorator]
def following() -> None:
    """Do nothing after another task."""


@job  # type: ignore[untyped-decorator]
def only() -> None:
    """Run one task."""
    first()


def _job_of(build: Callable[[], None]) -> Any:
    return job(name="measured")(build)


def _executed(measured: Any) -> dict[str, float]:
    with TemporaryDirectory(prefix="kron-bench-") as folder, DagsterInstance.local_temp(folder) as instance:
        only.execute_in_process(instance=instance)
        begin = perf_counter()
        result = measured.execute_in_process(instance=instance)
        seconds = perf_counter() - begin
        assert result.success, "every task has run"
    return _measured(seconds)


def _measured(seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "memory": 1024.0 * getrusage(RUSAGE_SELF).ru_maxrss}


def runs(count: str) -> dict[str, float]:
    """Measure how long it takes to record runs."""
    with TemporaryDirectory(prefix="kron-bench-") as folder, DagsterInstance.local_temp(folder) as instance:
        instance.create_run_for_job(only)
        begin = perf_counter()
        for _ in range(int(count)):
            instance.create_run_for_job(only)
        return _measured(perf_counter() - begin)


def wide(count: str) -> dict[str, float]:
    """Measure tasks that depend on nothing."""

    def independent() -> None:
        for number in range(int(count)):
            first.alias(f"t{number}")()

    return _executed(_job_of(independent))


def chain(count: str) -> dict[str, float]:
    """Measure tasks that depend on the one before."""

    def dependent() -> None:
        before = first()
        for number in range(1, int(count)):
            before = following.alias(f"t{number}")(before)

    return _executed(_job_of(dependent))


if __name__ == "__main__":
    answer({"runs": runs, "wide": wide, "chain": chain})
