"""A guided tour of Kron's command line: `make tour`, or `python examples/tour.py`.

Each stop explains a command, shows it as you would type it, and runs it here. It needs no service and writes
no file. Exit codes other than 0 are shown.
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
    """One stop of the tour: an explanation, and the command."""

    title: str
    text: str
    command: str


STOPS = (
    Stop(
        "When does it run?",
        "A cron expression and a time zone determine instants. Here: every working day at nine in Berlin.",
        'kron next "0 9 * * 1-5" --tz Europe/Berlin',
    ),
    Stop(
        "A night in spring",
        "On 29 March 2026 Berlin's clocks go from 02:00 to 03:00. A job at 02:30 has no time that day,\n"
        "and Kron reports it.",
        'kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-28 -n 3',
    ),
    Stop(
        "The same night, moved",
        "If the job must not miss a day, move it to the end of the gap.",
        'kron next "30 2 * * *" --tz Europe/Berlin --from 2026-03-28 -n 3 --dst-gap next',
    ),
    Stop(
        "A night in autumn",
        "On 25 October the hour from 02:00 occurs twice. Both occurrences are periods;\n"
        "--dst-repeat first or last keeps one of them.",
        'kron next "30 2 * * *" --tz Europe/Berlin --from 2026-10-24 -n 4',
    ),
    Stop(
        "The 29th of February",
        "Rare schedules are computed at once.",
        'kron next "0 12 29 2 *" -n 3',
    ),
    Stop(
        "The 30th of February",
        "An expression that can never match is rejected with the reason.",
        'kron next "0 12 30 2 *"',
    ),
    Stop(
        "A mistake",
        "Wrong input gets one line that names the field, the value and the remedy, and exit code 2.",
        'kron next "*/15 * * * *" --dialect posix',
    ),
    Stop(
        "In plain words",
        "What an expression means, on which days it runs, and which clock changes affect it. This one\n"
        "runs every 20 minutes from 22:00 to 01:40, on the 1st, the 15th and every Monday.",
        'kron explain "*/20 22-1 1,15 * mon" --tz America/New_York --from 2026-01-01 -n 2',
    ),
    Stop(
        "Review",
        "kron lint finds common mistakes: here an uneven step and a surprising day rule.\n"
        "Exit code 1 means that it has found some.",
        'kron lint "*/7 * * * *" "0 9 13 * fri"',
    ),
    Stop(
        "A window",
        "With a window, each job gets a time in it from a seed, the same on every machine. Here are the\n"
        "steps of one decision; examples/verify_decision.py recomputes one without Kron.",
        f"kron explain {FLEET} --job prod/file-backup --at 2026-06-01T03:00:00Z --now 2026-06-01T01:00:00Z",
    ),
    Stop(
        "A whole fleet",
        "The starts of 13 jobs in a week, with their windows and without: the peak is half as high.",
        f"kron simulate {FLEET} --from 2026-06-01 --days 7",
    ),
    Stop("For machines", "--json prints the same for programs.", 'kron next "@hourly" -n 1 --json'),
)


def main() -> int:
    """Walk through every stop."""
    for number, stop in enumerate(STOPS, 1):
        print(f"\n{number}. {stop.title}\n{stop.text}\n\n$ {stop.command}", flush=True)
        with redirect_stderr(sys.stdout):
            code = run(shlex.split(stop.command)[1:])
        if code:
            print(f"(exit code {code})")
    print("\nRead on: README.md, docs/index.md, `kron --help`. `make run` serves schedules that run.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
