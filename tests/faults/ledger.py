"""The ledger: a line before and after every execution, which survives the death of its writer."""

import json
import os
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """An event: `asked`, `owned`, `delivered`, `begin`, `end`, `raise` or `once`; `at` is -1 if unknown.

    `once` is an execution by a key: the first of a key and attempt reads as `begin` and `end`, later ones are
    duplicates. Appending is the commit, so an executor killed or frozen anywhere runs a key exactly once.
    """

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
        self._keys: set[tuple[str, int]] = set()

    def write(self, *lines: Line) -> None:
        """Append lines atomically."""
        os.write(self._handle, "".join(f"{json.dumps(line)}\n" for line in lines).encode())

    def lines(self) -> list[Line]:
        """Return all lines, in the order in which they were written."""
        new = os.pread(self._handle, os.fstat(self._handle).st_size - self._read, self._read)
        # The last line may be incomplete.
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for text in whole.splitlines():
            self._lines += self._read_as(_line_of(text))
        return self._lines

    def _read_as(self, line: Line) -> list[Line]:
        if line.what != "once":
            return [line]
        if (line.key, line.attempt) in self._keys:
            return []
        self._keys.add((line.key, line.attempt))
        return [line._replace(what="begin"), line._replace(what="end")]

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _line_of(text: bytes) -> Line:
    """Read a line; a writer killed in the middle of a write left a fragment in front of the next."""
    return Line._make(json.loads(text[text.rfind(b"[") :]))
