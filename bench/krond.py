"""The krond part: idle memory with many jobs, and many processes due at one minute, beside other crons.

Debian's cron needs root, no crontab of root and no other cron; one that cannot run has no figures.
"""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.crons import PEERS, Line, Peer
from bench.goal import at_most, cost_of
from bench.row import Findings, Goal, Kind, Row, Say, shown

MEMORY, LATE, RATE = "memory of an idle daemon", "start lateness p99", "processes started with their output"
COUNTS, QUICK_COUNTS = (1_000, 10_000), (100,)
BURST, QUICK_BURST = 1_000, 100
REFERENCE = "krond"
NEVER = "0 0 1 1 *"
MOST_MEMORY = 40e6
# The memory of an idle daemon is read when its processor time has not grown for this long, in seconds.
STILL_S, LOOK_S = 3.0, 0.5
# The longest time to load jobs or to start them all, and the time a daemon has to load before the minute.
MAX_SECONDS, LOAD_S = 300.0, 15.0
TICKS = 100
# It writes when it started, and a line of output to be kept.
COMMAND = 'read -r up rest < /proc/uptime; echo "$up" >> {log}; echo hello'


class Burst(NamedTuple):
    """How late the processes of one minute started, in seconds, earliest first."""

    late: Sequence[float]

    @property
    def p99(self) -> float:
        return self.late[ceil(0.99 * len(self.late)) - 1]


def run(say: Say, *, quick: bool) -> Findings:
    """Measure every program that is installed."""
    return measure(say, counts=QUICK_COUNTS if quick else COUNTS, burst=QUICK_BURST if quick else BURST)


def measure(say: Say, *, counts: Sequence[int], burst: int, names: Sequence[str] = tuple(PEERS)) -> Findings:
    """Measure in a given size: idle daemons with each of `counts` jobs, then one minute with `burst` jobs."""
    peers = [PEERS[name]() for name in sorted(names, key=lambda name: name != REFERENCE)]
    rows: list[Row] = []
    for count in counts:
        title = f"{MEMORY}, {count:,} jobs"
        rows += _compared(title, Kind.SIZE, [(peer, *_idle(peer, count, say)) for peer in peers])
    if not burst:
        return Findings(rows=tuple(rows), goals=tuple(_goals(rows, counts)))
    bursts = [(peer, *_burst(peer, burst, say)) for peer in peers]
    due = f"{burst:,} due at one minute"
    late = [(peer, found and found.p99, note) for peer, found, note in bursts]
    rows += _compared(f"{LATE}, {due}", Kind.TIME, late)
    spent = [(peer, found and found.late[-1] / burst, note) for peer, found, note in bursts]
    rows += _compared(f"{RATE}, {due}", Kind.RATE, spent)
    return Findings(rows=tuple(rows), goals=tuple(_goals(rows, counts)))


def _compared(title: str, kind: Kind, found: Sequence[tuple[Peer, float | None, str]]) -> Iterator[Row]:
    own = next((cost for peer, cost, _ in found if peer.name == REFERENCE), None)
    for peer, cost, note in found:
        ratio = cost / own if own and cost else None
        yield Row(title=title, contender=peer.name, kind=kind, cost=cost, ratio=ratio, note=note)


def _goals(rows: Sequence[Row], counts: Sequence[int]) -> Iterator[Goal]:
    for count in counts:
        title = f"{MEMORY}, {count:,} jobs"
        yield at_most(title, MOST_MEMORY, cost_of(rows, title, REFERENCE), kind=Kind.SIZE)


# --- programs ------------------------------------------------------------------------------------------


@contextmanager
def _running(peer: Peer, lines: Sequence[Line]) -> Iterator[tuple[int, Path]]:
    """Run a program with its jobs; yield its process and the file that its jobs write to."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        log = folder / "log"
        log.touch()
        lines = [line._replace(command=COMMAND.format(log=log)) for line in lines]
        argv = peer.install(lines, log, folder)
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process.pid, log
        finally:
            process.terminate()
            process.wait()
            peer.remove()


def _idle(peer: Peer, count: int, say: Say) -> tuple[float | None, str]:
    if reason := peer.missing():
        return None, reason
    say(f"{MEMORY}: {peer.name}, {count:,} jobs")
    begin = time.monotonic()
    with _running(peer, [Line(f"job-{number}", NEVER) for number in range(count)]) as (pid, _):
        loaded = _until_still(pid)
        spent, since = _processor_s(pid), time.monotonic()
        time.sleep(STILL_S)
        share = (_processor_s(pid) - spent) / (time.monotonic() - since)
        note = f"loaded within {loaded - begin:.0f} s; idle {shown(Kind.SHARE, share)} of a processor"
        return float(_memory(pid)), note


def _until_still(pid: int) -> float:
    """Wait until a program has loaded its jobs: its processor time no longer grows; return when that was."""
    until, still_since, spent = time.monotonic() + MAX_SECONDS, time.monotonic(), -1.0
    while time.monotonic() < until and time.monotonic() - still_since < STILL_S:
        time.sleep(LOOK_S)
        now = _processor_s(pid)
        # A daemon that looks at its files uses a little.
        if abs(now - spent) > 0.02 * LOOK_S + 2 / TICKS:
            still_since = time.monotonic()
        spent = now
    return still_since


def _burst(peer: Peer, count: int, say: Say) -> tuple[Burst | None, str]:
    if reason := peer.missing():
        return None, reason
    say(f"{LATE}: {peer.name}, {count:,} jobs")
    due = 60 * ceil((time.time() + LOAD_S) / 60)
    at = time.gmtime(due)
    lines = [Line(f"job-{number}", f"{at.tm_min} * * * *") for number in range(count)]
    # The clock of the processes, which count the time since the boot in hundredths of a second.
    zero = due - time.time() + float(Path("/proc/uptime").read_text().split()[0])
    with _running(peer, lines) as (_, log):
        until = time.monotonic() + MAX_SECONDS
        while (found := log.read_text().split())[count - 1 :] == [] and time.monotonic() < until:
            time.sleep(LOOK_S)
    late = sorted(float(word) - zero for word in found)
    if len(late) != count:
        return None, f"{len(late):,} of {count:,} started"
    return Burst(late), f"first {shown(Kind.TIME, max(late[0], 0.01))}, last {shown(Kind.TIME, late[-1])}"


# --- /proc ---------------------------------------------------------------------------------------------


def _processor_s(pid: int) -> float:
    """Return the processor time of a program and of all that it has started and that still runs."""
    with suppress(FileNotFoundError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS + sum(map(_processor_s, _children(pid)))
    return 0.0


def _memory(pid: int) -> int:
    """Return the resident memory of a program and of all that it has started, in bytes."""
    with suppress(FileNotFoundError):
        text = Path(f"/proc/{pid}/status").read_text()
        resident = int(text.partition("VmRSS:")[2].split()[0])
        return 1024 * resident + sum(map(_memory, _children(pid)))
    return 0


def _children(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(place.parent.name))
    return found
