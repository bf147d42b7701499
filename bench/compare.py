"""Two sets of results in one table: `python -m bench.compare BEFORE.json ... --with AFTER.json ...`.

Each side is the results of one or more runs of `python -m bench`. A row shows the range of each side and the
ratio of the best runs. The ranges of runs of one tree are the noise of the machine: a row is called slower
only if even the best run after is worse than the worst run before.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bench.row import Kind, shown

# Kron's own rows; the peers' rows do not change between trees.
OWN = "kron"


class Key(NamedTuple):
    """What identifies a measurement in every run."""

    part: str
    title: str
    contender: str
    kind: Kind


class Comparison(NamedTuple):
    """The costs of one measurement before and after, in the order of the runs."""

    key: Key
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Return the best cost after divided by the best cost before."""
        return min(self.after) / min(self.before)

    @property
    def verdict(self) -> str:
        """Return whether the two ranges are apart, and which is better."""
        if min(self.after) > max(self.before):
            return "slower" if self.key.kind in (Kind.RATE, Kind.TIME) else "more"
        if max(self.after) < min(self.before):
            return "faster" if self.key.kind in (Kind.RATE, Kind.TIME) else "less"
        return "within noise"


def comparisons(before: Iterable[Path], after: Iterable[Path]) -> list[Comparison]:
    """Return the measurements that both sides have."""
    old, new = _costs(before), _costs(after)
    return [Comparison(key, tuple(old[key]), tuple(new[key])) for key in old if key in new]


def markdown(rows: Iterable[Comparison]) -> Iterator[str]:
    """Yield the lines of a table for the documentation."""
    yield "| part | measurement | before | after | cost after / before | verdict |"
    yield "|---|---|---:|---:|---:|---|"
    for row in rows:
        what = row.key.title if row.key.contender == OWN else f"{row.key.title}: {row.key.contender}"
        sides = f"{_range(row.key.kind, row.before)} | {_range(row.key.kind, row.after)}"
        yield f"| {row.key.part} | {what} | {sides} | {row.ratio:.2f} | {row.verdict} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description="Compare results of two trees."
    )
    parser.add_argument("before", nargs="+", type=Path, metavar="BEFORE.json")
    parser.add_argument("--with", nargs="+", type=Path, metavar="AFTER.json", dest="after", required=True)
    chosen = parser.parse_args()
    print("\n".join(markdown(comparisons(chosen.before, chosen.after))))


def _costs(files: Iterable[Path]) -> dict[Key, list[float]]:
    costs: dict[Key, list[float]] = {}
    for path in files:
        for part, findings in json.loads(path.read_text())["parts"].items():
            for row in findings["rows"]:
                if row["contender"].startswith(OWN) and row["cost"] is not None:
                    key = Key(part, row["title"], row["contender"], Kind(row["kind"]))
                    costs.setdefault(key, []).append(row["cost"])
    return costs


def _range(kind: Kind, costs: tuple[float, ...]) -> str:
    best, worst = shown(kind, min(costs)), shown(kind, max(costs))
    return best if best == worst else f"{best} ({worst})"


if __name__ == "__main__":
    main()
