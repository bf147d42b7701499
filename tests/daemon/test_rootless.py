"""krond of a user who is not root: its own folders by default, and processes as that user alone."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

import kron
from tests.waiting import wait_for

JOBS = """\
- { identity: mine, schedule: "0 0 1 1 *", command: [id, -un] }
- { identity: others, schedule: "0 0 1 1 *", command: [id, -un], user: root }
- { identity: urgent, schedule: "0 0 1 1 *", command: [id, -un], nice: -5 }
"""


class User:
    """A user with a home folder: `nobody` if the tests run as root, else the one who runs them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.name = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        entry = pwd.getpwnam(self.name)
        if os.geteuid() == 0:
            os.chown(home, entry.pw_uid, entry.pw_gid)
        self._ids = (entry.pw_uid, entry.pw_gid) if os.geteuid() == 0 else (None, None)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "KRON"))}
        packages = f"{Path(kron.__file__).parents[1]}:{Path(yaml.__file__).parents[1]}"
        own = {"HOME": str(home), "TMPDIR": str(home), "NO_COLOR": "1", "PYTHONPATH": packages}
        self.env = {**kept, **own, "PYTHONDONTWRITEBYTECODE": "1"}
        # The interpreter of the tests may be in a folder of root.
        self.python = next(filter(self._imports_kron, (sys.executable, "/usr/bin/python3")), None)

    def _imports_kron(self, python: str) -> bool:
        with suppress(OSError), self.start(python, "-c", "import kron.cli.krond, kron.cli.app") as process:
            return process.wait() == 0
        return False

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a program as this user."""
        uid, gid = self._ids
        groups: list[int] | None = None if uid is None else []
        return subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=self.env,
            cwd=self.home,
            user=uid,
            group=gid,
            extra_groups=groups,
        )

    def kron(self, *words: str) -> tuple[int, str]:
        """Run `kron` as this user, and return its exit code and its output."""
        assert self.python is not None
        with self.start(self.python, "-m", "kron", *words) as process:
            output, _ = process.communicate()
            return process.returncode, output


@pytest.fixture
def user() -> Iterator[User]:
    # The folders of pytest are closed to other users.
    home = Path(tempfile.mkdtemp(prefix="krond-"))
    try:
        user = User(home)
        if user.python is None:
            pytest.skip(f"{user.name} has no Python that finds this installation of Kron")
        yield user
    finally:
        shutil.rmtree(home)


@pytest.mark.slow
def test_a_user_runs_krond_with_files_and_state_at_home(user: User) -> None:
    config = user.home / ".config" / "krond"
    config.mkdir(parents=True)
    (config / "jobs.yaml").write_text(JOBS)
    assert user.python is not None
    krond = user.start(user.python, "-m", "kron.cli.krond")
    try:
        wait_for(lambda: krond.poll() is not None or "worker: running" in user.kron("status")[1])
        assert user.kron("run", "mine")[0] == 0
        wait_for(lambda: user.kron("logs", "mine")[1].startswith(f"{user.name}\n"))
        # Only root starts processes as other users.
        user.kron("run", "others")
        wait_for(lambda: "launch_failed" in user.kron("runs", "others", "--json")[1])
        user.kron("run", "urgent")
        wait_for(lambda: "nice -5: Permission denied" in user.kron("runs", "urgent", "--json")[1])
    finally:
        krond.terminate()
        krond.communicate()
    assert krond.returncode == 0
    state = user.home / ".local" / "state" / "krond"
    assert state.stat().st_mode & 0o777 == 0o700
    assert state.owner() == user.name
