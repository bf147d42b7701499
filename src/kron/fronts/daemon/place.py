"""Where krond keeps its state and finds its job files, for root and for other users."""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

STATE_VARIABLE = "KROND_STATE"
SYSTEM_STATE, SYSTEM_CONFIG = "/var/lib/krond", "/etc/krond.d"
DATABASE, SOCKET, LOCK, PROCESSES = "krond.db", "krond.sock", "krond.lock", "processes"
# The longest path of a socket on Linux; a longer one is reached through its folder.
MAX_SOCKET_PATH = 107


class StateFolder(NamedTuple):
    """The state folder of a krond, and the files in it."""

    folder: Path

    @property
    def database(self) -> Path:
        """Return the SQLite file."""
        return self.folder / DATABASE

    @property
    def socket(self) -> Path:
        """Return the control socket."""
        return self.folder / SOCKET

    @property
    def lock(self) -> Path:
        """Return the lock file that one krond holds."""
        return self.folder / LOCK

    @property
    def processes(self) -> Path:
        """Return the folder of records and outputs of processes."""
        return self.folder / PROCESSES


def default_place(environment: Mapping[str, str]) -> StateFolder:
    """Return the state folder that the environment names, or the usual one of the user."""
    named = environment.get(STATE_VARIABLE)
    if named:
        return StateFolder(Path(named).absolute())
    if os.geteuid() == 0:
        return StateFolder(Path(SYSTEM_STATE))
    return StateFolder(_user_folder(environment, "XDG_STATE_HOME", ".local/state"))


def default_config(environment: Mapping[str, str]) -> str:
    """Return the folder of the job files: the host's for root, else the user's."""
    if os.geteuid() == 0:
        return SYSTEM_CONFIG
    return str(_user_folder(environment, "XDG_CONFIG_HOME", ".config"))


def _user_folder(environment: Mapping[str, str], variable: str, usual: str) -> Path:
    base = environment.get(variable)
    return Path(base if base and base.startswith("/") else Path.home() / usual) / "krond"


def bound_socket(path: Path) -> socket.socket:
    """Return a listening socket that only its owner can use, in the place of one that an ended krond left."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    _through_folder(path, listening.bind)
    path.chmod(0o600)
    return listening


def connected_socket(path: Path) -> socket.socket:
    """Return a socket that is connected to a krond."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        _through_folder(path, connection.connect)
    except OSError:
        connection.close()
        raise
    return connection


def _through_folder(path: Path, call: Callable[[str], None]) -> None:
    """Bind or connect; the path of a socket has a limit that folders may exceed."""
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        call(str(path))
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        call(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
