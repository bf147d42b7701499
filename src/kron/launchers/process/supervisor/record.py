"""The record of a run: a small file that decides whether it starts, and tells how it ended.

A supervisor creates it before it starts the command, so that a record without a process, a process without
an end and a run that never started can be told apart, and no run can start twice.
"""

import json
import os

# The suffix of the records, and their size: a record is overwritten in place, so that its end needs no
# further space on a full disk.
RECORD, RECORD_SIZE = ".run", 4_096

# The states of a run whose command has no number yet, and of one that has.
STARTING, RUNNING = "starting", "running"
# The state of a run that its krond recorded and that no supervisor has started: the next krond forbids it.
NEVER = "never started"

Record = dict[str, object]
Request = dict[str, object]

_record_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def packed_record(record: Record) -> bytes:
    """Return a record as its file has it; longer than the file, where it does not fit."""
    return _record_text(record).encode(errors="replace").ljust(RECORD_SIZE - 1) + b"\n"


def write_record(file: int, record: Record) -> None:
    """Write the record of a run in place."""
    text = packed_record(record)
    os.pwrite(file, text if len(text) == RECORD_SIZE else text[: RECORD_SIZE - 1] + b"\n", 0)


def create_record(path: str, record: Record) -> int:
    """Create the record of a run, which must not exist, and return its open file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, flags, 0o600)
    try:
        write_record(file, record)
    except OSError:
        # The disk is full: the run may be started when it is not.
        os.close(file)
        os.unlink(path)
        raise
    return file


def read_record(path: str) -> Record | None:
    """Return the record of a run, empty if it is damaged, or None if there is none."""
    try:
        with open(path, "rb") as file:
            text = file.read(RECORD_SIZE)
    except OSError:
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def started_of(pid: int) -> int:
    """Return when a process started, in clock ticks since the host booted; 0 where unknown."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            # The name is in parentheses and may contain some.
            return int(os.read(file, RECORD_SIZE).rpartition(b")")[2].split()[19])
        finally:
            os.close(file)
    except (OSError, IndexError):
        return 0
