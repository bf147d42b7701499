"""Run the benchmark: `python -m bench [part ...] [--quick] [--json FILE]`."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench import cron, machine, report
from bench.row import Findings

# A part is a module with `run(say, *, quick) -> Findings`; a new one is added here and nowhere else.
PARTS: dict[str, Callable[..., Findings]] = {"cron": cron.run}

PROJECT = Path(__file__).resolve().parent.parent
LATEST = Path(".bench", "latest.json")


def main() -> None:
    """Measure the parts asked for, show what was found, and write it down."""
    options = _options()
    begin = perf_counter()

    def say(text: str) -> None:
        print(f"[bench {perf_counter() - begin:5.1f} s] {text}", file=sys.stderr, flush=True)

    found = {part: PARTS[part](say, quick=options.quick) for part in options.parts or PARTS}
    report.show(found)
    report.write(options.json, found, machine=machine.description(), quick=options.quick)
    say(f"done; written to {_short(options.json)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Kron beside its peers.")
    parser.add_argument("parts", nargs="*", metavar="part", help=f"what to measure: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer calls, in less than half a minute")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", default=PROJECT / LATEST, help=f"default: {LATEST}"
    )
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"unknown part {unknown[0]}; known are {', '.join(PARTS)}")
    return options


def _short(path: Path) -> Path:
    return path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path


if __name__ == "__main__":
    main()
