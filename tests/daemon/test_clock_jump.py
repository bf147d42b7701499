"""The clock of the host is set while krond runs: what was jumped over is judged, and nothing runs twice."""

import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.record import RunStatus
from kron.fronts.daemon.daemon import NAMESPACE, Daemon, DaemonOptions, only_instance
from kron.fronts.daemon.place import StateFolder
from tests.waiting import until

HOUR = timedelta(hours=1)


class SetClock(SystemClock):
    """A wall clock that is set by hand; the monotonic one runs on."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        """Return the instant that the clock shows."""
        return super().now() + self.ahead

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep until the clock shows an instant, or is set; not for long, as the instant may be old."""
        ahead = self.ahead
        for _ in range(50):
            if self.now() >= instant or self.ahead != ahead:
                return
            await asyncio.sleep(0.02)


def no_handler(_daemon: Daemon) -> None:
    """Answer no requests."""


def _has_words(file: Path, count: int) -> bool:
    return len(file.read_text().split()) >= count


def options_of(folder: Path, jobs: Path, clock: SetClock) -> DaemonOptions:
    place = StateFolder(folder / "state")
    loader = [sys.executable, "-m", "kron.cli.krond", "--load", "--state", str(place.folder)]
    return DaemonOptions(
        place=place, loader=[*loader, "--config", str(jobs)], stamp=lambda: None, clock=clock
    )


@pytest.mark.slow
async def test_a_clock_that_is_set_back_while_krond_is_stopped_starts_no_period_twice(tmp_path: Path) -> None:
    jobs, starts = tmp_path / "a.yaml", tmp_path / "starts"
    starts.touch()
    command = f"echo $KRON_PERIOD_ID >> {starts}"
    jobs.write_text(f'{{identity: a, schedule: "* * * * * *", deadline: 30s, command: "{command}"}}')
    clock = SetClock()
    options = options_of(tmp_path, jobs, clock)
    # The second krond starts four seconds before the last period that the first one started.
    for ahead_s, enough in ((4, 3), (0, 5)):
        clock.ahead = timedelta(seconds=ahead_s)
        with only_instance(options.place):
            daemon = Daemon(options, no_handler)  # type: ignore[arg-type]  # nothing is asked
            task = asyncio.create_task(daemon.run())
            await until(partial(_has_words, starts, enough))
            daemon.worker.leave()
            await task
    assert set(Counter(starts.read_text().split()).values()) == {1}


@pytest.mark.slow
async def test_a_clock_that_is_set_forward_and_back_starts_no_period_twice(tmp_path: Path) -> None:
    jobs, starts = tmp_path / "a.yaml", tmp_path / "starts"
    starts.touch()
    command = f"echo $KRON_PERIOD_ID >> {starts}"
    jobs.write_text(f'{{identity: a, schedule: "* * * * * *", deadline: 30s, command: "{command}"}}')
    clock = SetClock()
    options = options_of(tmp_path, jobs, clock)

    def last() -> datetime:
        lines = starts.read_text().split()
        return max(map(datetime.fromisoformat, lines), default=datetime.min.replace(tzinfo=UTC))

    with only_instance(options.place):
        daemon = Daemon(options, no_handler)  # type: ignore[arg-type]  # nothing is asked
        task = asyncio.create_task(daemon.run())
        await until(lambda: len(starts.read_text().split()) >= 2)
        clock.ahead = HOUR
        forward = datetime.now(UTC) + HOUR - timedelta(minutes=1)
        await until(lambda: last() > forward)
        ranges = await daemon.catalog.query.ranges("a")
        clock.ahead = timedelta(0)
        await until(lambda: daemon.worker.health.clock_behind_ms > 0)
        runs = await daemon.store.runs(NAMESPACE, "a", before=None, limit=1_000)
        daemon.worker.leave()
        await task
    # The hour that was jumped over was missed by the deadline, except its last half minute.
    missed = sum(each.periods for each in ranges if each.outcome == "missed")
    missed += sum(run.status is RunStatus.MISSED for run in runs)
    assert 3_500 < missed < 3_600
    counts = Counter(starts.read_text().split())
    assert set(counts.values()) == {1}
