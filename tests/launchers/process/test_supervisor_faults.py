"""Supervisors when something fails: long errors, no room for a process, a full disk, a krond that ended."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.core.plan.report import RunEvent
from kron.launchers.backoff import Backoff
from kron.launchers.process.host import boot_of, is_alive, processes_of, stat_of
from kron.launchers.process.spec import MIN_OUTPUT
from kron.launchers.process.supervised import SupervisedLauncher
from kron.launchers.process.supervisor.output import SLACK, read_log
from kron.launchers.process.supervisor.program import LARGE_OUTPUT
from kron.launchers.process.supervisor.record import read_record, started_of
from kron.launchers.process.supervisor.trust import untrusted
from tests.launchers.ear import Ear
from tests.launchers.process.supervising import (
    a_numbered_process,
    a_process,
    a_supervised_launcher,
    record_of,
    supervised,
    supervisors_of,
    use_faulty_supervisor,
)
from tests.waiting import PATIENCE_S, until


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[SupervisedLauncher]:
    launcher = a_supervised_launcher(tmp_path)
    # A command that cannot be started is reported at once.
    launcher._backoff = Backoff(max_attempts=1)
    yield launcher
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()


@pytest.mark.parametrize("nice", [None, 1], ids=["spawned", "forked"])
async def test_the_error_of_a_command_with_a_long_path_costs_no_other_run(
    launcher: SupervisedLauncher, tmp_path: Path, nice: int | None
) -> None:
    ear, go = Ear(), tmp_path / "go"
    other = a_numbered_process(f"until [ -e {go} ]; do sleep 0.02; done; exit 5", 1)
    # Each of these characters takes several bytes in the message of the process that prepares the command.
    wrong = a_numbered_process(["/" + "\N{GRINNING FACE}" * 900], 2, nice=nice)
    launcher.start(other, ear)
    await ear.accepted(other)
    before = supervisors_of(launcher)
    launcher.start(wrong, ear)
    end = await ear.end_of(wrong)
    assert end.happened is RunEvent.LAUNCH_FAILED
    assert str(end.error).startswith("the command cannot be started: [Errno 36] File name too long: /")
    assert supervisors_of(launcher) == before
    go.touch()
    assert (await ear.end_of(other)).error == "exit status 5"
    assert "cpu_s" in (read_record(launcher._files_of((other.run.key, 1)).status) or {})


NO_FORK = """\
import os, errno

fork, lack = os.fork, {lack!r}


def fork_or_fail():
    if os.path.exists(lack):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()


os.fork = fork_or_fail
"""


async def test_a_host_without_room_for_a_process_costs_neither_an_end_nor_a_file(
    launcher: SupervisedLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, go, lack = Ear(), tmp_path / "go", tmp_path / "lack"
    use_faulty_supervisor(monkeypatch, tmp_path, NO_FORK.format(lack=str(lack)))
    waits = f"until [ -e {go} ]; do sleep 0.02; done"
    # This much output is compressed in a forked child, where there can be one.
    large = a_numbered_process(
        f"head -c {2 * LARGE_OUTPUT} /dev/zero; {waits}; exit 5", 1, max_output=2 * LARGE_OUTPUT
    )
    launcher.start(large, ear)
    await ear.accepted(large)
    lack.touch()
    (supervisor,) = supervisors_of(launcher)
    refused = [a_numbered_process(["true"], number, nice=1) for number in range(2, 5)]
    for launch in refused:
        launcher.start(launch, ear)
        assert "temporarily unavailable" in str((await ear.end_of(launch)).error)
    files = {os.readlink(f"/proc/{supervisor}/fd/{name}") for name in os.listdir(f"/proc/{supervisor}/fd")}
    # The pipe of its own signals.
    assert len([file for file in files if file.startswith("pipe:")]) <= 1
    go.touch()
    assert str((await ear.end_of(large)).error).startswith("exit status 5")
    assert len(read_log(launcher._files_of((large.run.key, 1)).status)) == 2 * LARGE_OUTPUT


async def test_an_input_that_does_not_fit_on_the_disk_is_not_cut_off(launcher: SupervisedLauncher) -> None:
    ear, first = Ear(), a_numbered_process(["true"], 1)
    launch = a_numbered_process("wc -c; exit 1", 2, stdin_text="x" * 100_000)
    launcher.start(first, ear)
    await ear.end_of(first)
    (supervisor,) = supervisors_of(launcher)
    # As on a disk that becomes full, a part of the text can be written.
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (50_000, 50_000))
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (
        RunEvent.LAUNCH_FAILED,
        "the command cannot be started: [Errno 27] File too large",
    )


async def test_a_start_that_could_not_be_recorded_is_made_when_there_is_room(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, first, ledger = Ear(), a_numbered_process(["true"], 1), tmp_path / "ledger"
    launch = a_numbered_process(f"echo once >> {ledger}", 2)
    launcher.start(first, ear)
    await ear.end_of(first)
    (supervisor,) = supervisors_of(launcher)
    launcher._backoff = Backoff(max_attempts=100)
    # As on a full disk, files can be made and nothing can be written to them.
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (0, unlimited))
    launcher.start(launch, ear)
    await until(lambda: launcher._retries)
    assert read_record(launcher._files_of((launch.run.key, 1)).status) is None
    resource.prlimit(supervisor, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    assert ledger.read_text() == "once\n"


async def test_an_output_is_bounded_by_a_python_without_ctypes(
    launcher: SupervisedLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_faulty_supervisor(monkeypatch, tmp_path, 'sys.modules["ctypes"] = None')
    ear, go = Ear(), tmp_path / "go"
    command = f"head -c {4 * SLACK} /dev/zero; until [ -e {go} ]; do sleep 0.02; done; echo last; exit 5"
    launch = a_process(command, max_output=MIN_OUTPUT)
    launcher.start(launch, ear)
    output = Path(launcher._files_of((launch.run.key, 1)).output)
    await ear.accepted(launch)
    await until(lambda: output.stat().st_size < SLACK)
    go.touch()
    assert str((await ear.end_of(launch)).error).endswith("last")


@pytest.mark.slow
async def test_a_command_that_cannot_be_started_after_its_krond_ended_ends_for_the_next_one(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    # The command waits for its file, as one on a host that is down, while krond is replaced.
    pipe, go = str(tmp_path / "pipe"), tmp_path / "go"
    os.mkfifo(pipe)
    ear, heard = Ear(), Ear()
    other = a_numbered_process(f"until [ -e {go} ]; do sleep 0.02; done; exit 5", 1)
    wrong = a_numbered_process(["/no/such/command"], 2, stdout={"file": pipe, "max_size": 1_000, "keep": 1})
    launcher.start(other, ear)
    launcher.start(wrong, ear)
    await ear.accepted(other)
    await until(lambda: record_of(tmp_path, wrong).get("state") == "running")
    await launcher.close(wait=False)
    next_one = a_supervised_launcher(tmp_path)
    assert await next_one.adopt([other, wrong], heard) == {other.run.key, wrong.run.key}
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb"):  # noqa: ASYNC230 - it waits for nothing
        # Its supervisor lives on, for the other run.
        end = await heard.end_of(wrong)
    reason = "the command cannot be started: No such file or directory: /no/such/command"
    assert (end.happened, end.error) == (RunEvent.FAILED, reason)
    # One more krond is told the same.
    last, again = a_supervised_launcher(tmp_path), Ear()
    assert await last.adopt([wrong], again) == {wrong.run.key}
    assert (await again.end_of(wrong)).error == reason
    go.touch()
    assert (await heard.end_of(other)).error == "exit status 5"
    await next_one.close()
    await last.close()


async def test_a_command_that_waits_for_its_variables_delays_no_other_and_no_krond(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    # A pipe without a writer, as a file on a host that is down: its reading does not end.
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe, 0o600)
    ear, other = Ear(), a_numbered_process(["true"], 1)
    waits = a_numbered_process("echo $A $B $KRON_ATTEMPT; exit 1", 2, env_file=pipe, env={"B": "job"})
    launcher.start(waits, ear)
    launcher.start(other, ear)
    assert (await ear.end_of(other)).happened is RunEvent.SUCCESS
    assert ear.said(waits) == []
    with open(os.open(pipe, os.O_RDWR), "w") as file:  # noqa: ASYNC230 - it waits for nothing
        file.write("A=file\nB=file\nKRON_ATTEMPT=7\n")
        file.flush()
    assert (await ear.end_of(waits)).error == "exit status 1: file job 1"


DIES = """\
import os, signal

write_record = program.write_record


def write_or_die(file, record):
    if record["state"] == "running" and os.path.exists({dies!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    write_record(file, record)


program.write_record = write_or_die
"""


@pytest.mark.parametrize("is_restarted", [False, True], ids=["the same krond", "the next krond"])
async def test_a_command_is_found_whose_supervisor_was_killed_before_it_recorded_its_number(
    launcher: SupervisedLauncher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    ear, go, dies, ledger = Ear(), tmp_path / "go", tmp_path / "dies", tmp_path / "ledger"
    use_faulty_supervisor(monkeypatch, tmp_path, DIES.format(dies=str(dies)))
    dies.touch()
    launcher._backoff = Backoff()
    launch = a_process(f"echo once >> {ledger}; until [ -e {go} ]; do sleep 0.02; done; exit 5")
    launcher.start(launch, ear)
    await until(lambda: supervisors_of(launcher))
    (supervisor,) = supervisors_of(launcher)
    await until(lambda: not is_alive(supervisor, started_of(supervisor)))
    await until(ledger.exists)
    dies.unlink()
    owner = launcher
    if is_restarted:
        await launcher.close(wait=False)
        owner, ear = a_supervised_launcher(tmp_path), Ear()
        assert await owner.adopt([launch], ear) == {launch.run.key}
    await ear.accepted(launch)
    process = supervised(owner, launch)
    assert is_alive(process.pid, process.started)
    # Krond itself bounds its output then.
    assert process.is_trimmed
    go.touch()
    assert (await ear.end_of(launch)).happened is RunEvent.FAILED
    assert ledger.read_text() == "once\n"
    await owner.close()


async def test_the_output_of_a_run_that_was_lost_at_a_reboot_is_kept_and_its_record_is_ended(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, launch = Ear(), a_process("echo before; sleep 300")
    launcher.start(launch, ear)
    await ear.accepted(launch)
    output = Path(launcher._files_of((launch.run.key, 1)).output)
    await until(lambda: output.read_text() == "before\n")
    process, (supervisor,) = supervised(launcher, launch), supervisors_of(launcher)
    await launcher.close(wait=False)
    for pid in (supervisor, process.pid):
        os.kill(pid, signal.SIGKILL)
        await until(lambda pid=pid: not is_alive(pid, started_of(pid)))  # type: ignore[misc]
    # The folder and the record are those of an earlier boot.
    state, (place,) = tmp_path / "state", (tmp_path / "state" / "logs").rglob("*.run")
    place.write_bytes(place.read_bytes().replace(launcher._boot.encode(), b"x" * len(launcher._boot)))
    old = state / ("x" * len(launcher._boot))
    (state / launcher._boot).rename(old)
    after_boot = a_supervised_launcher(tmp_path)
    assert await after_boot.adopt([launch], Ear()) == frozenset()
    record = record_of(tmp_path, launch)
    assert (record["state"], record["code"]) == ("ended", None)
    assert read_log(str(place)) == b"before\n"
    assert not old.exists()
    await after_boot.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes PID namespaces")
def test_two_containers_are_two_boots_even_where_the_number_of_their_namespace_is_the_same() -> None:
    program = "from kron.launchers.process.host import boot_of; print(boot_of())"
    container = ["unshare", "--fork", "--pid", "--mount-proc", sys.executable, "-c", program]
    if subprocess.run([*container[:4], "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host makes no namespaces")
    boots = [subprocess.run(container, capture_output=True, text=True, check=True).stdout for _ in range(4)]
    assert len({*boots, boot_of()}) == 5
    assert boot_of() == boot_of()


async def test_krond_does_not_wait_for_an_end_that_cannot_be_recorded(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    ear, launch = Ear(), a_process(f"until [ -e {go} ]; do sleep 0.02; done; exit 5")
    launcher.start(launch, ear)
    await ear.accepted(launch)
    (supervisor,) = supervisors_of(launcher)
    started = started_of(supervisor)
    record, hidden = launcher._files_of((launch.run.key, 1)).status, tmp_path / "hidden"
    os.rename(record, hidden)
    os.mkdir(record)
    go.touch()
    assert (await ear.end_of(launch)).error == "exit status 5"
    # Were it waited for, this would end it.
    timer = threading.Timer(PATIENCE_S, os.kill, (supervisor, signal.SIGKILL))
    timer.start()
    await launcher.close()
    assert is_alive(supervisor, started)
    timer.cancel()
    os.rmdir(record)
    os.rename(hidden, record)
    await until(lambda: (read_record(record) or {}).get("code") == 5)
    await until(lambda: not is_alive(supervisor, started))


async def test_supervisors_that_were_killed_leave_no_zombies(launcher: SupervisedLauncher) -> None:
    ear, killed = Ear(), list[int]()
    for number in range(3):
        launch = a_numbered_process(["true"], number)
        launcher.start(launch, ear)
        assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
        (supervisor,) = supervisors_of(launcher)
        killed.append(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        await until(lambda: not launcher._supervisors._programs[0].is_open)
    last = a_numbered_process(["true"], 3)
    launcher.start(last, ear)
    await ear.end_of(last)

    def left() -> list[int]:
        # The last one may not have ended when it was looked for.
        launcher._supervisors._reap()
        return [pid for pid in killed if stat_of(pid) is not None]

    await until(lambda: not left())


async def test_what_a_command_leaves_running_does_not_fill_the_disk(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, go, done, stop = Ear(), tmp_path / "go", tmp_path / "done", tmp_path / "stop"
    wait = "until [ -e {} ]; do sleep 0.02; done"
    left = f"{wait.format(go)}; head -c {8 * SLACK} /dev/zero; touch {done}; {wait.format(stop)}"
    launch = a_process(f"({left}) & echo $!; exit 5")
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    (supervisor,) = supervisors_of(launcher)
    started = started_of(supervisor)
    daemon = str(end.error).removeprefix("exit status 5: ")
    output = f"/proc/{daemon}/fd/1"
    assert os.readlink(output).endswith(" (deleted)")
    go.touch()
    await until(done.exists)
    await until(lambda: 512 * os.stat(output).st_blocks < SLACK)
    # It stays with them when krond has ended, and ends with them.
    await launcher.close()
    assert is_alive(supervisor, started)
    stop.touch()
    await until(lambda: not is_alive(supervisor, started))


def test_no_process_is_of_a_run_without_a_number() -> None:
    # The kernel's own processes are in the group 0.
    assert processes_of("0" * 64, 1, 0) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root looks at who may write a file")
def test_root_trusts_no_link_to_a_file_below_a_folder_that_others_can_write(tmp_path: Path) -> None:
    others, link = tmp_path / "others", tmp_path / "link"
    others.mkdir()
    others.chmod(0o777)
    (others / "file").touch(0o600)
    link.symlink_to(others / "file")
    assert untrusted(str(link)) == f"is below {others}, which can be written by others: chmod go-w"
