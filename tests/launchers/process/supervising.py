"""What the tests of supervised processes share: launches, launchers, and supervisors with a fault."""

from pathlib import Path

import pytest

from kron.clocks.system import SystemClock
from kron.core.plan.report import Launch
from kron.launchers.process import pool
from kron.launchers.process.supervised import SupervisedLauncher, SupervisedProcess
from kron.launchers.process.supervisor.record import RECORD_SIZE, read_record
from tests.launchers.ear import a_launch

# A supervisor's program after some lines that change what it runs on.
FAULTY = """\
import sys

sys.path.append(sys.argv[1])
from kron.launchers.process.supervisor import program

{lines}
program.main(int(sys.argv[2]), int(sys.argv[3]))
"""


def a_process(command: object, **fields: object) -> Launch:
    return a_launch({"kind": "process", "command": command, **fields})


def a_numbered_process(command: object, number: int, **fields: object) -> Launch:
    launch = a_process(command, **fields)
    return launch._replace(run=launch.run._replace(key=f"{number:064x}"))


def a_supervised_launcher(folder: Path) -> SupervisedLauncher:
    return SupervisedLauncher(SystemClock(), folder / "state")


def supervised(launcher: SupervisedLauncher, launch: Launch) -> SupervisedProcess:
    """Return the running process of a launch."""
    process = launcher._running[launch.run.key, 1]
    assert isinstance(process, SupervisedProcess)
    return process


def record_of(folder: Path, launch: Launch) -> dict[str, object]:
    """Return the record of a launch; the folder has no other."""
    (place,) = (folder / "state" / "logs").rglob(f"{launch.run.key}.1.run")
    assert place.stat().st_size == RECORD_SIZE
    return read_record(str(place)) or {}


def supervisors_of(launcher: SupervisedLauncher) -> list[int]:
    """Return the supervisors of a launcher, in the order of their start."""
    return [program.pid for program in launcher._supervisors._programs]


def use_faulty_supervisor(monkeypatch: pytest.MonkeyPatch, folder: Path, lines: str) -> None:
    """Start supervisors after some lines that make a part of the system fail."""
    place = folder / "faulty.py"
    place.write_text(FAULTY.format(lines=lines))
    monkeypatch.setattr(pool, "PROGRAM", str(place))
