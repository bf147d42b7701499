"""`python -m tests.chaos`: chaos experiments of any length, on both stores and in both sharing modes."""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos.experiment import Plan, Report, play
from tests.postgres import running

SHARINGS = ("shared", "leader")


def main() -> int:
    """Run the experiments, print their reports, and exit with 1 if there was a fault."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="length of each experiment")
    parser.add_argument("--seed", default=str(time.time_ns() % 1_000_000), help="decides the faults")
    parser.add_argument("--only", choices=["sqlite", *SHARINGS], help="one of the experiments instead of all")
    parser.add_argument("--quiet", action="store_true", help="do not print every fault as it is injected")
    given = parser.parse_args()
    wanted = [given.only] if given.only else ["sqlite", *SHARINGS]
    with TemporaryDirectory(prefix="chaos-") as folder:
        reports = [_played(name, Path(folder), given) for name in wanted]
    return int(any(report.faults for report in reports))


def _played(name: str, folder: Path, given: argparse.Namespace) -> Report:
    say = (lambda line: None) if given.quiet else _say
    _say(f"--- {name}, {given.minutes:g} minutes, seed {given.seed}")
    plan = Plan(folder=folder / name, seed=given.seed, seconds=60 * given.minutes)
    if name == "sqlite":
        report = play(plan, say)
    else:
        place = folder / f"database-{name}"
        place.mkdir()
        with running(place) as database:
            plan = Plan(
                folder=plan.folder, seed=plan.seed, seconds=plan.seconds, sharing=name, database=database
            )
            report = play(plan, say)
    for line in report.lines():
        _say(line)
    _say(f"--- {name}: {f'{len(report.faults)} faults' if report.faults else 'no faults'}")
    return report


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
