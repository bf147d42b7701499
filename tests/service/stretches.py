"""`kron`, which notes how long its event loop works at a stretch: the processor time of each callback.

Run as a program; the environment variable STRETCHES names the file of the notes.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

PROGRAM = [sys.executable, __file__]
# Shorter ones are not noted, in seconds.
SHORT_S = 0.001


class Stretches:
    """The notes of a service that this program runs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0

    def longest_s(self, pid: int) -> float:
        """Return the longest stretch of a process since the last call, in seconds."""
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        new, self._read = lines[self._read :], len(lines)
        return max((float(words[1]) for words in map(str.split, new) if int(words[0]) == pid), default=0.0)


def _note_stretches(file: str) -> None:
    run = asyncio.Handle._run
    notes = open(file, "a", buffering=1)  # noqa: SIM115 - open until the process ends

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        taken = time.thread_time() - began
        if taken >= SHORT_S:
            notes.write(f"{os.getpid()} {taken:.4f}\n")

    asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    from kron.cli.main import run

    _note_stretches(os.environ["STRETCHES"])
    sys.exit(run())
