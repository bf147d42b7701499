"""A krond whose clock is many times as fast: `python -m tests.daemon.fast_krond SPEED JOBS STATE`."""

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kron.clocks.system import SystemClock
from kron.fronts.daemon.daemon import Daemon, DaemonOptions, only_instance
from kron.fronts.daemon.place import StateFolder

# The longest real sleep, so that nothing is overslept by much of the fast clock.
SLICE_S = 0.05


class FastClock(SystemClock):
    """Both clocks of the host, running faster from now on."""

    def __init__(self, speed: int) -> None:
        self._speed = speed
        self._wall, self._zero = time.time(), time.monotonic()

    def monotonic(self) -> float:
        """Return the seconds of the fast clock since it was made."""
        return self._speed * (time.monotonic() - self._zero)

    def now(self) -> datetime:
        """Return the instant that the fast clock shows."""
        return datetime.fromtimestamp(self._wall, UTC) + timedelta(seconds=self.monotonic())

    async def sleep_until(self, instant: datetime) -> None:
        """Sleep until the fast clock shows an instant."""
        while (left := (instant - self.now()).total_seconds() / self._speed) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(left, SLICE_S))


def main(speed: str, jobs: str, state: str) -> None:
    """Run until SIGTERM."""
    place = StateFolder(Path(state))
    loader = [sys.executable, "-m", "kron.cli.krond", "--load", "--state", state, "--config", jobs]
    options = DaemonOptions(
        place=place, loader=loader, stamp=lambda: None, clock=FastClock(int(speed)), max_output_bytes=1 << 20
    )

    async def run() -> None:
        await Daemon(options, lambda _: None).run()  # type: ignore[arg-type,return-value]  # nothing is asked

    with only_instance(place):
        asyncio.run(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
