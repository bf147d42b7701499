"""Bring the figures of docs/reference/benchmarks.md up to date with the last `make bench`.

    make bench && python tools/benchmark_page.py [FILE]

A run of some parts (`make bench ARGS="--only embed"`) replaces those alone; each part names the setup of its
figures. The text around the figures is written by people; read it again when a verdict has changed.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
FIGURES = ROOT / ".bench" / "latest.json"
VERDICTS = {True: "met", False: "**not met**", None: "not measured"}
# The parts in the order of the page.
PARTS = (
    "cron", "decisions", "theory", "progress", "engine", "embed", "service", "process", "krond", "dag",
    "operator", "pages", "million",
)  # fmt: skip
Write = Callable[[Mapping[str, Any], Mapping[str, Any]], str]


def goals(part: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Return the table of a part's goals."""
    lines = [
        f"| {goal['what']} | {goal['wanted']} | {goal['measured']} | {VERDICTS[goal['met']]} |"
        for goal in part["goals"]
    ]
    return "\n".join(["| what | goal | measured | verdict |", "|---|---|---:|---|", *lines])


def figures(part: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Return every comparison of a part as a table, and the setup of all."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    made = f"Made with {machine['cpus']} processors, {machine['system']} {machine['architecture']}, "
    lines = [made + f"{machine['python']}, a load of {machine['load']} at its end; {packages}."]
    for title, rows in groupby(part["rows"], key=lambda row: row["title"]):
        lines += ["", f"### {title[0].upper()}{title[1:]}", ""]
        lines += ["| contender | measured | Kron is | note |", "|---|---:|---:|---|"]
        for row in rows:
            ratio = "-" if row["ratio"] is None else f"{row['ratio']:,.3g} x"
            lines.append(f"| {row['contender']} | {row['shown']} | {ratio} | {row['note']} |")
    return "\n".join(lines)


def renewed(page: str, name: str, found: Mapping[str, Any], write: Write) -> str:
    """Return the page with the parts of a run exchanged between two marks; all others stay as they are."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    inside, _, after = rest.partition(end)
    if not after:
        raise SystemExit(f"{PAGE.name} has no marks for {name}")
    texts = parts_of(inside)
    texts |= {part: write(value, found["machine"]) for part, value in found["parts"].items()}
    text = "\n\n".join(f"<!-- part {part} -->\n\n{texts[part]}" for part in PARTS if part in texts)
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def parts_of(text: str) -> dict[str, str]:
    """Return what the page says of each part."""
    _, *pieces = re.split(r"<!-- part (\w+) -->", text)
    return {part: piece.strip() for part, piece in zip(pieces[::2], pieces[1::2], strict=True)}


def main() -> int:
    """Rewrite the page."""
    written = Path(sys.argv[1]) if sys.argv[1:] else FIGURES
    if not written.exists():
        raise SystemExit("run `make bench` first")
    found = json.loads(written.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    page = renewed(page, "goals", found, goals)
    page = renewed(page, "figures", found, figures)
    PAGE.write_text(page, encoding="utf-8")
    renewed_parts = ", ".join(found["parts"])
    print(f"{PAGE.relative_to(ROOT)}: renewed {renewed_parts}; read the text around the figures again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
