"""The clock of the host, set wrong by libfaketime in a process of its own."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from tests.faketime import WrongClock, needs_faketime, with_clock

SLEEPER = """
import asyncio, sys, time
from datetime import timedelta
from pathlib import Path
from kron.clocks.system import SystemClock

async def main():
    clock, ahead = SystemClock(), sys.argv[2:]
    sleeping = clock.sleep_until(clock.now() + timedelta(seconds=0.2))
    for offset in ahead:
        Path(sys.argv[1]).write_text(offset)
    try:
        await asyncio.wait_for(sleeping, 20)
    except TimeoutError:
        print("asleep")
    else:
        print("awake")

asyncio.run(main())
"""


def slept(folder: Path, *ahead: str) -> str:
    """Sleep in a process whose clock is set before the sleep has begun; say whether it ended."""
    clock = WrongClock(folder)
    command = [sys.executable, "-c", SLEEPER, str(folder / "offset"), *ahead]
    ended = subprocess.run(
        command, env=with_clock(clock), capture_output=True, text=True, check=True, timeout=100
    )
    return ended.stdout.strip()


@needs_faketime
def test_a_step_back_before_a_sleep_has_begun_does_not_prolong_it(tmp_path: Path) -> None:
    assert slept(tmp_path, "-3600") == "awake"


@needs_faketime
def test_a_process_has_the_clock_of_its_file_and_a_true_monotonic_one(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path)
    clock.set(timedelta(days=1))
    program = "import time; print(time.time(), time.monotonic())"
    command = [sys.executable, "-c", program]
    told = [
        subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
        for env in (None, with_clock(clock), None)
    ]
    walls, monos = ([float(each[n]) for each in told] for n in (0, 1))
    assert 86_400 + walls[0] <= walls[1] <= 86_400 + walls[2]
    assert sorted(monos) == monos
