"""Reads files, pipes and standard input as UTF-8 text, up to a size limit."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kron.core.errors import InputError, UnreadableFileError

STDIN = "-"
# Size limits, because a pipe may never end. A file of 100,000 jobs has some 30 MiB.
MAX_JOBS = 64 << 20
MAX_CRONTAB = 4 << 20
MAX_CALENDAR = 4 << 20
# The crontabs of the system.
SYSTEM_FOLDER, SYSTEM_FILE = "cron.d", "/etc/crontab"


def read_text(file: str, most: int) -> str:
    """Return the text of a file, or of standard input, or raise UnreadableFileError."""
    try:
        content = _read_bytes(file, most)
    except OSError as cause:
        raise UnreadableFileError(file=file, reason=cause.strerror or str(cause)) from cause
    except ValueError as cause:
        raise UnreadableFileError(file=file, reason="not a valid file name") from cause
    if len(content) > most:
        raise UnreadableFileError(file=file, reason=f"it is larger than {most >> 20} MiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        line = content.count(b"\n", 0, cause.start) + 1
        raise UnreadableFileError(file=file, reason=f"line {line} is not UTF-8 text") from cause


def _read_bytes(file: str, most: int) -> bytes:
    """Return the first bytes of a file: one more than the limit, if it is too large."""
    standard = file == STDIN
    with open(0 if standard else file, "rb", closefd=not standard) as stream:
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_size > most:
            raise UnreadableFileError(file=file, reason=f"it is larger than {most >> 20} MiB")
        return stream.read(most + 1)


@contextmanager
def opened_text(file: str) -> Iterator[TextIO]:
    """Open a file, or standard input, to read it bit by bit, or raise UnreadableFileError."""
    try:
        with open(0 if file == STDIN else file, encoding="utf-8-sig", closefd=file != STDIN) as stream:
            yield stream
    except OSError as cause:
        raise UnreadableFileError(file=file, reason=cause.strerror or str(cause)) from cause
    except UnicodeDecodeError as cause:
        raise UnreadableFileError(file=file, reason="it is not UTF-8 text") from cause
    except ValueError as cause:
        raise UnreadableFileError(file=file, reason=str(cause)) from cause


def has_user_column(file: str) -> bool:
    """Return whether the lines of a crontab name a user: those of the system's own crontabs do."""
    return file == SYSTEM_FILE or Path(file).parent.name == SYSTEM_FOLDER


def check_once(files: Sequence[str]) -> None:
    """Raise if standard input is named twice."""
    if files.count(STDIN) > 1:
        raise InputError("- is given twice: standard input can be read only once")
