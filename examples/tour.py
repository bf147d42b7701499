"""A guided tour of Kron's command line: `make tour`, or `python examples/tour.py`.

Each stop says what to look at, shows a command as you would type it, and runs it.
"""

import os
import shlex
import sys
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path

from kron.cli.main import run

FLEET = os.path.relpath(Path(__file__).with_name("fleet.yaml"))


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop of the tour: what to notice, and the command that shows it."""

    title: str
    text: str
    command: str


STOPS = (
    Stop(
        "When does it run?",
        "A cron expression and a time zone name instants. Here: every working day at nine in Berlin.",
        'kron next "0 9 * * 1-5" --tz Europe/Berlin',
    ),
    Stop(
        "A night in spring",
        "On 29 March 2026 Berlin's clocks go from 02:00 to 03:00. A job at 02:30 has no time that day,\n"
        "and Kron says so instead of leaving you to find out.",
        'kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-28 -n 3',
    ),
    Stop(
        "The same night, moved",
        "If the job must not miss a day, let it run where the gap ends.",
        'kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-28 -n 3 --dst-gap next',
    ),
    Stop(
        "A night in autumn",
        "On 25 October the hour from 02:00 comes twice. Both showings are instants of their own;\n"
        "--dst-repeat first or last keeps one of them.",
        'kron next "30 2 * * *" --tz Europe/Berlin --from 2026-10-24 -n 4',
    ),
    Stop(
        "The 29th of February",
        "Rare schedules are answered at once, and those that can never match are refused.",
        'kron next "0 12 29 2 *" -n 3',
    ),
    Stop(
        "A mistake",
        "Bad input gets one line that names the field, the value and the remedy, and exit code 2.",
        'kron next "*/15 * * * *" --dialect posix',
    ),
    Stop(
        "In plain words",
        "What does it mean, on which days, and which change of the clocks will matter?",
        'kron explain "*/20 22-1 1,15 * mon" --tz America/New_York --from 2026-01-01 -n 2',
    ),
    Stop(
        "What a reviewer would say",
        "kron lint knows the traps: here a step that is uneven and a day rule that surprises.",
        'kron lint "*/7 * * * *" "0 9 13 * fri"',
    ),
    Stop(
        "A second of its own",
        "With a window, each job gets a time of its own in it: seeded, so it stays the same, everywhere.\n"
        "The whole chain of one decision can be looked at, and recomputed by anybody.",
        f"kron explain {FLEET} --job prod/file-backup --at 2026-06-01T03:00:00Z --now 2026-06-01T01:00:00Z",
    ),
    Stop(
        "A whole fleet",
        "What do the windows do for the load? A month of it, in a moment.",
        f"kron simulate {FLEET} --from 2026-06-01 --days 7",
    ),
    Stop("For machines", "Every listing has --json.", 'kron next "@hourly" -n 1 --json'),
)


def main() -> int:
    """Walk through every stop."""
    for number, stop in enumerate(STOPS, 1):
        print(f"\n{number}. {stop.title}\n{stop.text}\n\n$ {stop.command}", flush=True)
        with redirect_stderr(sys.stdout):
            run(shlex.split(stop.command)[1:])
    print("\nRead on: README.md, docs/index.md, `kron --help`.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
