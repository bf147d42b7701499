"""The DAG part: runs started, a catch-up, tasks executed, and the latency from task to task, beside peers.

Every figure is from a new process: `python -m bench.dag wide memory 1000` prints one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from resource import RUSAGE_SELF, getrusage
from time import perf_counter
from typing import NamedTuple

from bench.child import ChildError, answer, ask
from bench.place import MEMORY, SQLITE, url_of
from bench.row import Findings, Goal, Kind, Row, Say
from kron.dag import CatchupTriggerRequest, DagRuntime, DagWorkerOptions, TaskContext

RUNS, WIDE, CHAIN, RSS = (
    "DAG runs started",
    "DAG tasks executed that depend on nothing",
    "from one DAG task to the next",
    "memory of a process that executes DAG tasks",
)
KRON = {"kron, memory": MEMORY, "kron, SQLite": SQLITE}
PEERS = {"Prefect": "peer_prefect", "Dagster": "peer_dagster"}
NOTES = {
    "Prefect": "flows in the process, its own API server on SQLite beside it",
    "Dagster": "`execute_in_process`, one task after the other, events in SQLite",
}
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE_MS = 60_000
# Peers take minutes for the sizes of Kron: they get a part, at most so many.
PEER_PART, PEER_MOST = 10, 100
QUICK = 20


class Measure(NamedTuple):
    """One measurement: what it is called, how many runs or tasks it has, and its unit."""

    name: str
    title: str
    size: int
    kind: Kind


MEASURES = (
    Measure("runs", RUNS, 10_000, Kind.RATE),
    Measure("wide", WIDE, 1_000, Kind.RATE),
    Measure("chain", CHAIN, 200, Kind.TIME),
)


def run(say: Say, *, quick: bool) -> Findings:
    """Measure the runtime in memory and in a file, and its peers, with tasks that do nothing."""
    return measure_all(say, QUICK if quick else 1, PEERS)


def measure_all(say: Say, divisor: int, peers: Mapping[str, str]) -> Findings:
    """Measure in a part of the full size; `peers` are their modules."""
    rows: list[Row] = []
    memory: dict[str, float] = {}
    for measure in MEASURES:
        count = measure.size // divisor
        reference: float | None = None
        for contender, place in KRON.items():
            say(f"{measure.title}: {contender}")
            figures = ask("dag", measure.name, place, count)
            cost = figures["seconds"] / count
            note = (
                f"a catch-up of {count:,} slots in {figures['seconds']:.2f} s"
                if measure.name == "runs"
                else ""
            )
            rows.append(_row(measure, contender, cost, reference, note or f"{count:,} tasks"))
            reference = cost
            memory[contender] = max(memory.get(contender, 0), figures["memory"])
        rows += _peers(peers, measure, min(PEER_MOST, max(2, count // PEER_PART)), reference, memory, say)
    rows += [
        Row(title=RSS, contender=each, kind=Kind.SIZE, cost=size, ratio=size / memory["kron, SQLite"])
        for each, size in memory.items()
    ]
    return Findings(rows=tuple(rows), goals=tuple(goals(rows)))


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Return for each comparison whether Kron on SQLite costs no more than any peer."""
    found = []
    for title in (RUNS, WIDE, CHAIN, RSS):
        ratios = [row.ratio for row in rows if row.title == title and row.contender in PEERS and row.ratio]
        measured = f"{min(ratios):.3g} x" if ratios else "-"
        met = min(ratios) >= 1 if ratios else None
        found.append(Goal(what=f"{title}, SQLite", wanted=">= 1 x every peer", measured=measured, met=met))
    return found


def _row(measure: Measure, contender: str, cost: float, reference: float | None, note: str) -> Row:
    ratio = None if reference is None or contender in KRON else cost / reference
    return Row(title=measure.title, contender=contender, kind=measure.kind, cost=cost, ratio=ratio, note=note)


def _peers(
    peers: Mapping[str, str],
    measure: Measure,
    count: int,
    reference: float | None,
    memory: dict[str, float],
    say: Say,
) -> list[Row]:
    rows = []
    for peer, module in peers.items():
        say(f"{measure.title}: {peer}")
        try:
            figures: Mapping[str, float] = ask(module, measure.name, count)
        except ChildError as error:
            rows.append(Row(title=measure.title, contender=peer, kind=measure.kind, note=str(error)))
            continue
        memory[peer] = max(memory.get(peer, 0), figures["memory"])
        note = f"{count:,}; {NOTES[peer]}"
        rows.append(_row(measure, peer, figures["seconds"] / count, reference, note))
    return rows


# --- Kron, in a new process ------------------------------------------------------------------------


async def nothing(_: TaskContext) -> None:
    """Do nothing, as the task of a benchmark."""


def _node(number: int, *needs: str) -> dict[str, object]:
    return {"id": f"t{number}", "type": "python", "function": "nothing", "dependsOn": list(needs)}


def _figures(seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "memory": 1024.0 * getrusage(RUSAGE_SELF).ru_maxrss}


def runs(place: str, count: str) -> dict[str, float]:
    """Measure a catch-up."""
    with url_of(place) as url:
        return _figures(asyncio.run(_catch_up(url, int(count))))


def wide(place: str, count: str) -> dict[str, float]:
    """Measure tasks that depend on nothing."""
    with url_of(place) as url:
        return _figures(asyncio.run(_execute(url, [_node(number) for number in range(int(count))])))


def chain(place: str, count: str) -> dict[str, float]:
    """Measure tasks that depend on the one before."""
    nodes = [_node(number, *([f"t{number - 1}"] if number else [])) for number in range(int(count))]
    with url_of(place) as url:
        return _figures(asyncio.run(_execute(url, nodes)))


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
    assert result.requested_slot_count == slots, "every slot was started"
    return seconds


async def _execute(url: str, nodes: list[dict[str, object]]) -> float:
    options = DagWorkerOptions(name="bench", slots=64)
    async with DagRuntime(url, {"nothing": nothing}, options=options) as runtime:
        document = {"nodes": nodes, "parallelism": len(nodes), "max_active_tasks": len(nodes)}
        await runtime.orchestrator.put_version("measured", 1, document)
        run = await runtime.orchestrator.start_run(dag_id="measured", logical_date=FIRST.isoformat())
        begin = perf_counter()
        status = await runtime.run_to_end(run.run_id)
        seconds = perf_counter() - begin
    assert status == "success", "every task has run"
    return seconds


if __name__ == "__main__":
    answer({"runs": runs, "wide": wide, "chain": chain})
