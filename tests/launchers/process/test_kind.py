"""The launcher kind `process`: what a worker keeps of the settings that it has checked."""

from datetime import UTC, datetime
from pathlib import Path

from kron.launchers.process.kind import PROCESS
from kron.launchers.process.launcher import ProcessLauncher
from kron.launchers.process.spec import ProcessOptions, ProcessSettings
from kron.launchers.spec import LauncherConfig, LauncherContext
from kron.testing import SimulatedClock

PROGRAM = "/bin/true"


def test_long_settings_that_were_checked_are_kept_by_their_length(tmp_path: Path) -> None:
    """Four thousand with 64 KiB of arguments needed 500 MB of the worker."""
    config = LauncherConfig((ProcessOptions(allowed_commands=frozenset({PROGRAM}), folder=str(tmp_path)),))
    clock = SimulatedClock(datetime(2026, 6, 1, tzinfo=UTC))
    launcher = PROCESS.build("process", LauncherContext(clock, config))
    assert isinstance(launcher, ProcessLauncher)

    def settings(number: int, length: int) -> ProcessSettings:
        return ProcessSettings(command=(PROGRAM, f"{number}".rjust(length)))

    short, long = settings(0, 10), settings(0, 60_000)
    kept, dropped = launcher.check(short), launcher.check(long)
    assert launcher.check(long) is dropped
    for number in range(1, 100):
        launcher.check(settings(number, 60_000))
    assert launcher.check(short) is kept
    assert launcher.check(long) is not dropped
