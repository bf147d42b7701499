"""The DAG part: runs started a second, a catch-up, tasks a second, and the latency from task to task."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.row import Findings, Kind, Row, Say
from kron.dag import CatchupTriggerRequest, DagRuntime, DagWorkerOptions, TaskContext

TITLE = "DAG runs"
SLOTS, WIDE, CHAIN = 10_000, 1_000, 200
QUICK = 20
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE_MS = 60_000


async def nothing(_: TaskContext) -> None:
    """Do nothing, as the task of a benchmark."""


def run(say: Say, *, quick: bool) -> Findings:
    """Measure the runtime in a file and in memory, with tasks that do nothing."""
    return Findings(rows=tuple(asyncio.run(_rows(say, QUICK if quick else 1))), goals=())


async def _rows(say: Say, divisor: int) -> list[Row]:
    rows: list[Row] = []
    with TemporaryDirectory(prefix="kron-bench-") as folder:
        for where, url in (("memory", "memory://"), ("SQLite", f"sqlite:///{Path(folder) / 'kron.db'}")):
            say(f"{TITLE}: {where}")
            rows += await _measure(where, url, divisor)
    memory = 1024.0 * getrusage(RUSAGE_SELF).ru_maxrss
    return [*rows, Row(title=TITLE, contender="memory of the process, at most", kind=Kind.SIZE, cost=memory)]


async def _measure(where: str, url: str, divisor: int) -> list[Row]:
    slots, wide, chain = SLOTS // divisor, WIDE // divisor, CHAIN // divisor
    caught = await _catch_up(url, slots)
    parallel = await _execute(url, "wide", [_node(number) for number in range(wide)])
    serial = await _execute(
        url, "chain", [_node(number, *([f"t{number - 1}"] if number else [])) for number in range(chain)]
    )
    return [
        Row(
            title=TITLE,
            contender=f"runs started, catch-up of {slots:,} slots, {where}",
            kind=Kind.RATE,
            cost=caught / slots,
            note=f"{caught:.2f} s in all",
        ),
        Row(
            title=TITLE,
            contender=f"tasks executed, {wide:,} at once, {where}",
            kind=Kind.RATE,
            cost=parallel / wide,
        ),
        Row(
            title=TITLE,
            contender=f"from task to task, chain of {chain}, {where}",
            kind=Kind.TIME,
            cost=serial / chain,
        ),
    ]


def _node(number: int, *needs: str) -> dict[str, object]:
    return {"id": f"t{number}", "type": "python", "function": "nothing", "dependsOn": list(needs)}


async def _catch_up(url: str, slots: int) -> float:
    async with DagRuntime(url) as runtime:
        await runtime.orchestrator.put_version("caught", 1, {"nodes": [_node(0), _node(1, "t0")]})
        request = CatchupTriggerRequest(
            dag_id="caught",
            range_start_logical_date=FIRST.isoformat(),
            range_end_logical_date=(FIRST + timedelta(minutes=slots - 1)).isoformat(),
            slot_interval_ms=MINUTE_MS,
            max_slots=slots,
        )
        begin = perf_counter()
        result = await runtime.triggers.trigger_catchup(request)
        seconds = perf_counter() - begin
        await runtime.store.set_paused("caught", paused=True)
    assert result.requested_slot_count == slots, "every slot was started"
    return seconds


async def _execute(url: str, name: str, nodes: list[dict[str, object]]) -> float:
    options = DagWorkerOptions(name="bench", slots=64)
    async with DagRuntime(url, {"nothing": nothing}, options=options) as runtime:
        document = {"nodes": nodes, "parallelism": len(nodes), "max_active_tasks": len(nodes)}
        await runtime.orchestrator.put_version(name, 1, document)
        run = await runtime.orchestrator.start_run(dag_id=name, logical_date=FIRST.isoformat())
        begin = perf_counter()
        status = await runtime.run_to_end(run.run_id)
        seconds = perf_counter() - begin
    assert status == "success", "every task has run"
    return seconds
