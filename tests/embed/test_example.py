"""The example of an embedded scheduler runs and shows what it says."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_plays_its_week() -> None:
    command = [sys.executable, str(ROOT / "examples" / "embed.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said.count("Mon 20:00  the till is closed") == 2
    assert "Tue 20:40  the report is sent" in said
    assert "--- the power is back; stock is orphaned ---" in said
    assert said[-1] == "stock: AwaitingRun, last success Sun 11:00"
    # The one failure of the week, with its traceback.
    assert done.stderr.count("ConnectionError: no answer from the mail server") == 1
