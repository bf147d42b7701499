"""The `kron` command: finds the command asked for, and turns every error into one line and an exit code."""

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress

from kron.core.errors import ConflictError, KronError, UnknownRunError
from kron.fronts.service.errors import UnknownScheduleError

# Exit codes: 0 good, 1 the answer is no, 2 bad usage or input.
GOOD, NO, BAD = 0, 1, 2
# What was asked well, and is not so.
NOES = (ConflictError, UnknownRunError, UnknownScheduleError)

INSTALL = "kron: the command line needs a few packages more: pip install 'kron-scheduler[cli]'"

# What is longer than this is cut in a message, so that the rest of it can be read.
MAX_QUOTED = 200
MAX_LINE = 1000
_PART = re.compile(r'"[^"]*"|[^\s"]+')


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from kron.cli.app import call
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] == "kron":
            raise
        print(INSTALL, file=sys.stderr)
        return BAD
    # Python has None for a stream that is closed from the start.
    if sys.stdout is None:
        complain("Cannot write to standard output: it is closed")
        return BAD
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            code = call(arguments)
        except KronError as error:
            for line in error.lines():
                complain(line)
            code = NO if isinstance(error, NOES) else BAD
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _drop_output()
        return GOOD
    except OSError as error:
        _drop_output()
        place = "Cannot write to standard output" if error.filename is None else f'"{error.filename}"'
        complain(f"{place}: {error.strerror or error}")
        return BAD
    return code


def _drop_output() -> None:
    """Send what is still to be written nowhere, so that Python does not try again when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def complain(text: str) -> None:
    """Write one line to standard error, if there is one."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"kron: {brief(text)}", file=sys.stderr)


def one_line(text: str) -> str:
    """Write control characters as escapes, so that any input makes one line that is safe to show."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def brief(text: str) -> str:
    """Write a text as one line of a length that can be read: of what is long, its middle is left out."""
    line = _PART.sub(lambda part: _cut(part[0], MAX_QUOTED), one_line(text))
    return _cut(line, MAX_LINE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]}...{text[-most // 5 :]}"
