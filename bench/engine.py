"""The engine part: bursts, registration, idle jobs, lateness, several workers and long downtime."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from bench import engine_gap
from bench.child import ask
from bench.engine_goal import (
    APSCHEDULER,
    KRON,
    LATE,
    ONE,
    PROCRASTINATE,
    SHARE,
    SIZE,
    TWO,
    WORKERS,
    due,
    goals,
    on,
    registered,
)
from bench.engine_share import shared
from bench.place import MEMORY, PLACES, POSTGRES, SQLITE, postgres_server
from bench.row import Findings, Kind, Row, Say, shown
from bench.timing import ALL, Sample, Series, round_robin, rows_of

Measures: TypeAlias = dict[str, Callable[[], Sample]]
# Returns the argument for a new, empty store: its kind, or the URL of a new database on the server.
Fresh: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The workload. Slow peers get fewer jobs: `durable` and `deferred`."""

    rounds: int
    few: int
    many: int
    rounds_of_many: int
    registered: int
    durable: int
    deferred: int
    idle: int
    idle_s: float
    late_s: float
    shared: int


FULL = Size(
    rounds=5, few=10_000, many=100_000, rounds_of_many=3, registered=100_000, durable=1_000, deferred=1_000,
    idle=100_000, idle_s=5.0, late_s=20.0, shared=50_000,
)  # fmt: skip
QUICK = Size(
    rounds=1, few=2_000, many=10_000, rounds_of_many=1, registered=10_000, durable=300, deferred=300,
    idle=20_000, idle_s=3.0, late_s=5.0, shared=10_000,
)  # fmt: skip


def run(say: Say, *, quick: bool) -> Findings:
    """Measure the engine."""
    return measure(say, QUICK if quick else FULL)


def measure(say: Say, size: Size) -> Findings:
    """Measure everything in a given size; every measurement but the last is a new process."""
    with postgres_server() as empty:

        def fresh(place: str) -> str:
            return empty() if place == POSTGRES else place

        rows = [row for place in PLACES for row in _few(place, size, fresh, say)]
        rows += [row for place in PLACES for row in _many(place, size, fresh, say)]
        rows += [row for place in (SQLITE, POSTGRES) for row in _registered(place, size, fresh, say)]
        rows += _workers(size, fresh, say)
    rows += _idle(size, say)
    rows += _late(size, say)
    rows += engine_gap.rows(say, rounds=size.rounds)
    return Findings(rows=tuple(rows), goals=tuple(goals(rows)))


def turns(title: str, measures: Measures, rounds: int, say: Say) -> dict[str, Series]:
    """Measure in turn; new processes need no warm-up round."""
    return round_robin(measures, repetitions=rounds, say=lambda text: say(f"{title}: {text}"), warm_up=False)


# --- due at one instant ---


def _few(place: str, size: Size, fresh: Fresh, say: Say) -> list[Row]:
    """Measure a burst small enough for the peers."""
    durable = size.few if place == MEMORY else size.durable
    counts = {KRON: size.few, APSCHEDULER: durable}
    measures: Measures = {
        KRON: partial(_burst, "engine_due", "kron", place, size.few, fresh),
        APSCHEDULER: partial(_burst, "peer_apscheduler", "due", place, durable, fresh),
    }
    if place == POSTGRES:
        counts[PROCRASTINATE] = size.deferred
        measures[PROCRASTINATE] = partial(_burst, "peer_procrastinate", "due", place, size.deferred, fresh)
    return _bursts(due(size.few, place), measures, counts, size.rounds, say)


def _many(place: str, size: Size, fresh: Fresh, say: Say) -> list[Row]:
    """Measure a large burst; only the in-memory peer finishes within a minute."""
    measures: Measures = {KRON: partial(_burst, "engine_due", "kron", place, size.many, fresh)}
    if place == MEMORY:
        measures[APSCHEDULER] = partial(_burst, "peer_apscheduler", "due", place, size.many, fresh)
    counts = dict.fromkeys(measures, size.many)
    return _bursts(due(size.many, place), measures, counts, size.rounds_of_many, say)


def _burst(module: str, name: str, place: str, count: int, fresh: Fresh) -> Sample:
    figures = ask(module, name, fresh(place), count)
    return {ALL: figures["last"] / count, **{label: figures[label] for label in ("first", "last", "ended")}}


def _bursts(title: str, measures: Measures, counts: Mapping[str, int], rounds: int, say: Say) -> list[Row]:
    rows = rows_of(title, Kind.RATE, turns(title, measures, rounds, say), reference=KRON)
    return [_with_note(row, lambda row: _burst_note(row, counts[row.contender])) for row in rows]


def _burst_note(row: Row, count: int) -> str:
    first, last = (_time(row, f"{label} seconds") for label in ("first", "last"))
    return f"{count:,} jobs: the first start after {first}, the last after {last}"


# --- registration ---


def _registered(place: str, size: Size, fresh: Fresh, say: Say) -> list[Row]:
    title = registered(place)
    counts = {KRON: size.registered, APSCHEDULER: size.durable}
    measures: Measures = {
        KRON: partial(_registration, "engine_register", "kron", place, size.registered, fresh),
        APSCHEDULER: partial(_registration, "peer_apscheduler", "register", place, size.durable, fresh),
    }
    rows = rows_of(title, Kind.RATE, turns(title, measures, size.rounds_of_many, say), reference=KRON)
    return [_with_note(row, lambda row: f"{counts[row.contender]:,} jobs") for row in rows]


def _registration(module: str, name: str, place: str, count: int, fresh: Fresh) -> Sample:
    return {ALL: ask(module, name, fresh(place), count)["seconds"] / count}


# --- workers ---


def _workers(size: Size, fresh: Fresh, say: Say) -> list[Row]:
    measures: Measures = {
        TWO: partial(_shared, 2, size.shared, fresh),
        ONE: partial(_shared, 1, size.shared, fresh),
    }
    series = turns(WORKERS, measures, size.rounds_of_many, say)
    rows = rows_of(WORKERS, Kind.RATE, series, reference=TWO)
    return [_with_note(row, lambda _: f"{size.shared:,} jobs due at one instant") for row in rows]


def _shared(workers: int, count: int, fresh: Fresh) -> Sample:
    return {ALL: asyncio.run(shared(fresh(POSTGRES), workers, count)) / count}


# --- idle jobs ---


def _idle(size: Size, say: Say) -> list[Row]:
    few = f"{KRON}, {size.idle // 100:,} jobs"
    asked = {
        KRON: ("engine_idle", "kron", size.idle),
        few: ("engine_idle", "kron", size.idle // 100),
        APSCHEDULER: ("peer_apscheduler", "idle", size.idle),
    }
    measures: Measures = {name: partial(_idleness, *words, size.idle_s) for name, words in asked.items()}
    series = turns("idle jobs", measures, size.rounds_of_many, say)
    many = {name: contender for name, contender in series.items() if name != few}
    sizes = rows_of(SIZE, Kind.SIZE, only("bytes", many), reference=KRON)
    shares = rows_of(SHARE, Kind.SHARE, only("share", series), reference=KRON)
    return [_with_note(row, lambda row: f"{asked[row.contender][2]:,} jobs") for row in sizes + shares]


def _idleness(module: str, name: str, count: int, seconds: float) -> Sample:
    return ask(module, name, count, seconds)


def only(label: str, series: Mapping[str, Series]) -> dict[str, Series]:
    """Return series with one of several figures as the main one."""
    return {
        name: Series(
            samples=[{ALL: sample[label]} for sample in contender.samples], failure=contender.failure
        )
        for name, contender in series.items()
    }


# --- lateness ---


def _late(size: Size, say: Say) -> list[Row]:
    measures: Measures = {
        on(MEMORY): partial(_lateness, "engine_late", "kron", MEMORY, size.late_s),
        on(SQLITE): partial(_lateness, "engine_late", "kron", SQLITE, size.late_s),
        APSCHEDULER: partial(_lateness, "peer_apscheduler", "late", MEMORY, size.late_s),
    }
    # One round has a few hundred starts.
    rows = rows_of(LATE, Kind.TIME, turns(LATE, measures, 1, say), reference=on(MEMORY))
    return [_with_note(row, lambda row: f"99 of 100 within {_time(row, 'p99 seconds')}") for row in rows]


def _lateness(module: str, name: str, place: str, seconds: float) -> Sample:
    figures = ask(module, name, place, seconds)
    return {ALL: figures["p50"], "p50": figures["p50"], "p99": figures["p99"]}


# --- notes ---


def _with_note(row: Row, note: Callable[[Row], str]) -> Row:
    """Return a row with a note; a failed one has its reason instead."""
    return row if row.cost is None else replace(row, note=note(row))


def _time(row: Row, detail: str) -> str:
    return shown(Kind.TIME, float(row.details[detail]))
