"""Starts a supervisor: `python -I -S __main__.py FOLDER SOCKET LOCK`, with the folder that has Kron."""

import sys

if __name__ == "__main__":
    # After Python's own folders: no package beside Kron replaces a module of the standard library.
    sys.path.append(sys.argv[1])
    from kron.launchers.process.supervisor.program import main

    main(int(sys.argv[2]), int(sys.argv[3]))
