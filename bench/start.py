"""Cold starts: the time for a new process to import Kron, or to run `kron next`."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.row import Kind, Row, Say, shown
from bench.timing import ALL, Sample, round_robin, rows_of, seconds_of

TITLE = "cold start of a process"
BARE = "python -c pass"
IMPORT = "import kron"
SCHEDULE = "import kron; kron.Schedule"
NEXT = "kron next"
IMPORTS = (
    IMPORT,
    SCHEDULE,
    "import cronsim",
    "import croniter",
    "import apscheduler.triggers.cron",
    "import celery.schedules",
    "import cronstable.cronexpr",
)

# The name of a row's detail: the time beyond starting Python itself.
BEYOND = "seconds beyond bare Python"

# Far longer than any of these takes; a command that hangs must not stop the benchmark.
MAX_SECONDS = 60


def rows(say: Say, *, rounds: int) -> list[Row]:
    """Measure new processes; the notes have the time beyond starting Python itself."""
    commands = {BARE: [sys.executable, "-c", "pass"]}
    commands |= {code: [sys.executable, "-c", code] for code in IMPORTS}
    # Not resolved: in a virtual environment python is a link, and the scripts are beside the link.
    script = Path(sys.executable).with_name("kron")
    if script.exists():
        commands[NEXT] = [str(script), "next", "0 9 * * 1-5"]
    series = round_robin(
        {name: partial(_time_command, command) for name, command in commands.items()},
        repetitions=rounds,
        say=lambda text: say(f"{TITLE}: {text}"),
    )
    found = _beyond_bare(rows_of(TITLE, Kind.TIME, series, reference=SCHEDULE))
    if NEXT not in commands:
        found.append(Row(title=TITLE, contender=NEXT, kind=Kind.TIME, note="the command is not installed"))
    return found


def _time_command(command: Sequence[str]) -> Sample:
    def work() -> None:
        done = subprocess.run(command, capture_output=True, check=False, timeout=MAX_SECONDS)
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}")

    return {ALL: seconds_of(work)}


def _beyond_bare(rows: Sequence[Row]) -> list[Row]:
    bare = next(row.cost for row in rows if row.contender == BARE)
    return [row if row is rows[0] else _beyond(row, bare) for row in rows]


def _beyond(row: Row, bare: float | None) -> Row:
    if row.cost is None or bare is None:
        return row
    beyond = max(row.cost - bare, 0.0)
    note = f"{shown(Kind.TIME, beyond)} beyond bare Python"
    return replace(row, note=note, details={**row.details, BEYOND: beyond})
