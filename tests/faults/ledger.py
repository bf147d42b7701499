"""The ledger: a line before and after every execution, which survives the death of its writer."""

import json
import os
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """An event: `asked`, `owned`, `delivered`, `begin`, `end` or `raise`; `at` is -1 if unknown."""

    what: str
    identity: str
    key: str
    attempt: int
    token: int
    at: int


class Ledger:
    """An append-only file. Every line is one write, so lines of several processes never mix."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines: list[Line] = []
        self._read = 0

    def write(self, *lines: Line) -> None:
        """Append lines atomically."""
        os.write(self._handle, "".join(f"{json.dumps(line)}\n" for line in lines).encode())

    def lines(self) -> list[Line]:
        """Return all lines, in the order in which they were written."""
        new = os.pread(self._handle, os.fstat(self._handle).st_size - self._read, self._read)
        # The last line may be incomplete.
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += [_line_of(text) for text in whole.splitlines()]
        return self._lines

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _line_of(text: bytes) -> Line:
    """Read a line; a writer killed in the middle of a write left a fragment in front of the next."""
    return Line._make(json.loads(text[text.rfind(b"[") :]))
