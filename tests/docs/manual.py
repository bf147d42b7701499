"""Write the field lists of manual pages from the tables: `python -m tests.docs.manual`."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kron.core.fields import FieldSpec
from kron.core.job.host import HOST, HOST_WORDS
from kron.core.job.job import JOB
from kron.core.job.policy import POLICY
from tests.docs.page import ROOT

MANUAL = sorted((ROOT / "docs" / "man").glob("*.[1-9]"))
# The word of a job file for each field of a process.
_WORDS = {field: word for word, field in HOST_WORDS.items()}
LISTS: dict[str, Sequence[FieldSpec]] = {"job": JOB.rows, "policy": POLICY.rows, "process": HOST.rows}
_MARKED = re.compile(r'^\.\\" fields: (\w+)\n(.*?)^\.\\" end\n', re.MULTILINE | re.DOTALL)


def word_of(row: FieldSpec) -> str:
    """Return the word that a job file has for a field."""
    return _WORDS.get(row.word, row.word) if row in HOST.rows else row.word


def roff(text: str) -> str:
    """Return a text of the documentation as roff: code in bold, hyphens as themselves."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fR", escaped)


def _entries(rows: Sequence[FieldSpec]) -> Iterator[str]:
    for row in rows:
        yield f".TP\n\\fB{roff(word_of(row))}\\fR\n{roff(row.doc[0].upper() + row.doc[1:])}.\n"


def with_fields(page: str) -> str:
    """Return a manual page with its field lists as the tables have them."""
    return _MARKED.sub(
        lambda match: f'.\\" fields: {match[1]}\n{"".join(_entries(LISTS[match[1]]))}.\\" end\n', page
    )


def main() -> None:
    """Write the lists of every page."""
    for page in map(Path, MANUAL):
        page.write_text(with_fields(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
