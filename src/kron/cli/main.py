"""The `kron` program: runs a command, and reports every error as one line and an exit code."""

import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TextIO

from kron.core.errors import ConflictError, KronError, UnknownRunError, one_line
from kron.core.redaction import NO_SECRETS
from kron.fronts.service.errors import UnknownScheduleError

# Exit codes: 0 success, 1 the answer is no, 2 wrong usage or input.
GOOD, NO, BAD = 0, 1, 2
# As shells report a process that Ctrl-C ended.
INTERRUPTED = 130
# Errors of valid requests: the answer is no.
NEGATIVE = (ConflictError, UnknownRunError, UnknownScheduleError)
# Those of the errors about DAGs.
NEGATIVE_CATEGORIES = ("not_found", "state")

INSTALL = (
    "kron: the command line needs more packages: pip install 'kron-engine[cli]' "
    "(from a checkout: pip install '.[cli]')"
)

DEBUG = "KRON_DEBUG"
INTERNAL, REMEDY = "internal error", f"please report it; {DEBUG}=1 shows where it happened"

# Longer quotes and lines of an error message are cut in the middle.
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
    # Python has None for a stream that was closed when it started.
    if sys.stdout is None:
        print_error("Cannot write to standard output: it is closed")
        return BAD
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _code_of(call, arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe.
        _discard(sys.stdout)
        return GOOD
    except OSError as error:
        _discard(sys.stdout)
        place = "Cannot write to standard output" if error.filename is None else f'"{error.filename}"'
        print_error(f"{place}: {error.strerror or error}")
        return BAD
    return code


def _code_of(call: Callable[[Sequence[str] | None], int], arguments: Sequence[str] | None) -> int:
    """Return the exit code of a command, and report its error; OSError is left to the caller."""
    try:
        return call(arguments)
    except KronError as error:
        for line in error.lines():
            print_error(line)
        return NO if _is_no(error) else BAD
    except OSError:
        raise
    except Exception as error:
        # A defect is one line, unless a developer wants more.
        if os.environ.get(DEBUG):
            raise
        print_error(f"{INTERNAL}: {NO_SECRETS.hide(f'{type(error).__name__}: {error}')}; {REMEDY}")
        return BAD


def _is_no(error: KronError) -> bool:
    """Say whether a valid request was refused: for what does not exist, or for its state."""
    return isinstance(error, NEGATIVE) or getattr(error, "category", None) in NEGATIVE_CATEGORIES


def _discard(stream: TextIO) -> None:
    """Redirect a stream to the null device: Python flushes it at exit, and would exit with 120."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def print_error(text: str) -> None:
    """Write one line to standard error, if it can be written."""
    if sys.stderr is None:
        return
    try:
        print(f"kron: {brief(text)}", file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def brief(text: str) -> str:
    """Return a text as one line, with long words and quotes cut in the middle."""
    line = _PART.sub(lambda part: _cut(part[0], MAX_QUOTED), one_line(text))
    return _cut(line, MAX_LINE)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most * 2 // 3]}...{text[-most // 5 :]}"
