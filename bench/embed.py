"""The embedded part: `kron.Scheduler` compared with APScheduler 3 and 4, each in a new process."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from bench.child import ask
from bench.embed_goal import (
    APSCHEDULER_3,
    APSCHEDULER_4,
    KRON,
    LATE,
    PLACES,
    SHARE,
    SIZE,
    STANDINGS,
    due,
    goals,
    on,
    recovered,
    registered,
)
from bench.engine import Measures, only, turns
from bench.place import MEMORY, SQLITE
from bench.row import Findings, Kind, Row, Say, shown
from bench.timing import ALL, Sample, rows_of

PEERS = {APSCHEDULER_3: "peer_apscheduler", APSCHEDULER_4: "peer_apscheduler4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The workload. Slow peers get fewer tasks: `memory` and `durable`, by peer."""

    rounds: int
    few: int
    many: int
    memory: Mapping[str, int]
    durable: Mapping[str, int]
    idle: int
    idle_s: float
    late_s: float

    def of_peer(self, peer: str, place: str) -> int:
        """Return the number of tasks for a peer."""
        return (self.memory if place == MEMORY else self.durable)[peer]


FULL = Size(
    rounds=3, few=10_000, many=100_000, idle=100_000, idle_s=5.0, late_s=20.0,
    memory={APSCHEDULER_3: 10_000, APSCHEDULER_4: 3_000}, durable={APSCHEDULER_3: 1_000, APSCHEDULER_4: 300},
)  # fmt: skip
QUICK = Size(
    rounds=1, few=2_000, many=10_000, idle=20_000, idle_s=3.0, late_s=5.0,
    memory={APSCHEDULER_3: 2_000, APSCHEDULER_4: 500}, durable={APSCHEDULER_3: 200, APSCHEDULER_4: 50},
)  # fmt: skip


def run(say: Say, *, quick: bool) -> Findings:
    """Measure everything a scheduler inside a program does."""
    return measure(say, QUICK if quick else FULL)


def measure(say: Say, size: Size) -> Findings:
    """Measure everything in a given size."""
    counts = (size.few, size.many)
    rows = [row for count in counts for place in PLACES for row in _due(count, place, size, say)]
    rows += [row for count in counts for row in _recovered(count, size, say)]
    rows += [row for count in counts for place in PLACES for row in _registered(count, place, size, say)]
    rows += _idle(size, say)
    rows += _late(size, say)
    return Findings(rows=tuple(rows), goals=tuple(goals(rows, counts)))


# --- due in one minute, and due during downtime ---


def _due(count: int, place: str, size: Size, say: Say) -> list[Row]:
    counts = {KRON: count}
    measures: Measures = {KRON: partial(_burst, "embed_task", "due", place, count)}
    if count == size.few:
        for peer, module in PEERS.items():
            counts[peer] = size.of_peer(peer, place)
            measures[peer] = partial(_burst, module, "due", place, counts[peer])
    return _bursts(due(count, place), measures, counts, size.rounds, say)


def _recovered(count: int, size: Size, say: Say) -> list[Row]:
    measures: Measures = {KRON: partial(_burst, "embed_task", "recover", SQLITE, count)}
    return _bursts(recovered(count), measures, {KRON: count}, size.rounds, say)


def _burst(module: str, name: str, place: str, count: int) -> Sample:
    figures = ask(module, name, place, count)
    return {ALL: figures["last"] / count, **{label: figures[label] for label in ("first", "last", "ended")}}


def _bursts(title: str, measures: Measures, counts: Mapping[str, int], rounds: int, say: Say) -> list[Row]:
    rows = rows_of(title, Kind.RATE, turns(title, measures, rounds, say), reference=KRON)
    return [_noted(row, f"{counts[row.contender]:,} tasks: ", first=True) for row in rows]


# --- registration ---


def _registered(count: int, place: str, size: Size, say: Say) -> list[Row]:
    title, counts = registered(count, place), dict.fromkeys(STANDINGS.values(), count)
    measures: Measures = {
        name: partial(_registration, "embed_task", place, count, standing)
        for standing, name in STANDINGS.items()
    }
    if count == size.few:
        for peer, module in PEERS.items():
            counts[peer] = size.of_peer(peer, place)
            measures[peer] = partial(_registration, module, place, counts[peer])
    rows = rows_of(title, Kind.RATE, turns(title, measures, size.rounds, say), reference=KRON)
    return [_noted(row, f"{counts[row.contender]:,} tasks") for row in rows]


def _registration(module: str, place: str, count: int, *standing: str) -> Sample:
    figures = ask(module, "register", place, count, *standing)
    seconds = figures.pop("seconds")
    return {ALL: seconds / count, **figures}


# --- idle tasks, lateness ---


def _idle(size: Size, say: Say) -> list[Row]:
    counts = {on(place): size.idle for place in PLACES} | {
        APSCHEDULER_3: size.idle,
        APSCHEDULER_4: size.memory[APSCHEDULER_4],
    }
    measures: Measures = {
        on(place): partial(ask, "embed_task", "idle", place, size.idle, size.idle_s) for place in PLACES
    }
    for peer, module in PEERS.items():
        measures[peer] = partial(ask, module, "idle", counts[peer], size.idle_s)
    series = turns("idle tasks", measures, size.rounds, say)
    rows = rows_of(SIZE, Kind.SIZE, only("bytes", series), reference=on(MEMORY))
    rows += rows_of(SHARE, Kind.SHARE, only("share", series), reference=on(MEMORY))
    return [_noted(row, f"{counts[row.contender]:,} tasks") for row in rows]


def _late(size: Size, say: Say) -> list[Row]:
    measures: Measures = {on(place): partial(_lateness, "embed_task", place, size.late_s) for place in PLACES}
    measures |= {peer: partial(_lateness, module, MEMORY, size.late_s) for peer, module in PEERS.items()}
    # One round has a few hundred starts.
    rows = rows_of(LATE, Kind.TIME, turns(LATE, measures, 1, say), reference=on(MEMORY))
    return [_noted(row, f"99 of 100 within {_time(row, 'p99 seconds')}") for row in rows]


def _lateness(module: str, place: str, seconds: float) -> Sample:
    figures = ask(module, "late", place, seconds)
    return {ALL: figures["p50"], "p50": figures["p50"], "p99": figures["p99"]}


# --- notes ---


def _noted(row: Row, note: str, *, first: bool = False) -> Row:
    """Return a row with a note; a failed one has its reason instead."""
    if row.cost is None:
        return row
    if first:
        first_at, last_at = _time(row, "first seconds"), _time(row, "last seconds")
        note += f"the first start after {first_at}, the last after {last_at}"
    elif "pause seconds" in row.details:
        note += f"; the event loop waited for its turn {_time(row, 'pause seconds')} at most"
    return replace(row, note=note)


def _time(row: Row, detail: str) -> str:
    return shown(Kind.TIME, float(row.details.get(detail, 0)))
