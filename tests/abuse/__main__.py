"""`python -m tests.abuse`: a hostile tenant attacks a real service; its neighbour's starts are measured."""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.abuse.attacks import ATTACKS, PARTS
from tests.abuse.experiment import FLOODS, HANGS, LONG_QUIET, MIX, QUIET, Row, experimenting

# The lateness that the neighbour's starts keep during the mixed attack, in milliseconds, on a quiet machine.
P99_MS = 250.0
# The most memory that the API and the worker may have used at the end of an attack, in MiB.
API_MIB, WORKER_MIB = 600, 200
HEAD = (
    "attack",
    "requests",
    "cpu ms each",
    "starts",
    "lost",
    "twice",
    "p50 ms",
    "p99 ms",
    "max ms",
    "API MiB",
    "worker",
)
WIDTHS = (30, 9, 12, 7, 5, 6, 7, 7, 7, 8, 7)


def main() -> int:
    """Run every attack and print a line for each; exit with 1 if a start was harmed or memory not bounded."""
    parser = argparse.ArgumentParser(prog="make abuse", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each attack")
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the mixed attack")
    parser.add_argument("--requests", type=int, default=0, help="requests of each attack at least")
    parser.add_argument("--only", help="one attack instead of all")
    parser.add_argument("--store", default="sqlite:///kron.db", help="URL of the store, e.g. of a PostgreSQL")
    given = parser.parse_args()
    names = [given.only] if given.only else [QUIET, *ATTACKS, HANGS, *FLOODS, LONG_QUIET, MIX]
    _print(HEAD)
    with (
        TemporaryDirectory(prefix="abuse-") as folder,
        experimenting(Path(folder), given.store) as experiment,
    ):
        rows = []
        for name in names:
            # The control lasts as long as what it is compared with.
            seconds = 60 * given.minutes if name in (MIX, LONG_QUIET) else given.seconds
            rows.append(experiment.row(name, seconds, given.requests))
            _print(_cells(rows[-1]))
    wrong = [row.name for row in rows if row.lost or row.doubled or row.late_ms(0.99) > 1_000]
    wrong += [row.name for row in rows if row.name == MIX and row.late_ms(0.99) > P99_MS]
    for name in wrong:
        _say(f"the neighbour was harmed: {name}")
    large = [row.name for row in rows if row.api_mib > API_MIB or row.worker_mib > WORKER_MIB]
    for name in large:
        _say(f"more than {API_MIB} MiB of the API or {WORKER_MIB} MiB of the worker: {name}")
    few = [row.name for row in rows if row.answers and row.answers.total() < _least(row.name, given.requests)]
    for name in few:
        _say(f"fewer requests than required: {name}")
    return int(bool(wrong or large or few))


def _least(name: str, requests: int) -> int:
    """Return how many requests an attack has to send."""
    return 0 if name in FLOODS else requests // PARTS.get(name, 1)


def _cells(row: Row) -> tuple[str, ...]:
    late = [f"{row.late_ms(share):.0f}" for share in (0.5, 0.99, 1.0)]
    answers = row.answers.total()
    cpu = f"{row.cpu_ms:.1f}" if answers else "-"
    memory = [f"{row.api_mib:.0f}", f"{row.worker_mib:.0f}"]
    return (row.name, str(answers), cpu, str(row.starts), str(row.lost), str(row.doubled), *late, *memory)


def _print(cells: tuple[str, ...]) -> None:
    name, *numbers = (
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )
    _say(" ".join([name, *numbers]))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
