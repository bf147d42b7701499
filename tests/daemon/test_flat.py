"""An hour of load on a fast clock: the files and the memory of krond do not grow, and the ledger is exact."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.core.plan.record import RunStatus
from kron.fronts.daemon.daemon import NAMESPACE
from kron.launchers.process.pool import MAX_PROGRAMS
from kron.stores.sqlite.store import SqliteStore
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
# An hour takes half a minute.
SPEED, MINUTES = 120, 60
JOBS = """\
- {{identity: often, schedule: "*/30 * * * * *", {policy}, command: '{line}'}}
- {{identity: fails, schedule: "* * * * *", {policy}, command: '{line}; yes | head -c 200000; exit 3'}}
- {{identity: forks, schedule: "* * * * *", {policy}, command: '{line}; (sleep 0.2; echo late) & exit 0'}}
"""
POLICY = "concurrency: allow, deadline: 24h, catchup: all"
LINE = 'echo "$KRON_IDENTITY $KRON_PERIOD_ID" >> {ledger}'
ENDS = {"often": RunStatus.SUCCESS, "fails": RunStatus.FAILED, "forks": RunStatus.SUCCESS}
# What a longer life may cost: the pages of SQLite and the caches fill once.
MOST_GROWTH_KB = 4_096


def resident_kb(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])


class Watched:
    """A krond on a fast clock, its ledger, and what its process holds."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.state = folder / "ledger", folder / "state"
        self.ledger.touch()
        jobs = folder / "jobs.yaml"
        jobs.write_text(JOBS.format(policy=POLICY, line=LINE.format(ledger=self.ledger)))
        self._log = folder / "log"
        argv = [sys.executable, "-m", "tests.daemon.fast_krond", str(SPEED), str(jobs), str(self.state)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=log, stderr=log)

    def log_text(self) -> str:
        return self._log.read_text()

    def periods(self) -> list[tuple[str, datetime]]:
        lines = [line.split() for line in self.ledger.read_text().splitlines()]
        return [(name, datetime.fromisoformat(period)) for name, period in lines]

    def wait_for_minutes(self, minutes: int) -> None:
        """Wait until the load has lasted for some minutes of the fast clock."""

        def has_lasted() -> bool:
            assert self.process.poll() is None, self.log_text()
            times = [period for _, period in self.periods()]
            return bool(times) and max(times) - min(times) >= timedelta(minutes=minutes)

        wait_for(has_lasted, self.log_text)

    def least(self) -> tuple[int, int]:
        """Return the open files and the memory at a moment of rest: the least of several."""
        pid, found = self.process.pid, []
        for _ in range(20):
            found.append((len(os.listdir(f"/proc/{pid}/fd")), resident_kb(pid)))
            time.sleep(0.05)
        return min(files for files, _ in found), min(memory for _, memory in found)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_an_hour_of_load_leaves_no_file_open_no_memory_behind_and_an_exact_ledger(
    tmp_path: Path,
) -> None:
    krond = Watched(tmp_path)
    try:
        krond.wait_for_minutes(MINUTES // 4)
        files, memory = krond.least()
        krond.wait_for_minutes(MINUTES)
        later_files, later_memory = krond.least()
    finally:
        krond.stop()
    # A busy host has more supervisors for a while, each with a socket; a file of every run would be 200.
    assert later_files <= files + MAX_PROGRAMS
    assert later_memory <= memory + MOST_GROWTH_KB
    # Each started period once, and each between the first and the last one: none was left out.
    started = Counter(krond.periods())
    assert set(started.values()) == {1}
    for name, step_s in (("often", 30), ("fails", 60), ("forks", 60)):
        times = sorted(period for job, period in started if job == name)
        expected = range(int(times[0].timestamp()), int(times[-1].timestamp()) + 1, step_s)
        assert [int(each.timestamp()) for each in times] == list(expected)
        assert len(times) >= 60 * (MINUTES - 2) // step_s
    await _check_records(krond.state / "krond.db", set(started))


async def _check_records(database: Path, started: set[tuple[str, datetime]]) -> None:
    """Compare the records with the ledger: each execution has a row with its end, or still runs."""
    store, recorded = SqliteStore(str(database)), {}
    for name in ENDS:
        for run in await store.runs(NAMESPACE, name, limit=10_000):
            recorded[name, datetime.fromtimestamp(run.nominal_time, UTC)] = run.status
    await store.close()
    assert set(recorded) >= started
    # A stop leaves what still runs to the next krond.
    left = {key for key in started if recorded[key] != ENDS[key[0]]}
    assert {recorded[key] for key in left} <= {RunStatus.STARTED}
    assert len(left) < 20
