"""The `kron` command: finds the command asked for, and turns every error into one line and an exit code."""

import sys
from collections.abc import Sequence

from kron.core.errors import KronError

# Exit codes: 0 good, 1 the answer is no, 2 bad usage or input.
GOOD, NO, BAD = 0, 1, 2

INSTALL = "kron: the command line needs a few packages more: pip install 'kron-scheduler[cli]'"


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        from kron.cli.app import call
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] == "kron":
            raise
        print(INSTALL, file=sys.stderr)
        return BAD
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        return call(arguments)
    except KronError as error:
        for line in error.lines():
            print(f"kron: {one_line(line)}", file=sys.stderr)
        return BAD
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Closing here keeps Python from complaining at exit.
        sys.stderr.close()
        return GOOD


def one_line(text: str) -> str:
    """Write control characters as escapes, so that any input makes one line that is safe to show."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
