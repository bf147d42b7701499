"""A launcher that is timed: how long it takes from a start that is on record to the first word about it."""

from collections.abc import Sequence

from kron.core.plan.record import RunRecord
from kron.core.plan.report import RunReport
from kron.fronts.service.telemetry.histogram import LAUNCH_BOUNDS, Histogram
from kron.fronts.service.telemetry.request_trail import RequestTrail
from kron.ports import Clock, Launch, Launcher, ReportSink


class LauncherMeter:
    """A launcher around another, which tells it who asked for a run.

    Starts that nobody has heard of yet are `waiting`.
    """

    def __init__(self, launcher: Launcher, clock: Clock, trail: RequestTrail) -> None:
        self.traits = launcher.traits
        self.latency = Histogram(LAUNCH_BOUNDS)
        self._launcher = launcher
        self._clock = clock
        self._trail = trail
        self._began: dict[tuple[str, int], float] = {}

    @property
    def waiting(self) -> int:
        """Return how many starts nobody has heard of yet."""
        return len(self._began)

    @property
    def busy(self) -> bool:
        """Say whether executions are under way."""
        return self._launcher.busy

    def start(self, launch: Launch, hear: ReportSink) -> None:
        """Begin to start an execution, and look at the clock."""

        def heard(report: RunReport) -> None:
            self._stop(report.key, report.attempt)
            hear(report)

        attempt = launch.run.key, launch.run.attempt
        self._began[attempt] = self._clock.monotonic()
        try:
            self._launcher.start(self._trail.on(launch), heard)
        except BaseException:
            self._stop(*attempt)
            raise

    def _stop(self, key: str, attempt: int) -> None:
        began = self._began.pop((key, attempt), None)
        if began is not None:
            self.latency.add(self._clock.monotonic() - began)

    def end(self, run: RunRecord) -> None:
        """Ask an execution to end."""
        self._launcher.end(run)

    async def adopt(self, runs: Sequence[Launch], hear: ReportSink) -> frozenset[str]:
        """Look after executions that outlived their owner again."""
        return await self._launcher.adopt(runs, hear)

    async def close(self, *, wait: bool = True) -> None:
        """Wait for what runs, or let it go; then nobody waits for an answer any more."""
        await self._launcher.close(wait=wait)
        if not wait:
            self._began.clear()
