"""The million part, which takes minutes: a million jobs registered in a program, all of them checked."""

from bench.child import ask
from bench.goal import at_most
from bench.row import Findings, Kind, Row, Say

JOBS = 1_000_000
TITLE = "a million jobs registered, memory"
MOST_SECONDS = 60.0


def run(say: Say, *, quick: bool) -> Findings:
    """Register a million jobs, or with `quick` ten thousand, which says nothing about the goal."""
    count = JOBS // 100 if quick else JOBS
    say(f"{TITLE}: {count:,} jobs")
    seconds = ask("engine_register", "kron", "memory", count)["seconds"]
    note = f"{count:,} jobs in {seconds:.3g} s"
    row = Row(title=TITLE, contender="kron", kind=Kind.RATE, cost=seconds / count, note=note)
    goal = at_most(TITLE, MOST_SECONDS, seconds if count == JOBS else None)
    return Findings(rows=(row,), goals=(goal,))
