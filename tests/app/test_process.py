"""What programs of Kron do before they start threads."""

import subprocess
import sys

PROGRAM = """
import gc, socket, sys
from kron.app.process import prepare_process

def size():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("FDSize")]
    return int(line.split()[1])

if sys.argv[1:]:
    prepare_process()
before = size()
kept = [socket.socket() for _ in range(600)]
print(size() == before, gc.get_freeze_count() > 1_000)
"""


def _said(*words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_opening_hundreds_of_files_later_does_not_grow_the_table_of_open_files() -> None:
    assert _said() == ["False", "False"]
    assert _said("prepared") == ["True", "True"]
