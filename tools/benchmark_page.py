"""Bring the figures of docs/reference/benchmarks.md up to date with the last `make bench`.

    make bench && python tools/benchmark_page.py

The text around the figures is written by people; read it again when a verdict has changed.
"""

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "benchmarks.md"
FIGURES = ROOT / ".bench" / "latest.json"
VERDICTS = {True: "met", False: "**not met**", None: "not measured"}


def goals(found: dict[str, Any]) -> str:
    """Return the table of goals."""
    lines = ["| what | goal | measured | verdict |", "|---|---|---:|---|"]
    for part in found["parts"].values():
        lines += [
            f"| {goal['what']} | {goal['wanted']} | {goal['measured']} | {VERDICTS[goal['met']]} |"
            for goal in part["goals"]
        ]
    return "\n".join(lines)


def figures(found: dict[str, Any]) -> str:
    """Return every comparison as a table of its own."""
    machine = found["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    made = f"Made with {machine['cpus']} processors, {machine['system']} {machine['architecture']}, "
    lines = [made + f"{machine['python']}, a load of {machine['load']} at its end; {packages}."]
    for part in found["parts"].values():
        for title, rows in groupby(part["rows"], key=lambda row: row["title"]):
            lines += ["", f"### {title[0].upper()}{title[1:]}", ""]
            lines += ["| contender | measured | Kron is | note |", "|---|---:|---:|---|"]
            for row in rows:
                ratio = "-" if row["ratio"] is None else f"{row['ratio']:,.3g} x"
                lines.append(f"| {row['contender']} | {row['shown']} | {ratio} | {row['note']} |")
    return "\n".join(lines)


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with what stands between two marks exchanged."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        raise SystemExit(f"{PAGE.name} has no marks for {name}")
    return f"{before}{begin}\n{text}\n\n{end}{after}"


def main() -> int:
    """Rewrite the page."""
    if not FIGURES.exists():
        raise SystemExit("run `make bench` first")
    found = json.loads(FIGURES.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    page = replaced(page, "goals", goals(found))
    page = replaced(page, "figures", figures(found))
    PAGE.write_text(page, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)} is up to date; read the text around the figures again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
