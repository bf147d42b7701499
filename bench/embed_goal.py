"""The comparisons of the embedded part and the goals set for them."""

from collections.abc import Iterator, Sequence

from bench.embed_task import NEW, OVERRIDDEN, PRESERVED
from bench.goal import at_least, at_most, cost_of, detail_of
from bench.place import MEMORY, SQLITE
from bench.row import Goal, Kind, Row

KRON, APSCHEDULER_3, APSCHEDULER_4 = "kron", "APScheduler 3", "APScheduler 4"
PLACES = {MEMORY: "memory", SQLITE: "SQLite"}
SIZE = "memory per idle task"
SHARE = "processor time while all tasks are idle"
LATE = "lateness of single starts of tasks, half of them within"
STANDINGS = {NEW: KRON, PRESERVED: f"{KRON}, all known", OVERRIDDEN: f"{KRON}, all changed"}

# The bounds per task, and the goals for given numbers of tasks.
BOUND_S_PER_TASK = 600 / 100_000
GOAL = 100_000
FIRST_S = {MEMORY: 0.020, SQLITE: 0.050}
LEAST_DUE = {MEMORY: 100_000, SQLITE: 50_000}
LEAST_RECOVERED = 5_000
LEAST_REGISTERED = 30_000
MOST_PAUSE_S = 0.25
MOST_BYTES, MOST_SHARE = 500.0, 0.0005
MOST_LATE = {"p50": 0.002, "p99": 0.010}


def due(count: int, place: str) -> str:
    """Return the title of a burst."""
    return f"{count:,} tasks due in one minute, {PLACES[place]}"


def recovered(count: int) -> str:
    """Return the title of a recovery."""
    return f"{count:,} tasks running when the program died, {PLACES[SQLITE]}"


def registered(count: int, place: str) -> str:
    """Return the title of a registration."""
    return f"{count:,} tasks registered, {PLACES[place]}"


def on(place: str) -> str:
    """Return the row name of Kron with a given store."""
    return f"{KRON}, {PLACES[place]}"


def goals(rows: Sequence[Row], counts: Sequence[int]) -> Iterator[Goal]:
    """Compare the rows with the goals; the bounds apply to every measured number of tasks."""
    for title in [due(count, place) for count in counts for place in PLACES] + list(map(recovered, counts)):
        yield _bound(rows, title)
    for place in PLACES:
        title = due(GOAL, place)
        first = detail_of(rows, title, KRON, "first seconds")
        yield at_most(f"{title}, the first start", FIRST_S[place], first)
        yield at_least(title, LEAST_DUE[place], cost_of(rows, title, KRON))
    yield at_least(recovered(GOAL), LEAST_RECOVERED, cost_of(rows, recovered(GOAL), KRON))
    for place in PLACES:
        title = registered(GOAL, place)
        for standing, name in STANDINGS.items():
            yield at_least(f"{title}, {standing}", LEAST_REGISTERED, cost_of(rows, title, name))
        pause = detail_of(rows, title, KRON, "pause seconds")
        yield at_most(f"{title}: the longest pause of the event loop", MOST_PAUSE_S, pause)
    for place, name in PLACES.items():
        size, share = cost_of(rows, SIZE, on(place)), cost_of(rows, SHARE, on(place))
        yield at_most(f"{SIZE}, {name}", MOST_BYTES, size, kind=Kind.SIZE)
        yield at_most(f"{SHARE}, {name}", MOST_SHARE, share, kind=Kind.SHARE)
        for part, most in MOST_LATE.items():
            seconds = detail_of(rows, LATE, on(place), f"{part} seconds")
            yield at_most(f"lateness of single starts of tasks, {name}, {part}", most, seconds)


def _bound(rows: Sequence[Row], title: str) -> Goal:
    """Compare with a bound: a time at most proportional to the number of tasks."""
    cost = cost_of(rows, title, KRON)
    return at_most(f"{title}, per task", BOUND_S_PER_TASK, cost)
