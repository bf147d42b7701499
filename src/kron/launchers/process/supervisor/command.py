"""A requested command: its words, folder, streams, priority and user, and the process that becomes it.

`posix_spawn` does not copy the supervisor, so it starts every command that needs no other user, priority,
control group or file. Whatever could wait for another machine (the home of a user, a file of output or of
variables) is done in a forked child, which delays no other run.
"""

import contextlib
import errno
import grp
import os
import pwd
import signal
import socket
import warnings  # noqa: F401 - `os.execvpe` imports it, as a user who may not read Python's own files

from kron.launchers.process.supervisor.record import Request
from kron.launchers.process.supervisor.trust import read_variables

# Where systemd's journal takes the output of services.
JOURNAL_SOCKET = "/run/systemd/journal/stdout"
# What a child prepares before it becomes a command.
PREPARED = ("user", "group", "env_file", "nice", "cgroup")
# Signals that Python ignores or handles, and whose defaults a command expects.
RESTORED = (
    signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP,
    signal.SIGIO,
)  # fmt: skip


def spawn_plain(request: Request, env: dict[str, str], home: int) -> int:
    """Start a command without a copy of this process, whose folder and mask it inherits.

    `home` is the open folder to which this process returns.
    """
    opened: list[int] = []
    cwd, umask = folder_of(request, env), request.get("umask")
    mask = None
    try:
        streams = open_streams(request, opened)
        if cwd:
            os.chdir(cwd)
        argv = _words(request)
        mask = None if umask is None else os.umask(int(str(umask), 8))
        return os.posix_spawn(
            program_of(argv[0], env), argv, env,
            file_actions=[(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)],
            setsid=True, setsigmask=(), setsigdef=RESTORED,
        )  # fmt: skip
    finally:
        if mask is not None:
            os.umask(mask)
        if cwd:
            os.fchdir(home)
        for file in opened:
            os.close(file)


def _words(request: Request) -> list[str]:
    argv = request["argv"]
    assert isinstance(argv, list)
    return [str(word) for word in argv]


def strings_of(variables: object) -> dict[str, str]:
    """Return the variables of a request."""
    assert isinstance(variables, dict)
    return {str(name): str(value) for name, value in variables.items()}


def is_plain(request: Request) -> bool:
    """Return whether a command can be started without a child that prepares something for it."""
    is_file = any(isinstance(request.get(name), dict) for name in ("stdout", "stderr"))
    return not is_file and all(request.get(name) is None for name in PREPARED)


def program_of(name: str, env: dict[str, str]) -> str:
    """Return the path of a program, from the command's own PATH."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def folder_of(request: Request, env: dict[str, str]) -> str | None:
    """Return the folder of a command; `~` is the home of its user."""
    cwd = request.get("cwd")
    if not isinstance(cwd, str) or not (cwd == "~" or cwd.startswith("~/")):
        return None if cwd is None else str(cwd)
    return f"{env.get('HOME') or pwd.getpwuid(os.getuid()).pw_dir}{cwd[1:]}"


def open_streams(request: Request, opened: list[int]) -> tuple[int, int, int]:
    """Open the standard streams of a command; the files are added to `opened`."""

    def open_file(path: str, flags: int, mode: int = 0o600) -> int:
        opened.append(os.open(path, flags, mode))
        return opened[-1]

    text = request.get("stdin")
    # The supervisor itself has nothing to read.
    read = 0
    if text is not None:
        path = f"{request['output']}.in"
        read = open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.unlink(path)
        # The whole text or an error: a disk that becomes full takes a part of what is written at once.
        with open(read, "wb", closefd=False) as file:
            file.write(str(text).encode(errors="surrogateescape"))
        os.lseek(read, 0, os.SEEK_SET)
    places: list[int] = []
    for number, name in ((1, "stdout"), (2, "stderr")):
        where = request.get(name, "capture")
        if number == 2 and where == request.get("stdout", "capture") and where in ("capture", "discard"):
            places.append(places[0])
        elif where == "capture":
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            places.append(open_file(str(request["output"]), flags))
        elif where == "inherit":
            places.append(number)
        elif where == "discard":
            places.append(open_file(os.devnull, os.O_WRONLY))
        elif where == "journal":
            places.append(_journal(name, str(request["identity"])))
            opened.append(places[-1])
        else:
            assert isinstance(where, dict)
            if number == 1 or where != request.get("stdout"):
                _rotate(where)
            places.append(open_file(str(where["file"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640))
    return read, places[0], places[1]


def _journal(name: str, identity: str) -> int:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place = os.environ.get("KROND_JOURNAL", JOURNAL_SOCKET)
    try:
        stream.connect(place)
    except OSError as error:
        stream.close()
        reason = f"{name}: journal needs systemd's journal ({error.strerror}: {place}); use capture or a file"
        raise OSError(error.errno, reason) from None
    # Identifier, unit, priority, level prefixes, and whether to forward to syslog, kernel log and console.
    stream.sendall(f"{identity}\n\n6\n1\n0\n0\n0\n".encode())
    return stream.detach()


def _rotate(where: dict[str, object]) -> None:
    """Rename a file of output that has become too large, and drop the oldest."""
    path, keep = str(where["file"]), int(str(where["keep"]))
    try:
        if os.stat(path).st_size <= int(str(where["max_size"])):
            return
    except OSError:
        return
    with contextlib.suppress(OSError):
        if not keep:
            os.truncate(path, 0)
            return
        for number in range(keep - 1, 0, -1):
            if os.path.exists(f"{path}.{number}"):
                os.replace(f"{path}.{number}", f"{path}.{number + 1}")
        os.replace(path, f"{path}.1")


class _Account:
    """The user and the groups a command runs as, and the variables that name them."""

    def __init__(self, user: str | None, group: str | None) -> None:
        self.uid: int | None = None
        self.gid: int | None = None
        self.groups: list[int] = []
        self.env: dict[str, str] = {}
        if user is not None:
            try:
                entry = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
            except KeyError:
                raise LookupError(f"there is no user {user}") from None
            self.uid, self.gid = entry.pw_uid, entry.pw_gid
            self.env = {
                "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name,
                "SHELL": entry.pw_shell or "/bin/sh",
            }  # fmt: skip
            self.groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        if group is not None:
            try:
                self.gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
            except KeyError:
                raise LookupError(f"there is no group {group}") from None
            self.groups = sorted({*self.groups, self.gid})

    def drop(self) -> None:
        """Take on the groups, then the group and the user; nothing of the old ones stays."""
        if os.geteuid() != 0:
            if self.uid not in (None, os.geteuid()) or self.gid not in (None, os.getegid()):
                raise PermissionError(errno.EPERM, "only root starts processes as another user or group")
            return
        if self.uid is not None or self.gid is not None:
            os.setgroups(self.groups)
        if self.gid is not None:
            os.setresgid(self.gid, self.gid, self.gid)
        if self.uid is not None:
            os.setresuid(self.uid, self.uid, self.uid)


def become(request: Request, env: dict[str, str]) -> None:
    """Become the command: its session, streams, limits, user and folder."""
    os.setsid()
    if cgroup := request.get("cgroup"):
        with contextlib.suppress(OSError):
            os.makedirs(str(cgroup), exist_ok=True)
            with open(f"{cgroup}/cgroup.procs", "w") as file:
                file.write("0")
    for number, stream in enumerate(open_streams(request, [])):
        os.dup2(stream, number)
    if (nice := request.get("nice")) is not None:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, int(str(nice)))
        except OSError as error:
            raise OSError(error.errno, f"nice {nice}: {error.strerror}") from None
    if (umask := request.get("umask")) is not None:
        os.umask(int(str(umask), 8))
    variables = request.get("env_file")
    from_file = {} if variables is None else read_variables(str(variables))
    own = {**from_file, **strings_of(request["env"])}
    account = _account(request)
    # What the job itself sets wins over the variables of its user.
    env = {**env, **({} if account is None else account.env), **own}
    if account is not None:
        account.drop()
    if cwd := folder_of(request, env):
        os.chdir(cwd)
    elif account is not None:
        # Some users have a home that does not exist.
        os.chdir("/")
        with contextlib.suppress(OSError):
            os.chdir(env.get("HOME", "/"))
    for number in RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    argv = _words(request)
    # The operator of the host wrote the command.
    os.execvpe(argv[0], argv, env)  # noqa: S606


def _account(request: Request) -> _Account | None:
    user, group = request.get("user"), request.get("group")
    if user is None and group is None:
        return None
    return _Account(None if user is None else str(user), None if group is None else str(group))
