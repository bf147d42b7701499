"""`python -m tests.abuse`: a hostile tenant attacks a real service; its neighbour's starts are measured."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import postgres
from tests.abuse.experiment import ATTACKS, FLOODS, HANGS, LONG_QUIET, MIX, QUIET, Row, experimenting
from tests.abuse.verdict import least_of, summary, violations

HEAD = (
    "attack",
    "requests",
    "refused",
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
WIDTHS = (34, 9, 8, 12, 7, 5, 6, 7, 7, 7, 8, 8)


def main() -> int:
    """Run every attack, print a line for each and a summary; exit with 1 if a limit was violated."""
    parser = argparse.ArgumentParser(prog="make abuse", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each attack")
    parser.add_argument("--minutes", type=float, default=5.0, help="length of the mixed attack")
    parser.add_argument("--requests", type=int, default=0, help="requests of each attack at least")
    parser.add_argument(
        "--only", action="append", default=[], help="an attack and its control instead of all; repeatable"
    )
    parser.add_argument("--mixed", action="store_true", help="the mixed attack and its control alone")
    parser.add_argument("--store", default="sqlite:///kron.db", help="URL of the store")
    parser.add_argument(
        "--postgres", action="store_true", help="a PostgreSQL server for this run as the store"
    )
    given = parser.parse_args()
    names = [QUIET, *ATTACKS, HANGS, *FLOODS, LONG_QUIET, MIX]
    if given.only or given.mixed:
        names = [LONG_QUIET, MIX] if given.mixed or MIX in given.only else [QUIET, *given.only]
    _print(HEAD)
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="abuse-")))
        store = given.store
        if given.postgres:
            (folder / "postgres").mkdir()
            store = stack.enter_context(postgres.running(folder / "postgres")).fresh()
        experiment = stack.enter_context(experimenting(folder, store, is_many=bool(given.requests)))
        for name in names:
            # The control lasts as long as what it is compared with.
            seconds = 60 * given.minutes if name in (MIX, LONG_QUIET) else given.seconds
            rows.append(experiment.row(name, seconds, least_of(name, given.requests)))
            _print(_cells(rows[-1]))
    _say("")
    for line in summary(rows, given.requests):
        _say(line)
    return int(bool(violations(rows, given.requests)))


def _cells(row: Row) -> tuple[str, ...]:
    late = [f"{row.late_ms(share):.0f}" for share in (0.5, 0.99, 1.0)]
    answers = row.answers.total()
    cpu = f"{row.cpu_ms:.1f}" if answers else "-"
    memory = [
        f"{row.api_before_mib:.0f}>{row.api_mib:.0f}",
        f"{row.worker_before_mib:.0f}>{row.worker_mib:.0f}",
    ]
    counts = (row.starts, row.lost, row.doubled)
    return (row.name, str(answers), str(row.refused), cpu, *map(str, counts), *late, *memory)


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
