"""The million part, which takes minutes: a million jobs, and tasks, registered in a program, all checked."""

from bench.child import ask
from bench.embed_task import NEW
from bench.goal import at_most
from bench.row import Findings, Kind, Row, Say

JOBS = 1_000_000
TITLE = "a million jobs registered, memory"
TASKS = "a million tasks registered, SQLite"
MOST_SECONDS = 60.0


def run(say: Say, *, quick: bool) -> Findings:
    """Register a million of each, or with `quick` ten thousand, which says nothing about the goals."""
    count = JOBS // 100 if quick else JOBS
    found = {}
    for title, module, words in (
        (TITLE, "engine_register", ("kron", "memory", count)),
        (TASKS, "embed_task", ("register", "sqlite", count, NEW)),
    ):
        say(f"{title}: {count:,}")
        found[title] = ask(module, *words)["seconds"]
    rows = [_row(title, count, seconds) for title, seconds in found.items()]
    goals = [at_most(title, MOST_SECONDS, found[title] if count == JOBS else None) for title in found]
    return Findings(rows=tuple(rows), goals=tuple(goals))


def _row(title: str, count: int, seconds: float) -> Row:
    note = f"{count:,} in {seconds:.3g} s"
    return Row(title=title, contender="kron", kind=Kind.RATE, cost=seconds / count, note=note)
