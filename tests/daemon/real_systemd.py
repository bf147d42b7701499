"""A systemd of its own for a test: process 1 of new namespaces, with no unit but those of the test.

The folders of the host's units and generators are hidden from it, so that it starts, mounts and cleans
nothing; its control groups are below one that the test makes.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kron.launchers.process.host import CGROUP_MOUNTS
from tests.waiting import wait_for

SYSTEMD = "/lib/systemd/systemd"
# What is hidden: an empty folder is mounted over each.
HIDDEN = (
    "/lib/systemd/system", "/usr/lib/systemd/system", "/etc/systemd/system", "/usr/local/lib/systemd/system",
    "/lib/systemd/system-generators", "/usr/lib/systemd/system-generators", "/etc/systemd/system-generators",
    "/run", "/etc/tmpfiles.d", "/usr/lib/tmpfiles.d",
)  # fmt: skip
# The targets that units depend on by default.
TARGETS = ("sysinit", "basic", "shutdown", "multi-user", "time-sync", "network")
INNER = """\
set -e
mount --make-rprivate /
for each in {hidden}; do if [ -d "$each" ]; then mount -t tmpfs tmpfs "$each"; fi; done
mount -t proc proc /proc
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /run/systemd/system
cp {units}/* /run/systemd/system/
export container=lxc
exec {systemd} --system --unit=multi-user.target --log-target=null --show-status=no
"""


def missing() -> str | None:
    """Return why no systemd can run here, or None."""
    if os.geteuid() != 0:
        return "it needs root"
    if not os.path.exists(SYSTEMD) or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "systemd is not installed"
    namespaces = ["unshare", "--fork", "--pid", "--mount", "--cgroup", "true"]
    if subprocess.run(namespaces, capture_output=True, check=False).returncode:
        return "this host makes no namespaces"
    return None if _cgroups() else "this host has no control groups of version 2"


def _cgroups() -> str | None:
    return next((mount for mount in CGROUP_MOUNTS if Path(f"{mount}/cgroup.procs").exists()), None)


class Systemd:
    """A running systemd and its units."""

    def __init__(self, folder: Path, units: dict[str, str]) -> None:
        place = folder / "units"
        place.mkdir()
        for target in TARGETS:
            (place / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        for name, text in units.items():
            (place / name).write_text(text)
        script = INNER.format(hidden=" ".join(HIDDEN), units=place, systemd=SYSTEMD)
        self._cgroup = f"{_cgroups()}/kron-systemd-{os.getpid()}"
        os.mkdir(self._cgroup)
        outer = f"echo 0 > {self._cgroup}/cgroup.procs; exec unshare -f -p -m -C -u -i -n sh -c '{script}'"
        self._outer = subprocess.Popen(["sh", "-c", outer])
        self.pid = wait_for(self._started, self._children)
        wait_for(lambda: self.run(["systemctl", "is-system-running"]).stdout.strip() == "running")

    def _children(self) -> list[int]:
        text = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def _started(self) -> int | None:
        assert self._outer.poll() is None, "systemd has ended"
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in self._children()}
        return next((pid for pid, text in commands.items() if text.startswith(SYSTEMD)), None)

    def run(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command beside its units."""
        entered = ["nsenter", "--target", str(self.pid), "--all", *argv]
        return subprocess.run(entered, capture_output=True, text=True, check=False)

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.run(["systemctl", "show", "--property", name, "--value", unit]).stdout.strip()

    def close(self) -> None:
        """End it with every process below it."""
        os.kill(self.pid, signal.SIGKILL)
        self._outer.wait()
        for folder, _, _ in os.walk(self._cgroup, topdown=False):
            wait_for(lambda folder=folder: _removed(folder))  # type: ignore[misc]


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True
