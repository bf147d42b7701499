"""The progress part: the cost of promises of the embedded scheduler, as lists and downtime grow.

Steps are counted, not timed: the figures are the same on every machine.
"""

import logging

from bench.row import Findings, Goal, Kind, Row, Say
from kron.testing.simulator.judge import WITNESSES
from kron.testing.simulator.progress import HOUR, Progress, measure

TITLE = "progress, counted steps"
TASKS, QUICK_TASKS = (1, 10, 100, 1_000), (1, 4, 16)
YEAR = 365 * 24 * HOUR
YEARS, QUICK_YEARS = (1, 10, 100), (1, 10)


def run(say: Say, *, quick: bool) -> Findings:
    """Count the steps of busy scenarios with growing lists, then with growing downtime."""
    lists = [_measured(say, tasks, HOUR) for tasks in (QUICK_TASKS if quick else TASKS)]
    absences = [_measured(say, 1, years * YEAR) for years in (QUICK_YEARS if quick else YEARS)]
    rows = [_row(found, f"{found.tasks:,} tasks") for found in lists]
    rows += [_row(found, f"1 task, {found.down_s // YEAR} years away") for found in absences]
    return Findings(rows=tuple(rows), goals=(_goal(lists),))


def _measured(say: Say, tasks: int, down_s: int) -> Progress:
    say(f"{TITLE}: {tasks:,} tasks, {down_s // HOUR:,} hours away")
    # Every task fails once, which need not be logged.
    logging.disable(logging.CRITICAL)
    try:
        return measure(tasks, down_s)
    finally:
        logging.disable(logging.NOTSET)


def _row(found: Progress, name: str) -> Row:
    costs = ", ".join(f"{axiom} {cost.compute:,}" for axiom, cost in sorted(found.most_expensive.items()))
    bits = max(cost.size for cost in found.most_expensive.values())
    a, b, t_lag = found.fitted.a, found.fitted.b, found.fitted.t_lag
    note = f"steps at most: {costs}; {bits:,} bits; fitted (a, b, t_lag) = ({a}, {b:,}, {t_lag})"
    return Row(title=TITLE, contender=name, kind=Kind.RATE, note=note)


def _goal(lists: list[Progress]) -> Goal:
    worst = max(found.fitted.a for found in lists)
    wanted = (WITNESSES.a, WITNESSES.b, WITNESSES.t_lag)
    return Goal(
        what="progress, witnesses (a, b, t_lag) for every list",
        wanted=f"<= {wanted}",
        measured=str((worst, WITNESSES.b, WITNESSES.t_lag)),
        met=all(found.conforms for found in lists) and worst <= WITNESSES.a,
    )
