"""Real processes: begun, noticed, ended, and found again after their owner was killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.errors import InputError
from kron.core.plan.report import Launch, LeaseStatus, RunEvent
from kron.launchers.backoff import Backoff
from kron.launchers.process.host import boot_of, exit_code_of, launcher_id_of, members_of, stat_of
from kron.launchers.process.launcher import LARGE_OUTPUT, LOST, SPAWNS_PER_ITERATION, ProcessLauncher
from kron.launchers.process.process import WRAPPER
from kron.launchers.process.spec import MIN_OUTPUT
from kron.launchers.process.supervisor.output import SLACK, head_of, size_of
from kron.launchers.process.supervisor.record import started_of
from kron.launchers.run_token import is_run_token_of
from kron.testing.clock import SimulatedClock
from tests.launchers.ear import Ear, a_launch, on_record
from tests.waiting import PATIENCE_S, until

QUICK = Backoff(max_attempts=3, first_delay=timedelta(milliseconds=5), max_delay=timedelta(milliseconds=20))
SHORT = timedelta(milliseconds=300)
LONG = timedelta(seconds=20)


def a_process(command: object, /, identity: str = "backup", **fields: object) -> Launch:
    return a_launch({"kind": "process", "command": command, **fields}, identity=identity)


class Outputs:
    """Takes what processes wrote."""

    def __init__(self) -> None:
        self.taken: dict[str, bytes] = {}

    def __call__(self, launch: Launch, output: bytes) -> None:
        self.taken[launch.run.identity] = output


@pytest.fixture
def outputs() -> Outputs:
    return Outputs()


@pytest.fixture(params=["pidfd", "thread"])
async def launcher(
    request: pytest.FixtureRequest, tmp_path: Path, outputs: Outputs
) -> AsyncIterator[ProcessLauncher]:
    launcher = a_launcher(tmp_path, outputs)
    launcher.has_pidfd = request.param == "pidfd"
    yield launcher
    # A test that failed half-way leaves nothing running.
    for process in list(launcher._running.values()):
        launcher.end(process.launch.run)
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()


def a_launcher(folder: Path, outputs: Outputs | None = None, **options: object) -> ProcessLauncher:
    usual: dict[str, object] = {"grace": SHORT, "backoff": QUICK, "on_output": outputs}
    return ProcessLauncher(SystemClock(), folder / "state", **usual | options)  # type: ignore[arg-type]


def files_in(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in (folder / "state").rglob("*") if path.is_file()]


# --- starting and noticing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "happened", "error"),
    [
        pytest.param(["true"], RunEvent.SUCCESS, None, id="success"),
        pytest.param(["false"], RunEvent.FAILED, "exit status 1", id="failure"),
        pytest.param("exit 3", RunEvent.FAILED, "exit status 3", id="a text is for the shell"),
        pytest.param(
            "seq 20; echo no room >&2; exit 3",
            RunEvent.FAILED,
            "exit status 3: 12\n13\n14\n15\n16\n17\n18\n19\n20\nno room",
            id="the last lines of its output",
        ),
        pytest.param("kill -KILL $$", RunEvent.FAILED, "killed by SIGKILL", id="killed"),
        pytest.param("echo a; kill -SEGV $$", RunEvent.FAILED, "killed by SIGSEGV: a", id="crashed"),
        pytest.param(
            "exit 137", RunEvent.FAILED, "exit status 137 (SIGKILL)", id="a shell's word for killed"
        ),
        pytest.param(
            ["printf", r"\000\033[1m\377", "x"], RunEvent.SUCCESS, None, id="what it writes is bytes"
        ),
        pytest.param(
            r"printf 'a\000b\033[1m\377'; exit 1",
            RunEvent.FAILED,
            "exit status 1: a\ufffdb\ufffd",
            id="errors can be stored and shown",
        ),
    ],
)
async def test_how_it_ends_is_reported_once(
    launcher: ProcessLauncher, command: object, happened: RunEvent, error: str | None
) -> None:
    ear, launch = Ear(), a_process(command)
    launcher.start(launch, ear)
    assert launcher.busy
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (happened, error)
    assert ear.said(launch) == [RunEvent.ACCEPTED, happened]
    assert ear.reports[0].run_id == end.run_id
    assert not launcher.busy


async def test_it_knows_which_execution_it_is(launcher: ProcessLauncher, outputs: Outputs) -> None:
    ear = Ear()
    launch = a_process("env | grep ^KRON_ | sort; echo $MORE", env={"MORE": "a b"})
    launcher.start(launch, ear)
    await ear.end_of(launch)
    assert outputs.taken["backup"].decode().splitlines() == [
        "KRON_ATTEMPT=1",
        "KRON_CHOSEN_TIME=2026-03-01T12:00:00Z",
        "KRON_DATA_INTERVAL_END=2026-03-01T12:00:00Z",
        "KRON_DATA_INTERVAL_START=2026-03-01T11:00:00Z",
        "KRON_FENCING_TOKEN=7",
        f"KRON_IDEMPOTENCY_KEY={launch.run.key}",
        "KRON_IDENTITY=backup",
        f"KRON_LAUNCHER_ID={launcher_id_of(launcher._folder)}",
        "KRON_NOMINAL_TIME=2026-03-01T12:00:00Z",
        "KRON_PERIOD_ID=2026-03-01T12:00:00Z",
        "a b",
    ]


async def test_it_has_the_token_of_its_run_which_is_not_repeated_in_what_it_says(
    tmp_path: Path, outputs: Outputs
) -> None:
    secret = b"s" * 32
    launcher = a_launcher(tmp_path, outputs, secret=secret)
    ear, launch = Ear(), a_process(f'printf %s "$KRON_RUN_TOKEN" > {tmp_path}/token; env; exit 3')
    launcher.start(launch, ear)
    report = await ear.end_of(launch)
    token = (tmp_path / "token").read_text()
    assert is_run_token_of(token, secret, launch.run.key)
    assert "KRON_RUN_TOKEN=***" in outputs.taken["backup"].decode()
    assert token not in outputs.taken["backup"].decode()
    assert token[9:] not in str(report.error)


@pytest.mark.parametrize("part", [52, 40, 20, 8])
@pytest.mark.parametrize("place", ["the first part ends", "the last part starts"])
async def test_no_part_of_a_token_is_left_where_an_output_is_cut(
    place: str, part: int, tmp_path: Path, outputs: Outputs
) -> None:
    head = head_of(MIN_OUTPUT)
    is_first = place == "the first part ends"
    before = head - part if is_first else 2 * MIN_OUTPUT
    after = 2 * MIN_OUTPUT if is_first else MIN_OUTPUT - head - part
    launcher = a_launcher(tmp_path, outputs, secret=b"s" * 32)
    ear = Ear()
    command = (
        f"head -c {before} /dev/zero | tr '\\0' y; printf %s $KRON_RUN_TOKEN; "
        f"head -c {after} /dev/zero | tr '\\0' x"
    )
    launch = a_process(command, max_output=MIN_OUTPUT)
    launcher.start(launch, ear)
    await ear.end_of(launch)
    first, _, last = outputs.taken["backup"].partition(b"\n[... ")
    left = first if is_first else last.partition(b"...]\n")[2]
    assert left == (b"y" * before + b"***" if is_first else b"***" + b"x" * after)


async def test_the_owners_own_settings_are_not_passed_on(
    tmp_path: Path, outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRON_STORE", "postgresql://u:secret@db/kron")
    monkeypatch.setenv("COLOUR", "blue")
    launcher, ear, launch = a_launcher(tmp_path, outputs), Ear(), a_process("env")
    launcher.start(launch, ear)
    await ear.end_of(launch)
    assert b"secret" not in outputs.taken["backup"]
    assert b"COLOUR=blue" in outputs.taken["backup"]


async def test_it_reads_its_document_and_stands_in_its_folder(
    launcher: ProcessLauncher, outputs: Outputs, tmp_path: Path
) -> None:
    document = {"table": "users", "size": [1, 2.5, None, "ü"], "text": "x" * 20_000}
    (tmp_path / "here").mkdir()
    ear = Ear()
    launch = a_process("pwd; cat", stdin=document, cwd=str(tmp_path / "here"))
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).error is None
    place, _, text = outputs.taken["backup"].decode().partition("\n")
    assert place == str(tmp_path / "here")
    assert json.loads(text) == document


@pytest.mark.parametrize("survive", [False, True], ids=["plain", "survivor"])
@pytest.mark.parametrize("command", ["./program", "true"])
async def test_a_command_with_a_path_is_found_from_its_folder_and_one_without_by_its_name(
    launcher: ProcessLauncher, tmp_path: Path, command: str, survive: bool
) -> None:
    (tmp_path / "here").mkdir()
    program = tmp_path / "here" / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o700)
    ear, launch = Ear(), a_process([command], cwd=str(tmp_path / "here"), survive=survive)
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS


async def test_without_a_document_there_is_nothing_to_read(
    launcher: ProcessLauncher, outputs: Outputs
) -> None:
    ear, launch = Ear(), a_process(["cat"])
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    # A process that wrote nothing has no output.
    assert outputs.taken == {}


async def test_it_has_its_own_session_and_no_stray_file(launcher: ProcessLauncher, outputs: Outputs) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    ear = Ear()
    # 'ls' itself opens the folder it lists; '$$' is a session leader if its session has its own number.
    launch = a_process("ls /proc/$$/fd; cut -d' ' -f5,6 /proc/$$/stat; echo $$; true")
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    os.close(read)
    os.close(write)
    *files, group_and_session, pid = outputs.taken["backup"].decode().split("\n")[:-1]
    assert set(files) <= {"0", "1", "2", "10"}, "10 is the shell's own"
    assert group_and_session.split() == [pid, pid]
    assert end.run_id is not None
    assert end.run_id.split(":")[0] == pid


async def test_signals_have_their_usual_effect(launcher: ProcessLauncher, outputs: Outputs) -> None:
    ear, launch = Ear(), a_process("grep -E '^Sig(Blk|Ign)' /proc/self/status")
    launcher.start(launch, ear)
    await ear.end_of(launch)
    blocked, ignored = (int(line.split()[1], 16) for line in outputs.taken["backup"].decode().splitlines())
    assert blocked == 0
    assert not ignored & (1 << (signal.SIGPIPE - 1))


async def test_many_at_once_each_end_once(launcher: ProcessLauncher, outputs: Outputs) -> None:
    ear = Ear()
    launches = [a_process(f"echo {n}; exit {n % 3}", identity=f"job {n}") for n in range(60)]
    for launch in launches:
        launcher.start(launch, ear)
    await ear.until(lambda: len(ear.ends()) == 60)
    for n, launch in enumerate(launches):
        assert ear.said(launch) == [RunEvent.ACCEPTED, RunEvent.FAILED if n % 3 else RunEvent.SUCCESS]
        assert outputs.taken[f"job {n}"] == b"%d\n" % n


async def test_a_start_keeps_nobody_waiting(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path), Ear()
    for n in range(3 * SPAWNS_PER_ITERATION):
        launcher.start(a_process(["true"], identity=f"job {n}"), ear)
    assert ear.reports == []
    await asyncio.sleep(0)
    begun = sum(report.happened is RunEvent.ACCEPTED for report in ear.reports)
    assert begun == SPAWNS_PER_ITERATION
    await launcher.close()
    assert len(ear.ends()) == 3 * SPAWNS_PER_ITERATION


# --- output --------------------------------------------------------------------------------------


async def test_an_error_quotes_the_output_without_its_colours(launcher: ProcessLauncher) -> None:
    ear, launch = Ear(), a_process("printf '\\033[1;31mno space\\033[0m left\\n'; exit 1")
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).error == "exit status 1: no space left"


async def test_the_head_and_the_tail_of_the_output_are_kept(
    launcher: ProcessLauncher, outputs: Outputs
) -> None:
    ear, launch = Ear(), a_process("seq 100000; exit 1", max_output=1_024)
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert outputs.taken["backup"].startswith(b"1\n2\n3\n")
    assert b"\n[... 587871 bytes left out ...]\n" in outputs.taken["backup"]
    assert outputs.taken["backup"].endswith(b"\n99999\n100000\n")
    assert end.error is not None
    assert end.error.endswith("\n100000")


async def test_a_flood_of_output_fills_no_disk_and_keeps_its_ends(
    launcher: ProcessLauncher, outputs: Outputs, tmp_path: Path
) -> None:
    ear = Ear()
    written, go = tmp_path / "written", tmp_path / "go"
    flood = (
        f"head -c {16 * SLACK} /dev/zero; touch {written}; until test -e {go}; do sleep 0.02; done; seq 1000"
    )
    launch = a_process(flood, max_output=4_096)
    launcher.start(launch, ear)
    await ear.accepted(launch)
    (output,) = (path for path in (tmp_path / "state").rglob("*.out"))
    await until(written.exists)
    # Trimming may have caught the flood at any point; less than the slack is left alone.
    await until(lambda: output.stat().st_blocks * 512 <= SLACK + 3 * 4_096)
    go.touch()
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    assert outputs.taken["backup"].endswith(b"\n999\n1000\n")
    kept = outputs.taken["backup"].replace(b"\0", b"")
    assert kept.startswith(b"\n[... ")
    assert len(outputs.taken["backup"]) < 4_096 + 100


async def test_a_flood_of_output_is_trimmed_beside_the_event_loop(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    # A file is locked while a program writes to it: whoever frees a part of it waits.
    trimmers: set[int] = set()
    sys.addaudithook(
        lambda event, arguments: (
            trimmers.add(threading.get_ident())
            if event == "open" and "+" in str(arguments[1]) and str(arguments[0]).startswith(str(tmp_path))
            else None
        )
    )
    ear, launch = Ear(), a_process(f"head -c {16 * SLACK} /dev/zero; sleep 60", max_output=4_096)
    launcher.start(launch, ear)
    await until(lambda: trimmers)
    launcher.end(launch.run)
    await ear.end_of(launch)
    assert threading.get_ident() not in trimmers


async def test_a_large_output_is_read_and_removed_beside_the_event_loop(tmp_path: Path) -> None:
    is_free, taken = threading.Event(), Outputs()

    def take(launch: Launch, output: bytes) -> None:
        if launch.run.identity == "large":
            assert is_free.wait(PATIENCE_S)
        taken(launch, output)

    launcher, ear = ProcessLauncher(SystemClock(), tmp_path / "state", on_output=take), Ear()
    large = a_process(
        f"yes '' | head -c {2 * LARGE_OUTPUT}; echo over; exit 1",
        identity="large",
        max_output=4 * LARGE_OUTPUT,
    )
    small = a_process("echo small", identity="small")
    launcher.start(large, ear)
    # The first one may have ended before; nothing but the loop ends the second one.
    await until(lambda: any(size_of(str(path)) > LARGE_OUTPUT for path in tmp_path.rglob("*.out")))
    launcher.start(small, ear)
    await ear.end_of(small)
    is_free.set()
    assert (await ear.end_of(large)).error == "exit status 1: over"
    assert len(taken.taken["large"]) == 2 * LARGE_OUTPUT + len("over\n")
    await launcher.close()


async def test_nothing_is_left_in_the_folder(launcher: ProcessLauncher, tmp_path: Path) -> None:
    ear = Ear()
    launches = [
        a_process("echo a; exit 1", identity="a", survive=True),
        a_process(["true"], identity="b"),
        a_process(["no such command"], identity="c"),
        a_process(["sleep", "60"], identity="d"),
    ]
    for launch in launches:
        launcher.start(launch, ear)
    await ear.accepted(launches[3])
    assert len(files_in(tmp_path)) >= 1
    launcher.end(launches[3].run)
    await ear.until(lambda: len(ear.ends()) == 4)
    assert files_in(tmp_path) == []


async def test_whoever_fails_to_take_the_output_does_not_cost_the_run_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(launch: Launch, output: bytes) -> None:
        raise RuntimeError("no room")

    launcher, ear, launch = a_launcher(tmp_path, on_output=broken), Ear(), a_process(["echo", "x"])
    launcher.start(launch, ear)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS
    assert "no room" in caplog.text


async def test_only_its_owner_can_read_the_output(launcher: ProcessLauncher, tmp_path: Path) -> None:
    ear, launch = Ear(), a_process(["sleep", "60"])
    launcher.start(launch, ear)
    await ear.accepted(launch)
    (output,) = (path for path in (tmp_path / "state").rglob("*.out"))
    assert output.stat().st_mode & 0o077 == 0
    assert output.parent.stat().st_mode & 0o077 == 0
    launcher.end(launch.run)
    await ear.end_of(launch)


# --- launches that fail --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"command": ["no such command"]}, "No such file or directory", id="missing"),
        pytest.param({"command": ["/etc/passwd"]}, "Permission denied", id="no program"),
        pytest.param({"command": ["true"], "cwd": "/no/such/folder"}, "/no/such/folder", id="no folder"),
        pytest.param(
            {"command": ["no such command"], "survive": True}, "no such command", id="missing, survivor"
        ),
    ],
)
async def test_a_command_that_cannot_be_started_is_tried_again_and_then_fails(
    launcher: ProcessLauncher, fields: dict[str, object], reason: str, tmp_path: Path
) -> None:
    ear, launch = Ear(), a_launch({"kind": "process", **fields})
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert end.happened is RunEvent.LAUNCH_FAILED
    assert end.error is not None
    assert end.error.startswith("the command cannot be started: ")
    assert reason in end.error
    assert ear.said(launch) == [RunEvent.LAUNCH_FAILED]
    assert not launcher.busy
    assert files_in(tmp_path) == []


async def test_a_command_that_appears_in_time_is_started(tmp_path: Path) -> None:
    backoff = Backoff(
        max_attempts=100, first_delay=timedelta(milliseconds=10), max_delay=timedelta(milliseconds=10)
    )
    launcher, ear = a_launcher(tmp_path, backoff=backoff), Ear()
    program = tmp_path / "program"
    launch = a_process([str(program)])
    launcher.start(launch, ear)
    await asyncio.sleep(0.05)
    assert launcher.busy
    assert ear.reports == []
    (tmp_path / "new").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "new").chmod(0o700)
    (tmp_path / "new").rename(program)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS


async def test_waits_between_tries_are_the_clocks(tmp_path: Path) -> None:
    clock = SimulatedClock(SystemClock().now())
    backoff = Backoff(max_attempts=3, first_delay=timedelta(minutes=10), max_delay=timedelta(hours=1))
    launcher = ProcessLauncher(clock, tmp_path, backoff=backoff)
    ear, launch = Ear(), a_process(["no such command"])
    launcher.start(launch, ear)
    await clock.advance_to(clock.now() + timedelta(minutes=4))
    assert ear.reports == []
    await clock.advance_to(clock.now() + timedelta(minutes=30))
    assert ear.said(launch) == [RunEvent.LAUNCH_FAILED]
    await launcher.close()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"kind": "process"}', id="no command"),
        pytest.param('{"kind": "callback"}', id="another kind"),
    ],
)
async def test_settings_that_are_wrong_fail_at_once(launcher: ProcessLauncher, settings: str) -> None:
    ear, launch = Ear(), a_launch(settings)
    launcher.start(launch, ear)
    end = await ear.end_of(launch)
    assert end.happened is RunEvent.LAUNCH_FAILED
    assert end.error is not None
    assert "launcher" in end.error


async def test_a_launch_that_cannot_be_prepared_fails_and_those_behind_it_start(
    launcher: ProcessLauncher,
) -> None:
    ear, broken, healthy = Ear(), a_process(["true"], identity="broken"), a_process(["true"])
    broken = broken._replace(job=broken.job._replace(definition="{}"))
    launcher.start(broken, ear)
    launcher.start(healthy, ear)
    end = await ear.end_of(broken)
    assert (end.happened, end.error) == (
        RunEvent.LAUNCH_FAILED,
        "the launch could not be prepared: KeyError",
    )
    assert (await ear.end_of(healthy)).happened is RunEvent.SUCCESS


# --- how many at once ----------------------------------------------------------------------------


async def test_no_more_than_allowed_run_at_once_and_the_others_wait_in_order(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path, max_processes=2), Ear()
    log = tmp_path / "log"
    work = f"echo + >>{log}; sleep 0.03; echo - >>{log}"
    launches = [a_process(work, identity=f"job {n}") for n in range(8)]
    for launch in launches:
        launcher.start(launch, ear)
    await ear.until(lambda: len(ear.ends()) == 8)
    running = most = 0
    for line in log.read_text().split():
        running += 1 if line == "+" else -1
        most = max(most, running)
    assert most <= 2
    begun = [report.identity for report in ear.reports if report.happened is RunEvent.ACCEPTED]
    assert begun == [launch.run.identity for launch in launches]


async def test_nothing_begins_while_a_lease_may_have_ended(launcher: ProcessLauncher) -> None:
    holds = [LeaseStatus.LAPSED]
    ear, launch = Ear(), a_process(["true"])._replace(lease_status=lambda: holds[0])
    launcher.start(launch, ear)
    await asyncio.sleep(0.05)
    assert (ear.reports, launcher.busy) == ([], True)
    holds[0] = LeaseStatus.HELD
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS


async def test_a_process_that_waits_for_its_turn_is_dropped_when_somebody_else_looks_after_it(
    tmp_path: Path,
) -> None:
    launcher, ear, holds = a_launcher(tmp_path, max_processes=1), Ear(), [LeaseStatus.HELD]
    first, second = a_process(["sleep", "60"], identity="a"), a_process(["true"], identity="b")
    launcher.start(first, ear)
    launcher.start(second._replace(lease_status=lambda: holds[0]), ear)
    await ear.accepted(first)
    holds[0] = LeaseStatus.LOST
    launcher.end(first.run)
    await launcher.close()
    assert (ear.said(second), launcher.busy) == ([], False), "the other owner begins it, and hears of it"


async def test_what_waits_and_was_lost_is_not_adopted(tmp_path: Path) -> None:
    launcher, ear, holds = a_launcher(tmp_path, max_processes=1), Ear(), [LeaseStatus.HELD]
    first, kept, lost = (
        a_process(["sleep", "60"] if name == "a" else ["true"], identity=name) for name in "abc"
    )
    launcher.start(first, ear)
    launcher.start(kept._replace(lease_status=lambda: LeaseStatus.HELD), ear)
    launcher.start(lost._replace(lease_status=lambda: holds[0]), ear)
    await ear.accepted(first)
    holds[0] = LeaseStatus.LOST
    assert await launcher.adopt([kept, lost], ear) == {kept.run.key}
    launcher.end(first.run)
    assert (await ear.end_of(kept)).happened is RunEvent.SUCCESS
    await launcher.close()
    assert ear.said(lost) == []


def of_tenant(launch: Launch, user: str) -> Launch:
    settings = json.loads(launch.job.launcher)
    return launch._replace(job=launch.job._replace(launcher=json.dumps({**settings, "user_id": user})))


async def test_a_tenant_whose_processes_never_end_delays_only_itself(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path), Ear()
    launcher.limit_tenants(2)
    # The slots for all together are taken by ten of them; each tenant still has its reserved ones.
    hanging = [
        of_tenant(a_process(["sleep", "60"], identity=f"{user} {n}"), f"hostile {user}")
        for user in range(11)
        for n in range(3)
    ]
    for launch in hanging:
        launcher.start(launch, ear)

    def begun() -> list[int]:
        accepted = [report for report in ear.reports if report.happened is RunEvent.ACCEPTED]
        return sorted(Counter(report.identity.split()[0] for report in accepted).values())

    await ear.until(lambda: begun() == [1, 1, *[2] * 9])
    other = of_tenant(a_process(["true"], identity="other"), "other")
    launcher.start(other, ear)
    assert (await ear.end_of(other)).happened is RunEvent.SUCCESS
    assert begun() == [1, 1, 1, *[2] * 9]
    launcher.end(hanging[0].run)
    await ear.until(lambda: begun() == [1, 1, *[2] * 10])
    for launch in hanging:
        launcher.end(launch.run)
    await launcher.close()


async def test_a_start_that_is_adopted_while_it_waits_takes_one_slot(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path, max_processes=1), Ear()
    first, second, third = (a_process(["sleep", "0.05"], identity=name) for name in "abc")
    for launch in (first, second):
        launcher.start(launch, ear)
    await ear.accepted(first)
    assert await launcher.adopt([second], ear) == {second.run.key}
    await ear.end_of(second)
    launcher.start(third, ear)
    assert (await ear.end_of(third)).happened is RunEvent.SUCCESS
    await launcher.close()


def test_the_bound_must_leave_room(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        a_launcher(tmp_path, max_processes=0)
    with pytest.raises(InputError):
        a_launcher(tmp_path).limit_tenants(0)


# --- ending --------------------------------------------------------------------------------------


async def test_it_is_asked_to_end(launcher: ProcessLauncher) -> None:
    ear, launch = Ear(), a_process(["sleep", "60"])
    launcher.start(launch, ear)
    await ear.accepted(launch)
    launcher.end(launch.run)
    launcher.end(launch.run)
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (RunEvent.CANCELLED, "ended on request: killed by SIGTERM")
    assert ear.said(launch) == [RunEvent.ACCEPTED, RunEvent.CANCELLED]


async def test_what_does_not_end_is_killed_with_all_it_started(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    ear = Ear()
    ready = tmp_path / "ready"
    deaf = f"trap '' TERM; sleep 60 & touch {ready}; wait; sleep 60"
    launch = a_process(deaf)
    launcher.start(launch, ear)
    pid = _pid_of(await ear.accepted(launch))
    await until(ready.exists)
    await until(lambda: len(members_of(pid)) == 2)
    launcher.end(launch.run)
    end = await ear.end_of(launch)
    assert (end.happened, end.error) == (RunEvent.CANCELLED, "ended on request: killed by SIGKILL")
    await until(lambda: not members_of(pid))


async def test_its_end_waits_for_what_it_started(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path, grace=LONG), Ear()
    ready, cleaned = tmp_path / "ready", tmp_path / "cleaned"
    child = f"trap 'sleep 0.2; touch {cleaned}; exit' TERM; touch {ready}; while :; do sleep 0.01; done"
    launch = a_process(["/bin/sh", "-c", '/bin/sh -c "$0" & exec sleep 60', child])
    launcher.start(launch, ear)
    await ear.accepted(launch)
    await until(ready.exists)
    launcher.end(launch.run)
    assert (await ear.end_of(launch)).happened is RunEvent.CANCELLED
    assert cleaned.exists()


async def test_what_waits_for_its_turn_can_be_ended(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path, max_processes=1), Ear()
    first, second = a_process(["sleep", "60"], identity="a"), a_process(["true"], identity="b")
    launcher.start(first, ear)
    launcher.start(second, ear)
    await ear.accepted(first)
    launcher.end(second.run)
    assert ear.said(second) == [RunEvent.CANCELLED]
    launcher.end(first.run)
    await ear.end_of(first)
    await launcher.close()
    assert ear.said(second) == [RunEvent.CANCELLED]


async def test_what_waits_for_another_try_can_be_ended(tmp_path: Path) -> None:
    backoff = Backoff(max_attempts=2, first_delay=timedelta(hours=1), max_delay=timedelta(hours=1))
    launcher, ear, launch = a_launcher(tmp_path, backoff=backoff), Ear(), a_process(["no such command"])
    launcher.start(launch, ear)
    await asyncio.sleep(0.05)
    launcher.end(launch.run)
    assert ear.said(launch) == [RunEvent.CANCELLED]
    assert not launcher.busy


async def test_ending_what_is_over_does_nothing(launcher: ProcessLauncher) -> None:
    ear, launch = Ear(), a_process(["true"])
    launcher.start(launch, ear)
    await ear.end_of(launch)
    launcher.end(launch.run)
    launcher.end(a_process(["true"], identity="unknown").run)
    await asyncio.sleep(0.02)
    assert ear.said(launch) == [RunEvent.ACCEPTED, RunEvent.SUCCESS]


async def test_what_ended_by_itself_was_not_ended_on_request(launcher: ProcessLauncher) -> None:
    ear, launch = Ear(), a_process(["true"])
    launcher.start(launch, ear)
    pid = _pid_of(await ear.accepted(launch))
    # Held up here, the event loop has no turn in which it could notice the end.
    while not _ended(pid):
        time.sleep(0.01)  # noqa: ASYNC251
    launcher.end(launch.run)
    assert (await ear.end_of(launch)).happened is RunEvent.SUCCESS


async def test_a_child_somebody_else_waited_for_is_no_success(tmp_path: Path) -> None:
    launcher, ear, launch = a_launcher(tmp_path), Ear(), a_process(["sleep", "0.1"])
    launcher.has_pidfd = False
    launcher.start(launch, ear)
    pid = _pid_of(await ear.accepted(launch))
    with suppress(ChildProcessError):
        await asyncio.to_thread(os.waitpid, pid, 0)
    end = await ear.end_of(launch)
    # Whoever wins the race for it: what is not known is not called a success.
    assert (end.happened, end.error) in [(RunEvent.FAILED, LOST), (RunEvent.SUCCESS, None)]


# --- closing -------------------------------------------------------------------------------------


async def test_closing_waits_for_all_that_runs_or_waits(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path, max_processes=1), Ear()
    for n in range(3):
        launcher.start(a_process(["sleep", "0.02"], identity=f"job {n}"), ear)
    await launcher.close(wait=True)
    assert [report.happened for report in ear.ends()] == [RunEvent.SUCCESS] * 3
    await launcher.close(wait=True)


async def test_closing_without_waiting_leaves_processes_and_begins_nothing(tmp_path: Path) -> None:
    launcher, ear = a_launcher(tmp_path, max_processes=1), Ear()
    first, second = a_process(["sleep", "60"], identity="a"), a_process(["true"], identity="b")
    launcher.start(first, ear)
    launcher.start(second, ear)
    pid = _pid_of(await ear.accepted(first))
    await launcher.close(wait=False)
    assert not launcher.busy
    assert ear.said(first) == [RunEvent.ACCEPTED]
    assert ear.said(second) == [RunEvent.LAUNCH_FAILED]
    stat = stat_of(pid)
    assert stat is not None
    assert not stat.ended
    os.killpg(pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, pid, 0)


# --- adopting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("survive", [False, True], ids=["plain", "survivor"])
async def test_another_launcher_goes_on_with_what_was_left(
    launcher: ProcessLauncher, tmp_path: Path, outputs: Outputs, survive: bool
) -> None:
    first, second, go = Ear(), Ear(), tmp_path / "go"
    waiting = f"until [ -e {go} ]; do sleep 0.02; done"
    launch = a_process(f"echo left; {waiting}; echo done; exit 4", survive=survive)
    launcher.start(launch, first)
    known = on_record(launch, await first.accepted(launch))
    await launcher.close(wait=False)
    next_one = a_launcher(tmp_path, outputs)
    next_one.has_pidfd = launcher.has_pidfd
    assert await next_one.adopt([known], second) == {launch.run.key}
    assert next_one.busy
    go.touch()
    end = await second.end_of(launch)
    assert (end.happened, end.error) == (RunEvent.FAILED, "exit status 4: left\ndone")
    assert second.said(launch) == [RunEvent.FAILED]
    assert first.said(launch) == [RunEvent.ACCEPTED]


async def test_what_was_adopted_can_be_ended(launcher: ProcessLauncher, tmp_path: Path) -> None:
    first, second = Ear(), Ear()
    launch = a_process(["sleep", "60"])
    launcher.start(launch, first)
    known = on_record(launch, await first.accepted(launch))
    await launcher.close(wait=False)
    next_one = a_launcher(tmp_path)
    next_one.has_pidfd = launcher.has_pidfd
    await next_one.adopt([known], second)
    next_one.end(launch.run)
    assert (await second.end_of(launch)).happened is RunEvent.CANCELLED
    await next_one.close()


async def test_a_launcher_adopts_what_it_has_in_hand(tmp_path: Path) -> None:
    launcher, first, second = a_launcher(tmp_path, max_processes=1), Ear(), Ear()
    running, waiting = a_process(["sleep", "0.2"], identity="a"), a_process(["true"], identity="b")
    launcher.start(running, first)
    launcher.start(waiting, first)
    known = on_record(running, await first.accepted(running))
    found = await launcher.adopt([known, waiting], second)
    assert found == {running.run.key, waiting.run.key}
    await launcher.close()
    assert second.said(running) == [RunEvent.SUCCESS]
    assert second.said(waiting) == [RunEvent.ACCEPTED, RunEvent.SUCCESS]
    assert first.ends() == []


def _other_number(launch: Launch) -> Launch:
    return launch._replace(run=launch.run._replace(run_id=f"{os.getpid()}:1"))


def _other_attempt(launch: Launch) -> Launch:
    return launch._replace(run=launch.run._replace(attempt=2))


def _nonsense(launch: Launch) -> Launch:
    return launch._replace(run=launch.run._replace(run_id="what?"))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(_other_number, id="a number that is used again"),
        pytest.param(_other_attempt, id="another attempt"),
        pytest.param(_nonsense, id="no number"),
    ],
)
async def test_what_is_not_the_same_process_is_not_found(
    launcher: ProcessLauncher, tmp_path: Path, changed: Callable[[Launch], Launch]
) -> None:
    first, second = Ear(), Ear()
    launch = a_process(["sleep", "60"])
    launcher.start(launch, first)
    known = on_record(launch, await first.accepted(launch))
    next_one = a_launcher(tmp_path)
    assert await next_one.adopt([changed(known)], second) == frozenset()
    assert second.reports == []
    launcher.end(launch.run)
    await first.end_of(launch)


async def test_a_process_of_another_worker_with_the_same_key_is_not_adopted(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    """Two stores on one host may have a job of the same name, and so the same keys and attempts."""
    theirs, mine = Ear(), Ear()
    launch = a_process(["sleep", "60"], survive=True)
    launcher.start(launch, theirs)
    await theirs.accepted(launch)
    # This worker's owner died after it had made the file of the output, and before the process.
    other = a_launcher(tmp_path / "other")
    with open(other._files_of((launch.run.key, 1)).output, "wb"):  # noqa: ASYNC230
        pass
    assert await other.adopt([launch], mine) == frozenset()
    assert mine.reports == []
    launcher.end(launch.run)
    await theirs.end_of(launch)


async def test_nothing_is_found_after_the_host_was_started_again(tmp_path: Path) -> None:
    launcher, first, second = a_launcher(tmp_path), Ear(), Ear()
    launch = a_process(["sleep", "60"])
    launcher.start(launch, first)
    known = on_record(launch, await first.accepted(launch))
    (tmp_path / "state" / boot_of()).rename(tmp_path / "state" / "an earlier uptime")
    assert await a_launcher(tmp_path).adopt([known], second) == frozenset()
    launcher.end(launch.run)
    await first.end_of(launch)


OWNER = """
import asyncio, sys
from pathlib import Path
from kron.clocks.system import SystemClock
from kron.launchers.process.launcher import ProcessLauncher
from tests.launchers.ear import Ear
from tests.launchers.process.test_launcher import a_process

async def main():
    launcher = ProcessLauncher(SystemClock(), Path(sys.argv[1]) / "state")
    ear = Ear()
    for identity, command, survive in eval(sys.argv[2]):
        launch = a_process(command, identity=identity, survive=survive)
        launcher.start(launch, ear)
        print((await ear.accepted(launch)).run_id, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


class Owner:
    """A program that owns processes and is killed without a warning."""

    def __init__(self, folder: Path, jobs: list[tuple[str, object, bool]]) -> None:
        self._program = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(folder), repr(jobs)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._program.stdout is not None
        self.run_ids = [self._program.stdout.readline().strip() for _ in jobs]

    def stop(self) -> None:
        self._program.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._program.kill()
        self._program.wait()
        assert self._program.stdout is not None
        self._program.stdout.close()


def _known(launch: Launch, run_id: str | None) -> Launch:
    return launch._replace(run=launch.run._replace(run_id=run_id, acked=int(run_id is not None)))


@pytest.mark.parametrize("recorded", [True, False], ids=["number on record", "number lost"])
async def test_processes_of_an_owner_that_was_killed_are_adopted(
    tmp_path: Path, outputs: Outputs, recorded: bool
) -> None:
    early, go = tmp_path / "early", tmp_path / "go"
    first, wait = (f"until test -e {path}; do sleep 0.02; done" for path in (early, go))
    jobs: list[tuple[str, object, bool]] = [
        ("good", f"{wait}; echo well", True),
        ("bad", f"{wait}; echo badly; exit 5", True),
        ("plain", f"{wait}; exit 6", False),
        ("gone", first, False),
        ("told", f"{first}; exit 7", True),
        ("endless", ["sleep", "60"], True),
    ]
    owner = Owner(tmp_path, jobs)
    launches = {name: a_process(command, identity=name, survive=survive) for name, command, survive in jobs}
    pids = {name: int(run_id.split(":")[0]) for (name, *_), run_id in zip(jobs, owner.run_ids, strict=True)}
    # Two end while their owner does not poll, as if it were dead.
    owner.stop()
    early.touch()
    await until(lambda: all(_ended(pids[name]) for name in ("gone", "told")))
    owner.kill()
    known = [
        _known(launches[name], run_id if recorded else None)
        for (name, *_), run_id in zip(jobs, owner.run_ids, strict=True)
    ]
    launcher, ear = a_launcher(tmp_path, outputs), Ear()
    found = await launcher.adopt(known, ear)
    names = {name for name, launch in launches.items() if launch.run.key in found}
    assert names >= {"good", "bad", "plain", "endless", "told"}
    go.touch()
    launcher.end(launches["endless"].run)
    async with asyncio.timeout(PATIENCE_S):
        await launcher.close()
    ends = {report.identity: report for report in ear.ends()}
    assert set(ends) == names
    assert len(ear.ends()) == len(names), "each end once"
    assert ends["good"].happened is RunEvent.SUCCESS
    assert outputs.taken["good"] == b"well\n"
    assert (ends["bad"].happened, ends["bad"].error) == (RunEvent.FAILED, "exit status 5: badly")
    # Without a survivor's shell only the host knows the status, and an unknown status is no success.
    assert ends["plain"].happened is RunEvent.FAILED
    assert ends["plain"].error in ("exit status 6", LOST)
    assert ends["endless"].happened is RunEvent.CANCELLED
    assert (ends["told"].happened, ends["told"].error) == (RunEvent.FAILED, "exit status 7")
    accepted = {report.identity for report in ear.reports if report.happened is RunEvent.ACCEPTED}
    assert accepted >= ({"good", "bad", "plain", "endless"} if not recorded else set())
    assert recorded is False or accepted == set()
    assert files_in(tmp_path) == []


def _ended(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is None or stat.ended


def _pid_of(report: object) -> int:
    run_id = getattr(report, "run_id", None)
    assert isinstance(run_id, str)
    return int(run_id.split(":")[0])


@pytest.mark.parametrize("command", ["exit 7", "kill -KILL $$"])
def test_the_host_tells_how_a_process_ended_that_nobody_waited_for(command: str) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", command])
    started = started_of(process.pid)
    asyncio.run(until(lambda: _ended(process.pid)))
    code = exit_code_of(process.pid, started, None)
    assert exit_code_of(process.pid, started + 1, None) is None
    assert process.wait() == code
    assert exit_code_of(process.pid, started, None) is None


def test_a_survivors_shell_outlives_the_signals_its_command_gets(tmp_path: Path) -> None:
    status, ready = tmp_path / "status", tmp_path / "ready"
    patient = f"trap 'exit 9' TERM; touch {ready}; while :; do sleep 0.02; done"
    argv = ["/bin/sh", "-c", WRAPPER, "kron", str(status), "/bin/sh", "-c", patient]
    process = subprocess.Popen(argv, start_new_session=True)
    asyncio.run(until(ready.exists))
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 9
    assert status.read_text() == "9\n"
