"""What schedulers of a host do at clock changes, with overlaps, and after outages: observed by running them.

    python -m bench.crons [PEER...] [--json]

Each program runs under libfaketime with a clock sixty times as fast, so that an hour takes a minute. Debian's
cron needs root, no crontab of root and no other cron. systemd's timers do not run without systemd as process
1; `systemd-analyze calendar` computes their times. It takes some seven minutes per program.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

ZONE = "Europe/Berlin"
SPEED = 60
# How long a program has to start before a case begins, and after a restart, in minutes of the fast clock: a
# busy host takes several seconds to start one.
WARM_UP_MINUTES = 20
# How late krond may start a job: less than the time asleep, more than it takes to start on a busy host.
KROND_DEADLINE = "25m"
LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
FIXED, WILD = "30 2 * * *", "*/30 2 * * *"


class Line(NamedTuple):
    """One job: its times, for how many seconds of the fast clock it runs, and another command than that."""

    name: str
    times: str
    lasts: int = 0
    command: str | None = None


class Event(NamedTuple):
    """A start or an end that a job wrote down, on the fast clock."""

    name: str
    kind: str
    at: datetime


class Peer(Protocol):
    """A program under test."""

    name: str

    def missing(self) -> str | None:
        """Return why it cannot run here, or None."""

    def install(self, lines: Sequence[Line], log: Path, folder: Path) -> Sequence[str]:
        """Write its configuration, and return the command that runs it in the foreground."""

    def remove(self) -> None:
        """Remove its configuration."""


def shell_of(line: Line, log: Path) -> str:
    """Return the command of a job, which writes real times: the process is outside the fast clock."""
    if line.command is not None:
        return line.command
    stamp = "$(env -u LD_PRELOAD date +%s.%N)"
    wait = f"; env -u LD_PRELOAD sleep {line.lasts / SPEED}" if line.lasts else ""
    end = f'; echo "{line.name} end {stamp}" >> {log}'
    return f'echo "{line.name} start {stamp}" >> {log}{wait}{end}'


class DebianCron:
    """The package cron."""

    name = "Debian cron"

    def missing(self) -> str | None:
        if shutil.which("cron") is None:
            return "the package cron is not installed"
        if os.geteuid() != 0:
            return "it needs root"
        taken = subprocess.run(["crontab", "-l"], capture_output=True, check=False).returncode == 0
        return "root has a crontab" if taken else None

    def install(self, lines: Sequence[Line], log: Path, folder: Path) -> Sequence[str]:
        table = "".join(f"{line.times} {shell_of(line, log).replace('%', chr(92) + '%')}\n" for line in lines)
        subprocess.run(["crontab", "-"], input=table, text=True, check=True)
        return ["cron", "-f", "-L", "0"]

    def remove(self) -> None:
        subprocess.run(["crontab", "-r"], check=False)


class Cronstable:
    """The program cronstable of the Python package."""

    name = "cronstable"

    def __init__(self) -> None:
        beside = Path(sys.executable).parent / "cronstable"
        self._program = str(beside) if beside.exists() else shutil.which("cronstable")

    def missing(self) -> str | None:
        return None if self._program else "the package cronstable is not installed"

    def install(self, lines: Sequence[Line], log: Path, folder: Path) -> Sequence[str]:
        config = folder / "cronstable.yaml"
        # Its YAML knows blocks only.
        config.write_text("jobs:\n" + "".join(_cronstable_job(line, log) for line in lines))
        return [str(self._program), "-c", str(config), "-l", "ERROR"]

    def remove(self) -> None:
        pass


def _cronstable_job(line: Line, log: Path) -> str:
    return (
        f"  - name: {line.name}\n    command: |\n      {shell_of(line, log)}\n    shell: /bin/bash\n"
        f'    schedule: "{line.times}"\n    timezone: {ZONE}\n'
    )


class Krond:
    """krond of this source, with the policy of imported crontabs but for what each case is about.

    A second of real time is a minute here, so a start may be late by some.
    """

    name = "krond"

    def missing(self) -> str | None:
        return None

    def install(self, lines: Sequence[Line], log: Path, folder: Path) -> Sequence[str]:
        jobs = [
            {
                "identity": line.name,
                "schedule": line.times,
                "timezone": ZONE,
                "policy": {"deadline": KROND_DEADLINE},
                "command": shell_of(line, log),
            }
            for line in lines
        ]
        (folder / "jobs.json").write_text(json.dumps({"jobs": jobs}))
        state = tempfile.mkdtemp(dir=folder)
        place = ["--config", str(folder / "jobs.json"), "--state", state]
        return [sys.executable, "-m", "kron.cli.krond", *place]

    def remove(self) -> None:
        pass


class Rig:
    """One program with its jobs, on a clock that is `SPEED` times as fast."""

    def __init__(self, peer: Peer, lines: Sequence[Line], folder: Path) -> None:
        self._log = folder / "log"
        self._log.write_text("")
        self._log.chmod(0o666)
        self._command = peer.install(lines, self._log, folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._zero = (0.0, 0.0)
        # What starts before the case begins is no part of it.
        self._since = 0.0

    def start(self, local: str | None = None) -> None:
        """Start the program and wait for a local time, or start it again on the clock it had."""
        if local is not None:
            instant = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(ZONE)).timestamp()
            self._zero = (instant - WARM_UP_MINUTES * 60, time.time())
            self._since = instant
        self._launch(self.now())
        if local is not None:
            self.run_for(WARM_UP_MINUTES)

    def _launch(self, instant: float) -> None:
        shown = datetime.fromtimestamp(instant, ZoneInfo(ZONE)).strftime("%Y-%m-%d %H:%M:%S")
        environment = {**os.environ, "TZ": ZONE, "LD_PRELOAD": LIBRARY, "FAKETIME": f"@{shown} x{SPEED}"}
        if self._command[0] == "cron":
            environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
        self._process = subprocess.Popen(
            self._command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def now(self) -> float:
        """Return the fast clock."""
        fast, real = self._zero
        return fast + (time.time() - real) * SPEED

    def run_for(self, minutes: float) -> None:
        """Let minutes of the fast clock pass."""
        time.sleep(minutes * 60 / SPEED)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in (signal.SIGTERM, signal.SIGKILL):
            self._process.wait(30)

    def stop(self) -> None:
        """End the program if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def events(self, *, with_warm_up: bool = False) -> list[Event]:
        """Return the starts and ends that jobs wrote down, since the case began or since the program did."""
        fast, real = self._zero
        events = []
        for line in self._log.read_text().splitlines():
            name, kind, stamp = line.split()
            instant = fast + (float(stamp) - real) * SPEED
            if with_warm_up or instant >= self._since:
                events.append(Event(name, kind, datetime.fromtimestamp(instant, ZoneInfo(ZONE))))
        return events


def starts(events: Sequence[Event], name: str) -> str:
    """Return the local times of a job's starts, with the abbreviation of the zone."""
    times = [event.at.strftime("%H:%M %Z") for event in events if (event.name, event.kind) == (name, "start")]
    return ", ".join(times) or "none"


# --- cases ---------------------------------------------------------------------------------------

Rigs = Callable[[Sequence[Line]], "Rig"]
Results = dict[str, str]


def clock_changes(make: Rigs) -> Results:
    """Return the starts of a fixed time and of one with `*` around both clock changes."""
    lines = [Line("fixed", FIXED), Line("wild", WILD)]
    found: Results = {}
    for season, since, minutes in (
        ("spring", "2026-03-29 01:57:30", 40.0),
        ("autumn", "2026-10-25 01:57:30", 125.0),
    ):
        rig = make(lines)
        rig.start(since)
        rig.run_for(minutes)
        rig.stop()
        for line in lines:
            found[f"{season}, {line.times}"] = starts(rig.events(), line.name)
    return found


def overlap(make: Rigs) -> Results:
    """Return how many runs of one job are active at once when each lasts 150 seconds."""
    rig = make([Line("long", "* * * * *", 150)])
    rig.start("2026-06-01 11:57:30")
    rig.run_for(8)
    rig.stop()
    active = most = 0
    for event in sorted(rig.events(with_warm_up=True), key=lambda event: event.at):
        active += 1 if event.kind == "start" else -1
        most = max(most, active)
    return {"runs at once, a run of 150 s each minute": str(most)}


def missed(make: Rigs) -> Results:
    """Return whether a start is made up for after the program was stopped, and after it was frozen."""
    found: Results = {}
    rig = make([Line("noon", "0 12 * * *")])
    rig.start("2026-06-01 11:57:30")
    rig.run_for(1.5)
    rig.send(signal.SIGTERM)
    rig.run_for(4)
    rig.start()
    rig.run_for(WARM_UP_MINUTES)
    rig.stop()
    found["start at 12:00, program down 11:59-12:03"] = starts(rig.events(), "noon")
    rig = make([Line("noon", "0 12 * * *"), Line("wild", "*/10 * * * *")])
    rig.start("2026-06-01 11:57:30")
    rig.run_for(1.5)
    rig.send(signal.SIGSTOP)
    rig.run_for(32)
    rig.send(signal.SIGCONT)
    rig.run_for(4)
    rig.stop()
    found["start at 12:00, machine asleep 11:59-12:31"] = starts(rig.events(), "noon")
    found["every 10 minutes, machine asleep 11:59-12:31"] = starts(rig.events(), "wild")
    return found


def crash(make: Rigs) -> Results:
    """Return what happens to a run whose program is killed, and whether it is started again."""
    rig = make([Line("noon", "0 12 * * *", 240)])
    rig.start("2026-06-01 11:57:30")
    rig.run_for(3.5)
    rig.send(signal.SIGKILL)
    rig.run_for(1)
    rig.start()
    rig.run_for(WARM_UP_MINUTES)
    rig.stop()
    kinds = [event.kind for event in rig.events()]
    if not kinds:
        return {"run of 4 min, program killed and restarted": "it did not start"}
    ended = "runs to its end" if "end" in kinds else "ends with the program"
    again = "started again" if kinds.count("start") > 1 else "not started again"
    return {"run of 4 min, program killed and restarted": f"{ended}, {again}"}


CASES: Sequence[Callable[[Rigs], Results]] = (clock_changes, overlap, missed, crash)


# --- programs ------------------------------------------------------------------------------------

PEERS: Mapping[str, Callable[[], Peer]] = {"cron": DebianCron, "cronstable": Cronstable, "krond": Krond}


def systemd_timers() -> Results:
    """Return the times of systemd's calendar expressions, as its own tool computes them."""
    found: Results = {}
    for season, since in (("spring", "2026-03-29 01:57:30"), ("autumn", "2026-10-25 01:57:30")):
        for times, calendar in ((FIXED, "*-*-* 02:30:00"), (WILD, "*-*-* 02:00/30:00")):
            command = ["systemd-analyze", "calendar", "--iterations=4", f"--base-time={since}", calendar]
            output = subprocess.run(
                command, env={**os.environ, "TZ": ZONE}, capture_output=True, text=True, check=True
            ).stdout
            words = [line.split() for line in output.splitlines() if "elapse" in line or "Iter" in line]
            today = [f"{each[-2][:5]} {each[-1]}" for each in words if each[-3] == since[:10]]
            found[f"{season}, {times}"] = ", ".join(today) or "none"
    return found


@contextmanager
def _rigs(peer: Peer) -> Iterator[Rigs]:
    made: list[Rig] = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def make(lines: Sequence[Line]) -> Rig:
            made.append(Rig(peer, lines, Path(folder)))
            return made[-1]

        try:
            yield make
        finally:
            for rig in made:
                rig.stop()
            peer.remove()


def observe(peer: Peer) -> Results:
    """Run every case with one program."""
    results: Results = {}
    for case in CASES:
        with _rigs(peer) as make:
            results |= case(make)
    return results


def table_of(columns: Mapping[str, Results]) -> str:
    """Return the results as a table for the documentation."""
    rows = list(dict.fromkeys(name for results in columns.values() for name in results))
    lines = [f"| case | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in rows:
        cells = [results.get(row, "not run") for results in columns.values()]
        lines.append(f"| {row.replace('*', chr(92) + '*')} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the programs that are installed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("peers", nargs="*", choices=[*PEERS, "systemd", []], default=[])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wanted = options.peers or [*PEERS, "systemd"]
    columns: dict[str, Results] = {}
    if not Path(LIBRARY).exists():
        print("libfaketime is not installed", file=sys.stderr)
        return 2
    for name in wanted:
        if name == "systemd":
            if shutil.which("systemd-analyze"):
                columns["systemd timers"] = systemd_timers()
            continue
        peer = PEERS[name]()
        if reason := peer.missing():
            print(f"{peer.name}: {reason}", file=sys.stderr)
            continue
        print(f"{peer.name} ...", file=sys.stderr)
        columns[peer.name] = observe(peer)
    print(json.dumps(columns, indent=2) if options.json else table_of(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
