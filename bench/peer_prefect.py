"""Prefect, measured like Kron's DAG runtime, in new processes: `python -m bench.peer_prefect`.

Flows run in the process, with Prefect's own temporary API server on SQLite beside it.
"""

import asyncio
import os
import sys
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.child import PROJECT, answer

FOLDER = PROJECT / ".cache" / "dag_peers"
if not (FOLDER / "prefect").is_dir():
    raise ModuleNotFoundError("No module named 'prefect'; make bench installs it")
sys.path.insert(0, str(FOLDER))
HOME = TemporaryDirectory(prefix="kron-bench-")
os.environ |= {
    "PREFECT_HOME": HOME.name,
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # The server is a child of this process, which finds its modules on the path too.
    "PYTHONPATH": str(FOLDER),
}

from prefect import flow, get_client, task  # noqa: E402 (the folder has to come first)


@task  # type: ignore[untyped-decorator]
def nothing(_: object = None) -> None:
    """Do nothing, as the task of a benchmark."""


@flow  # type: ignore[untyped-decorator]
def only() -> None:
    """Run one task."""
    nothing()


def _measured(seconds: float) -> dict[str, float]:
    # Without the API server, which is a process of its own.
    return {"seconds": seconds, "memory": 1024.0 * getrusage(RUSAGE_SELF).ru_maxrss}


def runs(count: str) -> dict[str, float]:
    """Measure how long it takes to record runs, as the API does."""

    async def start() -> float:
        async with get_client() as client:
            await client.create_flow_run(only)
            begin = perf_counter()
            for _ in range(int(count)):
                await client.create_flow_run(only)
            return perf_counter() - begin

    return _measured(asyncio.run(start()))


def wide(count: str) -> dict[str, float]:
    """Measure tasks that depend on nothing."""

    @flow  # type: ignore[untyped-decorator]
    def independent() -> None:
        for each in [nothing.submit() for _ in range(int(count))]:
            each.result()

    only()
    begin = perf_counter()
    independent()
    return _measured(perf_counter() - begin)


def chain(count: str) -> dict[str, float]:
    """Measure tasks that depend on the one before."""

    @flow  # type: ignore[untyped-decorator]
    def dependent() -> None:
        before = None
        for _ in range(int(count)):
            before = nothing.submit(before)
        if before is not None:
            before.result()

    only()
    begin = perf_counter()
    dependent()
    return _measured(perf_counter() - begin)


if __name__ == "__main__":
    answer({"runs": runs, "wide": wide, "chain": chain})
    HOME.cleanup()
