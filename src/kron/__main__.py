"""`python -m kron` is `kron`, where the command is not on the path."""

import sys

from kron.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
