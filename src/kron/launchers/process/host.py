"""The processes of this host as /proc shows them: found again, their members, and their exit codes.

A process is identified by its number and its start time, because numbers are reused. Where there is no /proc,
no process is found again.
"""

import fcntl
import logging
import os
import signal
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_log = logging.getLogger("kron.launchers")
# Linux 6.15 and later give the exit status of a process that is not a child: request, mask, size and offset.
_GET_INFO, _INFO_EXIT, _INFO_SIZE, _INFO_CODE_AT = 0xC040FF0B, 1 << 3, 64, 60
# The request of prctl for a signal at the end of the parent: PR_SET_PDEATHSIG.
SET_DEATH_SIGNAL = 1
# The number of the PID namespace of a host: PROC_PID_INIT_INO.
HOST_NAMESPACE = "4026531836"
# Where control groups of version 2 are, alone or beside those of version 1.
CGROUP_MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
# The variable that tells the processes of one launcher from those of others on the same host, which may have
# jobs of the same names and so the same keys.
LAUNCHER_ID = "KRON_LAUNCHER_ID"
_LAUNCHER_ID = LAUNCHER_ID.encode()


class Stat(NamedTuple):
    """The state of a process in /proc; `started` counts clock ticks since the host booted."""

    state: str
    group: int
    session: int
    started: int
    exit_code: int

    @property
    def ended(self) -> bool:
        """Return whether it has ended, perhaps as a zombie."""
        return self.state in "ZX"


def stat_of(pid: int) -> Stat | None:
    """Return the state of a process, or None if no process has this number."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(file, 4_096)
    except OSError:
        return None
    finally:
        os.close(file)
    # The name is in parentheses and may contain some.
    words = text.rpartition(b")")[2].split()
    return Stat(words[0].decode(), int(words[2]), int(words[3]), int(words[19]), int(words[49]))


def exit_code_of(pid: int, started: int, pidfd: int | None) -> int | None:
    """Return the exit code of a process that is not our child, as `Popen` has it, if the kernel gives it."""
    status = None if pidfd is None else _status_from(pidfd)
    if status is None:
        stat = stat_of(pid)
        if stat is not None and stat.ended and stat.started == started and _is_ours(pid):
            status = stat.exit_code
    return None if status is None else os.waitstatus_to_exitcode(status)


def _status_from(pidfd: int) -> int | None:
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
    """Return whether a process has our user and group; of others, /proc gives the exit status 0."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    ids = {line.partition(":")[0]: line.split()[1:] for line in lines}
    return set(ids["Uid"]) == {str(os.geteuid())} and set(ids["Gid"]) == {str(os.getegid())}


def members_of(group: int) -> list[int]:
    """Return the running processes of a group."""
    return [pid for pid in _all() if (stat := stat_of(pid)) and stat.group == group and not stat.ended]


def is_alive(pid: int, started: int, *, or_zombie: bool = False) -> bool:
    """Return whether a number still belongs to the process that started then, and it has not ended."""
    stat = stat_of(pid) if pid else None
    return stat is not None and stat.started == started and (or_zombie or not stat.ended)


def own_cgroup() -> str | None:
    """Return the folder of this process's control group, if groups of runs can be made in it.

    The root group is not one that was delegated to this process.
    """
    with suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        path = next((line[3:] for line in lines if line.startswith("0::/")), "/")
        folders = [f"{mount}{path}" for mount in CGROUP_MOUNTS if path != "/"]
        return next((each for each in folders if os.access(f"{each}/cgroup.procs", os.W_OK)), None)
    return None


@lru_cache(maxsize=16)
def launcher_id_of(folder: str) -> str:
    """Return what tells a launcher from others on this host, from the folder of its running processes."""
    return sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]


def processes_of(
    key: str, attempt: int, group: int, cgroup: object = None, *, launcher: str | None = None
) -> list[int]:
    """Return the running processes of a run: of its group, with its environment, or in its control group.

    The group 0 stands for none: the kernel's own processes are in it, and in a container those of its host.
    """
    members: set[int] = set()
    with suppress(OSError):
        members = set(map(int, Path(f"{cgroup}/cgroup.procs").read_text().split())) if cgroup else members
    running = []
    for pid in _all():
        stat = stat_of(pid)
        if stat is None or stat.ended:
            continue
        is_of_group = group != 0 and group in (stat.group, stat.session)
        if pid in members or is_of_group or _run_of(pid, launcher) == (key, attempt):
            running.append(pid)
    return running


def _run_of(pid: int, launcher: str | None) -> tuple[str, int] | None:
    """Return the key and the attempt in the environment of a process that a launcher started, or None.

    None stands for every launcher. A process without the id of one was started by an earlier version.
    """
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = dict(pair.partition(b"=")[::2] for pair in pairs)
    key, attempt = named.get(b"KRON_IDEMPOTENCY_KEY", b""), named.get(b"KRON_ATTEMPT", b"")
    is_other = launcher is not None and named.get(_LAUNCHER_ID, launcher.encode()) != launcher.encode()
    if is_other or not attempt.isdigit():
        return None
    return key.decode(errors="replace"), int(attempt)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, which may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        _log.warning("process %d cannot be sent %s: %s", pid, number.name, error)


def sessions_of(keys: Collection[str], launcher: str) -> dict[tuple[str, int], int]:
    """Return the processes that a launcher started with one of these keys, by key and attempt.

    Their children have the same environment, but lead no session.
    """
    leaders: dict[tuple[str, int], int] = {}
    for pid in _all() if keys else ():
        run = _run_of(pid, launcher)
        stat = stat_of(pid) if run is not None and run[0] in keys else None
        if run is not None and stat is not None and stat.session == pid:
            leaders[run] = pid
    return leaders


def _all() -> Iterator[int]:
    with suppress(OSError):
        yield from [int(name) for name in os.listdir("/proc") if name.isdigit()]


def end_with_parent() -> None:
    """Let the kernel kill this process when the one that started it has ended."""
    with suppress(OSError, AttributeError, ImportError):
        import ctypes

        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def boot_of() -> str:
    """Return a name for the scope of process numbers: this boot of the host, and the PID namespace.

    The number of a namespace is used again for the next container; the start of its first process is not.
    """
    with suppress(OSError):
        namespace = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))
        boot = f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}-{namespace}"
        first = None if namespace == HOST_NAMESPACE else stat_of(1)
        return boot if first is None else f"{boot}-{first.started}"
    return "boot"
