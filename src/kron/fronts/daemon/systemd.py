"""systemd: notifications of readiness, status and watchdog, and the unit that `krond install` writes."""

import os
import shlex
import socket
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from pathlib import Path

SYSTEM_UNITS = "/etc/systemd/system"
UNIT = "krond.service"


class Notifier:
    """Sends states to the service manager that started this process, if there is one."""

    def __init__(self, address: str | None, watchdog_s: float | None) -> None:
        self._address = address
        # Twice in the interval, as systemd advises.
        self.watchdog_s = None if watchdog_s is None else watchdog_s / 2

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Notifier":
        """Return the notifier that the environment names, and hide its variables from processes."""
        address = environment.pop("NOTIFY_SOCKET", None)
        interval = environment.pop("WATCHDOG_USEC", "")
        environment.pop("WATCHDOG_PID", None)
        return cls(address, int(interval) / 1e6 if interval.isdigit() and int(interval) else None)

    def send(self, *states: str) -> None:
        """Send states such as `READY=1`; a manager that does not listen is no error."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto("\n".join(states).encode(), address)


def unit_text(program: Iterable[str], *, system: bool) -> str:
    """Return the unit of krond, for the host or for one user.

    Only krond itself is stopped with the unit: running jobs live on, and the next krond finds them. The
    sandbox leaves out what jobs may need, for they run in it too.
    """
    state = ["StateDirectory=krond", "StateDirectoryMode=0700"] if system else []
    hardening = [
        "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectControlGroups=no",
        "ProtectHostname=yes", "LockPersonality=yes", "RestrictRealtime=yes",
    ]  # fmt: skip
    lines = [
        "[Unit]",
        "Description=Kron host daemon",
        *(["After=time-sync.target network.target", "Wants=time-sync.target"] if system else []),
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={shlex.join(program)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "KillMode=process",
        "Restart=on-failure",
        "WatchdogSec=30",
        "TimeoutStopSec=30",
        "OOMPolicy=continue",
        "Delegate=yes",
        *state,
        *(hardening if system else []),
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if system else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def unit_folder(environment: MutableMapping[str, str], *, system: bool) -> Path:
    """Return where units belong: those of the host, or those of the user."""
    if system:
        return Path(SYSTEM_UNITS)
    base = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user"


def write_unit(folder: Path, text: str) -> Path:
    """Write the unit, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / UNIT
    new = place.with_suffix(".new")
    new.write_text(text)
    os.replace(new, place)
    return place
