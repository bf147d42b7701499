"""The cron part: the next and previous occurrence, parsing, the worst call, bulk and cold starts."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from statistics import fmean, median
from typing import TypeAlias

import kron.core.cron.schedule
import kron.core.cron.timeline
import kron.core.time.zone
from bench import start
from bench.cron_goal import BULK, COLD_ZONE, DATETIMES, INTEGERS, PARSE, PARSE_RANDOM, PREVIOUS, WORST, goals
from bench.expression import START, ZONES, Case, batches, cases, plain_questions, texts
from bench.peer import PEERS, Chain, Kron, KronLocal, Peer, second_of
from bench.row import Findings, Kind, Row, Say
from bench.timing import (
    ALL,
    Sample,
    Series,
    failure_of,
    joined,
    repeated,
    round_robin,
    rows_of,
    seconds_of,
    without_collector,
)
from kron.core.cron.schedule import Schedule, next_seconds, next_times
from kron.core.time.instant import datetime_of

SCHEDULES = 1_000_000
PLANS = 300
# The timings of a single call in each round.
WORST_CALLS = 5
# Starts of the single calls: an ordinary one, just after 29 February, and days with clock changes.
WORST_STARTS = tuple(
    int(datetime.fromisoformat(text).timestamp())
    for text in ("2026-03-01T00:00:00+00:00", "2028-02-29T12:00:00+00:00", "2026-03-29T00:59:00+00:00")
)

Ask: TypeAlias = Callable[[Peer, Case], Chain]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The workload: occurrences per expression, batches of texts to parse, rounds, schedules in bulk.

    A contender's turn over the expressions of a zone lasts at least `turn` seconds; fast ones repeat them.
    A batch of texts is short, so that all contenders run under the same load of the machine.
    """

    rounds: int
    most: int
    turn: float
    batches: int
    batch: int
    schedules: int


FULL = Size(rounds=7, most=100, turn=0.04, batches=15, batch=500, schedules=SCHEDULES)
QUICK = Size(rounds=5, most=4, turn=0.01, batches=5, batch=100, schedules=SCHEDULES)


def run(say: Say, *, quick: bool) -> Findings:
    """Measure everything about cron expressions."""
    return measure(say, QUICK if quick else FULL)


def measure(say: Say, size: Size) -> Findings:
    """Measure everything in a given size."""
    peers, missing = _load(PEERS)
    rows = _chains(INTEGERS, _seconds, [Kron(), *peers], size=size, say=say)
    rows += _chains(DATETIMES, _datetimes, [Kron(), KronLocal(), *peers], size=size, say=say)
    rows += _chains(PREVIOUS, _backwards, [Kron(), *peers], size=size, say=say)
    rows += _parsing(PARSE, [Kron(), *peers], common=True, size=size, say=say)
    rows += _parsing(PARSE_RANDOM, [Kron(), *peers], common=False, size=size, say=say)
    rows += _worst([Kron(), *peers], rounds=size.rounds, say=say)
    rows += _cold_zone(size.rounds, say)
    rows += _bulk(peers, size=size, say=say)
    rows += start.rows(say, rounds=size.rounds)
    rows = _with_missing(rows, missing)
    return Findings(rows=tuple(rows), goals=tuple(goals(rows)))


def _load(kinds: Iterable[type[Peer]]) -> tuple[list[Peer], dict[str, str]]:
    """Return the installed peers and, by name, why the others are missing."""
    peers: list[Peer] = []
    missing: dict[str, str] = {}
    for kind in kinds:
        try:
            peers.append(kind())
        except Exception as error:  # noqa: BLE001 (a peer that cannot be imported is a missing row)
            missing[kind.name] = failure_of(error)
    return peers, missing


def _with_missing(rows: Sequence[Row], missing: Mapping[str, str]) -> list[Row]:
    """Add a row for every missing peer to each comparison."""
    all_rows: list[Row] = []
    for title, group in groupby(rows, key=lambda row: row.title):
        all_rows += group
        if title not in (COLD_ZONE, start.TITLE):
            all_rows += [
                Row(title=title, contender=name, kind=Kind.RATE, note=reason)
                for name, reason in missing.items()
            ]
    return all_rows


# --- chains: next and previous ---


def _seconds(peer: Peer, case: Case) -> Chain:
    return peer.seconds(case)


def _datetimes(peer: Peer, case: Case) -> Chain:
    return peer.datetimes(case)


def _backwards(peer: Peer, case: Case) -> Chain:
    return peer.backwards(case)


def _chains(title: str, ask: Ask, peers: Sequence[Peer], *, size: Size, say: Say) -> list[Row]:
    """Measure chains of occurrences; every expression has the same weight."""
    asked = cases(size.most, backwards=ask is _backwards)
    able = [peer for peer in peers if peer.goes_back or ask is not _backwards]
    by_zone = {
        zone: round_robin(
            {peer.name: _chain_turn(ask, peer, zone, asked, size.turn) for peer in able},
            repetitions=size.rounds,
            say=partial(_say_under, say, f"{title}, {zone}"),
        )
        for zone in ZONES
    }
    series = {
        peer.name: joined({zone: series[peer.name] for zone, series in by_zone.items()}) for peer in able
    }
    questions = plain_questions(backwards=ask is _backwards)
    notes = _notes(able, series, lambda peer: _answers(ask, peer, questions))
    rows = rows_of(title, Kind.RATE, series, reference=Kron.name, notes=notes)
    return rows + _unable(title, Kind.RATE, [peer for peer in peers if peer not in able])


def _say_under(say: Say, heading: str, text: str) -> None:
    say(f"{heading}: {text}")


def _unable(title: str, kind: Kind, peers: Iterable[Peer]) -> list[Row]:
    return [Row(title=title, contender=peer.name, kind=kind, note="has no such function") for peer in peers]


def _chain_turn(ask: Ask, peer: Peer, zone: str, asked: Iterable[Case], least: float) -> Callable[[], Sample]:
    in_zone = [case for case in asked if case.zone == zone]
    return lambda: repeated(lambda: _time_chains(ask, peer, in_zone), least=least)


def _time_chains(ask: Ask, peer: Peer, asked: Sequence[Case]) -> Sample:
    return {ALL: fmean(seconds_of(ask(peer, case)) / case.count for case in asked)}


def _answers(ask: Ask, peer: Peer, asked: Sequence[Case]) -> list[int]:
    return [second_of(ask(peer, case)()) for case in asked]


def _notes(
    peers: Sequence[Peer], series: Mapping[str, Series], answers: Callable[[Peer], list[int]]
) -> dict[str, str]:
    """Count how often each measured peer agrees with the first contender, which is Kron."""
    wanted = answers(peers[0])
    notes: dict[str, str] = {}
    for peer in peers[1:]:
        if series[peer.name].failure is None:
            try:
                same = sum(one == other for one, other in zip(answers(peer), wanted, strict=True))
                notes[peer.name] = f"same answer in {same} of {len(wanted)}"
            except Exception as error:  # noqa: BLE001 (a peer that fails disagrees)
                notes[peer.name] = failure_of(error)
    return notes


# --- parsing ---


def _parsing(title: str, peers: Sequence[Peer], *, common: bool, size: Size, say: Say) -> list[Row]:
    """Measure parsing a text and finding one occurrence; no text occurs in two rounds."""
    asked = batches(size.batches + 1, size.batch, common=common)
    measures = {peer.name: partial(_time_parsing, peer, iter(asked)) for peer in peers}
    series = round_robin(measures, repetitions=size.batches, say=partial(_say_under, say, title))
    notes = _notes(peers, series, lambda peer: [second_of(peer.fresh(case)) for case in chain(*asked)])
    return rows_of(title, Kind.RATE, series, reference=Kron.name, notes=notes)


def _time_parsing(peer: Peer, batch: Iterator[Sequence[Case]]) -> Sample:
    asked = next(batch)
    fresh = peer.fresh

    def work() -> None:
        for case in asked:
            fresh(case)

    return {ALL: seconds_of(work) / len(asked)}


# --- single calls ---


def _worst(peers: Sequence[Peer], *, rounds: int, say: Say) -> list[Row]:
    asked = [Case(case.text, case.zone, instant, 1) for instant in WORST_STARTS for case in cases(1)]
    timings: dict[str, dict[Case, list[float]]] = {peer.name: {case: [] for case in asked} for peer in peers}
    failures: dict[str, str] = {}
    for number in range(rounds):
        say(f"{WORST}: round {number + 1} of {rounds}")
        for peer in peers:
            if peer.name not in failures:
                _time_calls(peer, timings[peer.name], failures)
    worst = {
        name: max(((median(seconds), case) for case, seconds in by_case.items()), key=itemgetter(0))
        for name, by_case in timings.items()
        if name not in failures
    }
    return [_worst_row(peer.name, worst, failures) for peer in peers]


def _time_calls(peer: Peer, timings: dict[Case, list[float]], failures: dict[str, str]) -> None:
    try:
        with without_collector():
            for case, seconds in timings.items():
                calls = [peer.seconds(case) for _ in range(WORST_CALLS + 1)]
                calls.pop()()
                seconds += [seconds_of(call) for call in calls]
    except Exception as error:  # noqa: BLE001 (a failing peer is a missing row)
        failures[peer.name] = failure_of(error)


def _worst_row(name: str, worst: Mapping[str, tuple[float, Case]], failures: Mapping[str, str]) -> Row:
    if name in failures:
        return Row(title=WORST, contender=name, kind=Kind.TIME, note=failures[name])
    seconds, case = worst[name]
    return Row(
        title=WORST,
        contender=name,
        kind=Kind.TIME,
        cost=seconds,
        ratio=seconds / worst[Kron.name][0],
        note=f"{case.text} in {case.zone}",
        details={"expression": case.text, "zone": case.zone, "after": datetime_of(case.start).isoformat()},
    )


def _cold_zone(rounds: int, say: Say) -> list[Row]:
    """Measure the cost of Kron's tables: the first call in a zone, and the first for 29 February."""
    contenders = {
        "kron": partial(_first_call, "0 9 * * *"),
        "kron, 29 February": partial(_first_call, "0 0 29 2 *"),
    }
    series = round_robin(contenders, repetitions=rounds, say=partial(_say_under, say, COLD_ZONE))
    return rows_of(COLD_ZONE, Kind.TIME, series, reference=Kron.name)


def _first_call(text: str) -> Sample:
    for module in (kron.core.time.zone, kron.core.cron.timeline, kron.core.cron.schedule):
        for value in vars(module).values():
            getattr(value, "cache_clear", lambda: None)()
    schedule = Schedule(text, "Europe/Berlin")
    return {ALL: seconds_of(lambda: schedule.plan.next_after(START))}


# --- bulk ---


def _bulk(peers: Iterable[Peer], *, size: Size, say: Say) -> list[Row]:
    say(f"{BULK}: making the schedules")
    with without_collector():
        kinds = [(text, zone) for text in texts(PLANS // len(ZONES)) for zone in ZONES]
        made = [Schedule(*kinds[place % PLANS]) for place in range(size.schedules)]
        plans = [schedule.plan for schedule in made]
    # A million live objects would make each garbage collection before a turn slow.
    gc.freeze()
    after = datetime_of(START)
    works: dict[str, Callable[[], object]] = {
        "kron": lambda: next_seconds(plans, START),
        "kron, datetimes": lambda: next_times(made, after),
    }
    measures = {name: partial(_time_bulk, work) for name, work in works.items()}
    series = round_robin(measures, repetitions=size.rounds, say=partial(_say_under, say, BULK))
    gc.unfreeze()
    return rows_of(BULK, Kind.TIME, series, reference=Kron.name) + _unable(BULK, Kind.TIME, peers)


def _time_bulk(work: Callable[[], object]) -> Sample:
    return {ALL: seconds_of(work)}
