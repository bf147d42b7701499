"""`krond`, the host daemon."""

import sys


def run() -> int:
    """Report that this version has no daemon."""
    print("krond: this version does not include the host daemon yet; see `kron --help`", file=sys.stderr)
    return 2
