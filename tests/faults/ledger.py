"""The ledger: a line before and after the work of every real execution, whoever dies meanwhile."""

import json
import os
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """What was done: `asked`, `owned`, `delivered`, `begin`, `end` or `raise`; `at` is -1 if nobody knows."""

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
        """Append lines: all of them, or none."""
        os.write(self._handle, "".join(f"{json.dumps(line)}\n" for line in lines).encode())

    def lines(self) -> list[Line]:
        """Return all lines, in the order in which they were written."""
        new = os.pread(self._handle, os.fstat(self._handle).st_size - self._read, self._read)
        # The last line may just be being written.
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += [_line_of(text) for text in whole.splitlines()]
        return self._lines

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._handle)


def _line_of(text: bytes) -> Line:
    """Read a line; whoever was killed in the middle of a write left its beginning in front of the next."""
    return Line._make(json.loads(text[text.rfind(b"[") :]))
