"""A thousand jobs of one instant: each starts once, and nothing is left open."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.launchers.process.supervisor.record import read_record
from tests.daemon.krond import Krond
from tests.waiting import wait_for

JOBS = 1_000


@pytest.mark.slow
def test_a_thousand_jobs_of_one_instant_start_once_and_leave_nothing_open(tmp_path: Path) -> None:
    ledger, krond = tmp_path / "ledger", Krond(tmp_path, "--log-level", "warning")
    ledger.touch()
    # Jobs that were loaded too late for this second run a minute later.
    at = (SystemClock().now() + timedelta(seconds=8)).astimezone(UTC)
    often = f'schedule: "{at.second} * * * * *", deadline: 10m, remaining: 1'
    command = f"echo $KRON_IDENTITY $KRON_PERIOD_ID >> {ledger}"
    jobs = [f'{{ name: j{number}, {often}, command: "{command}" }}' for number in range(JOBS)]
    krond.write("all.yaml", "[" + ",\n".join(jobs) + "]")
    krond.start()
    open_files = _open_files(krond)
    records = krond.state / "processes" / "logs"
    wait_for(lambda: ledger.read_text().count("\n") == JOBS, krond.log_text)
    wait_for(lambda: _ended(records) == [0] * JOBS, krond.log_text)
    lines = [line.split() for line in ledger.read_text().splitlines()]
    assert len(lines) == len({name for name, _ in lines}) == JOBS
    assert {datetime.fromisoformat(period).second for _, period in lines} == {at.second}
    # The program that starts supervisors costs one socket; no run leaves a file open.
    wait_for(lambda: _open_files(krond) <= open_files + 2, krond.log_text)
    assert krond.runs("all/j0")[0]["status"] == "SUCCESS"
    assert krond.stop() == 0


def _open_files(krond: Krond) -> int:
    return len(os.listdir(f"/proc/{krond.pid}/fd"))


def _ended(folder: Path) -> list[object]:
    """Return the exit codes of all ended runs."""
    records = [read_record(str(place)) or {} for place in folder.rglob("*.run")]
    return [record["code"] for record in records if record.get("state") == "ended"]
