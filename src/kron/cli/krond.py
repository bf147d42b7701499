"""`krond`, the host daemon."""

import sys


def run() -> int:
    """Say that the daemon is not part of this version."""
    print("krond: the host daemon is not part of this version yet; see `kron --help`", file=sys.stderr)
    return 2
