"""Supervised processes: no attempt starts twice, and what never started is told apart from what ran."""

import asyncio
import os
import pwd
import signal
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.report import Launch, RunEvent
from kron.launchers.process import pool
from kron.launchers.process.host import CGROUP_MOUNTS, is_alive, processes_of
from kron.launchers.process.launcher import LOST, ProcessLauncher
from kron.launchers.process.pool import MANY_STARTS, MAX_PROGRAMS
from kron.launchers.process.spec import MIN_OUTPUT
from kron.launchers.process.supervised import NEVER_STARTED, SupervisedLauncher
from kron.launchers.process.supervisor.output import SLACK, read_log
from kron.launchers.process.supervisor.program import LARGE_OUTPUT
from kron.launchers.process.supervisor.record import NEVER, RECORD_SIZE, read_record, started_of
from kron.launchers.process.supervisor.trust import read_variables, untrusted
from tests.launchers.ear import Ear
from tests.launchers.process.supervising import (
    a_numbered_process,
    a_process,
    a_supervised_launcher,
    record_of,
    supervised,
    supervisors_of,
)
from tests.waiting import PATIENCE_S, until


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[SupervisedLauncher]:
    launcher = a_supervised_launcher(tmp_path)
    yield launcher
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()


async def test_an_attempt_that_has_a_record_is_not_started_again(
    launcher: SupervisedLauncher, tmp_path: Path
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
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    other, mine, theirs = a_supervised_launcher(tmp_path / "other"), Ear(), Ear()
    launch = a_process(["sleep", "300"])
    launcher.start(launch, mine)
    other.start(launch, theirs)
    await until(lambda: mine.said(launch) == theirs.said(launch) == [RunEvent.ACCEPTED])
    launcher.end(launch.run)
    assert (await mine.end_of(launch)).happened is RunEvent.CANCELLED
    process = supervised(other, launch)
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
    launcher: SupervisedLauncher, definition: str, events: list[RunEvent]
) -> None:
    ear, launch = Ear(), a_process(["true"])
    launch = launch._replace(job=launch.job._replace(definition=definition))
    adopted = await launcher.adopt([launch], ear)
    assert ear.said(launch) == events
    assert (launch.run.key in adopted) == bool(events)
    assert not events or ear.reports[0].error == NEVER_STARTED


async def test_a_command_whose_supervisor_was_killed_is_still_watched(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    ear, launch = Ear(), a_process(f"echo before; until [ -e {go} ]; do sleep 0.02; done; exit 5")
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    record = record_of(tmp_path, launch)
    supervisor, pid, started = (int(str(record[name])) for name in ("supervisor", "pid", "started"))
    os.kill(supervisor, signal.SIGKILL)
    await until(lambda: supervised(launcher, launch).supervisor is None)
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


async def test_a_start_whose_supervisor_was_killed_is_requested_from_another(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, ledger = Ear(), tmp_path / "ledger"
    first, launch = a_numbered_process(["true"], 1), a_numbered_process(f"echo once >> {ledger}", 2)
    launcher.start(first, ear)
    await ear.end_of(first)
    (supervisor,) = supervisors_of(launcher)
    os.kill(supervisor, signal.SIGSTOP)
    launcher.start(launch, ear)
    await until(lambda: launcher._starting)
    os.kill(supervisor, signal.SIGKILL)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    assert ledger.read_text() == "once\n"


async def test_a_run_that_was_given_up_is_not_started_by_a_supervisor_that_was_late(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    launch = a_process(f"touch {ledger}")
    assert await launcher.adopt([launch], Ear()) == {launch.run.key}
    late = Ear()
    launcher.start(launch, late)
    await until(lambda: late.said(launch) == [RunEvent.ORPHANED])
    assert not ledger.exists()
    assert record_of(tmp_path, launch)["state"] == NEVER


async def test_a_supervisor_that_hangs_delays_only_the_starts_that_it_has(
    launcher: SupervisedLauncher,
) -> None:
    ear, first = Ear(), a_process(["true"])
    launcher.start(first, ear)
    await ear.end_of(first)
    (hanging,) = supervisors_of(launcher)
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
        assert 1 < len(supervisors_of(launcher)) <= MAX_PROGRAMS
        launcher._supervisors.stuck_s = 0.0
        last = a_process(["true"])
        last = last._replace(run=last.run._replace(key="f" * 64))
        launcher.start(last, ear)
        assert (await ear.end_of(last)).happened is RunEvent.SUCCESS
    finally:
        os.kill(hanging, signal.SIGCONT)
    await until(lambda: ended() == [RunEvent.SUCCESS] * len(launches))


async def test_a_supervisor_that_does_not_reply_gets_no_more_starts(launcher: SupervisedLauncher) -> None:
    ear, first, stuck, last = Ear(), *(a_numbered_process(["true"], number) for number in range(3))
    launcher.start(first, ear)
    await ear.end_of(first)
    (hanging,) = supervisors_of(launcher)
    os.kill(hanging, signal.SIGSTOP)
    try:
        launcher.start(stuck, ear)
        await until(lambda: launcher._starting)
        launcher._supervisors.stuck_s = 0.0
        launcher.start(last, ear)
        assert (await ear.end_of(last)).happened is RunEvent.SUCCESS
        assert ear.said(stuck) == []
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert (await ear.end_of(stuck)).happened is RunEvent.SUCCESS


async def test_supervisors_without_processes_leave_but_for_one(launcher: SupervisedLauncher) -> None:
    launches = [a_numbered_process(["true"], number) for number in range(4 * MANY_STARTS)]
    ear, seen = Ear(), set[int]()
    for launch in launches:
        launcher.start(launch, ear)
    while len(ends_of(ear, launches)) < len(launches):
        seen.update(supervisors_of(launcher))
        await asyncio.sleep(0)
    assert len(seen) > 1
    launcher._supervisors.close_idle()
    (left,) = supervisors_of(launcher)
    await until(lambda: [pid for pid in seen if is_alive(pid, started_of(pid))] == [left])
    launcher.start(a_numbered_process(["true"], len(launches)), ear)
    await until(lambda: len(ear.reports) == 2 * len(launches) + 2)


async def test_a_burst_has_a_few_supervisors_at_most(
    launcher: SupervisedLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each pending start is a reason for one more.
    monkeypatch.setattr(pool, "MANY_STARTS", 1)
    launches = [a_numbered_process(["true"], number) for number in range(4 * MAX_PROGRAMS)]
    ear, most = Ear(), 0
    for launch in launches:
        launcher.start(launch, ear)
    while len(ends_of(ear, launches)) < len(launches):
        most = max(most, len(supervisors_of(launcher)))
        await asyncio.sleep(0)
    assert most == MAX_PROGRAMS


async def test_the_mask_and_the_folder_of_one_command_are_not_those_of_the_next(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, place = Ear(), tmp_path / "folder"
    place.mkdir()
    mask = f"{os.umask(0o022):04o}"
    os.umask(int(mask, 8))
    first = a_numbered_process("pwd; umask; exit 1", 1, cwd=str(place), umask="0027")
    second = a_numbered_process("pwd; umask; exit 1", 2)
    launcher.start(first, ear)
    assert (await ear.end_of(first)).error == f"exit status 1: {place}\n0027"
    launcher.start(second, ear)
    assert (await ear.end_of(second)).error == f"exit status 1: {os.getcwd()}\n{mask}"


@pytest.mark.parametrize("nice", [None, 1], ids=["as it is", "with a niceness"])
async def test_signals_have_their_usual_effect_on_a_command(
    launcher: SupervisedLauncher, nice: int | None
) -> None:
    command = "grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 1"
    ear, launch = Ear(), a_process(command, **({} if nice is None else {"nice": nice}))
    launcher.start(launch, ear)
    words = str((await ear.end_of(launch)).error).split()
    blocked, ignored = (int(word, 16) for word in words if len(word) == 16)
    # The supervisor itself ignores some. The two above 31 are the C library's own, which programs cannot use.
    assert (blocked, ignored & ((1 << 31) - 1)) == (0, 0)


async def test_a_run_that_is_ended_before_its_supervisor_replied_ends(launcher: SupervisedLauncher) -> None:
    ear, first, launch = Ear(), a_numbered_process(["true"], 1), a_numbered_process(["sleep", "300"], 2)
    launcher.start(first, ear)
    await ear.end_of(first)
    (supervisor,) = supervisors_of(launcher)
    os.kill(supervisor, signal.SIGSTOP)
    try:
        launcher.start(launch, ear)
        await until(lambda: launcher._starting)
        launcher.end(launch.run)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    assert (await ear.end_of(launch)).error == "ended on request: killed by SIGTERM"


async def test_the_output_of_a_running_command_is_bounded(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    size = 8 * SLACK
    command = f"echo first; head -c {size} /dev/zero; echo last; until [ -e {go} ]; do sleep 0.02; done"
    ear, launch = Ear(), a_process(command, max_output=MIN_OUTPUT)
    launcher.start(launch, ear)
    output = Path(launcher._files_of((launch.run.key, 1)).output)
    await until(lambda: output.exists() and output.stat().st_size > size)
    await until(lambda: 512 * output.stat().st_blocks < 2 * SLACK)
    go.touch()
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    text = read_log(launcher._files_of((launch.run.key, 1)).status)
    assert text.startswith(b"first\n")
    assert text.endswith(b"last\n")


async def test_a_krond_waits_for_the_starts_that_an_earlier_one_requested(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, ledger = Ear(), tmp_path / "ledger"
    first, requested = a_numbered_process(["true"], 1), a_numbered_process(f"echo once >> {ledger}", 2)
    launcher.start(first, ear)
    await ear.end_of(first)
    (supervisor,) = supervisors_of(launcher)
    os.kill(supervisor, signal.SIGSTOP)
    launcher.start(requested, ear)
    await until(lambda: launcher._starting)
    # The request was sent, and its supervisor has not read it when the next krond comes.
    await asyncio.sleep(0)
    await launcher.close(wait=False)
    timer = threading.Timer(0.3, os.kill, (supervisor, signal.SIGCONT))
    timer.start()
    next_one, heard = a_supervised_launcher(tmp_path), Ear()
    assert await next_one.adopt([requested], heard) == {requested.run.key}
    assert (await heard.end_of(requested)).happened is RunEvent.SUCCESS
    assert ledger.read_text() == "once\n"
    timer.join()
    await next_one.close()


async def test_a_start_that_is_requested_when_krond_stops_is_made(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, ledger = Ear(), tmp_path / "ledger"
    first, last = a_numbered_process(["true"], 1), a_numbered_process(f"echo once >> {ledger}", 2)
    launcher.start(first, ear)
    await ear.end_of(first)
    # All in one iteration of the event loop, in which nothing has been sent.
    launcher.start(last, ear)
    launcher._start_some()
    await launcher.close(wait=False)
    next_one, heard = a_supervised_launcher(tmp_path), Ear()
    assert await next_one.adopt([last], heard) == {last.run.key}
    assert (await heard.end_of(last)).happened is RunEvent.SUCCESS
    assert ledger.read_text() == "once\n"
    await next_one.close()


@pytest.mark.parametrize("nice", [None, 1], ids=["spawned", "forked"])
async def test_a_krond_does_not_wait_for_the_runs_of_an_earlier_one(
    launcher: SupervisedLauncher, tmp_path: Path, caplog: pytest.LogCaptureFixture, nice: int | None
) -> None:
    ear, launch = Ear(), a_process(["sleep", "300"], **({} if nice is None else {"nice": nice}))
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    await launcher.close(wait=False)
    next_one, heard = a_supervised_launcher(tmp_path), Ear()
    assert await next_one.adopt([launch], heard) == {launch.run.key}
    assert "does not reply" not in caplog.text
    next_one.end(launch.run)
    assert (await heard.end_of(launch)).happened is RunEvent.CANCELLED
    await next_one.close()


async def test_a_command_that_waits_for_its_file_delays_no_other_and_no_krond(
    launcher: SupervisedLauncher, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A pipe without a reader, as a file on a host that is down: its opening does not return.
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    where = {"file": pipe, "max_size": 1_000, "keep": 1}
    ear, other = Ear(), a_numbered_process(["true"], 1)
    waits = a_numbered_process(["echo", "hello"], 2, stdout=where)
    launcher.start(waits, ear)
    launcher.start(other, ear)
    assert (await ear.end_of(other)).happened is RunEvent.SUCCESS
    assert ear.said(waits) == []
    await launcher.close(wait=False)
    next_one, heard = a_supervised_launcher(tmp_path), Ear()
    assert await next_one.adopt([waits], heard) == {waits.run.key}
    assert "does not reply" not in caplog.text
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb"):  # noqa: ASYNC230 - it waits for nothing
        assert (await heard.end_of(waits)).happened is RunEvent.SUCCESS
    await next_one.close()


@pytest.mark.slow
async def test_an_end_that_cannot_be_recorded_is_reported_and_recorded_later(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    ear, launch = Ear(), a_process(f"until [ -e {go} ]; do sleep 0.02; done; exit 5")
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    # Where the record was, nothing can be written.
    record, hidden = launcher._files_of((launch.run.key, 1)).status, tmp_path / "hidden"
    os.rename(record, hidden)
    os.mkdir(record)
    go.touch()
    assert (await ear.end_of(launch)).error == "exit status 5"
    os.rmdir(record)
    os.rename(hidden, record)
    await until(lambda: (read_record(record) or {}).get("code") == 5)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes groups")
@pytest.mark.parametrize(
    ("fields", "groups"),
    [
        pytest.param({"user": "nobody"}, "65534", id="a user"),
        pytest.param({"user": "nobody", "group": "12346"}, "12346 65534", id="a user and a group"),
        pytest.param({"group": "12346"}, "12346", id="a group"),
    ],
)
async def test_the_groups_of_krond_are_dropped(
    tmp_path: Path, fields: dict[str, object], groups: str
) -> None:
    own = os.getgroups()
    os.setgroups([0, 12345])
    try:
        launcher, ear, launch = a_supervised_launcher(tmp_path), Ear(), a_process("id -G; exit 1", **fields)
        launcher.start(launch, ear)
        assert (await ear.end_of(launch)).error == f"exit status 1: {groups}"
    finally:
        os.setgroups(own)
    await launcher.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
@pytest.mark.parametrize(
    ("env", "shown"),
    [
        pytest.param({}, "nobody {home}", id="those of its user"),
        pytest.param({"USER": "me", "HOME": "/dev"}, "me /dev", id="those that the job sets"),
    ],
)
async def test_the_variables_of_a_job_win_over_those_of_its_user(
    launcher: SupervisedLauncher, env: dict[str, str], shown: str
) -> None:
    home = pwd.getpwnam("nobody").pw_dir
    ear, launch = Ear(), a_process("echo $USER $HOME; exit 1", user="nobody", env=env)
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).error == f"exit status 1: {shown.format(home=home)}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
async def test_a_process_of_a_user_is_at_home(launcher: SupervisedLauncher) -> None:
    home = pwd.getpwnam("daemon").pw_dir
    ear, launch = Ear(), a_process("pwd; exit 1", user="daemon")
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).error == f"exit status 1: {home}"


@pytest.mark.parametrize(
    ("max_size", "keep", "files"),
    [
        pytest.param(1_000, 2, {"out": "abc\nabc\nabc\nabc\n"}, id="it has room"),
        pytest.param(5, 2, {"out": "abc\nabc\n", "out.1": "abc\nabc\n"}, id="it is full after two"),
        pytest.param(1, 2, {"out": "abc\n", "out.1": "abc\n", "out.2": "abc\n"}, id="the oldest is dropped"),
        pytest.param(1, 0, {"out": "abc\n"}, id="none is kept"),
    ],
)
async def test_a_file_of_output_is_rotated_when_it_is_too_large(
    launcher: SupervisedLauncher, tmp_path: Path, max_size: int, keep: int, files: dict[str, str]
) -> None:
    (tmp_path / "files").mkdir()
    where = {"file": str(tmp_path / "files" / "out"), "max_size": max_size, "keep": keep}
    ear = Ear()
    for number in range(4):
        launch = a_numbered_process(["echo", "abc"], number, stdout=where)
        launcher.start(launch, ear)
        assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    assert {place.name: place.read_text() for place in (tmp_path / "files").iterdir()} == files


def test_quotes_around_a_value_are_left_out_and_one_alone_is_a_value(tmp_path: Path) -> None:
    place = tmp_path / "variables"
    place.write_text("# names\n\nexport A = 'b c' \nB=\"\"\nC='\nD='x\"\n")
    assert read_variables(str(place)) == {"A": "b c", "B": "", "C": "'", "D": "'x\""}
    place.write_text("A=1\nnothing\n")
    with pytest.raises(ValueError, match=f"{place}:2: must be NAME=value"):
        read_variables(str(place))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused files of others")
async def test_root_takes_no_variables_from_a_file_that_others_can_write(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    place = tmp_path / "variables"
    place.write_text("LD_PRELOAD=/tmp/evil.so\n")
    place.chmod(0o666)
    ear, launch = Ear(), a_process(["true"], env_file=str(place))
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert end.happened is RunEvent.LAUNCH_FAILED
    assert f"env_file {place}: can be written by others" in str(end.error)


async def test_requests_that_a_supervisor_has_no_room_for_are_sent_later(
    launcher: SupervisedLauncher,
) -> None:
    ear, first, size = Ear(), a_numbered_process(["true"], 0), 500_000
    launcher.start(first, ear)
    await ear.end_of(first)
    (supervisor,) = supervisors_of(launcher)
    launches = [
        a_numbered_process("wc -c; exit 1", number, stdin_text="x" * (size + number))
        for number in range(1, 5)
    ]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for launch in launches:
            launcher.start(launch, ear)
        await until(lambda: len(launcher._starting) == len(launches))
        await until(lambda: launcher._supervisors._programs[0]._unsent)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    for number, launch in enumerate(launches, 1):
        assert (await ear.end_of(launch)).error == f"exit status 1: {size + number}"
    assert supervisors_of(launcher) == [supervisor]


def ends_of(ear: Ear, launches: list[Launch]) -> list[RunEvent]:
    return [ear.said(launch)[-1] for launch in launches if len(ear.said(launch)) > 1]


@pytest.mark.parametrize(
    ("output", "is_beside"),
    [
        pytest.param("grün\n".encode(), False, id="a line"),
        pytest.param(b"\xff\x00\n", True, id="no text"),
        pytest.param(b"\x01" * 1_000, True, id="too long when it is quoted"),
        pytest.param(b"x" * RECORD_SIZE, True, id="too long"),
        pytest.param(b"", False, id="none"),
    ],
)
async def test_a_short_output_is_in_the_record_and_needs_no_file(
    launcher: SupervisedLauncher, tmp_path: Path, output: bytes, is_beside: bool
) -> None:
    place = tmp_path / "output"
    place.write_bytes(output)
    ear, launch = Ear(), a_process(["cat", str(place)])
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    record = launcher._files_of((launch.run.key, 1)).status
    assert read_log(record) == output
    assert bool(list((tmp_path / "state" / "logs").rglob("*.log"))) == is_beside
    assert (record_of(tmp_path, launch)["state"], record_of(tmp_path, launch)["output"]) == (
        "ended",
        len(output),
    )
    assert not list((tmp_path / "state").rglob("*.out"))


async def test_a_large_output_is_kept_and_its_end_is_reported(launcher: SupervisedLauncher) -> None:
    size = 3 * LARGE_OUTPUT
    ear, launch = Ear(), a_process(f"head -c {size} /dev/zero; exit 3", max_output=2 * LARGE_OUTPUT)
    launcher.start(launch, ear)
    assert str((await ear.end_of(launch)).error).startswith("exit status 3")
    record = read_record(launcher._files_of((launch.run.key, 1)).status) or {}
    assert (record["state"], record["code"], record["output"]) == ("ended", 3, size)
    text = read_log(launcher._files_of((launch.run.key, 1)).status)
    assert f"[... {size - 2 * LARGE_OUTPUT} bytes left out ...]".encode() in text
    assert len(text) > 2 * LARGE_OUTPUT


async def test_a_folder_in_the_home_is_that_of_the_user(launcher: SupervisedLauncher, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    ear, launch = Ear(), a_process("pwd; exit 1", cwd="~/below", env={"HOME": str(tmp_path)})
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).error == f"exit status 1: {tmp_path}/below"


async def test_the_record_of_an_earlier_boot_is_no_running_process(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    ear, launch = Ear(), a_process(["sleep", "300"])
    launcher.start(launch, ear)
    await until(lambda: ear.said(launch) == [RunEvent.ACCEPTED])
    after_boot = a_supervised_launcher(tmp_path)
    after_boot._boot = "another boot"
    await launcher.close(wait=False)
    assert await after_boot.adopt([launch], Ear()) == frozenset()
    os.kill(int(str(record_of(tmp_path, launch)["pid"])), signal.SIGKILL)
    await until(lambda: record_of(tmp_path, launch)["code"] is not None)
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
    # Only the owner can rename a file in a sticky folder.
    (tmp_path / "above").chmod(0o1777)
    assert untrusted(str(place)) is None
    os.chown(tmp_path / "above", 65534, 0)
    assert "which belongs to another user" in str(untrusted(str(place)))


async def test_nobody_waits_for_the_end_of_a_start_that_failed(launcher: SupervisedLauncher) -> None:
    ear, launch = Ear(), a_process(["/nowhere/program"])
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).happened is RunEvent.LAUNCH_FAILED
    assert [program._ended for program in launcher._supervisors._programs] == [{}]


async def test_a_process_enters_the_control_group_that_an_earlier_start_has_left(
    launcher: SupervisedLauncher, tmp_path: Path
) -> None:
    """A folder in place of the host's control groups: what the process writes there is its entry."""
    ear, launch = Ear(), a_process("true")
    launcher.cgroup = str(tmp_path / "groups")
    own = tmp_path / "groups" / f"kron-{launch.run.key[:16]}.1"
    own.mkdir(parents=True)
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    assert (own / "cgroup.procs").read_text() == "0"


CGROUPS = next((mount for mount in CGROUP_MOUNTS if Path(f"{mount}/cgroup.procs").exists()), None)


@pytest.mark.skipif(CGROUPS is None or os.geteuid() != 0, reason="this host has no control groups to make")
async def test_no_process_of_a_run_leaves_its_control_group(launcher: SupervisedLauncher) -> None:
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


@pytest.mark.skipif(CGROUPS is None or os.geteuid() != 0, reason="this host has no control groups to make")
async def test_the_control_group_of_a_run_is_removed_with_its_end(launcher: SupervisedLauncher) -> None:
    launcher.cgroup = f"{CGROUPS}/kron-end-{os.getpid()}"
    os.mkdir(launcher.cgroup)
    ear, launch = Ear(), a_process("cat /proc/self/cgroup; exit 1")
    launcher.start(launch, ear)
    own = f"kron-{launch.run.key[:16]}.1"
    assert f"/{own}" in str((await ear.end_of(launch)).error)
    assert [name for name in os.listdir(launcher.cgroup) if name == own] == []
    os.rmdir(launcher.cgroup)
