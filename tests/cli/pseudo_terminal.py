"""Runs a command on a pseudo-terminal, and returns the bytes that it would draw."""

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import RawIOBase
from pathlib import Path

from tests.service.server import KRON


def on_terminal(
    words: Sequence[str],
    folder: Path,
    *,
    columns: int = 120,
    answer: str = "",
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Return the exit code of a `kron` command and all it writes to a terminal."""
    master, slave = pty.openpty()
    environment = {"TERM": "xterm", "TZ": "Europe/Berlin", "COLUMNS": str(columns), **(variables or {})}
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    # A terminal holds 4 KiB: it is read while the command runs, which would wait for room otherwise.
    with ThreadPoolExecutor() as pool, os.fdopen(master, "r+b", buffering=0) as terminal:
        terminal.write(answer.encode())
        reading = pool.submit(read_to_end, terminal)
        done = subprocess.run(
            [*KRON, *words],
            cwd=folder,
            env=kept | environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            check=False,
        )
        os.close(slave)
        return done.returncode, reading.result().replace("\r\n", "\n")


def read_to_end(terminal: RawIOBase) -> str:
    """Return everything that is written to a terminal."""
    parts: list[bytes] = []
    # The end of a terminal is an error once its other side is closed.
    with suppress(OSError):
        while part := terminal.read(1 << 16):
            parts.append(part)
    return b"".join(parts).decode()
