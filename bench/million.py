"""The million part, which takes many minutes: a million jobs and tasks registered, due, recovered."""

from bench.child import ask
from bench.embed_goal import BOUND_S_PER_TASK
from bench.embed_task import NEW
from bench.goal import at_most
from bench.row import Findings, Goal, Kind, Row, Say

JOBS = 1_000_000
TITLE = "a million jobs registered, memory"
TASKS = "a million tasks registered, SQLite"
DUE = "a million tasks due in one minute, SQLite"
RECOVERED = "a million tasks running when the program died, SQLite"
MOST_SECONDS = {TITLE: 60.0, TASKS: 60.0, DUE: JOBS * BOUND_S_PER_TASK, RECOVERED: JOBS * BOUND_S_PER_TASK}
# The measurement of each row, and its main figure.
QUESTIONS = {
    TITLE: ("engine_register", ("kron", "memory"), (), "seconds"),
    TASKS: ("embed_task", ("register", "sqlite"), (NEW,), "seconds"),
    DUE: ("embed_task", ("due", "sqlite"), (), "last"),
    RECOVERED: ("embed_task", ("recover", "sqlite"), (), "last"),
}
# Far longer than any of these takes.
MAX_SECONDS = 3_600


def run(say: Say, *, quick: bool) -> Findings:
    """Measure a million, or with `quick` ten thousand, which is not compared with the goals."""
    count = JOBS // 100 if quick else JOBS
    found = {}
    for title, (module, before, after, counts) in QUESTIONS.items():
        say(f"{title}: {count:,}")
        found[title] = ask(module, *before, count, *after, most=MAX_SECONDS)[counts]
    rows = [_row(title, count, seconds) for title, seconds in found.items()]
    return Findings(rows=tuple(rows), goals=tuple(_goal(title, count, found[title]) for title in found))


def _goal(title: str, count: int, seconds: float) -> Goal:
    return at_most(title, MOST_SECONDS[title], seconds if count == JOBS else None)


def _row(title: str, count: int, seconds: float) -> Row:
    note = f"{count:,} in {seconds:.3g} s"
    return Row(title=title, contender="kron", kind=Kind.RATE, cost=seconds / count, note=note)
