"""The captured output of a command: bounded while it runs, compressed with the record of its end."""

import contextlib
import errno
import fcntl
import os
import zlib

from kron.launchers.process.supervisor.record import (
    RECORD,
    RECORD_SIZE,
    Record,
    Request,
    packed_record,
    read_record,
    write_record,
)

# How far an output may grow beyond the kept size before its middle is freed.
SLACK = 1024 * 1024
# Freeing a part of a file that keeps its length: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE.
PUNCH, BLOCK = 0x03, 4_096
# Outputs are texts, which any level makes several times smaller.
COMPRESSION = 1
# The field of a record that has the output, where that is short.
TEXT = "text"


def is_captured(request: Request) -> bool:
    """Return whether output of a command is kept with its run."""
    return "capture" in (request.get("stdout", "capture"), request.get("stderr", "capture"))


def size_of(path: str) -> int:
    """Return the size of a file; 0 if it cannot be read."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def head_of(keep: int) -> int:
    """Return how many of the kept bytes are the first ones."""
    return keep // 4


def _head_end(keep: int) -> int:
    """Return where the first bytes end that stay, in whole blocks."""
    return -(-head_of(keep) // BLOCK) * BLOCK


def _middle_of(keep: int, trimmed: int, size: int) -> tuple[int, int]:
    """Return from where to where an output can be freed."""
    return max(_head_end(keep), trimmed), (size - keep) // BLOCK * BLOCK


def is_long(keep: int, trimmed: int, size: int) -> bool:
    """Return whether an output has grown enough to free its middle."""
    start, until = _middle_of(keep, trimmed, size)
    return until - start > SLACK


def trim(path: str, keep: int, trimmed: int, size: int) -> int:
    """Free the middle of an output that has become too long; return up to where it is freed."""
    if not is_long(keep, trimmed, size):
        return trimmed
    start, until = _middle_of(keep, trimmed, size)
    with contextlib.suppress(OSError), open(path, "r+b") as file:
        if _punch(file.fileno(), start, until):
            return until
        # The file system cannot punch holes: bytes written between these lines may be lost.
        file.seek(size - keep)
        tail = file.read(keep)
        file.truncate(_head_end(keep))
        with open(path, "ab") as again:
            again.write(tail)
        return 0
    return trimmed


def _punch(file: int, start: int, until: int) -> bool:
    # A Python without it, or one that was replaced since this program started, cannot punch.
    with contextlib.suppress(OSError, AttributeError, ImportError):
        import ctypes

        free = ctypes.CDLL(None, use_errno=True).fallocate64
        free.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return int(free(file, PUNCH, start, until - start)) == 0
    return False


def left_open(path: str) -> int | None:
    """Open the output of a command that has ended, if another process still has it open; else return None."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    if is_shared(file):
        return file
    os.close(file)
    return None


def is_shared(file: int) -> bool:
    """Return whether others have a file open as well: then the kernel grants no lease of it."""
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        # Some file systems have no leases.
        return error.errno == errno.EAGAIN
    return False


def kept_output(path: str, keep: int) -> tuple[bytes, int]:
    """Return the kept part of an output, with a line in the place of the rest, and how long all of it was."""
    first, last, size = kept_parts(path, keep)
    return joined(first, last, size), size


def kept_parts(path: str, keep: int) -> tuple[bytes, bytes, int]:
    """Return the first and the last bytes of an output, nothing if all are kept, and how long it was."""
    head = head_of(keep)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= keep:
                return b"", file.read(keep), size
            first = file.read(head)
            file.seek(size - (keep - head))
            return first, file.read(keep - head), size
    except OSError:
        return b"", b"", 0


def joined(first: bytes, last: bytes, size: int) -> bytes:
    """Return the parts of an output with a line in place of the omitted middle."""
    left_out = size - len(first) - len(last)
    return first + f"\n[... {left_out} bytes left out ...]\n".encode() + last if first else last


def record_end(request: Request, record: Record) -> bool:
    """Compress the output, then record the end; a full disk may cost the output, never the end.

    Return whether the end is recorded.
    """
    path, place = str(request["output"]), str(request["record"])
    if is_captured(request):
        text, record["output"] = kept_output(path, int(str(request["max_output"])))
        if text and not _keep_short(text, record):
            _compress(text, f"{place.removesuffix(RECORD)}.log", record)
    else:
        record["output"] = 0
    try:
        file = os.open(place, os.O_WRONLY)
        try:
            write_record(file, record)
        finally:
            os.close(file)
    except FileNotFoundError:
        # It was removed with everything else of krond: there is no reader.
        pass
    except OSError:
        return False
    with contextlib.suppress(OSError):
        os.unlink(path)
    if cgroup := request.get("cgroup"):
        with contextlib.suppress(OSError):
            os.rmdir(str(cgroup))
    return True


def _keep_short(text: bytes, record: Record) -> bool:
    """Keep an output in the record itself, which costs no further file; return whether it fits."""
    if len(text) > RECORD_SIZE:
        return False
    try:
        record[TEXT] = text.decode()
    except UnicodeDecodeError:
        return False
    fits = len(packed_record(record)) == RECORD_SIZE
    if not fits:
        del record[TEXT]
    return fits


def _compress(text: bytes, log: str, record: Record) -> None:
    """Write the kept output; it counts once the record says that the run has ended."""
    packer = zlib.compressobj(COMPRESSION, wbits=31)
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(file, "wb") as packed:
            packed.write(packer.compress(text) + packer.flush())
    except OSError as error:
        record["output_lost"] = error.strerror or str(error)
        with contextlib.suppress(OSError):
            os.unlink(log)


def read_log(record: str) -> bytes:
    """Return the kept output of an ended run, by the path of its record; nothing where there is none."""
    text = (read_record(record) or {}).get(TEXT)
    if isinstance(text, str):
        return text.encode()
    try:
        with open(f"{record.removesuffix(RECORD)}.log", "rb") as file:
            return zlib.decompress(file.read(), wbits=31)
    except (OSError, zlib.error):
        return b""
