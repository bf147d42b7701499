"""Read, check and change the page of requirements, docs/requirements.md.

    python tools/requirements.py mark R1-012 tests/unit/test_x.py::test_y [...]
    python tools/requirements.py summary
    python tools/requirements.py list [--open] [R1]

All but the last part are pure functions over the page's text; tests/test_requirements.py uses them too.
"""

import argparse
import ast
import fcntl
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "requirements.md"
SPECS = (1, 2, 3, 4, 5)
STATUSES = ("open", "done")
NO_TEST = "-"

ROW_HEADER = ["id", "clause", "demands", "status", "test"]
SUMMARY_HEADER = "| spec | rows | done | open |"
SUMMARY_RULE = "|---|---:|---:|---:|"

ID = re.compile(r"R([1-5])-(\d{3})")
SPEC_HEADING = re.compile(r"## Spec (\d)\b")
RULE = re.compile(r"\|(?:\s*:?-{3,}:?\s*\|)+")
TEST_NAME = re.compile(r"tests/(?:\w+/)*\w+\.py(?:::[A-Za-z_]\w*){1,2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One requirement as the page states it."""

    id: str
    clause: str
    demands: str
    status: str
    test: str

    @property
    def spec(self) -> int:
        return int(self.id[1])

    @property
    def line(self) -> str:
        return f"| {self.id} | {self.clause} | {self.demands} | {self.status} | {self.test} |"


# --- reading ---------------------------------------------------------------------------------------


def spec_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield spec, line number and text of every table line below a `## Spec N` heading, except headers."""
    spec = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("## "):
            heading = SPEC_HEADING.match(line)
            spec = int(heading.group(1)) if heading else 0
        elif spec and line.startswith("|") and not RULE.fullmatch(line) and _cells(line) != ROW_HEADER:
            yield spec, number, line


def parse_row(line: str) -> Row | None:
    """Return the row a table line states, or None if it has not five columns or no proper id."""
    cells = _cells(line)
    if len(cells) != len(ROW_HEADER) or not ID.fullmatch(cells[0]):
        return None
    return Row(**dict(zip(ROW_HEADER, cells, strict=True)))


def parse_rows(text: str) -> list[Row]:
    """Return all well-formed rows in the page's order."""
    return [row for _, _, line in spec_lines(text) if (row := parse_row(line))]


def named_tests(row: Row) -> list[str]:
    """Return the tests a row names, without their backticks."""
    parts = re.split(r"<br>|, ", row.test)
    return [part[1:-1] if re.fullmatch(r"`[^`]+`", part) else part for part in parts if part != NO_TEST]


def summary_of(rows: Iterable[Row]) -> str:
    """Return the summary table that belongs to the rows."""
    kept = list(rows)
    groups = [(f"spec {spec}", [row for row in kept if row.spec == spec]) for spec in SPECS]
    lines = [_summary_line(name, group) for name, group in [*groups, ("all", kept)]]
    return "\n".join([SUMMARY_HEADER, SUMMARY_RULE, *lines])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _summary_line(name: str, rows: Sequence[Row]) -> str:
    done = sum(row.status == "done" for row in rows)
    return f"| {name} | {len(rows)} | {done} | {sum(row.status == 'open' for row in rows)} |"


def _summary_span(text: str) -> tuple[int, int] | None:
    """Return where the summary table stands in the text, as [start, end)."""
    match = re.search(rf"^{re.escape(SUMMARY_HEADER)}(?:\n\|.*)*", text, flags=re.MULTILINE)
    return match.span() if match else None


# --- checking: each function returns one sentence per problem ---------------------------------------


def form_problems(text: str) -> list[str]:
    """Check that each table line is a row of its section's spec, with text and a known status."""
    problems = []
    for spec, number, line in spec_lines(text):
        row = parse_row(line)
        if row is None:
            problems.append(f"line {number}: not a row of five columns with an id: {line}")
        elif row.spec != spec:
            problems.append(f"line {number}: {row.id} stands in the section of spec {spec}")
        elif row.status not in STATUSES:
            problems.append(f"line {number}: {row.id} has the unknown status {row.status!r}")
        elif not (row.clause and row.demands.endswith(".") and row.test):
            problems.append(f"line {number}: {row.id} lacks a clause, a sentence or a test column")
    return problems


def numbering_problems(text: str) -> list[str]:
    """Check that the ids of each spec are 001, 002, ... in this order, and that no spec is empty."""
    problems = []
    rows = parse_rows(text)
    for spec in SPECS:
        ids = [row.id for row in rows if row.spec == spec]
        expected = [f"R{spec}-{number:03}" for number in range(1, len(ids) + 1)]
        if not ids:
            problems.append(f"spec {spec} has no rows")
        problems += [
            f"{actual} stands where {due} is due"
            for actual, due in zip(ids, expected, strict=True)
            if actual != due
        ]
    return problems


def evidence_problems(text: str, root: Path) -> list[str]:
    """Check that done rows name tests that exist below `root`, and open rows none."""
    problems = []
    for row in parse_rows(text):
        names = named_tests(row)
        if row.status == "open" and row.test != NO_TEST:
            problems.append(f"{row.id} is open but names {row.test}")
        if row.status == "done" and not names:
            problems.append(f"{row.id} is done but names no test")
        if row.status == "done":
            problems += [f"{row.id}: {problem}" for name in names if (problem := missing_test(name, root))]
            problems += [
                f"{row.id}: {name} stands without backticks" for name in names if f"`{name}`" not in row.test
            ]
    return problems


def summary_problems(text: str) -> list[str]:
    """Check that the summary's counts are those of the rows."""
    span = _summary_span(text)
    if span is None:
        return ["the page has no summary table"]
    given, expected = text[slice(*span)].split("\n"), summary_of(parse_rows(text)).split("\n")
    if len(given) != len(expected):
        return [f"the summary has {len(given)} lines instead of {len(expected)}"]
    return [
        f"the summary says {g} instead of {e}"
        for g, e in zip(given, expected, strict=True)
        if _cells(g) != _cells(e)
    ]


def missing_test(name: str, root: Path) -> str | None:
    """Say why `tests/file.py::[Class::]test` names no test below `root`; None if it names one."""
    if not TEST_NAME.fullmatch(name):
        return f"{name} is not of the form tests/file.py::test or tests/file.py::Class::test"
    file, _, path = name.partition("::")
    if not (root / file).is_file():
        return f"{file} does not exist"
    return None if path in _tests_in((root / file).read_text(encoding="utf-8")) else f"{name} does not exist"


@cache  # a page names many tests of one file
def _tests_in(source: str) -> frozenset[str]:
    """Return the tests a file defines, those of its classes as `Class::test`."""
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    scopes = [("", tree.body), *((f"{node.name}::", node.body) for node in classes)]
    return frozenset(
        prefix + node.name
        for prefix, body in scopes
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    )


def all_problems(text: str, root: Path) -> list[str]:
    """Return every problem of the page."""
    return [
        *form_problems(text),
        *numbering_problems(text),
        *evidence_problems(text, root),
        *summary_problems(text),
    ]


# --- changing --------------------------------------------------------------------------------------


def mark_done(text: str, row_id: str, tests: Sequence[str]) -> str:
    """Return the page with one row done by these tests and the counts refreshed; KeyError without the row."""
    for row in parse_rows(text):
        if row.id == row_id:
            done = replace(row, status="done", test="<br>".join(f"`{test}`" for test in tests))
            lines = [done.line if parse_row(line) == row else line for line in text.split("\n")]
            return refresh_summary("\n".join(lines))
    raise KeyError(row_id)


def refresh_summary(text: str) -> str:
    """Return the page with the summary's counts made those of the rows; KeyError without a summary table."""
    span = _summary_span(text)
    if span is None:
        raise KeyError(SUMMARY_HEADER)
    start, end = span
    return text[:start] + summary_of(parse_rows(text)) + text[end:]


# --- the command -----------------------------------------------------------------------------------


def rewrite(change: Callable[[str], str]) -> None:
    """Change the page in place under a lock, because several people mark rows at the same time."""
    with PAGE.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = change(file.read())
        file.seek(0)
        file.write(text)
        file.truncate()


def mark(row_id: str, tests: Sequence[str]) -> int:
    wrong = [problem for test in tests if (problem := missing_test(test, ROOT))]
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        return 1
    try:
        rewrite(lambda text: mark_done(text, row_id, tests))
    except KeyError:
        print(f"no row {row_id}", file=sys.stderr)
        return 1
    return 0


def show(prefix: str, *, only_open: bool) -> int:
    rows = parse_rows(PAGE.read_text(encoding="utf-8"))
    chosen = [row for row in rows if row.id.startswith(prefix) and not (only_open and row.status == "done")]
    for spec, group in groupby(chosen, key=lambda row: row.spec):
        print(f"spec {spec}")
        for row in group:
            print(f"  {row.id}  {row.status}  {row.clause}: {row.demands}  {row.test}")
    return 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/requirements.py", description="The page of requirements.")
    commands = parser.add_subparsers(dest="command", required=True)
    marking = commands.add_parser("mark", help="mark a row done, by the tests named")
    marking.add_argument("row_id", metavar="R1-012")
    marking.add_argument("tests", nargs="+", metavar="tests/file.py::test")
    commands.add_parser("summary", help="refresh the counts at the top of the page")
    listing = commands.add_parser("list", help="list the rows")
    listing.add_argument("--open", action="store_true", dest="only_open", help="only rows still open")
    listing.add_argument("prefix", nargs="?", default="R", metavar="R1")
    given = parser.parse_args(arguments)
    if given.command == "mark":
        return mark(given.row_id, given.tests)
    if given.command == "list":
        return show(given.prefix, only_open=given.only_open)
    rewrite(refresh_summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
