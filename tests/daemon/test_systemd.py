"""krond under a service manager: the unit, readiness, status and watchdog."""

import os
import shutil
import socket
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from kron.fronts.daemon.systemd import Notifier
from tests.daemon.krond import PROGRAM, Krond
from tests.waiting import wait_for


@pytest.mark.parametrize("kind", ["--system", "--user"])
def test_install_writes_a_unit_that_restarts_krond_and_leaves_jobs_alone(kind: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, "install", kind, "--directory", str(tmp_path / "units")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(tmp_path / "units" / "krond.service")
    service = unit["Service"]
    assert (service["Type"], service["KillMode"], service["Restart"]) == ("notify", "process", "on-failure")
    assert service["ExecStart"] == f"{sys.executable} -m kron.cli.krond --log-format journal"
    assert ("StateDirectoryMode" in service) == (kind == "--system")
    assert "enable --now krond.service" in done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("kind", ["--system", "--user"])
def test_systemd_finds_no_fault_in_the_unit(kind: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PROGRAM, "install", kind, "--directory", str(tmp_path)]
    subprocess.run(argv, capture_output=True, check=True)
    check = ["systemd-analyze", kind, "verify", str(tmp_path / "krond.service")]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(check, capture_output=True, text=True, env=environment, check=False)
    # It reads the units of the host too.
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "krond" in line] == []


def test_the_variables_of_the_service_manager_are_not_passed_on() -> None:
    variables = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1", "PATH": "/bin"}
    assert Notifier.of(variables).watchdog_s == 1.5
    assert variables == {"PATH": "/bin"}


@pytest.mark.slow
def test_krond_reports_that_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    address = f"/proc/{os.getpid()}/fd/{folder}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.setblocking(False)
        states: list[str] = []

        def heard(state: str) -> bool:
            try:
                while True:
                    states.extend(manager.recv(4_096).decode().splitlines())
            except BlockingIOError:
                return state in states

        krond = Krond(tmp_path / "krond")
        krond.write("a.yaml", '{identity: a, schedule: "0 0 1 1 *", command: "true"}')
        krond.start(env={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "100000"})
        wait_for(lambda: heard("READY=1"), krond.log_text)
        wait_for(lambda: heard("WATCHDOG=1"), krond.log_text)
        wait_for(lambda: heard("STATUS=1 jobs, worker running"), lambda: states)
        assert krond.stop() == 0
        wait_for(lambda: heard("STOPPING=1"), lambda: states)
    os.close(folder)


@pytest.mark.slow
def test_output_can_go_to_the_journal_or_to_krond_itself(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as journal:
        folder = os.open(tmp_path, os.O_RDONLY)
        address = f"/proc/{os.getpid()}/fd/{folder}/journal"
        journal.bind(address)
        journal.listen()
        krond = Krond(tmp_path / "krond")
        krond.write(
            "a.yaml",
            '{identity: a, schedule: "0 0 1 1 *", command: "echo noted; echo seen >&2", '
            "stdout: journal, stderr: inherit}",
        )
        krond.start(env={"KROND_JOURNAL": address})
        assert krond.run("a")["status"] == "SUCCESS"
        connection, _ = journal.accept()
        with connection, connection.makefile() as lines:
            assert lines.read().split("\n") == ["a", "", "6", "1", "0", "0", "0", "noted", ""]
        assert "\nseen\n" in krond.log_text()
        assert krond.output("a") == ""
        assert krond.stop() == 0
        os.close(folder)
