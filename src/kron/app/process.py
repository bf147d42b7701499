"""Programs that belong to Kron: what their processes do once, before threads and starts.

Both pauses that this saves fell into the first burst of a worker, and made its first start 0.1 s late.
"""

import fcntl
import gc
import os
import resource

# Open files of each process: more than 1,000 connections, or starts of a few launchers.
MAX_FILES = 8_192


def raise_file_limit() -> None:
    """Allow this process and its children as many open files as connections and starts in flight can need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def prepare_process() -> None:
    """Prepare this process, before it starts threads.

    The kernel's table of open files grows to its full size: later it would stop all threads for up to 50 ms
    each time its size doubles.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = MAX_FILES if limit == resource.RLIM_INFINITY else min(MAX_FILES, limit)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(fcntl.fcntl(lowest, fcntl.F_DUPFD_CLOEXEC, most - 1))
    os.close(lowest)
    freeze_heap()


def freeze_heap() -> None:
    """Keep what exists from the garbage collector for ever, after one last collection.

    Modules, settings and applications stay in any case, and a request's values are then checked alone.
    """
    gc.collect()
    gc.freeze()
