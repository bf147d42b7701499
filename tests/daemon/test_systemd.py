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
from tests.daemon.real_systemd import Systemd, missing
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
    assert service["ExecStart"] == f"{sys.executable} -P -m kron.cli.krond --log-format journal"
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
    assert [line for line in done.stderr.splitlines() if "krond.service" in line] == []


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
        wait_for(lambda: heard("STATUS=1 job, worker running"), lambda: states)
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


@pytest.mark.slow
def test_systemd_starts_reloads_restarts_and_watches_krond(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(f"systemd cannot run: {reason}")
    krond = Krond(tmp_path / "krond")
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    ledger.touch()
    long = f"cat /proc/self/cgroup; echo began >> {ledger}; until [ -e {go} ]; do sleep 0.05; done; exit 4"
    job = '{{identity: {}, schedule: "0 0 1 1 *", command: "{}"}}'
    krond.write("long.yaml", job.format("long", long))
    argv = [sys.executable, "-c", PROGRAM, "install", "--system", "--directory", str(tmp_path)]
    subprocess.run(argv, capture_output=True, check=True)
    unit = (tmp_path / "krond.service").read_text()
    places = f" --config {krond.config} --state {krond.state}"
    unit = unit.replace("--log-format journal", f"--log-format journal{places}")
    unit = unit.replace("WatchdogSec=30", f"WatchdogSec=3\nStandardError=append:{krond.log}")
    systemd = Systemd(tmp_path, {"krond.service": unit})
    try:
        _check_krond_of(systemd, krond, ledger, go, job)
    finally:
        systemd.close()


def _check_krond_of(systemd: Systemd, krond: Krond, ledger: Path, go: Path, job: str) -> None:
    # It is started once it has said that it is ready.
    assert systemd.run(["systemctl", "start", "krond.service"]).returncode == 0, krond.log_text()
    wait_for(lambda: systemd.show("krond.service", "StatusText") == "1 job, worker running", krond.log_text)
    key = krond.call("run", "long")["idempotency_key"]
    wait_for(ledger.read_text, krond.log_text)
    # A run has a control group of its own, which systemd delegated.
    assert f"0::/system.slice/krond.service/kron-{key[:16]}.1\n" in krond.output("long", key)
    krond.write("more.yaml", job.format("more", "true"))
    assert systemd.run(["systemctl", "reload", "krond.service"]).returncode == 0
    wait_for(lambda: krond.names() == ["long", "more"], krond.log_text)
    # A restart, and the end of one that hangs, leave the run alone.
    first = systemd.show("krond.service", "MainPID")
    assert systemd.run(["systemctl", "restart", "krond.service"]).returncode == 0, krond.log_text()
    second = systemd.show("krond.service", "MainPID")
    assert second != first
    systemd.run(["kill", "-STOP", second])
    wait_for(lambda: systemd.show("krond.service", "NRestarts") == "1", krond.log_text)
    wait_for(lambda: systemd.show("krond.service", "StatusText") == "2 jobs, worker running", krond.log_text)
    assert systemd.show("krond.service", "MainPID") not in (first, second)
    go.touch()
    assert krond.ended("long", key)["error"].startswith("exit status 4")
    assert ledger.read_text() == "began\n"
    assert systemd.run(["systemctl", "stop", "krond.service"]).returncode == 0
    assert systemd.show("krond.service", "Result") == "success"
