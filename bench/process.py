"""The process part: host processes started per second with their output captured."""

import asyncio
import os
import select
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.goal import at_least
from bench.row import Findings, Goal, Kind, Row, Say
from bench.timing import ALL, Sample, round_robin, rows_of, seconds_of
from kron.app.launchers import read_launcher
from kron.clocks.system import SystemClock
from kron.core.job.outcome import Reason
from kron.core.plan.record import JobRecord, RunRecord, RunStatus, key_of
from kron.core.plan.report import Launch, RunEvent, RunReport
from kron.launchers.backoff import Backoff
from kron.launchers.process.launcher import ProcessLauncher
from kron.launchers.process.supervised import SupervisedLauncher
from kron.launchers.spec import launcher_text_of

QUIET = "host processes started, a line of output each"
NOISY = "host processes started, 64 KiB of output each"
COMMANDS: Mapping[str, list[str]] = {
    QUIET: ["/bin/echo", "hello"],
    NOISY: ["/usr/bin/head", "-c", "65536", "/dev/zero"],
}
SIZES = {QUIET: 6, NOISY: 65_536}
KRON, LARGE, SURVIVOR, DISK = "kron", "kron, 1 GiB parent", "kron, survivors", "kron, outputs on disk"
KROND = "krond, supervised"
POPEN, ASYNCIO = "subprocess.Popen", "asyncio with pipes"
BARE = "bare prototype"
NOTES = {
    SURVIVOR: "a shell writes each exit status down, for an owner that is not the parent",
    BARE: "`posix_spawn`, a file for the output, a pidfd; nothing is decided, recorded or kept",
    KROND: "supervisors outlive krond, record exit, CPU time and memory, and compress the output",
}

REPETITIONS = 5
AT_ONCE = 32
GIB = 1 << 30
# The run folder of a daemon is in memory, else in the folder of temporary files.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
LEAST_RATE = 1_500
MOST_SLOWER = 1.2
# Which part of the prototype's rate is enough.
LEAST_PART = 0.5
START = 1_772_323_200  # 2026-03-01T00:00:00Z
DEFINITION = '{"schedule":"0 * * * *"}'


def run(say: Say, *, quick: bool) -> Findings:
    """Measure starts compared with Python's standard library."""
    return measure(say, count=100 if quick else 500, rounds=REPETITIONS, ballast=GIB)


def measure(say: Say, *, count: int, rounds: int, ballast: int) -> Findings:
    """Measure in a given size; `ballast` is the memory of the large parent."""
    rows: list[Row] = []
    for title in COMMANDS:
        series = round_robin(_measures(title, count, ballast), repetitions=rounds, say=_under(title, say))
        rows += rows_of(title, Kind.RATE, series, reference=KRON, notes=NOTES)
    return Findings(rows=tuple(rows), goals=tuple(_goals(rows)))


def _under(title: str, say: Say) -> Say:
    return lambda text: say(f"{title}: {text}")


def _measures(title: str, count: int, ballast: int) -> dict[str, Callable[[], Sample]]:
    command, size = COMMANDS[title], SIZES[title]
    return {
        KRON: partial(_kron, command, count, size),
        LARGE: partial(_kron, command, count, size, ballast=ballast),
        SURVIVOR: partial(_kron, command, count, size, survive=True),
        KROND: partial(_kron, command, count, size, supervised=True),
        DISK: partial(_kron, command, count, size, folder=None),
        POPEN: partial(_popen, command, count, size),
        ASYNCIO: partial(_asyncio, command, count, size),
        BARE: partial(_bare, command, count, size),
    }


def _kron(
    command: Sequence[str],
    count: int,
    size: int,
    *,
    ballast: int = 0,
    survive: bool = False,
    supervised: bool = False,
    folder: str | None = MEMORY,
) -> Sample:
    settings = read_launcher({"kind": "process", "command": list(command), "survive": survive})
    launches = [_launch(launcher_text_of(settings), number) for number in range(count)]
    held = bytearray(ballast)
    # A page is resident only after a write.
    held[::4096] = b"x" * len(held[::4096])
    with TemporaryDirectory(dir=folder) as state:
        seconds = seconds_of(
            lambda: asyncio.run(_start_all(launches, Path(state), size, supervised=supervised))
        )
    del held
    return {ALL: seconds / count}


async def _start_all(
    launches: Sequence[Launch], folder: Path, size: int, *, supervised: bool = False
) -> None:
    sizes: list[int] = []
    reports: list[RunReport] = []

    def hear(report: RunReport) -> None:
        reports.append(report)

    kind = SupervisedLauncher if supervised else ProcessLauncher
    launcher = kind(
        SystemClock(),
        folder,
        max_processes=AT_ONCE,
        backoff=Backoff(max_attempts=1, first_delay=timedelta(0)),
        on_output=lambda _run, output: sizes.append(len(output)),
    )
    for launch in launches:
        launcher.start(launch, hear)
    await launcher.close()
    ends = [report.happened for report in reports if report.happened is not RunEvent.ACCEPTED]
    assert ends == [RunEvent.SUCCESS] * len(launches)
    assert sizes == [size] * len(launches)


def _launch(settings: str, number: int) -> Launch:
    identity, now = f"bench/{number}", 1000 * START
    job = JobRecord(identity, DEFINITION, settings, "process", 1, now, now, 1, START, None, None)
    key = key_of(identity, START)
    run = RunRecord(key, identity, START, now, RunStatus.STARTED, Reason.DUE, now, 1, attempt=1, token=1)
    return Launch(job, run)


def _popen(command: Sequence[str], count: int, size: int) -> Sample:
    """Keep as many running as Kron does, and read each to its end in the order of starts."""

    def work() -> None:
        under_way: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            if len(under_way) == AT_ONCE:
                _read(under_way.pop(0), size)
            under_way.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        for process in under_way:
            _read(process, size)

    return {ALL: seconds_of(work) / count}


def _read(process: subprocess.Popen[bytes], size: int) -> None:
    output, _ = process.communicate()
    assert (process.returncode, len(output)) == (0, size)


def _asyncio(command: Sequence[str], count: int, size: int) -> Sample:
    async def one(room: asyncio.Semaphore) -> None:
        async with room:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            output, _ = await process.communicate()
            assert (process.returncode, len(output)) == (0, size)

    async def work() -> None:
        room = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(one(room) for _ in range(count)))

    return {ALL: seconds_of(lambda: asyncio.run(work())) / count}


def _bare(command: Sequence[str], count: int, size: int) -> Sample:
    """Start, wait and read as fast as this machine does it, with nothing beside."""

    def work(folder: str) -> None:
        ended, poll = 0, select.epoll()
        running: dict[int, tuple[int, str]] = {}
        waiting = iter(range(count))
        nothing = os.open(os.devnull, os.O_RDONLY)
        while ended < count:
            for number in islice(waiting, AT_ONCE - len(running)):
                path = f"{folder}/{number}"
                pid = _spawn_bare(command, nothing, path)
                pidfd = os.pidfd_open(pid)
                poll.register(pidfd, select.EPOLLIN)
                running[pidfd] = pid, path
            for pidfd, _ in poll.poll():
                poll.unregister(pidfd)
                pid, path = running.pop(pidfd)
                _end_bare(pid, pidfd, path, size)
                ended += 1
        poll.close()
        os.close(nothing)

    with TemporaryDirectory(dir=MEMORY) as folder:
        return {ALL: seconds_of(lambda: work(folder)) / count}


def _spawn_bare(command: Sequence[str], nothing: int, path: str) -> int:
    written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    streams = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in enumerate((nothing, written, written))]
    try:
        return os.posix_spawn(command[0], list(command), os.environ, file_actions=streams, setsid=True)
    finally:
        os.close(written)


def _end_bare(pid: int, pidfd: int, path: str, size: int) -> None:
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    assert (status, len(Path(path).read_bytes())) == (0, size)
    os.unlink(path)


def _goals(rows: Sequence[Row]) -> Iterator[Goal]:
    costs = {(row.title, row.contender): row.cost for row in rows}
    ratios = {(row.title, row.contender): row.ratio for row in rows}
    quiet = costs.get((QUIET, KRON))
    yield at_least(QUIET, LEAST_RATE, quiet)
    bare = costs.get((QUIET, BARE))
    for contender in (KRON, KROND):
        cost = costs.get((QUIET, contender))
        part = bare / cost if bare and cost else None
        yield Goal(
            what=f"{QUIET}: {contender}",
            wanted=f">= {LEAST_PART} x the bare prototype",
            measured="not measured" if part is None else f"{part:.2f} x",
            met=None if part is None else part >= LEAST_PART,
        )
    slower = [ratio for title in COMMANDS if (ratio := ratios.get((title, LARGE))) is not None]
    yield Goal(
        what="the same with a 1 GiB parent",
        wanted=f"<= {MOST_SLOWER}x the time",
        measured=f"{median(slower):.2f}x the time" if slower else "not measured",
        met=median(slower) <= MOST_SLOWER if slower else None,
    )
