"""Puts faults into copies of Kron, one at a time, and runs the test that must then fail.

A fault is a few words of the source, replaced. Its row names the test. `tools/faults.py` and
`tests/abuse/protections.py` have such rows; the faults that the simulator detects are in `tools/mutants.py`.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    "src",
    "tests",
    "docs",
    "tools",
    "bench",
    "examples",
    "constraints.txt",
    "hashes.txt",
    "pyproject.toml",
)
# A fault may make a test wait for ever; that is a failure, too.
MAX_S = 300
WORKERS = 2


class Planted(NamedTuple):
    """A fault, or what is promised without it; the words of the source, what replaces them, and the test."""

    name: str
    path: str
    old: str
    new: str
    test: str
    # Further words of the same file, and of others: what two places keep, one keeps, too.
    more: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, str, str], ...] = ()

    @property
    def replaced(self) -> tuple[tuple[str, str, str], ...]:
        """Return all words that are replaced: their file, the words, and what replaces them."""
        own = ((self.path, old, new) for old, new in ((self.old, self.new), *self.more))
        return (*own, *self.others)


def is_placed(row: Planted) -> bool:
    """Say whether the words of a fault are in the source exactly once, and its test exists."""
    file, _, name = row.test.partition("[")[0].partition("::")
    texts = {path: (ROOT / "src" / "kron" / path).read_text() for path, _, _ in row.replaced}
    is_there = all(texts[path].count(old) == 1 and old != new for path, old, new in row.replaced)
    return is_there and f"def {name}(" in (ROOT / file).read_text()


def page_table(rows: Iterable[Planted], head: str) -> str:
    """Return the rows as a page has them."""
    lines = [f"| {head} | where | test |", "|---|---|---|"]
    for row in rows:
        name = row.test.removeprefix("tests/").replace("[", " [")
        lines.append(f"| {row.name} | `{row.path}` | `{name}` |")
    return "\n".join(lines)


def write_table(page: Path, mark: str, table: str) -> None:
    """Write a table between the marks of a page."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = page.read_text().partition(begin)
    page.write_text(f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}")


def failure_of(row: Planted, folder: Path) -> str | None:
    """Put a fault into a copy of the project, and return the failure of its test, or None."""
    for name in COPIED:
        source, copy = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    for path, old, new in row.replaced:
        file = folder / "src" / "kron" / path
        text = file.read_text()
        assert text.count(old) == 1, f"{path}: {old}"
        file.write_text(text.replace(old, new))
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "TEST_PATIENCE_S": "30"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", row.test]
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=MAX_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode == 0:
        return None
    reasons = [line for line in done.stdout.splitlines() if line.startswith("E  ")]
    if "Timeout" in done.stdout + done.stderr and not reasons:
        return "it does not end"
    if done.returncode != 1 or not reasons or "FAILED tests" not in done.stdout:
        return f"?? {(done.stdout + done.stderr)[-300:]}"
    return reasons[0][1:].strip()


def _is_noticed(row: Planted) -> bool:
    with TemporaryDirectory(prefix="planted-") as folder:
        failure = failure_of(row, Path(folder))
    verdict = f"its test fails: {failure[:100]}" if failure else "ITS TEST PASSES"
    sys.stdout.write(f"{row.name}: {verdict}\n")
    sys.stdout.flush()
    return bool(failure) and not str(failure).startswith("??")


def try_each(rows: Sequence[Planted], *, said: str) -> int:
    """Put in each fault, print what became of it, and return 1 if a test passes all the same."""
    with ThreadPoolExecutor(WORKERS) as pool:
        noticed = list(pool.map(_is_noticed, rows))
    sys.stdout.write(f"{sum(noticed)} of {len(noticed)} {said}\n")
    return int(not all(noticed))


def parsed(description: str | None, program: str) -> argparse.Namespace:
    """Return the options of a command that puts in faults."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--only", default="", help="rows whose first column contains a text")
    parser.add_argument("--page", action="store_true", help="write the table into the page, and stop")
    return parser.parse_args()
