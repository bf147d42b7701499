"""The results as tables for people, and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.row import Findings, Goal, Kind, Row, shown

# Without a terminal (a file, a pipe) rows stay on one line.
PIPE_WIDTH = 140

VERDICTS = {True: "[green]met[/green]", False: "[red]not met[/red]", None: "not measured"}
EXPLANATION = (
    'Medians of interleaved rounds. "kron is" says how many times as quick kron is as the contender, the '
    "median of the ratios within each round. Worst single call: the largest, over all expressions, of the "
    "median of repeated timings of the same call, so that interruptions by other programs do not count. "
    '"Same answer" is about questions far from clock changes; who joins two day fields by "and" differs.'
)


def show(found: Mapping[str, Findings]) -> None:
    """Print the tables of every part."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    for part, findings in found.items():
        console.print(_measurements(part, findings.rows))
    console.print(EXPLANATION)
    for part, findings in found.items():
        console.print(_targets(part, findings.goals))


def write(path: Path, found: Mapping[str, Findings], *, machine: Mapping[str, object], quick: bool) -> None:
    """Write all results as JSON."""
    parts = {
        part: {"rows": list(map(_row_value, findings.rows)), "goals": list(map(asdict, findings.goals))}
        for part, findings in found.items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"quick": quick, "machine": machine, "parts": parts}, indent=2) + "\n")


def _row_value(row: Row) -> dict[str, object]:
    rate = 1 / row.cost if row.cost and row.kind is Kind.RATE else None
    return asdict(row) | {"rate": rate, "shown": shown(row.kind, row.cost)}


def _measurements(part: str, rows: Sequence[Row]) -> Table:
    table = Table(title=f"{part}: measured")
    for heading in ("contender", "measured", "kron is", "note"):
        table.add_column(heading, justify="right" if heading in ("measured", "kron is") else "left")
    for title, group in groupby(rows, key=lambda row: row.title):
        table.add_section()
        table.add_row(f"[bold]{title}[/bold]")
        for row in group:
            ratio = "-" if row.ratio is None else f"{row.ratio:.3g} x"
            table.add_row(f"  {row.contender}", shown(row.kind, row.cost), ratio, row.note)
    return table


def _targets(part: str, goals: Sequence[Goal]) -> Table:
    table = Table(title=f"{part}: targets")
    for heading in ("what", "goal", "measured", ""):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for goal in goals:
        table.add_row(goal.what, goal.wanted, goal.measured, VERDICTS[goal.met])
    return table
