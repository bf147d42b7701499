"""The comparisons of the engine part and the goals set for them."""

from collections.abc import Iterator, Sequence

from bench import engine_gap
from bench.goal import NOT_MEASURED, at_least, at_most, cost_of, detail_of, row_of
from bench.place import MEMORY, POSTGRES, SQLITE
from bench.row import Goal, Kind, Row

KRON, APSCHEDULER, PROCRASTINATE = "kron", "APScheduler 3", "Procrastinate"
SIZE = "memory per idle job"
SHARE = "processor time while all jobs are idle"
LATE = "lateness of single starts, half of them within"
WORKERS = "workers that share one PostgreSQL"
ONE, TWO = "kron, one worker", "kron, two workers"

# Per burst size and store: the latest last start or the least rate, and the first start.
DUE_GOAL = 100_000
LAST_S = {MEMORY: 1.0}
LEAST_RATE = {SQLITE: 50_000, POSTGRES: 25_000}
FIRST_S = {MEMORY: 0.020, SQLITE: 0.050, POSTGRES: 0.100}
LEAST_REGISTERED = 30_000
MOST_BYTES, MOST_SHARE = 500.0, 0.0005
MOST_LATE = {"p50": 0.002, "p99": 0.010}
LEAST_SPEED_UP = 1.5
# Microseconds to find the newest period of ten years, and less than a thousand of them for the whole step.
# A step after ten years takes no longer than one after a day; half as much again is noise.
MOST_SEARCH_S, MOST_GAP_S, MOST_GAP_RATIO = 0.0001, 0.001, 1.5


def due(count: int, place: str) -> str:
    """Return the title of a burst."""
    return f"{count:,} due at one instant, {_PLACES[place]}"


def registered(place: str) -> str:
    """Return the title of a registration."""
    return f"jobs registered, {_PLACES[place]}"


def on(place: str) -> str:
    """Return the name of Kron on a store."""
    return f"{KRON}, {_PLACES[place]}"


_PLACES = {MEMORY: "memory", SQLITE: "SQLite", POSTGRES: "PostgreSQL"}


def goals(rows: Sequence[Row]) -> Iterator[Goal]:
    """Compare the rows with the goals, in the order of the targets."""
    for place in FIRST_S:
        yield from _due(rows, place)
    for place in (SQLITE, POSTGRES):
        title = registered(place)
        yield at_least(title, LEAST_REGISTERED, cost_of(rows, title, KRON))
    yield at_most(SIZE, MOST_BYTES, cost_of(rows, SIZE, KRON), kind=Kind.SIZE)
    yield at_most(SHARE, MOST_SHARE, cost_of(rows, SHARE, KRON), kind=Kind.SHARE)
    for place in (MEMORY, SQLITE):
        for part, most in MOST_LATE.items():
            seconds = detail_of(rows, LATE, on(place), f"{part} seconds")
            yield at_most(f"lateness of single starts, {_PLACES[place]}, {part}", most, seconds)
    yield _speed_up(rows)
    for name, most in ((engine_gap.ALONE, MOST_SEARCH_S), (engine_gap.YEARS, MOST_GAP_S)):
        what = f"{engine_gap.TITLE}: {name.removeprefix(f'{KRON}, ')}"
        yield at_most(what, most, cost_of(rows, engine_gap.TITLE, name))
    yield _independence(rows)


def _due(rows: Sequence[Row], place: str) -> Iterator[Goal]:
    title = due(DUE_GOAL, place)
    first = detail_of(rows, title, KRON, "first seconds")
    yield at_most(f"{title}, the first start", FIRST_S[place], first)
    if place in LAST_S:
        last = detail_of(rows, title, KRON, "last seconds")
        yield at_most(f"{title}, the last start", LAST_S[place], last)
    else:
        yield at_least(title, LEAST_RATE[place], cost_of(rows, title, KRON))


def _speed_up(rows: Sequence[Row]) -> Goal:
    row = row_of(rows, WORKERS, ONE)
    ratio = None if row is None else row.ratio
    return Goal(
        what="two PostgreSQL workers beside one",
        wanted=f">= {LEAST_SPEED_UP} x as quick",
        measured=NOT_MEASURED if ratio is None else f"{ratio:.2f} x",
        met=None if ratio is None else ratio >= LEAST_SPEED_UP,
    )


def _independence(rows: Sequence[Row]) -> Goal:
    row = row_of(rows, engine_gap.TITLE, engine_gap.DAY)
    ratio = None if row is None or not row.ratio else 1 / row.ratio
    return Goal(
        what="the same after ten years beside after a day",
        wanted=f"<= {MOST_GAP_RATIO} x the time",
        measured=NOT_MEASURED if ratio is None else f"{ratio:.2f} x the time",
        met=None if ratio is None else ratio <= MOST_GAP_RATIO,
    )
