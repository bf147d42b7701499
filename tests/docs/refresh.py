"""Write outputs and field tables into the documentation: `python -m tests.docs.refresh`, then read the diff.

What is shown and still agrees stays as it is, lines of three dots included.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.field_tables import with_tables
from tests.docs.page import PAGES, ROOT, Block, Session, agrees, blocks_of, examples_of


def refreshed(page: str, folder: Path) -> str:
    """Return a page with the outputs its commands have now."""
    lines = page.splitlines()
    session = Session(folder=folder)
    shift = 0
    for block in blocks_of(page):
        if not (block.runs and block.language == "console"):
            session.wrong(block)
            continue
        indent = " " * (len(lines[block.line - 1 + shift]) - len(lines[block.line - 1 + shift].lstrip()))
        new = [f"{indent}{line}".rstrip() for line in _lines_of(block, session)]
        old = len(block.text.splitlines())
        lines[block.line + shift : block.line + shift + old] = new
        shift += len(new) - old
    return "".join(f"{line}\n" for line in lines)


def _lines_of(block: Block, session: Session) -> Iterator[str]:
    shown = block.text.splitlines()
    for example in examples_of(block):
        place = example.line - block.line - 1
        yield shown[place]
        while shown[place].endswith("\\"):
            place += 1
            yield shown[place]
        output = session.output_of(example.command)
        yield from (example.expected if agrees(example.expected, output) else output).rstrip().splitlines()


def main() -> None:
    """Refresh every page and name those that changed."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        with TemporaryDirectory() as folder:
            new = refreshed(with_tables(text), Path(folder))
        if new != text:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
