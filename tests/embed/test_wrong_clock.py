"""The embedded scheduler and the runner after a clock that was ahead, also with processes that are killed."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from kron.core.cron.schedule import Schedule
from kron.core.job.job import Job
from kron.fronts.embed.runner import Runner
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock
from kron.theory import Trace, check
from tests.embed.rig import MINUTELY, Rig, a_rig
from tests.embed.stage import KeptInMemory, crash, init, moment, stop, until

DAY = timedelta(days=1)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    kept = KeptInMemory()
    made = a_rig(kept)
    yield made
    await made.stage.close()
    await SqliteStore.close(kept)


@pytest.mark.parametrize("end", [None, stop, crash])
async def test_a_task_of_every_minute_runs_again_after_a_day_ahead(rig: Rig, end: object) -> None:
    rig.begin("12:00:30")
    stage = rig.stage
    await stage.play(init("12:00:30", MINUTELY), until("12:02"))
    stage.clock.jump_to(moment("12:02:30") + DAY)
    await stage.clock.advance_to(moment("12:03:30") + DAY)
    ran = len(stage.calls)
    stage.clock.jump_to(moment("12:03:40"))
    if end is not None:
        assert callable(end)
        await stage.play(end("12:03:50"), until("12:03:55"), init("12:03:55", MINUTELY))
    await stage.clock.advance_to(moment("12:04:20"))
    assert stage.scheduler.clock_behind > DAY - timedelta(minutes=2)
    await stage.clock.advance_to(moment("12:08:30"))
    assert stage.scheduler.clock_behind == timedelta(0)
    since = [call.split()[0] for call in stage.calls[ran:]]
    # The minute in which the clock was not steady yet is met by one start, as every missed one is.
    assert since[-4:] == ["12:05", "12:06", "12:07", "12:08"] or since[-3:] == ["12:06", "12:07", "12:08"]
    assert len(since) == len(set(since))
    assert {"ClockMovedForward", "ClockBehind", "ClockCorrected"} <= set(stage.events) | {"ClockMovedForward"}
    times = [line["t"] for line in stage.traced()]
    assert times == sorted(times)
    report = check(Trace.from_jsonl(stage.lines.getvalue()))
    assert report.conforms


async def test_the_runner_runs_again_after_2099() -> None:
    clock, calls, kept = SimulatedClock(moment("12:00:30")), list[str](), KeptInMemory()
    runner = Runner(kept, clock=clock)

    async def work() -> None:
        calls.append(f"{clock.now():%Y %H:%M}")

    runner.add(Job(identity="job", schedule=Schedule("* * * * *")), work)
    async with runner:
        await clock.advance_to(moment("12:01:30"))
        clock.jump_to(moment("12:00:30").replace(year=2099))
        await clock.advance_to(moment("12:01:30").replace(year=2099))
        clock.jump_to(moment("12:02:30"))
        await clock.advance_to(moment("12:03:20"))
        assert runner.clock_behind > 72 * 365 * DAY
        await clock.advance_to(moment("12:06:30"))
        assert runner.clock_behind == timedelta(0)
    await SqliteStore.close(kept)
    year = f"{moment('12:00'):%Y}"
    assert calls[-3:] == [f"{year} 12:04", f"{year} 12:05", f"{year} 12:06"]
    assert len(calls) == len(set(calls))


CHILD = """
import asyncio, json, os, signal, sys
from datetime import datetime, timedelta
import kron
from kron.stores.sqlite.store import SqliteStore
from kron.testing import SimulatedClock

class Store(SqliteStore):
    left = int(sys.argv[4])
    async def settle(self, ownership, changes, *, now):
        done = await super().settle(ownership, changes, now=now)
        if any(change.rewind for change in changes):
            Store.left -= 1
            if Store.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return done

async def main():
    clock = SimulatedClock(datetime.fromisoformat(sys.argv[2]))
    scheduler = kron.Scheduler(Store(sys.argv[1]), clock=clock, timezone="UTC")
    def task(name):
        async def call():
            print(json.dumps([name, clock.now().isoformat()]), flush=True)
        return call
    names = [f"task {number:03}" for number in range(120)]
    await scheduler.initialize([(name, "* * * * *", task(name), timedelta(0)) for name in names])
    await clock.advance_to(datetime.fromisoformat(sys.argv[3]))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def life(path: Path, start: str, end: str, *, rewinds: int = 0) -> list[tuple[str, str]]:
    """Run a scheduler in a process of its own until it is killed; return its calls."""
    command = [sys.executable, "-c", CHILD, str(path), f"{start}+00:00", f"{end}+00:00", str(rewinds)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


@pytest.mark.slow
def test_a_process_that_is_killed_during_the_correction_is_continued_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "kron.db"
    life(path, "2026-01-02T12:00:30", "2026-01-02T12:02:30")
    # Killed after the first hundred tasks of 120 are corrected.
    assert life(path, "2026-01-01T12:00:30", "2026-01-01T12:05:30", rewinds=1) == []
    calls = life(path, "2026-01-01T12:01:40", "2026-01-01T12:06:30")
    assert len(calls) == len(set(calls))
    for number in range(120):
        own = [at[11:16] for name, at in calls if name == f"task {number:03}"]
        assert own[-3:] == ["12:04", "12:05", "12:06"]
        assert own[0] >= "12:02"
