"""`python -m kron` runs the `kron` command."""

import sys

from kron.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
