"""`make tour` shows the command line: it must run, and every stop must show what it says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_tour_runs_every_stop() -> None:
    command = [sys.executable, str(ROOT / "examples" / "tour.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Traceback" not in done.stdout
    stops = [line for line in done.stdout.splitlines() if line.startswith("$ kron ")]
    assert len(stops) == 12
    for shown in (
        "02:30 skipped: clocks go forward 02:00 to 03:00",
        "second of two: clocks go back 03:00 to 02:00",
        "can never match",
        "uses step syntax",
        "write 0,15,30,45\n(exit code 2)\n",
        "2 warnings in 2 schedules\n(exit code 1)\n",
        "and also every Monday",
        "KRON007",
        "chosen",
        "The worst minute",
        '"expression": "@hourly"',
    ):
        assert shown in done.stdout, shown
