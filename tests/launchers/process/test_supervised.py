"""Supervised processes: no attempt starts twice, and what never started is told apart from what ran."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.report import Launch, RunEvent
from kron.launchers.process.host import CGROUP_MOUNTS, is_alive, processes_of, untrusted
from kron.launchers.process.launcher import LOST, NEVER_STARTED, ProcessLauncher
from kron.launchers.process.supervisor import RECORD_SIZE, read_record
from tests.launchers.ear import Ear, a_launch
from tests.waiting import PATIENCE_S, until


def a_process(command: object, **fields: object) -> Launch:
    return a_launch({"kind": "process", "command": command, **fields})


def a_supervised_launcher(folder: Path) -> ProcessLauncher:
    launcher = ProcessLauncher(SystemClock(), folder / "state")
    launcher.supervise()
    return launcher


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ProcessLauncher]:
    launcher = a_supervised_launcher(tmp_path)
    yield launcher
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()


def record_of(folder: Path, launch: Launch) -> dict[str, object]:
    """Return the record of a launch; the folder has no other."""
    (place,) = (folder / "state" / "logs").rglob(f"{launch.run.key}.1.run")
    assert place.stat().st_size == RECORD_SIZE
    return read_record(str(place)) or {}


async def test_an_attempt_that_has_a_record_is_not_started_again(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    launch = a_process(f"echo once >> {ledger}; until [ -e {go} ]; do sleep 0.02; done; exit 5")
    first, second, third = Ear(), Ear(), Ear()
    launcher.start(launch, first)
    await until(ledger.exists)
    # While it runs, another owner starts the same attempt; afterwards, one more.
    other = a_supervised_launcher(tmp_path / "other")
    other._folder, other._logs = launcher._folder, launcher._logs
    other.start(launch, second)
    await until(lambda: other.busy and not other._waiting)
    go.touch()
    assert (await first.end_of(launch)).error == "exit status 5"
    assert (await second.end_of(launch)).error == "exit status 5"
    other.start(launch, third)
    assert (await third.end_of(launch)).error == "exit status 5"
    assert ledger.read_text() == "once\n"
    await other.close()


async def test_ending_a_run_leaves_the_run_of_another_krond_with_the_same_key(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    other, mine, theirs = a_supervised_launcher(tmp_path / "other"), Ear(), Ear()
    launch = a_process(["sleep", "300"])
    launcher.start(launch, mine)
    other.start(launch, theirs)
    await until(lambda: mine.said(launch) == theirs.said(launch) == [RunEvent.ACCEPTED])
    launcher.end(launch.run)
    assert (await mine.end_of(launch)).happened is RunEvent.CANCELLED
    process = other._running[launch.run.key, 1]
    assert is_alive(process.pid, process.started)
    other.end(launch.run)
    assert (await theirs.end_of(launch)).happened is RunEvent.CANCELLED
    await other.close()


@pytest.mark.parametrize(
    ("definition", "events"),
    [
        pytest.param('{"schedule":"0 * * * *"}', [RunEvent.LAUNCH_FAILED], id="a failed launch"),
        pytest.param(
            '{"policy":{"on_orphan":"restart"},"schedule":"0 * * * *"}', [], id="left to be restarted"
        ),
    ],
)
async def test_a_run_that_was_recorded_and_never_started_is_told_apart(
    launcher: ProcessLauncher, definition: str, events: list[RunEvent]
) -> None:
    ear, launch = Ear(), a_process(["true"])
    launch = launch._replace(job=launch.job._replace(definition=definition))
    adopted = await launcher.adopt([launch], ear)
    assert ear.said(launch) == events
    assert (launch.run.key in adopted) == bool(events)
    assert not events or ear.reports[0].error == NEVER_STARTED


async def test_a_command_whose_supervisor_was_killed_is_still_watched(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    ear, launch = Ear(), a_process(f"until [ -e {go} ]; do sleep 0.02; done")
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    record = record_of(tmp_path, launch)
    supervisor, pid, started = (int(str(record[name])) for name in ("supervisor", "pid", "started"))
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: launcher._running[launch.run.key, 1].supervisor is None)
    assert is_alive(pid, started)
    go.touch()
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (RunEvent.FAILED, LOST)


async def test_the_record_of_an_earlier_boot_is_no_running_process(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    ear, launch = Ear(), a_process(["sleep", "300"])
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    after_boot = a_supervised_launcher(tmp_path)
    after_boot._boot = "another boot"
    await launcher.close(wait=False)
    assert await after_boot.adopt([launch], Ear()) == frozenset()
    os.kill(int(str(record_of(tmp_path, launch)["pid"])), signal.SIGKILL)
    await until(lambda: record_of(tmp_path, launch)["state"] == "ended")
    # Its end, once recorded, counts whatever boot it was.
    late = Ear()
    assert await after_boot.adopt([launch], late) == {launch.run.key}
    assert (await late.end_of(launch)).error == "killed by SIGKILL"
    await after_boot.close()


async def test_a_launcher_without_supervisors_refuses_fields_that_need_one(tmp_path: Path) -> None:
    launcher, ear, launch = (
        ProcessLauncher(SystemClock(), tmp_path),
        Ear(),
        a_process(["true"], user="nobody"),
    )
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert end.happened is RunEvent.LAUNCH_FAILED
    assert "launcher.user: needs krond" in str(end.error)
    await launcher.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused files of others")
def test_root_trusts_only_files_that_no_one_else_can_write(tmp_path: Path) -> None:
    place = tmp_path / "variables"
    place.touch(mode=0o644)
    assert untrusted(str(place)) is None
    place.chmod(0o664)
    assert "can be written by others" in str(untrusted(str(place)))
    place.chmod(0o600)
    os.chown(place, 65534, 0)
    assert "belongs to another user" in str(untrusted(str(place)))


CGROUPS = next((mount for mount in CGROUP_MOUNTS if Path(f"{mount}/cgroup.procs").exists()), None)


@pytest.mark.skipif(CGROUPS is None or os.geteuid() != 0, reason="this host has no control groups to make")
async def test_no_process_of_a_run_leaves_its_control_group(launcher: ProcessLauncher) -> None:
    launcher.cgroup = f"{CGROUPS}/kron-test-{os.getpid()}"
    os.mkdir(launcher.cgroup)
    # A child without the session and the environment of its run.
    ear, launch = Ear(), a_process("env -i setsid sh -c 'trap \"\" TERM; sleep 300' & sleep 300")
    definition = '{"policy":{"replace_grace":"100ms"},"schedule":"0 * * * *"}'
    launch = launch._replace(job=launch.job._replace(definition=definition))
    launcher.start(launch, ear)
    own = f"{launcher.cgroup}/kron-{launch.run.key[:16]}.1"
    await until(lambda: len(processes_of("none", 0, -1, own)) >= 4)
    launcher.end(launch.run)
    assert (await ear.end_of(launch)).happened is RunEvent.CANCELLED
    left = processes_of("none", 0, -1, own)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    await until(lambda: not os.path.exists(own))
    os.rmdir(launcher.cgroup)
