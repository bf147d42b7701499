"""Processes whose wall clock is set wrong while they run, by libfaketime; the monotonic one stays true."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

# Where Debian's package `libfaketime` puts it, for any architecture.
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
NOT_INSTALLED = "libfaketime is not installed: real processes are not run under a wrong clock"
needs_faketime = pytest.mark.skipif(not LIBRARIES, reason=NOT_INSTALLED)


class WrongClock:
    """A file with the offset of the wall clock of all processes that were started with `variables`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.set(timedelta(0))

    def set(self, ahead: timedelta) -> None:
        """Set the clock ahead of the true one by an offset, at once for every process."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead.total_seconds():+.0f}")
        new.replace(self._file)

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment of a process with this clock."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            # The times of files stay true, and so do waits.
            "NO_FAKE_STAT": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }


def monotonic() -> float:
    """Return the time that `$(cut -d' ' -f1 /proc/uptime)` shows in a shell, whatever its wall clock."""
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])


def with_clock(clock: WrongClock) -> dict[str, str]:
    """Return this process's environment with another clock."""
    return {**os.environ, **clock.variables}
