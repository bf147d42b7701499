"""The host's side of processes: beginning one, finding one again, its exit status and its output.

A process is known by its number and by when it began, because numbers are used again. What Linux
tells of processes in /proc is not there on other systems; nothing is found again on those.
"""

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kron.launchers.spec import ProcessSettings

# Runs a command and writes its exit status down, for an owner that is not its parent. The traps keep the
# shell alive until the command has ended; the command itself gets every signal as if there were no shell.
WRAPPER = 'f=$1; shift; trap : HUP INT QUIT TERM USR1 USR2; "$@"; s=$?; echo $s >"$f"; exit $s'
# Linux 6.15 and later tell the exit status of a process that is not a child: request, mask, size and place.
_GET_INFO, _INFO_EXIT, _INFO_SIZE, _INFO_CODE_AT = 0xC040FF0B, 1 << 3, 64, 60
# Freeing the beginning of a file that keeps its length: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE.
_PUNCH, _BLOCK = 0x03, 4_096
# How far a process may write beyond what is kept of its output before the beginning is given back.
SLACK = 1024 * 1024


class Files(NamedTuple):
    """Where a process's output goes, and where a wrapper writes its exit status."""

    output: str
    status: str


class Stat(NamedTuple):
    """What /proc says of a process; `started` counts clock ticks since the host was started."""

    state: str
    group: int
    session: int
    started: int
    exit_code: int

    @property
    def ended(self) -> bool:
        """Say whether it has ended and only waits for its parent to hear of it."""
        return self.state in "ZX"


def spawn(settings: ProcessSettings, env: Mapping[bytes, bytes], files: Files) -> subprocess.Popen[bytes]:
    """Begin a process in a session of its own that has no file of ours but its input and its output.

    `Popen` begins it by vfork, which costs the same however large this program is, and closes every
    other file in the new process itself; `posix_spawn` is no quicker and could do neither that nor `cwd`.
    """
    argv = ["/bin/sh", "-c", settings.command[0]] if settings.shell else list(settings.command)
    if settings.survive:
        _check_command(argv[0], env, settings.cwd)
        argv = ["/bin/sh", "-c", WRAPPER, "kron", files.status, *argv]
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    written = os.open(files.output, flags, 0o600)
    try:
        read = _input_of(settings, os.path.dirname(files.output))
        try:
            # What is run is what the settings allow, word by word.
            return subprocess.Popen(  # noqa: S603
                argv, stdin=read, stdout=written, stderr=written, env=env, cwd=settings.cwd,
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(read)
    finally:
        os.close(written)


def _input_of(settings: ProcessSettings, folder: str) -> int:
    """Return an open file with what the process reads; it needs nobody to write it."""
    if settings.stdin is None:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile(dir=folder) as document:
        document.write(settings.stdin.encode())
        document.seek(0)
        return os.dup(document.fileno())


def _check_command(name: str, env: Mapping[bytes, bytes], cwd: str | None) -> None:
    """Refuse what a shell would only find missing when the start already counts."""
    place = os.path.join(cwd or "", name) if os.sep in name else name
    if shutil.which(place, path=os.fsdecode(env.get(b"PATH", os.defpath))) is None:
        raise FileNotFoundError(2, "No such command", name)


def started_of(pid: int) -> int:
    """Return when a process began, in clock ticks since the host was started; 0 where nobody says so."""
    words = _stat_words(pid, 20)
    return int(words[19]) if words else 0


def _stat_words(pid: int, count: int = -1) -> list[bytes]:
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        text = os.read(file, 4_096)
    except OSError:
        return []
    finally:
        os.close(file)
    # The name stands in parentheses and may itself contain some.
    return text.rpartition(b")")[2].split(maxsplit=count)


def stat_of(pid: int) -> Stat | None:
    """Return what is known of a process, or None when there is none of that number."""
    words = _stat_words(pid)
    if not words:
        return None
    return Stat(words[0].decode(), int(words[2]), int(words[3]), int(words[19]), int(words[49]))


def exit_code_of(pid: int, started: int, pidfd: int | None) -> int | None:
    """Return how a process that is not our child has ended, as `Popen` says it, if the host tells us."""
    found = None if pidfd is None else _told_by(pidfd)
    if found is None:
        stat = stat_of(pid)
        if stat is not None and stat.ended and stat.started == started and _is_ours(pid):
            found = stat.exit_code
    return None if found is None else os.waitstatus_to_exitcode(found)


def _told_by(pidfd: int) -> int | None:
    info = bytearray(_INFO_SIZE)
    struct.pack_into("=Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:
        return None
    (mask,) = struct.unpack_from("=Q", info, 0)
    (code,) = struct.unpack_from("=i", info, _INFO_CODE_AT)
    return code if mask & _INFO_EXIT else None


def _is_ours(pid: int) -> bool:
    """Say whether a process has our user and group throughout; of another's, /proc says 0 for success."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    found = {line.partition(":")[0]: line.split()[1:] for line in lines}
    return set(found["Uid"]) == {str(os.geteuid())} and set(found["Gid"]) == {str(os.getegid())}


def members_of(group: int) -> list[int]:
    """Return the processes of a group that still run."""
    return [pid for pid in _all() if (stat := stat_of(pid)) and stat.group == group and not stat.ended]


def sessions_of(keys: Collection[str]) -> dict[tuple[str, int], int]:
    """Return the processes that were started with one of these keys, by key and attempt.

    Their children have the same environment, but no session of their own.
    """
    found: dict[tuple[str, int], int] = {}
    for pid in _all() if keys else ():
        with suppress(OSError):
            named = dict(
                pair.partition(b"=")[::2] for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            )
            key = named.get(b"KRON_IDEMPOTENCY_KEY", b"").decode(errors="replace")
            attempt = named.get(b"KRON_ATTEMPT", b"").decode(errors="replace")
            stat = stat_of(pid) if key in keys and attempt.isdigit() else None
            if stat is not None and stat.session == pid:
                found[key, int(attempt)] = pid
    return found


def _all() -> Iterator[int]:
    with suppress(OSError):
        yield from [int(name) for name in os.listdir("/proc") if name.isdigit()]


def boot_of() -> str:
    """Return a name for where and since when numbers of processes mean what they mean here.

    That is the present uptime of the host, and the container's own numbering if there is one.
    """
    with suppress(OSError):
        numbering = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}-{numbering}"
    return "boot"


def written_status(path: str) -> int | None:
    """Return the exit status a wrapper wrote, or None while there is none; a signal's is 128 and more."""
    with suppress(OSError, ValueError):
        text = Path(path).read_text()
        return int(text) if text.endswith("\n") else None
    return None


def tail_of(path: str, size: int) -> bytes:
    """Return the last bytes of a file, or nothing when it cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.pread(file, size, max(0, os.fstat(file).st_size - size))
    except OSError:
        return b""
    finally:
        os.close(file)


def trim(path: str, keep: int, trimmed: int) -> int:
    """Give the beginning of a file back that has become too long; return up to where it is given back."""
    try:
        size = os.stat(path).st_size
    except OSError:
        return trimmed
    until = (size - keep) // _BLOCK * _BLOCK
    if size - trimmed <= keep + SLACK or until <= trimmed:
        return trimmed
    with suppress(OSError), open(path, "r+b") as file:
        if _punch(file.fileno(), until):
            return until
        # A file system that cannot do that: what is written in this very moment may be lost.
        tail = tail_of(path, keep)
        file.truncate(0)
        with open(path, "ab") as again:
            again.write(tail)
        return 0
    return trimmed


def _punch(file: int, until: int) -> bool:
    import ctypes

    with suppress(OSError, AttributeError):
        free = ctypes.CDLL(None, use_errno=True).fallocate64
        free.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        return int(free(file, _PUNCH, 0, until)) == 0
    return False


def said_of(code: int, tail: bytes) -> str:
    """Return an exit status in words, with the last lines of the output."""
    if code < 0:
        name = signal.Signals(-code).name if -code in _SIGNALS else f"signal {-code}"
        said = f"killed by {name}"
    else:
        said = f"exit status {code}"
        if code - 128 in _SIGNALS:
            said += f" ({signal.Signals(code - 128).name})"
    lines = tail.decode(errors="replace").strip().splitlines()[-MAX_LINES:]
    text = "\n".join(lines)[-MAX_TAIL:]
    return f"{said}: {text}" if text else said


# What an error says of the output.
MAX_LINES, MAX_TAIL = 10, 1_000
_SIGNALS = frozenset(map(int, signal.Signals))


def forget(files: Files, *, survive: bool) -> None:
    """Remove what a process left; only one that was to survive its owner has a file of its status."""
    for path in files if survive else files[:1]:
        with suppress(OSError):
            os.unlink(path)
