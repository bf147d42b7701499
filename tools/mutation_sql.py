"""The mutations of a file of SQL statements, each with the place in the code that runs its statement."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.mutation_operators import Mutation

# What is replaced, by what, and how that is called.
CHANGES = (
    (re.compile(r"(?<= )<=(?= |\n)"), "<", "another comparison"),
    (re.compile(r"(?<= )>=(?= |\n)"), ">", "another comparison"),
    (re.compile(r"(?<= )<(?= )"), "<=", "another comparison"),
    (re.compile(r"(?<= )>(?= )"), ">=", "another comparison"),
    (re.compile(r"(?<= )=(?= )"), "<>", "another comparison"),
    (re.compile(r"(?<= )<>(?= )"), "=", "another comparison"),
    (re.compile(r"(?<= )AND(?= )"), "OR", "and, or"),
    (re.compile(r"(?<= )OR(?= )"), "AND", "and, or"),
    (re.compile(r"(?<= )NOT(?= )"), "", "not dropped"),
    (re.compile(r"(?<= )DESC\b"), "ASC", "another order"),
    (re.compile(r"(?<= )\+(?= )"), "-", "another operator"),
    (re.compile(r"\bIS NULL\b"), "IS NOT NULL", "a condition negated"),
    (re.compile(r"\bgreatest(?=\()"), "least", "min, max"),
    (re.compile(r"\bmax(?=\()"), "min", "min, max"),
    (re.compile(r"\bmin(?=\()"), "max", "min, max"),
)
NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
COMMENT = re.compile(r"--.*")
# Assignments are no comparisons.
SETTING = re.compile(r"\bSET\b.*?(?=\bFROM\b|\bWHERE\b|\bRETURNING\b|\Z)", re.DOTALL)


def sql_mutations(text: str) -> Iterator[Mutation]:
    """Yield every mutation of the named statements of a file; the scope of each is its statement's name."""
    starts = [(match[1], match.end()) for match in NAME.finditer(text)]
    ends = [*(match.start() for match in NAME.finditer(text)), len(text)][1:]
    for (name, start), end in zip(starts, ends, strict=True):
        statement = text[start:end]
        spared = [match.span() for match in (*COMMENT.finditer(statement), *SETTING.finditer(statement))]
        for pattern, new, operator in CHANGES:
            for match in pattern.finditer(statement):
                if not any(first <= match.start() < last for first, last in spared):
                    at = start + match.start()
                    line = text.count("\n", 0, at) + 1
                    begin, over = len(text[:at].encode()), len(text[: start + match.end()].encode())
                    yield Mutation(operator, begin, over, new, (line, line), name, False)


def uses_of(name: str, files: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Yield the files and lines that name a statement; of a name that is built, its first part."""
    parts = {f'"{name}"', f"'{name}'", f'f"{name.partition("_")[0]}_{{'}
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            if any(part in line for part in parts):
                yield file, number
