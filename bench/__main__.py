"""Run the benchmark: `python -m bench [--only PART ...] [--quick] [--full] [--json FILE]`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from bench import (
    cron,
    dag,
    decisions,
    embed,
    engine,
    krond,
    machine,
    million,
    operator,
    pages,
    process,
    progress,
    report,
    service,
    theory,
)
from bench.row import Findings

# A part is a module with `run(say, *, quick) -> Findings`; a new one is added here only.
PARTS: dict[str, Callable[..., Findings]] = {
    "cron": cron.run,
    "decisions": decisions.run,
    "theory": theory.run,
    "progress": progress.run,
    "engine": engine.run,
    "embed": embed.run,
    "process": process.run,
    "krond": krond.run,
    "service": service.run,
    "dag": dag.run,
    "operator": operator.run,
    "pages": pages.run,
    "million": million.run,
}
# Parts that run only when named, or with --full.
EXTRA = ("million", "pages")

PROJECT = Path(__file__).resolve().parent.parent
LATEST = Path(".bench", "latest.json")


def main() -> None:
    """Run the requested parts, print the results, and write them to a file."""
    chosen = options()
    begin = perf_counter()

    def say(text: str) -> None:
        print(f"[bench {perf_counter() - begin:5.1f} s] {text}", file=sys.stderr, flush=True)

    findings = {part: PARTS[part](say, quick=chosen.quick) for part in chosen.only}
    report.show(findings)
    report.write(chosen.json, findings, machine=machine.description(), quick=chosen.quick)
    say(f"done; written to {_short(chosen.json)}")


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Kron and its peers, in one run on this machine.",
        epilog='With make: make bench ARGS="--only cron --quick". The peers that are not installed have no '
        "figures; make bench installs them. Ratios count more than figures: the machine is never quiet.",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="PART",
        choices=PARTS,
        help=f"measure these parts only; there are: {', '.join(PARTS)}",
    )
    parser.add_argument("--quick", action="store_true", help="ask less, in a few minutes")
    parser.add_argument(
        "--full", action="store_true", help=f"measure also what takes long: {', '.join(EXTRA)}"
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=PROJECT / LATEST,
        help=f"where to write all figures (default: {LATEST})",
    )
    chosen = parser.parse_args(arguments)
    if chosen.only is None:
        chosen.only = [part for part in PARTS if chosen.full or part not in EXTRA]
    return chosen


def _short(path: Path) -> Path:
    return path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path


if __name__ == "__main__":
    main()
