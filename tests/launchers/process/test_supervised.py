"""Supervised processes: no attempt starts twice, and what never started is told apart from what ran."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.report import Launch, RunEvent
from kron.launchers.process.host import (
    CGROUP_MOUNTS,
    MANY_STARTS,
    MAX_PROGRAMS,
    is_alive,
    processes_of,
    untrusted,
)
from kron.launchers.process.launcher import LOST, NEVER_STARTED, ProcessLauncher, read_log
from kron.launchers.process.supervisor import LARGE_OUTPUT, NEVER, RECORD_SIZE, read_record
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
    ear, launch = Ear(), a_process(f"echo before; until [ -e {go} ]; do sleep 0.02; done; exit 5")
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    record = record_of(tmp_path, launch)
    supervisor, pid, started = (int(str(record[name])) for name in ("supervisor", "pid", "started"))
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: launcher._running[launch.run.key, 1].supervisor is None)
    assert is_alive(pid, started)
    go.touch()
    end = await ear.end_of(launch)
    # Linux 6.15 and later tell the exit status of a process that is no child.
    assert (end.happened, end.error) in (
        (RunEvent.FAILED, LOST),
        (RunEvent.FAILED, "exit status 5: before"),
    )
    assert record_of(tmp_path, launch)["state"] == "ended"
    assert read_log(launcher._files_of((launch.run.key, 1)).status) == b"before\n"


async def test_a_run_that_was_given_up_is_not_started_by_a_supervisor_that_was_late(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    launch = a_process(f"touch {ledger}")
    assert await launcher.adopt([launch], Ear()) == {launch.run.key}
    late = Ear()
    launcher.start(launch, late)
    await until(lambda: late.said(launch) == [RunEvent.ORPHANED])
    assert not ledger.exists()
    assert record_of(tmp_path, launch)["state"] == NEVER


def processes_left(launcher: ProcessLauncher) -> list[int]:
    """Return the supervisors of a launcher, in the order of their start."""
    assert launcher._supervisors is not None
    return [program.pid for program in launcher._supervisors._programs]


async def test_a_supervisor_that_hangs_delays_only_the_starts_that_it_has(
    launcher: ProcessLauncher,
) -> None:
    ear, first = Ear(), a_process(["true"])
    launcher.start(first, ear)
    await ear.end_of(first)
    (hanging,) = processes_left(launcher)
    os.kill(hanging, signal.SIGSTOP)
    try:
        # It gets some starts, the others go to further ones.
        launches = [a_process(["true"], env={"NUMBER": str(number)}) for number in range(3 * MANY_STARTS)]
        launches = [
            launch._replace(run=launch.run._replace(key=f"{number:064x}"))
            for number, launch in enumerate(launches)
        ]
        for launch in launches:
            launcher.start(launch, ear)
        ended = partial(ends_of, ear, launches)
        await until(lambda: len(ended()) >= len(launches) - MANY_STARTS)
        assert 1 < len(processes_left(launcher)) <= MAX_PROGRAMS
        assert launcher._supervisors is not None
        launcher._supervisors.stuck_s = 0.0
        last = a_process(["true"])
        last = last._replace(run=last.run._replace(key="f" * 64))
        launcher.start(last, ear)
        assert (await ear.end_of(last)).happened is RunEvent.SUCCESS
    finally:
        os.kill(hanging, signal.SIGCONT)
    await until(lambda: ended() == [RunEvent.SUCCESS] * len(launches))


def ends_of(ear: Ear, launches: list[Launch]) -> list[RunEvent]:
    return [ear.said(launch)[-1] for launch in launches if len(ear.said(launch)) > 1]


async def test_a_large_output_is_kept_and_its_end_is_reported(launcher: ProcessLauncher) -> None:
    size = 3 * LARGE_OUTPUT
    ear, launch = Ear(), a_process(f"head -c {size} /dev/zero; exit 3", max_output=2 * LARGE_OUTPUT)
    launcher.start(launch, ear)
    assert str((await ear.end_of(launch)).error).startswith("exit status 3")
    record = read_record(launcher._files_of((launch.run.key, 1)).status) or {}
    assert (record["state"], record["code"], record["output"]) == ("ended", 3, size)
    text = read_log(launcher._files_of((launch.run.key, 1)).status)
    assert f"[... {size - 2 * LARGE_OUTPUT} bytes left out ...]".encode() in text
    assert len(text) > 2 * LARGE_OUTPUT


async def test_a_folder_in_the_home_is_that_of_the_user(launcher: ProcessLauncher, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    ear, launch = Ear(), a_process("pwd; exit 1", cwd="~/below", env={"HOME": str(tmp_path)})
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).error == f"exit status 1: {tmp_path}/below"


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
    assert untrusted(str(place), 65534) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused files of others")
def test_root_trusts_no_file_below_a_folder_that_others_can_write(tmp_path: Path) -> None:
    place = tmp_path / "above" / "folder" / "variables"
    place.parent.mkdir(parents=True)
    place.touch(mode=0o644)
    assert untrusted(str(place)) is None
    (tmp_path / "above").chmod(0o777)
    assert f"is below {tmp_path}/above, which can be written by others" in str(untrusted(str(place)))
    # Nobody can rename what is in a sticky folder.
    (tmp_path / "above").chmod(0o1777)
    assert untrusted(str(place)) is None
    os.chown(tmp_path / "above", 65534, 0)
    assert "which belongs to another user" in str(untrusted(str(place)))


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
